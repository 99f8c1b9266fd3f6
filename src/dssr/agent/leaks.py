"""The leak check: does any stored prompt show what only the reference action and `oracle-b` may know?

Searched for are the recipe's lines, three or more commands in a row of the walkthrough and of every plan, the facts,
and the `oracle-b` lines of every state visited. What an observation up to that step shows is no secret.

A state is the writer's own words, so two things in it are no leak: a line whose every word was seen before, and,
in a built-in format (whose requests are checked to hold nothing but the four fields), a lone lucky guess.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from dssr.agent.memory import is_reference
from dssr.agent.prompts import CONTEXT_BEGIN
from dssr.agent.store import stored
from dssr.errors import LeakError
from dssr.record.run import Run
from dssr.types import Moment, Played, Record, Step, StoredPrompt
from dssr.worlds.base import Worlds
from dssr.worlds.cooking.facts import ingredients
from dssr.worlds.cooking.oracle import FORM_WORDS, OPENING, oracle_lines
from dssr.worlds.cooking.world import World

Secret = Literal["recipe", "plan", "fact", "oracle"]
RUN = 3
"""Commands in a row that make a plan; two happen by themselves."""


class Leak(Record, frozen=True):
    """One secret found in one prompt."""

    episode: str
    step: int
    role: str
    kind: Secret
    text: str
    written: bool
    """It stood in a state, not in what the framework puts around it."""


class LeakReport(Record, frozen=True):
    """What a check found. Guesses are reported, and are no leaks."""

    episodes: int
    writer_prompts: int
    reader_prompts: int
    leaks: tuple[Leak, ...]
    guesses: tuple[Leak, ...]


def check_prompts(episodes: Iterable[Played], worlds: Worlds) -> LeakReport:
    """Search the stored prompts of all episodes."""
    leaks: list[Leak] = []
    guesses: list[Leak] = []
    count, roles = 0, {"writer": 0, "reader": 0}
    for played in episodes:
        count += 1
        for prompt in played.prompts:
            roles[prompt.role] += 1
        if played.prompts and played.episode.job.cell.memory != "oracle-b":
            with worlds.playing(played.episode.job.game) as world:
                found, guessed = _Search(world, played).all()
            leaks += found
            guesses += guessed
    return LeakReport(count, roles["writer"], roles["reader"], tuple(leaks), tuple(guesses))


def refuse_leaks(run: Run, worlds: Worlds) -> None:
    """Search a run's stored prompts; a run with a leak is marked failed and gets no summary."""
    report = check_prompts(stored(run), worlds)
    if report.leaks:
        run.fail({"reason": "leak", "report": msgspec.to_builtins(report)})
        first = report.leaks[0]
        raise LeakError(
            f"{run.path} is marked failed: {len(report.leaks)} leaks, the first a {first.kind} in a {first.role} "
            f"prompt at step {first.step}; see `dssr check {run.path}`."
        )


