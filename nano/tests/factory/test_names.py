import random
import re

from dssr_nano.factory.names import GRAMMAR, WORDS, food_names, invented, renamer, turned

FOODS = ("red potato", "red apple", "block of cheese", "orange bell pepper")


def test_shared_words_stay_shared() -> None:
    """Catches renaming food by food: distractors would no longer resemble the ingredients."""
    named = food_names(FOODS, random.Random(1))
    assert named["red potato"].split()[0] == named["red apple"].split()[0]
    assert len(set(named.values())) == len(FOODS)
    assert " of " in named["block of cheese"]


def test_one_name_everywhere_and_fitting_articles() -> None:
    """Catches a mention that keeps its old name, and `an potato`: both would give the renaming away."""
    for seed in range(50):
        rename = renamer(FOODS, random.Random(seed))
        text = rename("You carry an orange bell pepper, a sliced fried red potato and a raw red apple. take red apple")
        assert not re.search("orange|potato from", text) or "orange" in WORDS
        assert text.split("raw ")[1].split(".")[0] == text.split("take ")[1]
        for article, letter in re.findall(r"\b(an?) (\w)", text):
            assert (article == "an") == (letter in "aeiou")


def test_compass_keeps_opposites() -> None:
    """Catches a shuffled compass: going back would no longer be the opposite of going there."""
    seen = set()
    for seed in range(200):
        way = turned(random.Random(seed))
        seen.add(tuple(way.values()))
        pairs = {frozenset((way["north"], way["south"])), frozenset((way["east"], way["west"]))}
        assert pairs == {frozenset(("north", "south")), frozenset(("east", "west"))}
    assert len(seen) == 8


def test_no_word_of_a_held_out_food() -> None:
    """Catches a leak of the unseen foods of the valid and test splits into the pool of names."""
    held_out = {"vegetable", "green", "tuna", "lettuce", "peanut", "breast", "milk", "sugar", "egg", "tomato"}
    assert not held_out & set(WORDS)


def test_no_invented_word_is_part_of_the_grammar() -> None:
    """Catches a food called `from`: its commands could not be taken apart, and a drill with it would never end."""
    rng = random.Random(0)
    assert not GRAMMAR & {invented(rng) for _ in range(60_000)}
    assert not GRAMMAR & set(WORDS)
