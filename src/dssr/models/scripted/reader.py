"""A reader that plans by rules from the text it is given.

It behaves like one trained to imitate the reference policy: per ingredient, in the recipe's order, take, cook, cut;
then prepare and eat. It never re-reads the cookbook by plan, and what the text does not say it has to guess.
"""

import math
import re
from collections import deque
from collections.abc import Callable

from dssr.models.scripted.claims import APPLIANCES, TOOL, Claim, carried, exits, here, ingredients, look, update
from dssr.models.scripted.formats import Question, understand
from dssr.worlds.cooking.recipe import CUTS

SURE, LIKELY, USEFUL, GUESS, POOR, HARMFUL = 7.0, 5.0, 4.0, 3.0, 0.0, -2.0
"""Scores of commands, in nats before normalisation."""
_MISSING = {"still needs to be cooked": ("cook",), "still needs to be cut": (*CUTS, f"take {TOOL}")}
_PENDING = re.compile(r"^> ?[^\n]+\Z", re.M)
_MEETING = re.compile(r"cookbook in the ([\w' -]+?)(?: for\b|[.,!])")


def logprobs(question: Question, labels: tuple[str, ...]) -> tuple[float, ...]:
    """Over the labels, in order."""
    options = list(question.commands.values())
    values = scores(question, options)
    chosen = [values.get(question.commands.get(label, ""), POOR) for label in labels]
    top = max(chosen)
    total = top + math.log(sum(math.exp(value - top) for value in chosen))
    return tuple(value - total for value in chosen)


def scores(question: Question, options: list[str]) -> dict[str, float]:
    """How good each option looks."""
    plan = CookingPlan(question, options)
    values = {option: HARMFUL if _harmful(option) else POOR for option in options}
    wanted = plan.wanted()
    # A recipe that is done and one that is forgotten look the same: neither leaves a step in the text.
    best = SURE if ingredients(plan.claims) or "eat meal" in wanted else LIKELY
    for rank, command in enumerate(wanted):
        values[command] = max(values[command], USEFUL if rank else best)
    if not wanted:
        values |= plan.guesses()
    return values


def beliefs(question: Question) -> list[Claim]:
    """What the prompt says about the world, the current observation included."""
    context = question.context.rstrip()
    if _PENDING.search(context):
        return understand(f"{context}\n{question.observation}")
    return update(understand(context), None, look(question.observation))


class CookingPlan:
    """What to do next, as far as the prompt tells."""

    def __init__(self, question: Question, options: list[str]) -> None:
        self.claims = beliefs(question)
        self.options = options
        self.observation = question.observation
        self.room = here(self.claims)
        self.ways = exits(self.claims)
        self.held = carried(self.claims)
        meeting = _MEETING.search(question.goal)
        self.kitchen = meeting.group(1) if meeting else None

    def wanted(self) -> list[str]:
        """Commands worth playing now, the best first; none when the text leaves the reader without a plan."""
        if "eat meal" in self.options:
            return ["eat meal"]
        steps = [self.toward(name) for name in ingredients(self.claims)]
        found = [step for step in steps if step is not None]
        if steps:
            return found if steps[0] is not None else []
        if any(phrase in self.observation for phrase in _MISSING):
            return []
        if "prepare meal" in self.options:
            return ["prepare meal"]
        if self.held and self.kitchen and self.room != self.kitchen:
            step = self.go(self.kitchen)
            return [step] if step else []
        return []

    def toward(self, name: str) -> str | None:
        """The next command for one ingredient; None when the way to it is not known."""
        if name not in self.held:
            return self.take(name)
        verbs = [claim.args[0] for claim in self.claims if claim.kind == "do" and claim.args[1] == name]
        for verb in sorted(verbs, key=lambda verb: verb in CUTS):
            if verb in APPLIANCES:
                return self.use(f"cook {name} with {APPLIANCES[verb]}", APPLIANCES[verb])
            if TOOL not in self.held:
                return self.take(TOOL)
            return self.use(f"{verb} {name} with {TOOL}", None)
        return None

    def take(self, name: str) -> str | None:
        """The command that takes a thing, or the next one on the way to it."""
        for option in self.options:
            if option == f"take {name}" or option.startswith(f"take {name} from "):
                return option
        for claim in self.claims:
            if claim.kind == "at" and claim.args[0] == name:
                _, _, holder, room, _ = claim.args
                if room != self.room:
                    return self.go(room)
                return f"open {holder}" if f"open {holder}" in self.options else None
        return None

    def use(self, command: str, appliance: str | None) -> str | None:
        """The command itself, or the next one on the way to the appliance it needs."""
        if command in self.options:
            return command
        rooms = [claim.args[1] for claim in self.claims if claim.kind == "fixture" and claim.args[0] == appliance]
        return self.go(rooms[-1]) if rooms and rooms[-1] != self.room else None

    def go(self, target: str) -> str | None:
        """First command of the way, as told or as the shortest through known rooms."""
        for claim in self.claims:
            if claim.kind == "way" and claim.args[0] == target:
                return next((move for move in (claim.args[1], f"go {claim.args[1]}") if move in self.options), None)
        return self.leave(lambda room: room == target)

    def leave(self, is_goal: Callable[[str], bool]) -> str | None:
        """First command of the shortest way through known rooms to one that fits."""
        if self.room is None:
            return None
        first: dict[str, Claim | None] = {self.room: None}
        queue = deque([self.room])
        while queue:
            room = queue.popleft()
            for (start, _), way in self.ways.items():
                to = way.args[2]
                if start != room or not to or to in first:
                    continue
                first[to] = first[room] or way
                if is_goal(to):
                    return self.step(first[to])
                queue.append(to)
        return None

    def step(self, way: Claim | None) -> str | None:
        """The command for one exit; a closed door is opened first."""
        if way is None:
            return None
        _, direction, _, door, _ = way.args
        for command in (f"open {door}", f"go {direction}"):
            if command in self.options:
                return command
        return None

    def guesses(self) -> dict[str, float]:
        """Without a plan: what a player in the dark would try."""
        lacking = [verbs for phrase, verbs in _MISSING.items() if phrase in self.observation]
        if lacking:
            return {option: GUESS for option in self.options if option.startswith(lacking[0])}
        if ingredients(self.claims):
            return self.search()
        tries = ("take ", "cook ", "open ", "prepare ", *(f"{verb} " for verb in CUTS))
        return {option: GUESS for option in self.options if option.startswith(tries)} | self.search()

    def search(self) -> dict[str, float]:
        """Looks where nothing is known yet."""
        values = {option: GUESS - 1 for option in self.options if option.startswith("go ")}
        values |= {option: GUESS for option in self.options if option.startswith("open ")}
        for (room, direction), way in self.ways.items():
            if room == self.room and not way.args[2] and f"go {direction}" in values:
                values[f"go {direction}"] = GUESS
        described = {claim.args[1] for claim in self.claims if claim.kind == "fixture"}
        described |= {claim.args[3] for claim in self.claims if claim.kind == "at"}
        step = self.leave(lambda room: room not in described)
        if step:
            values[step] = GUESS
        return values


def _harmful(option: str) -> bool:
    return option.startswith(("drop ", "eat ", "drink "))
