"""The leak check: does any stored prompt show what only the reference action and `oracle-b` may know?

A run keeps a fixed number of its prompts verbatim (`share`, `PromptSampler`), spread over its episodes by seed; the
choice depends on the list of jobs and on content alone, so an interrupted run keeps the same ones.

`check_prompts` searches them for what the world names as secret: the lines that tell the task, three or more actions in
a row of every plan, the facts, and the `oracle-b` lines of every state visited. What an observation up to that step
shows is none. A state is the writer's own words, so two things in it are no leak: a line whose every word was seen
before, and, in a built-in format (whose requests are checked to hold nothing but the four fields), a lone lucky guess.
"""

import heapq
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from dssr.agent.memory import is_reference
from dssr.agent.prompts import CONTEXT_BEGIN
from dssr.agent.store import stored
from dssr.errors import LeakError
from dssr.models.base import Message
from dssr.record.run import Run
from dssr.seeds import digest_of, rng_of, seed_of
from dssr.types import Job, Played, Record, Step, StoredPrompt
from dssr.worlds.archive import Worlds
from dssr.worlds.base import Domain, Node, Secret, World

# ---------------------------------------------------------------- which prompts are kept

Role = Literal["writer", "reader"]


def share(jobs: Sequence[Job], total: int, seed: int) -> dict[str, dict[Role, int]]:
    """How many prompts of each role each job keeps, by the job's digest; together `total` of each."""
    asked: dict[Role, list[str]] = {
        "writer": [job_digest(job) for job in jobs if not is_reference(job.cell.memory)],
        "reader": [job_digest(job) for job in jobs if job.driver == "reader"],
    }
    quotas: dict[str, dict[Role, int]] = {job_digest(job): {"writer": 0, "reader": 0} for job in jobs}
    for role, keys in asked.items():
        rng_of("prompts", seed, role).shuffle(keys)
        for place, key in enumerate(keys):
            quotas[key][role] = total // len(keys) + (place < total % len(keys))
    return quotas


def job_digest(job: Job) -> str:
    """The key under which a job's quota of prompts stands."""
    return digest_of(msgspec.to_builtins(job))


class PromptSampler:
    """Keeps an episode's quota: of all prompts it is shown, those whose seeded rank is lowest."""

    def __init__(self, episode: str, quota: Mapping[Role, int]) -> None:
        self.episode = episode
        self.quota = quota
        self._kept: dict[Role, list[tuple[int, int, StoredPrompt]]] = {"writer": [], "reader": []}
        self._shown = 0

    def show(self, role: Role, step: int, messages: Sequence[Message]) -> None:
        """Offer one prompt, just before it is sent."""
        self._shown += 1
        kept = self._kept[role]
        pairs = tuple((message.role, message.content) for message in messages)
        prompt = StoredPrompt(role=role, episode=self.episode, step=step, messages=pairs)
        # The heap gives up its smallest entry: ranks are negated so that the highest rank leaves.
        heapq.heappush(kept, (-seed_of(self.episode, role, step, self._shown), self._shown, prompt))
        if len(kept) > self.quota.get(role, 0):
            heapq.heappop(kept)

    def prompts(self) -> tuple[StoredPrompt, ...]:
        """In the order in which they were sent."""
        everything = [entry for kept in self._kept.values() for entry in kept]
        return tuple(prompt for _, _, prompt in sorted(everything, key=lambda entry: entry[1]))


# ---------------------------------------------------------------- the search

RUN = 3
"""Actions in a row that make a plan; two happen by themselves."""


class Leak(Record, frozen=True):
    """One secret found in one prompt."""

    episode: str
    step: int
    role: str
    """Whose prompt: `writer` or `reader`."""
    kind: str
    """The world's word for it."""
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
    """Lone lines of a built-in format that a writer hit upon."""


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
                found, guessed = _Search(world, worlds.domain, played).all()
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


