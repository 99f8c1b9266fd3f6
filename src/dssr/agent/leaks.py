"""The leak check: does any prompt show what only the reference action and `oracle-b` may know?

Whatever sends prompts for one piece of work (an episode, its audits, the candidates of its write points) says so:

    watch = Watch(key, "audit")
    with watch.at(step):                     # every prompt sent in here belongs to this step of the episode
        loss = await agent.reader.nll(…)
    watch.wrote(state)                       # these words are a memory's own
    found = watch.search(worlds, job, steps)

An agent's models refuse a prompt that nobody watches (`watched`), so no way of sending one escapes the search.

Searched for is what the world names as secret in the positions visited: the lines that tell the task, three or more
actions in a row of every plan, the facts, and the `oracle-b` lines. What an observation up to that step shows verbatim
is none. In a state, which is a memory's own words, two things more are excused, and counted: a line put together from
words that had all been shown, such as `Room: kitchen`; and a lone lucky guess, such as `chop the red apple` of a writer
that has seen the apple, as long as at most one prompt of a run in a hundred has one. `oracle-b` may show its own lines.

A run keeps a fixed number of its prompts verbatim as well (`PromptSampler`).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from dssr.agent.kept_prompts import PromptSampler, Role
from dssr.agent.memory import ORACLE_B, is_reference
from dssr.agent.prompts import CONTEXT_BEGIN, WRITER_FIELDS, Happened, WatchedModel
from dssr.errors import LeakError
from dssr.models.base import Message, Model
from dssr.models.cache import remembered
from dssr.record.run import Run
from dssr.types import Job, Leak, Played, Search, Step
from dssr.worlds.archive import Worlds
from dssr.worlds.base import Node, Secret, World

# ---------------------------------------------------------------- watching


class Watch:
    """Sees every prompt of one piece of work, and searches them when the work is done."""

    def __init__(self, episode: str, what: str, quota: Mapping[Role, int] | None = None) -> None:
        """`quota`: how many prompts of each role to keep verbatim."""
        self.episode = episode
        self.what = what
        self.sampler = PromptSampler(episode, quota or {})
        self._blocks: dict[str, int] = {}
        self._sent: Counter[_Sent] = Counter()
        self._written: dict[str, bool] = {}

    @property
    def used(self) -> bool:
        """Whether any prompt was sent."""
        return bool(self._sent)

    @contextmanager
    def at(self, step: int) -> Iterator[None]:
        """Every prompt sent inside, by tasks begun inside too, belongs to this step."""
        token = _HERE.set((self, step))
        try:
            yield
        finally:
            _HERE.reset(token)

    def show(self, role: Role, step: int, messages: Sequence[Message]) -> None:
        """Note one prompt. Prompts of one history share most of their paragraphs, so these are kept once."""
        self.sampler.show(role, step, messages)
        blocks = self._blocks
        parts = [blocks.setdefault(part, len(blocks)) for one in messages for part in paragraphs(one.content)]
        self._sent[_Sent(role, step, tuple(parts))] += 1

    def wrote(self, state: str, memory: str = "") -> None:
        """Note a text that a memory put into its own words; `oracle-b` may show its lines."""
        if state:
            self._written[state] = memory == ORACLE_B

    def wrote_at(self, step: Step, memory: str) -> None:
        """Note the state of a step, unless it was rendered from what observations show."""
        if memory == ORACLE_B or not is_reference(memory):
            self.wrote(step.write.state, memory)

    def search(self, worlds: Worlds, job: Job, trail: Sequence[Happened]) -> Search:
        """Look through all prompts. `trail`: the steps of the episode, as far as prompts were sent for them."""
        sent: Counter[Role] = Counter()
        for one, count in self._sent.items():
            sent[one.role] += count
        found: Counter[Verdict] = Counter()
        leaks: list[Leak] = []
        if sent:
            with worlds.playing(job.game) as world:
                trial = _Trial(world, worlds.domain.form_words, trail)
            suspects = {number: hits for block, number in self._blocks.items() if (hits := trial.suspects(block))}
            texts = list(self._blocks)
            for one, count in self._sent.items() if suspects else ():
                early = {
                    hit for number in one.blocks for hit in suspects.get(number, ()) if trial.secret(hit, one.step)
                }
                if not early:
                    continue
                text = "\n\n".join(texts[number] for number in one.blocks)
                judged = trial.judge(early, one.step, *self._parts(text, one.role, job.cell.memory))
                for verdict in {verdict for _, verdict in judged}:
                    found[verdict] += count
                shown = [hit for hit, verdict in judged if verdict == "leaked"]
                leaks += [Leak(self.episode, one.step, one.role, hit.kind, hit.text) for hit in shown]
        first = tuple(sorted(leaks, key=lambda leak: (leak.step, leak.role, leak.text)))[:SHOWN]
        return Search(
            what=self.what,
            writer_prompts=sent["writer"],
            reader_prompts=sent["reader"],
            composed=found["composed"],
            guessed=found["guessed"],
            leaked=found["leaked"],
            leaks=first,
        )

    def _parts(self, text: str, role: Role, memory: str) -> tuple[str, str, bool]:
        """What the framework put there, what a memory wrote, and whether that may show anything."""
        if role == "writer" and ":" in memory:
            return "", text, False
        before, mark, after = text.partition(_MARKS[role])
        state = max((state for state in self._written if after.startswith(state)), key=len, default="")
        return f"{before}{mark}\n{after[len(state) :]}", state, self._written.get(state, False)


Verdict = Literal["composed", "guessed", "leaked", "allowed"]
"""On a secret that a prompt shows too early."""


class _Sent(NamedTuple):
    """A prompt: whose, at which step, and its paragraphs by number."""

    role: Role
    step: int
    blocks: tuple[int, ...]


_HERE: ContextVar[tuple[Watch, int] | None] = ContextVar("watch", default=None)
_MARKS: dict[Role, str] = {"reader": f"{CONTEXT_BEGIN}\n", "writer": f"{WRITER_FIELDS[1]}\n"}
"""After which a prompt shows a state."""
GUESSES = 0.01
"""Share of a run's prompts that may hold a lone guess; more of them are no luck."""
SHOWN = 5
"""Leaks of one piece of work that are told in full; all are counted."""


