"""Recall: a reader that may look back. Up to R times per game it sees one earlier chunk of its history again.

`summary+recall` and `summary+unsure` are the memory `summary`, written as ever, under a reader with that right; any
memory that writes can have it (`guide+recall`, `dssr+recall@NAME`). The chunk stands after the state in the CONTEXT of
that one decision and is gone afterwards: what crosses a step is the state, and how many requests are left.

- `+recall`: at each decision the reader is asked first, by its usual prompt, whether to act or which chunk to see. The
  options are ACT and the titles of the chunks; the likeliest is done.
- `+unsure`: it is asked only where the entropy of its choice is above a setting. Of the few likeliest titles each chunk
  is tried, and the one is kept that leaves the least entropy. If none lowers it, no request is spent.

A title is made of what the agent was shown: the heading of a place, the number of steps, and which chunk told the task.
All of it is a pure function of the steps so far, so a fork or a resumed run decides as the log did.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Literal, NamedTuple

from dssr.agent.prompts import Reader, most_likely, nll_of, render_history
from dssr.config import Config
from dssr.models.base import Tokenizer
from dssr.types import LABELS, Chunk, Options, Recalled, Record, Step
from dssr.worlds.base import Words

Rule = Literal["recall", "unsure"]
RULES: tuple[Rule, ...] = ("recall", "unsure")
ACT = "act now, without looking back"


def split_rule(style: str) -> tuple[str, Rule | None]:
    """`summary+recall` is the format `summary` under the rule `recall`; a style without a rule has none."""
    base, _, rule = style.rpartition("+")
    return (base, rule) if base and rule in RULES else (style, None)


def rule_of(memory: str) -> Rule | None:
    """When the reader of this memory may look back; None when it may not."""
    return split_rule(memory.partition("@")[0])[1]


class RecallRules(Record, frozen=True):
    """The settings of recall."""

    requests: int = 4
    """Per game."""
    entropy: float = 0.5
    """Nats above which `unsure` asks."""
    tries: int = 16
    """Chunks that `unsure` tries at a decision, at most."""
    block: int = 5
    """Steps per chunk of Phase B."""

    @classmethod
    def of(cls, config: Config) -> "RecallRules":
        """Those of a configuration."""
        agent = config.agent
        return cls(agent.recalls, agent.recall_entropy, agent.recall_tries, config.measure.block)


# ---------------------------------------------------------------- chunks and their titles


def chunks_of(steps: Sequence[Step], index: int, reveal: int, block: int, words: Words) -> tuple[Chunk, ...]:
    """The history before step `index`, whole: one chunk per stay at a place in Phase A, blocks of steps in Phase B."""
    phase_a = [step for step in steps[:index] if step.kind != "act"]
    phase_b = [step for step in steps[:index] if step.kind == "act"]
    chunks = []
    for visit in dict.fromkeys(step.visit for step in phase_a):
        places = [step.index for step in phase_a if step.visit == visit]
        kind = words.reveal_chunk if reveal in places else words.visit_chunk
        chunks.append(Chunk(kind.name, places[0], places[-1]))
    for start in range(0, len(phase_b), block):
        part = phase_b[start : start + block]
        chunks.append(Chunk(words.block_chunk.name, part[0].index, part[-1].index))
    return tuple(chunks)


def titles_of(
    steps: Sequence[Step], index: int, reveal: int, block: int, words: Words, most: int = len(LABELS) - 1
) -> dict[str, Chunk]:
    """Title to chunk, the newest first: of the stays at one place the newest, the chunk of the reveal, every block of
    Phase B; at most one per label."""
    found: dict[str, Chunk] = {}
    seen: set[str] = set()
    for chunk in reversed(chunks_of(steps, index, reveal, block, words)):
        span = f"steps {chunk.first} to {chunk.last}"
        if chunk.kind == words.reveal_chunk.name:
            found[f"see {words.reveal_chunk.words} again ({span})"] = chunk
            continue
        heading = words.heading_of(steps[chunk.first].observation) if chunk.kind == words.visit_chunk.name else None
        if heading is None:
            found[f"see {span} again"] = chunk
        elif heading not in seen:
            seen.add(heading)
            found[f"see {heading} again ({span})"] = chunk
    return dict(list(found.items())[:most])


def with_chunk(context: str, steps: Sequence[Step], chunk: Chunk) -> str:
    """The context of a decision at which a chunk is seen again: the state, then the chunk."""
    shown = shown_again(steps, chunk)
    return f"{context}\n\n{shown}" if context else shown


def shown_again(steps: Sequence[Step], chunk: Chunk) -> str:
    """A chunk as histories are shown."""
    return render_history(steps[chunk.first : chunk.last + 1], None)


# ---------------------------------------------------------------- one decision


class Situation(NamedTuple):
    """What a decision is made from."""

    goal: str
    context: str
    observation: str
    options: Options


Logprobs = tuple[float, ...]


@dataclass(frozen=True)
class Lookback:
    """A reader that may look back."""

    rule: Rule
    rules: RecallRules
    reader: Reader
    tokenizer: Tokenizer
    """Counts what a request adds to the context."""
    words: Words

    async def look(
        self, asked: Situation, plain: Logprobs, steps: Sequence[Step], reveal: int
    ) -> tuple[Recalled, Logprobs] | None:
        """The chunk that is seen again at the decision after `steps`, and the choice with it; None where none is.

        `plain` is the choice without any.
        """
        left = self.rules.requests - spent(steps)
        if left < 1 or (self.rule == "unsure" and entropy(plain) <= self.rules.entropy):
            return None
        titles = titles_of(steps, len(steps), reveal, self.rules.block, self.words)
        if not titles:
            return None
        options = (ACT, *titles)
        told = await self.reader.score(asked.goal, asked.context, asked.observation, options)
        if self.rule == "recall":
            picked = [most_likely(told, options)]
            if picked == [ACT]:
                return None
        else:
            picked = sorted(titles, key=lambda one: -told[options.index(one)])[: self.rules.tries]
        tries = await asyncio.gather(*(self._with(asked, steps, titles[one]) for one in picked))
        kept = min(range(len(tries)), key=lambda place: entropy(tries[place]))
        if self.rule == "unsure" and entropy(tries[kept]) >= entropy(plain):
            return None
        title = picked[kept]
        recalled = Recalled(
            chunk=titles[title],
            title=title,
            tokens=len(self.tokenizer.encode(shown_again(steps, titles[title]))),
            tried=len(tries),
            left=left - 1,
            nll_without=nll_of(plain, asked.options),
            argmax_without=most_likely(plain, asked.options.actions),
        )
        return recalled, tries[kept]

    async def _with(self, asked: Situation, steps: Sequence[Step], chunk: Chunk) -> Logprobs:
        context = with_chunk(asked.context, steps, chunk)
        return await self.reader.score(asked.goal, context, asked.observation, asked.options.actions)


def looked_back(step: Step) -> str | None:
    """What was seen again at a logged step, in words; None where nothing was."""
    seen = step.decision.recall if step.decision else None
    if seen is None:
        return None
    return f"{seen.title}: {seen.tokens} tokens, requests left {seen.left}, nll {seen.nll_without:.3f} without it"


def spent(steps: Sequence[Step]) -> int:
    """Requests so far."""
    return sum(step.decision is not None and step.decision.recall is not None for step in steps)


def entropy(logprobs: Sequence[float]) -> float:
    """Of a choice, in nats."""
    return -sum(exp(one) * one for one in logprobs)
