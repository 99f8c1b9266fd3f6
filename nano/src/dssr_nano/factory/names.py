"""New names for foods and compass directions, so that nothing but the text at hand tells what a food is.

The replacement is made word by word over one whole episode: `red potato` and `red apple` keep sharing their
first word under their new names, as the distractors of the game do.
"""

import random
import re
from collections.abc import Callable, Iterable

from dssr.worlds.cooking.recipe import CLOCKWISE

# Ordinary words, and those of the foods of the training split; none that only a held-out food has.
LIST = """
    amber ancient angel apricot arctic autumn bamboo barley basil beet berry bitter blue bold bread bright brown
    butter cabbage candle caramel cedar celery cherry chestnut cider cinnamon citrus clam clover cloud coarse cocoa
    coconut cod copper coral corn cottage crab cream crisp cumin curly currant dark date deep dill dry duck dusty
    eel elder fennel field fig fillet fine flat forest frozen garlic ginger giant goat golden goose grain grape
    gravel gray hazel heavy herb hollow honey icy iron island ivory jade jam juice juniper kale kidney king lamb
    lemon lentil light lime linden little lobster long maple marble melon mild mint misty molasses moon moss
    mountain mushroom mussel mustard nectar noodle nut oat ocean okra old olive onyx orchard oyster pale paper
    paprika parsnip pasta pastry peach pear pearl pecan pickle pigeon pine pink pistachio plum polar pollen poppy
    prawn prune pumpkin quail quince radish rabbit raisin raspberry rib rice ripe river rolled root rose rosemary
    rough round royal ruby rustic rye saffron sage salmon sand sausage savoy scallop sea seed sesame shallot sharp
    shrimp silver small smoked smooth soft sour soy spelt spicy spinach spring squash squid star steak stem stone
    summer sunny sweet tart tea thick thin thyme tofu trout truffle turkey turnip vanilla velvet vinegar violet
    walnut warm wheat wild winter yam yeast yogurt zest apple banana bell black block carrot cheese chicken cilantro
    flour hot leg oil onion orange parsley pepper pork potato purple red salt water white wing yellow
"""
WORDS = tuple(LIST.split())
PLACES = "backyard bathroom bedroom corridor driveway garden kitchen livingroom pantry shed street supermarket"
ROOMS = tuple(PLACES.split())
"""How the game calls its rooms."""
FAMILIAR = 0.75
"""Share of words from the list; the others are invented, as a name never read before would be."""
CONSONANTS = "b c d f g h j k l m n p qu r s t v w z bl br ch cl cr dr fl fr gl gr pl pr sh sl sp st th tr"
ONSETS = tuple(CONSONANTS.split())
VOWELS = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "u", "ea", "ee", "oo", "ai", "ou")
ENDS = ("", "", "", "n", "r", "l", "t", "s", "m", "ck", "ll", "nt", "st", "ng", "sh", "rd")

GRAMMAR = frozenset(("from", "with", "the", "and", "some", "raw", "meal", "knife", "in", "on", "of", "to"))
"""Words by which commands and sentences are taken apart: no name may hold one."""
_VOWEL = re.compile(r"[aeiou]")

Rename = Callable[[str], str]


def invented(rng: random.Random) -> str:
    """A word nobody has seen, so that reading a name never relies on knowing it."""
    word = ""
    for _ in range(rng.choice((1, 2, 2))):
        word += rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(ENDS)
    word = word if len(word) > 2 else word + rng.choice(ONSETS) + "o"
    return invented(rng) if word in GRAMMAR else word


def new_words(words: Iterable[str], rng: random.Random, familiar: float = FAMILIAR) -> dict[str, str]:
    """A different replacement for each word."""
    taken: set[str] = set()
    table: dict[str, str] = {}
    for word in words:
        while True:
            new = rng.choice(WORDS) if rng.random() < familiar else invented(rng)
            if new not in taken:
                break
        taken.add(new)
        table[word] = new
    return table


def food_names(foods: Iterable[str], rng: random.Random, familiar: float = FAMILIAR) -> dict[str, str]:
    """New names for all foods of a game, most words replaced, `of` kept."""
    foods = sorted(foods)
    words = sorted({word for food in foods for word in food.split()} - {"of"})
    table = new_words(words, rng, familiar)
    named: dict[str, str] = {}
    for food in foods:
        parts = [table.get(word, word) for word in food.split()]
        name = " ".join(parts)
        if name in named.values():
            name = f"{name} {invented(rng)}"
        named[food] = name
    return named


def turned(rng: random.Random) -> dict[str, str]:
    """One of the eight ways to turn or mirror the compass: opposite directions stay opposite."""
    shift, mirror = rng.randrange(4), rng.random() < 0.5
    order = CLOCKWISE[shift:] + CLOCKWISE[:shift]
    if mirror:
        order = (order[0], order[3], order[2], order[1])
    return dict(zip(CLOCKWISE, order, strict=True))


def renamer(foods: Iterable[str], rng: random.Random, keep: float = 0.0, familiar: float = FAMILIAR) -> Rename:
    """A function that renames a text of one episode; with chance `keep` the foods keep their names."""
    foods = sorted(foods)
    table = {food: food for food in foods} if rng.random() < keep else food_names(foods, rng, familiar)
    compass = turned(rng)
    words = sorted((*table, *compass), key=lambda word: (-len(word), word))
    joint = {**table, **compass}
    pattern = re.compile(r"\b(?:(an?) ((?:\w+ed |raw )*))?(" + "|".join(map(re.escape, words)) + r")\b")

    def replace(match: re.Match[str]) -> str:
        article, state, word = match.groups()
        new = joint[word]
        if article is None:
            return new
        return f"{_article(state or new)} {state}{new}"

    return lambda text: pattern.sub(replace, text)


def _article(following: str) -> str:
    return "an" if _VOWEL.match(following) else "a"