class _Search:
    """The secrets of one episode, and when each stopped being one."""

    def __init__(self, world: World, played: Played) -> None:
        self.played = played
        self.memory = played.episode.job.cell.memory
        self.goal = world.goal
        self.seen = [(plain(step.observation), words(step.observation)) for step in played.steps]
        self.secrets = secrets_of(moments_of(world, played.steps))

    def all(self) -> tuple[list[Leak], list[Leak]]:
        leaks: list[Leak] = []
        guesses: list[Leak] = []
        for prompt in self.played.prompts:
            frame, state = self._parts(prompt)
            leaks += self._hits(prompt, frame, written=False)
            hits = [hit for hit in self._hits(prompt, state, written=True) if not self._composed(hit)]
            lone = ":" not in self.memory and len(hits) == 1 and hits[0].kind in ("recipe", "oracle")
            (guesses if lone else leaks).extend(hits)
        return leaks, guesses

    def _parts(self, prompt: StoredPrompt) -> tuple[str, str]:
        """What the framework put there, and what a memory wrote."""
        text = "\n".join(content for _, content in prompt.messages)
        if is_reference(self.memory):
            return text, ""
        if prompt.role == "writer" and ":" in self.memory:
            return "", text
        place = prompt.step if prompt.role == "reader" else prompt.step - 1
        state = self.played.steps[place].write.state if 0 <= place < len(self.played.steps) else ""
        mark = f"{CONTEXT_BEGIN}\n" if prompt.role == "reader" else "Previous state:\n"
        before, found, after = text.partition(mark + state)
        return (f"{before}\n{after}", state) if found else (text, "")

    def _hits(self, prompt: StoredPrompt, text: str, written: bool) -> list[Leak]:
        if not text:
            return []
        forms = (plain(text), words(text))
        hits = {
            (kind, secret)
            for kind, secret in self.secrets
            if holds(forms, kind, secret) and not self._public(kind, secret, prompt.step)
        }
        longest = [
            (kind, secret)
            for kind, secret in sorted(hits)
            if not any(kind == other and secret != longer and secret in longer for other, longer in hits)
        ]
        return [Leak(prompt.episode, prompt.step, prompt.role, kind, secret, written) for kind, secret in longest]

    def _public(self, kind: Secret, secret: str, step: int) -> bool:
        shown = (*self.seen[: step + 1], (plain(self.goal), words(self.goal)))
        return any(holds(forms, kind, secret) for forms in shown)

    def _composed(self, hit: Leak) -> bool:
        """Whether a writer could have put the line together from words it had been given."""
        if hit.kind == "fact":
            return False
        known = set(words(self.goal).split()) | FORM_WORDS
        for step in self.played.steps[: hit.step + 1]:
            known.update(words(f"{step.observation} {step.action or ''}").split())
        return set(words(hit.text).split()) <= known


def moments_of(world: World, steps: Sequence[Step]) -> list[Moment]:
    """The world at each logged step."""
    node = world.start()
    moments = []
    for step in steps:
        node = node if step.action is None else world.step(node, step.action)
        moments.append(node.moment)
    return moments


def secrets_of(moments: Sequence[Moment]) -> list[tuple[Secret, str]]:
    """Every secret of the visited states in its searchable form, each once."""
    found: dict[tuple[Secret, str], None] = {}
    plans: set[tuple[str, ...]] = set()
    for moment in moments:
        privileged = moment.privileged
        for form in (True, False):
            lines = oracle_lines(privileged, long=form)
            found |= {("oracle", plain(line.removeprefix(OPENING))): None for line in lines}
        for fact in privileged.facts:
            if fact.args:
                found["fact", plain(f"{fact.name}({','.join(fact.args)})")] = None
            if len(fact.args) > 1:
                found["fact", plain(f"{fact.name} {' '.join(fact.args)}")] = None
        plans |= {privileged.policy, privileged.walkthrough}
    for recipe in {moment.privileged.recipe for moment in moments}:
        found |= {("recipe", plain(line)): None for line in telling_lines(recipe)}
    for plan in plans:
        for first in range(len(plan) - RUN + 1):
            found["plan", words(" ".join(plan[first : first + RUN]))] = None
    return sorted(found)


def telling_lines(recipe: str) -> list[str]:
    """The lines that differ from game to game: ingredients and directions, not the headings."""
    foods = ingredients(recipe)
    return [line for line in recipe.splitlines() if any(food in line for food in foods)]


def plain(text: str) -> str:
    """Case, runs of blanks, and blanks around brackets and commas make no difference."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.casefold().split()))


def words(text: str) -> str:
    """The words alone: a plan may be joined by anything."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def holds(forms: tuple[str, str], kind: Secret, secret: str) -> bool:
    """Whether a text, given as `(plain, words)`, shows a secret as whole words."""
    text = forms[1] if kind == "plan" else forms[0]
    place = text.find(secret)
    while place >= 0:
        end = place + len(secret)
        if not (_joined(text[place - 1 : place + 1]) or _joined(text[end - 1 : end + 1])):
            return True
        place = text.find(secret, place + 1)
    return False


def _joined(pair: str) -> bool:
    """Whether two neighbouring characters belong to one word."""
    return len(pair) == 2 and all(char.isalnum() or char == "_" for char in pair)