def watched(model: Model, role: Role) -> Model:
    """The model behind a door: a prompt passes only where somebody watches (`Watch.at`)."""

    if isinstance(model, _Door):
        return model

    def look(messages: Sequence[Message]) -> None:
        here = _HERE.get()
        if here is None:
            raise LeakError(
                "A prompt was about to be sent that no leak check would see; send it inside `with watch.at(step)`."
            )
        watch, step = here
        watch.show(role, step, messages)

    return _Door(model, look)


class _Door(WatchedModel):
    """A model that is watched already."""


def unwatched(model: Model) -> Model:
    """The model behind the door, for what is no part of a run: timing it."""
    return model.model if isinstance(model, _Door) else model


# ---------------------------------------------------------------- the verdict on a run

SEARCHES = "searches"
"""Log of what the leak check found, one line per piece of work."""


def keep_searches(run: Run, key: str, searches: Iterable[Search]) -> None:
    """Append what the leak check says of one piece of work, before the line that makes the work count."""
    run.extend(SEARCHES, [(f"{key}:{search.what}", search) for search in searches])


def totals(searches: Iterable[Search]) -> dict[str, Search]:
    """Searches of the same kind of work added up, by kind."""
    found: dict[str, Search] = {}
    for one in searches:
        before = found.get(one.what, Search(one.what))
        found[one.what] = Search(
            what=one.what,
            writer_prompts=before.writer_prompts + one.writer_prompts,
            reader_prompts=before.reader_prompts + one.reader_prompts,
            composed=before.composed + one.composed,
            guessed=before.guessed + one.guessed,
            leaked=before.leaked + one.leaked,
            leaks=(*before.leaks, *one.leaks)[:SHOWN],
        )
    return found


