"""Cooking drills: questions in the game's own words from a kitchen simulated in a few lines.

They teach reading a recipe and finding the option that carries out its next step, thousands a second and
without TextWorld. Navigation and everything else comes from real transcripts.
"""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dssr.worlds.cooking.recipe import COOKS, CUTS, DIRECTIONS, VERBS
from dssr_nano.factory.hints import thing_of
from dssr_nano.factory.names import FAMILIAR, WORDS, invented

IN_KITCHENS = ("fry", "roast")
RECIPE = (
    'You open the copy of "Cooking: A Modern Approach (3rd Ed.)" and start reading:\n\nRecipe #1\n---------\n'
    "Gather all following ingredients and follow the directions to prepare this tasty meal.\n\n"
    "Ingredients:\n{ingredients}\n\nDirections:\n{directions}"
)
INGREDIENTS = 3
SCORED = "\n\n\n\nYour score has just gone up by one point."


@dataclass
class Food:
    """Something edible in the simulated kitchen."""

    name: str
    holder: str
    raw: bool
    cook: str | None = None
    """Verb the recipe asks for; None when the food is not part of it."""
    cut: str | None = None
    cooked: str | None = None
    sliced: str | None = None

    def described(self) -> str:
        """As the inventory names it, article and states included."""
        words = [self.sliced, self.cooked or ("raw" if self.raw else None), self.name]
        text = " ".join(word for word in words if word)
        return f"{'an' if text[0] in 'aeiou' else 'a'} {text}"


@dataclass
class Kitchen:
    """The game's kitchen as far as a recipe needs it: what lies where, what is carried, what is done already."""

    foods: list[Food]
    knife: str
    carried: list[str] = field(default_factory=list)
    """Names, latest first."""
    cooking: bool = True
    """False once the meal is prepared."""
    cooks: tuple[str, ...] = IN_KITCHENS
    """Verbs for which there is an appliance."""

    @property
    def wanted(self) -> list[Food]:
        """The ingredients of the recipe."""
        return [food for food in self.foods if food.cook]

    def recipe(self) -> str:
        """What the cookbook says."""
        lines = [f"{verb} the {food.name}" for food in self.wanted for verb in (food.cut, food.cook)]
        return RECIPE.format(
            ingredients="\n  ".join(food.name for food in self.wanted),
            directions="\n  ".join([*lines, "prepare meal"]),
        )

    def plan(self) -> list[str]:
        """What is left to do, in the order of the optimal policy."""
        if not self.cooking:
            return ["eat meal"]
        steps: list[str] = []
        armed = "knife" in self.carried
        for food in self.wanted:
            if food.name not in self.carried:
                steps.append(f"take {food.name} from {food.holder}")
            if not food.cooked and food.cook:
                steps.append(f"cook {food.name} with {VERBS[food.cook].tool}")
            if not food.sliced:
                if not armed:
                    steps.append(f"take knife from {self.knife}")
                    armed = True
                steps.append(f"{food.cut} {food.name} with knife")
        return [*steps, "prepare meal", "eat meal"]

    def options(self, rng: random.Random) -> list[str]:
        """The commands that the game would admit now."""
        commands = ["examine cookbook", "prepare meal", "take cookbook from counter"]
        commands += [f"go {way}" for way in rng.sample(DIRECTIONS, rng.randint(1, 3))]
        commands += rng.sample(["open oven", "open plain door", "open screen door", "open fridge"], rng.randint(0, 2))
        commands += [] if "knife" in self.carried else [f"take knife from {self.knife}"]
        commands += [f"drop {name}" for name in self.carried]
        for food in self.foods:
            if food.name not in self.carried:
                commands.append(f"take {food.name} from {food.holder}")
                continue
            commands += [f"cook {food.name} with {place}" for place in (VERBS[cook].tool for cook in self.cooks)]
            if "knife" in self.carried and not food.sliced:
                commands += [f"{verb} {food.name} with knife" for verb in CUTS]
            if not food.raw or food.cooked:
                commands.append(f"eat {food.name}")
        return commands if self.cooking else [*commands, "eat meal", "drop meal", "cook meal with stove"]

    def play(self, command: str) -> str:
        """Carries out a command of the plan, or the taking of a food; the game's answer."""
        verb, *rest = command.split()
        if command == "prepare meal":
            self.cooking = False
            self.carried = ["meal", *(name for name in self.carried if name == "knife")]
            return "Adding the meal to your inventory." + SCORED
        if verb == "take":
            name, holder = " ".join(rest).split(" from ")
            self.carried.insert(0, name)
            text = f"You take the {name} from the {holder}."
            return text + (SCORED if any(food.name == name for food in self.wanted) else "")
        name = " ".join(rest).split(" with ")[0]
        food = next(food for food in self.foods if food.name == name)
        if verb == "cook":
            food.cooked = VERBS[food.cook or "fry"].done
            return f"You {food.cooked} the {name}." + SCORED
        food.sliced = VERBS[verb].done
        return f"You {verb} the {name}." + SCORED

    def inventory(self) -> str:
        """The game's sentence about what is carried."""
        if not self.carried:
            return "You are carrying nothing."
        known = {food.name: food.described() for food in self.foods}
        texts = [known.get(name, f"a {name}") for name in self.carried]
        joined = texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + f" and {texts[-1]}"
        return f"You are carrying: {joined}."