class _Hit(NamedTuple):
    """A leak, and the secret in the form it was searched for."""

    leak: Leak
    secret: Secret


class _Search:
    """The secrets of one episode, and when each stopped being one."""

    def __init__(self, world: World, domain: Domain, played: Played) -> None:
        self.form_words = domain.form_words
        self.played = played
        self.memory = played.episode.job.cell.memory
        self.goal = world.goal
        self.seen = [(plain(step.observation), words(step.observation)) for step in played.steps]
        self.secrets = searchable(world.secrets(nodes_of(world, played.steps)))

    def all(self) -> tuple[list[Leak], list[Leak]]:
        leaks: list[Leak] = []
        guesses: list[Leak] = []
        for prompt in self.played.prompts:
            frame, state = self._parts(prompt)
            leaks += [hit.leak for hit in self._hits(prompt, frame, written=False)]
            hits = [hit for hit in self._hits(prompt, state, written=True) if not self._composed(hit)]
            lone = ":" not in self.memory and len(hits) == 1 and hits[0].secret.form == "line"
            (guesses if lone else leaks).extend(hit.leak for hit in hits)
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

    def _hits(self, prompt: StoredPrompt, text: str, written: bool) -> list[_Hit]:
        if not text:
            return []
        forms = (plain(text), words(text))
        hits = [secret for secret in self.secrets if holds(forms, secret) and not self._public(secret, prompt.step)]
        return [
            _Hit(Leak(prompt.episode, prompt.step, prompt.role, secret.kind, secret.text, written), secret)
            for secret in hits
            if not any(secret.kind == other.kind and secret.text in other.text and secret != other for other in hits)
        ]

    def _public(self, secret: Secret, step: int) -> bool:
        shown = (*self.seen[: step + 1], (plain(self.goal), words(self.goal)))
        return any(holds(forms, secret) for forms in shown)

    def _composed(self, hit: _Hit) -> bool:
        """Whether a writer could have put the text together from words it had been given."""
        if hit.secret.form == "code":
            return False
        known = {*words(self.goal).split(), *self.form_words}
        for step in self.played.steps[: hit.leak.step + 1]:
            known.update(words(f"{step.observation} {step.action or ''}").split())
        return set(words(hit.secret.text).split()) <= known


def nodes_of(world: World, steps: Sequence[Step]) -> list[Node]:
    """The position at each logged step."""
    node = world.start()
    nodes = []
    for step in steps:
        node = node if step.action is None else world.step(node, step.action)
        nodes.append(node)
    return nodes


def searchable(secrets: Iterable[Secret]) -> list[Secret]:
    """Every secret in the form in which it is searched for, each once; a plan is cut into short runs of actions."""
    found: set[Secret] = set()
    for secret in set(secrets):
        if secret.form == "plan":
            actions = secret.text.split("\n")
            runs = (" ".join(actions[first : first + RUN]) for first in range(len(actions) - RUN + 1))
            found |= {secret._replace(text=words(run)) for run in runs}
        else:
            found.add(secret._replace(text=plain(secret.text)))
    return sorted(found)


# ---------------------------------------------------------------- comparing texts


def plain(text: str) -> str:
    """Case, runs of blanks, and blanks around brackets and commas make no difference."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.casefold().split()))


def words(text: str) -> str:
    """The words alone: a plan may be joined by anything."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def holds(forms: tuple[str, str], secret: Secret) -> bool:
    """Whether a text, given as `(plain, words)`, shows a secret as whole words."""
    text = forms[1] if secret.form == "plan" else forms[0]
    place = text.find(secret.text)
    while place >= 0:
        end = place + len(secret.text)
        if not (_joined(text[place - 1 : place + 1]) or _joined(text[end - 1 : end + 1])):
            return True
        place = text.find(secret.text, place + 1)
    return False


def _joined(pair: str) -> bool:
    """Whether two neighbouring characters belong to one word."""
    return len(pair) == 2 and all(char.isalnum() or char == "_" for char in pair)