def refuse_leaks(run: Run) -> None:
    """A run of whose prompts one shows a secret, or too many a guess, is marked failed and gets no summary."""
    every = totals(run.read(SEARCHES, Search)).values()
    found = [one for one in every if one.leaked]
    guessed, prompts = sum(one.guessed for one in every), sum(one.prompts for one in every)
    if guessed > GUESSES * prompts and not found:
        run.fail({"reason": "leak", "searches": msgspec.to_builtins([one for one in every if one.guessed])})
        raise LeakError(
            f"{run.path} is marked failed: {guessed} of {prompts} prompts hold a secret that nothing had shown, which "
            f"is more than luck (at most {GUESSES:.0%}); see `dssr check {run.path}`."
        )
    if found:
        run.fail({"reason": "leak", "searches": msgspec.to_builtins(found)})
        first = found[0].leaks[0]
        raise LeakError(
            f"{run.path} is marked failed: {sum(one.leaked for one in found)} prompts show a secret, the first a "
            f"{first.kind} in a {first.role} prompt ({found[0].what}, step {first.step}); see `dssr check {run.path}`."
        )


STORED = "stored"


def searched_again(played: Played, worlds: Worlds) -> Search:
    """The same for one episode."""
    job = played.episode.job
    watch = Watch(played.episode.key, STORED)
    for step in played.steps:
        watch.wrote_at(step, job.cell.memory)
    for prompt in played.prompts:
        watch.show(prompt.role, prompt.step, [Message(*pair) for pair in prompt.messages])
    return watch.search(worlds, job, played.steps)


# ---------------------------------------------------------------- the search

RUN = 3
"""Actions in a row that make a plan; two happen by themselves."""


class _Hidden:
    """What one game hides, by position; grows as positions are visited."""

    def __init__(self) -> None:
        self._known: set[Secret] = set()
        self._anchored: dict[str, set[Secret]] = {}

    def visit(self, world: World, nodes: Iterable[Node]) -> frozenset[Secret]:
        """The secrets of these positions."""
        found = frozenset(one for raw in world.secrets(nodes) for one in searchable(raw))
        for secret in found - self._known:
            self._anchored.setdefault(anchor_of(secret), set()).add(secret)
        self._known |= found
        return found

    def suspects(self, text: str) -> list[Secret]:
        """Secrets of any position that a text shows."""
        both, anchored = forms(text), self._anchored
        return [secret for word in set(both[1].split()) for secret in anchored.get(word, ()) if holds(both, secret)]


_HIDDEN: WeakKeyDictionary[World, _Hidden] = WeakKeyDictionary()