@dataclass(frozen=True)
class ReaderQuestion:
    """One decision: what is seen, what may be done, what is right."""

    context: str
    observation: str
    commands: tuple[str, ...]
    plan: tuple[str, ...]
    """Optimal commands from here; the first is the right one."""
    room: str = ""
    """Where the next deed that is no step is done, if that is known."""


def lookups(rng: random.Random, plain: bool) -> tuple[str, list[tuple[str, str]]]:
    """A long recipe, and pairs (words that name a food, words that only the recipe can complete)."""
    foods = some_names(rng, plain)[:9]
    asked = [(rng.choice(CUTS), rng.choice(COOKS), food) for food in foods]
    lines = [f"{verb} the {food}" for cut, cook, food in asked for verb in (cut, cook)]
    recipe = RECIPE.format(ingredients="\n  ".join(foods), directions="\n  ".join([*lines, "prepare meal"]))
    pairs = [(f". cook {food}", f" with {VERBS[cook].tool}") for _, cook, food in asked]
    pairs += [(f". {food}:", f" {cut}, {cook}") for cut, cook, food in asked]
    rng.shuffle(pairs)
    return recipe, pairs


def directives(text: str, foods: Iterable[str]) -> list[tuple[str, str]]:
    """(verb, food) of every directive that a context holds, in its order: of a recipe, of a written state, or of lines
    of facts."""
    found: list[tuple[int, str, str]] = []
    for food in foods:
        name = re.escape(food)
        found += [
            (match.start(), match[1], food)
            for match in re.finditer(rf"(?<!You )\b({'|'.join(VERBS)}) the {name}(?! [^\[])\b", text)
        ]
        for line in re.finditer(rf"(?m)^The {name}: [^;\n]*; (.*)$", text):
            found += [(line.start(), verb, food) for verb in line[1].split(", ") if verb in VERBS]
    return [(verb, food) for _, verb, food in sorted(found, key=lambda one: one[0])]


def marks_of(command: str, asked: Sequence[tuple[str, str]], planned: bool) -> tuple[float, ...]:
    """What is true of an option, given what the context still asks for: part of the plan; about an ingredient; asked
    for; about the first, the second, the third ingredient; and each verb that its food is to undergo."""
    thing, short = thing_of(command), command.split(" from ")[0]
    foods = list(dict.fromkeys(food for _, food in asked))
    fits = short == "take knife" or (thing in foods and command.startswith("take"))
    for verb, food in asked:
        fits |= command == (f"cook {food} with {VERBS[verb].tool}" if verb in COOKS else f"{verb} {food} with knife")
    order = [float(foods.index(thing) == place) if thing in foods else 0.0 for place in range(INGREDIENTS)]
    undergoes = [float((verb, thing) in asked) for verb in VERBS]
    return (float(planned), float(thing in foods), float(fits), *order, *undergoes)


def some_names(rng: random.Random, plain: bool) -> list[str]:
    """Names of foods: one known word each when `plain`, else words shared among them, as distractors share theirs."""
    count = rng.randint(4, 13)
    if plain:
        return rng.sample(WORDS, count)
    pool = [rng.choice(WORDS) if rng.random() < FAMILIAR else invented(rng) for _ in range(rng.randint(4, 12))]
    names: list[str] = []
    while len(names) < count:
        name = " ".join(rng.sample(pool, rng.choice((1, 2, 2, 3))))
        if name not in names:
            names.append(name)
        else:
            pool.append(invented(rng))
    return names


def make_kitchen(rng: random.Random, plain: bool, cooks: tuple[str, ...] = IN_KITCHENS) -> Kitchen:
    """A random kitchen, three of whose foods are the ingredients."""
    names = some_names(rng, plain)
    foods = [Food(name, rng.choice(("fridge", "counter")), rng.random() < 0.4) for name in names]
    for food in rng.sample(foods, 3):
        food.cook, food.cut = rng.choice(cooks), rng.choice(CUTS)
    return Kitchen(foods, rng.choice(("counter", "table")), cooks=cooks)


def drill(
    rng: random.Random,
    questions: int,
    plain: bool = False,
    slip: float = 0.1,
    cooks: tuple[str, ...] = IN_KITCHENS,
) -> list[ReaderQuestion]:
    """Questions at random moments of one meal; a slip takes up some other food first."""
    kitchen = make_kitchen(rng, plain, cooks)
    recipe = seen = kitchen.recipe()
    asked: list[ReaderQuestion] = []
    while True:
        plan = kitchen.plan()
        commands = list(dict.fromkeys([plan[0], *kitchen.options(rng)]))
        asked.append(ReaderQuestion(recipe, f"{seen}\n\n{kitchen.inventory()}", tuple(commands), tuple(plan)))
        if plan == ["eat meal"]:
            return rng.sample(asked, min(questions, len(asked)))
        spare = [food for food in kitchen.foods if food.name not in kitchen.carried]
        if kitchen.cooking and spare and rng.random() < slip:
            food = rng.choice(spare)
            seen = kitchen.play(f"take {food.name} from {food.holder}")
        else:
            seen = kitchen.play(plan[0])