class _Trial:
    """The secrets of one episode, and when each stopped being one."""

    def __init__(self, world: World, form_words: Iterable[str], trail: Sequence[Happened]) -> None:
        self.trail = trail
        self.goal = world.goal
        self.form_words = form_words
        self.hidden = _HIDDEN.setdefault(world, _Hidden())
        self.own = self.hidden.visit(world, nodes_of(world, trail))
        self._public: dict[Secret, float] = {}
        self._seen: dict[str, list[int]] | None = None
        self._words: dict[str, int] | None = None

    def suspects(self, text: str) -> list[Secret]:
        """The episode's own secrets that a text shows, at whatever time."""
        return [secret for secret in self.hidden.suspects(text) if secret in self.own]

    def secret(self, secret: Secret, step: int) -> bool:
        """Whether it still is one at this step: nothing has shown it verbatim."""
        if secret not in self._public:
            shown = (place for place in self._places(secret) if holds(forms(self.trail[place].observation), secret))
            self._public[secret] = -1 if holds(forms(self.goal), secret) else next(shown, inf)
        return step < self._public[secret]

    def _places(self, secret: Secret) -> Sequence[int]:
        """The steps whose observation may hold a secret: those with its rarest word."""
        if self._seen is None:
            self._seen = {}
            for place, one in enumerate(self.trail):
                for word in {*forms(one.observation)[1].split(), ""}:
                    self._seen.setdefault(word, []).append(place)
        return self._seen.get(anchor_of(secret), ())

    def judge(
        self, hits: Iterable[Secret], step: int, frame: str, state: str, free: bool
    ) -> list[tuple[Secret, Verdict]]:
        """What becomes of each secret that a prompt shows too early; `free`: the state may show anything."""
        found: list[tuple[Secret, Verdict]] = []
        for hit in _largest(hits):
            if holds(forms(frame), hit) or not holds(forms(state), hit):
                found.append((hit, "leaked"))
            elif free:
                found.append((hit, "allowed"))
            else:
                own: Verdict = "guessed" if hit.form == "line" else "leaked"
                found.append((hit, "composed" if self._composed(hit, step) else own))
        # One line may be luck; two, or one beside what is no luck, are not.
        if [verdict for _, verdict in found if verdict in ("guessed", "leaked")] == ["guessed"]:
            return found
        return [(hit, "leaked" if verdict == "guessed" else verdict) for hit, verdict in found]

    def _composed(self, secret: Secret, step: int) -> bool:
        """Whether a writer could have put the text together from words it had been given."""
        if secret.form == "code":
            return False
        if self._words is None:
            self._words = dict.fromkeys((*words(self.goal).split(), *self.form_words), -1)
            for place, one in enumerate(self.trail):
                for word in words(f"{one.observation} {one.action or ''}").split():
                    self._words.setdefault(word, place)
        return all(self._words.get(word, inf) <= step for word in words(secret.text).split())


def _largest(hits: Iterable[Secret]) -> list[Secret]:
    """Each hit that is no part of another of its kind, in a fixed order."""
    found = sorted(hits)
    return [
        hit
        for hit in found
        if not any(hit.kind == other.kind and hit.text in other.text and hit != other for other in found)
    ]


def nodes_of(world: World, trail: Iterable[Happened]) -> list[Node]:
    """The position at each step."""
    node = world.start()
    nodes = []
    for step in trail:
        node = node if step.action is None else world.step(node, step.action)
        nodes.append(node)
    return nodes


@remembered(2_000_000, lambda secret: len(secret.text))
def anchor_of(secret: Secret) -> str:
    """A word that every text with the secret has, since it has each of them; the longest is in the fewest texts."""
    return max(words(secret.text).split(), key=len, default="")


@remembered(2_000_000, lambda secret: len(secret.text))
def searchable(secret: Secret) -> tuple[Secret, ...]:
    """A secret in the form in which it is searched for; a plan is cut into short runs of actions."""
    if secret.form != "plan":
        return (secret._replace(text=plain(secret.text)),)
    actions = secret.text.split("\n")
    runs = (" ".join(actions[first : first + RUN]) for first in range(len(actions) - RUN + 1))
    return tuple({secret._replace(text=words(run)) for run in runs})


# ---------------------------------------------------------------- comparing texts

SHORT = 80
"""Characters up to which a paragraph is taken together with its neighbour: a plan may have blank lines in it."""


def paragraphs(text: str) -> list[str]:
    """A text cut at blank lines, except between short paragraphs. Joined by blank lines it is the text again."""
    found: list[str] = []
    for part in text.split("\n\n"):
        if found and len(part) < SHORT and len(found[-1]) < SHORT:
            found[-1] = f"{found[-1]}\n\n{part}"
        else:
            found.append(part)
    return found


@remembered(2_000_000, len)
def forms(text: str) -> tuple[str, str]:
    """A text as `(plain, words)`, ready to be searched."""
    return plain(text), words(text)


def plain(text: str) -> str:
    """Case, runs of blanks, and blanks around brackets and commas make no difference."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(text.casefold().split()))


def words(text: str) -> str:
    """The words alone: a plan may be joined by anything."""
    return " ".join(re.findall(r"\w+", text.casefold()))


def holds(both: tuple[str, str], secret: Secret) -> bool:
    """Whether a text, given as `(plain, words)`, shows a secret as whole words."""
    text = both[1] if secret.form == "plan" else both[0]
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
