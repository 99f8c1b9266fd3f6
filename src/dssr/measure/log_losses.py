"""What a context costs a reader at a logged decision, by what the reader's model can give, and whether it responds.

| loss | needs | of |
|---|---|---|
| `label` | label probabilities | options that the log offers: -log p of the reference among them, as in games |
| `text` | likelihood of a given text | free text: -log p of the reference's *carried* tokens, the whole action beside |
| `choice` | samples alone | options, or the reference among actions not seen before: -log p, estimated without bias |

Every loss renders goal, context and current observation the same way for every context, so delta = beta + kappa.

`choice` counts draws until the reference comes up: with K draws the estimate of -log p is 1 + 1/2 + ... + 1/(K-1),
which has no bias, and its variance is estimated by 1 + 1/4 + ... + 1/(K-1)^2 (inverse binomial sampling). A draw is
blind with the chance `traces.lapse`, so the p in question is `(1 - lapse) p + lapse / options`: the wait is bounded.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dssr.agent.episode import Agent
from dssr.agent.prompts import Reader, actor_messages, most_likely, nll_of, render_history
from dssr.config import TracesConfig
from dssr.errors import ModelError, UsageError
from dssr.models.base import Generate, Likelihood, Message, Tokenizer, ask_likelihood
from dssr.seeds import rng_of, seed_of
from dssr.traces.facts import Value, occurs, past_of, places
from dssr.traces.trace import Trace
from dssr.types import LABELS, Options, Record
from dssr.worlds.base import lettered

Loss = Literal["label", "text", "choice"]
Stratum = Literal["carried", "repeat", "plain"]
"""`carried`: the action needs a value that only the context can tell. `repeat`: it was done before, word for word."""
TRIES = 16
"""Replies that are no letter, after which a sampled choice is given up."""
SHOWN = 300
"""Characters of an action as an option of a choice."""


class Scored(Record, frozen=True):
    """The loss of one context at one decision."""

    nll: float
    """The loss that counts: of the carried tokens where there are some, else of the whole action or choice."""
    whole: float
    """Of the whole action; equals `nll` for choices."""
    variance: float
    """Of `nll`, from sampling; 0 where it is computed."""
    hit: bool | None
    """Whether the reader's own answer is the reference; None where samples do not tell."""


@dataclass(frozen=True)
class LoggedDecision:
    """One logged decision, as the reader is asked it."""

    trace: str
    step: int
    goal: str
    observation: str
    reference: str
    options: Options | None
    values: tuple[Value, ...]
    """Carried values of the reference."""
    stratum: Stratum
    loss: Loss

    @property
    def counts(self) -> bool:
        """Whether the decision enters beta and kappa: repeats are cheap to a reader that copies, and a free text
        without carried values hangs on the style of its author."""
        if self.loss == "label":
            return True
        return self.stratum == "carried" if self.loss == "text" else self.stratum != "repeat"


class Judge:
    """Asks one reader about logged decisions."""

    def __init__(
        self, agent: Agent, config: TracesConfig, kinds: Sequence[Loss], pool: Sequence[str], seed: int
    ) -> None:
        self.agent, self.config, self.kinds, self.pool, self.seed = agent, config, tuple(kinds), tuple(pool), seed

    def question(self, trace: Trace, step: int) -> LoggedDecision:
        """The decision of a step."""
        here = trace.steps[step]
        assert here.decision is not None, f"step {step} is no decision"
        reference, offered = here.decision.reference, here.decision.options
        past = past_of(trace)
        values = tuple(past.carried(step, plain_words=bool(offered)))
        repeat = not offered and past.is_repeat(step)
        loss = next(
            (one for one in (("label", "choice") if offered else ("text", "choice")) if one in self.kinds), None
        )
        if loss is None:
            raise UsageError(
                f"The reader cannot be asked about step {step} of {trace.id} by {', '.join(self.kinds)}: "
                f"{'its options need label or choice' if offered else 'free text needs text or choice'}."
            )
        options = None
        if offered:
            options = Options(offered, reference, appended=False, dropped=0)
        elif loss == "choice":
            options = self._beside(trace, step, reference)
        stratum: Stratum = "repeat" if repeat else "carried" if values else "plain"
        return LoggedDecision(trace.id, step, trace.goal, here.observation, reference, options, values, stratum, loss)

    async def score(self, asked: LoggedDecision, context: str) -> Scored:
        """The loss of one context."""
        if asked.loss == "text":
            return await self._text(asked, context)
        assert asked.options is not None
        if asked.loss == "choice":
            return await self._choice(asked, asked.options, context)
        logprobs = await self.agent.reader.score(asked.goal, context, asked.observation, asked.options.actions)
        nll = nll_of(logprobs, asked.options)
        hit = most_likely(logprobs, asked.options.actions) == asked.options.reference
        return Scored(nll, nll, 0.0, hit)

    async def _text(self, asked: LoggedDecision, context: str) -> Scored:
        reader = self.agent.reader
        messages = actor_messages(self.agent.prompts.actor, asked.goal, context, asked.observation)
        found = await ask_likelihood(reader.model, Likelihood(messages, asked.reference, reader.adapter))
        whole = 0.0 - math.fsum(found.logprobs)
        ends = (*found.starts[1:], len(asked.reference))
        inside = [
            value
            for value, first, last in zip(found.logprobs, found.starts, ends, strict=True)
            if any(one.start < max(last, first + 1) and first < one.end for one in asked.values)
        ]
        return Scored(0.0 - math.fsum(inside) if inside else whole, whole, 0.0, all(found.best))

    async def _choice(self, asked: LoggedDecision, options: Options, context: str) -> Scored:
        messages = self.agent.reader.messages(asked.goal, context, asked.observation, options.actions)
        right = LABELS[options.actions.index(options.reference)]
        labels = LABELS[: len(options.actions)]
        content = [(message.role, message.content) for message in messages]
        nll = variance = 0.0
        for repeat in range(self.config.repeats):
            misses = 0
            while await self._draw(messages, labels, seed_of("choice", self.seed, content, repeat, misses)) != right:
                misses += 1
                nll += 1 / misses
                variance += 1 / misses**2
        return Scored(nll / self.config.repeats, nll / self.config.repeats, variance / self.config.repeats**2, None)

    async def _draw(self, messages: tuple[Message, ...], labels: Sequence[str], seed: int) -> str:
        """One sampled letter; a blind one now and then. Replies that are no letter are drawn again, as label
        probabilities leave them out too."""
        rng = rng_of("blind", seed)
        if rng.random() < self.config.lapse:
            return rng.choice(list(labels))
        reader = self.agent.reader
        for attempt in range(TRIES):
            request = Generate(messages, 1, 1.0, seed_of(seed, attempt), reader.adapter)
            answer = (await reader.model.generate(request)).text
            if answer in labels:
                return answer
        raise ModelError(f"{reader.model.name} answered with no letter in {TRIES} tries; it cannot be asked to choose.")

    def _beside(self, trace: Trace, step: int, reference: str) -> Options:
        """The reference among actions that were not seen before this step, drawn by content."""
        past = render_history(trace.steps[: step + 1], None)
        later = [one for one in trace.actions if one != reference]
        others = [one for one in dict.fromkeys((*later, *self.pool)) if one != reference and one not in past]
        rng_of("distractors", self.seed, trace.id, step).shuffle(others)
        chosen = dict.fromkeys(as_option(one) for one in others if as_option(one) != as_option(reference))
        if not chosen:
            raise UsageError(f"No action of these logs is new at step {step} of {trace.id}; audit more logs together.")
        return lettered(list(chosen)[: self.config.distractors], as_option(reference), trace.id, step)


def as_option(action: str) -> str:
    """An action on one line, as an option shows it."""
    return re.sub(r"\s*\n\s*", " / ", action.strip())[:SHOWN]


def lapsed(logprob: float, options: int, lapse: float) -> float:
    """The loss that sampled choices estimate, from a label's log-probability."""
    return -math.log((1 - lapse) * math.exp(logprob) + lapse / options)


PROBE = (Message("system", "Answer with a letter."), Message("user", "Options:\nA. wait\nB. go on\n\nAction:"))


async def able(reader: Reader) -> tuple[Loss, ...]:
    """What the reader's model can be asked, found out by asking."""
    found: list[Loss] = []
    try:
        await reader.score("Wait.", "", "Nothing.", ("wait", "go on"))
        found.append("label")
    except ModelError:
        pass
    try:
        await ask_likelihood(reader.model, Likelihood(PROBE, "wait", reader.adapter))
        found.append("text")
    except ModelError:
        pass
    return (*found, "choice")


# ---------------------------------------------------------------- does the reader respond?


class Control(Record, frozen=True):
    """One decision that needs an earlier value, read with it and without it."""

    trace: str
    step: int
    values: tuple[str, ...]
    nll_full: float
    """Under the full history."""
    nll_last: float
    """Under no context: the goal and the current observation alone."""
    nll_with: float
    """Under the lines of the history that hold the values."""
    nll_without: float
    """Under the same lines with the values deleted."""


class Response(Record, frozen=True):
    """A mean rise of the loss over decisions, with its standard error."""

    mean: float
    error: float
    """The larger of the standard errors over decisions and over traces."""

    def beyond(self, errors: float) -> bool:
        """Whether it is told from zero."""
        return self.mean > errors * self.error


class Sensitivity(Record, frozen=True):
    """Does the reader use what its context tells?"""

    decisions: int
    """Decisions that need an earlier value and are no repeats."""
    history: Response | None
    """Without any past, minus with the full history."""
    deletion: Response | None
    """Values deleted from lines that held them, minus the lines as they are."""
    sensitive: bool
    sentence: str


def control_contexts(
    trace: Trace, step: int, values: Sequence[str], budget: int, tokenizer: Tokenizer
) -> tuple[str, str]:
    """The newest lines of the history that hold the values, as many as the budget takes; and the same without the
    values."""
    lines = render_history(trace.steps[:step], trace.steps[step].action).split("\n")
    kept: list[str] = []
    for line in reversed(lines):
        if any(occurs(value, line) for value in values) and line not in kept:
            longer = [line, *kept]
            if len(tokenizer.encode("\n".join(longer))) > budget:
                break
            kept = longer
    text = "\n".join(kept)
    return text, without(text, values)


def without(text: str, values: Sequence[str]) -> str:
    """The text with every whole occurrence of the values deleted."""
    for value in sorted(values, key=len, reverse=True):
        for place in reversed(list(places(value, text))):
            text = text[:place] + text[place + len(value) :]
    return text


async def control(judge: Judge, trace: Trace, step: int, budget: int) -> Control:
    """Read one decision four times."""
    asked = judge.question(trace, step)
    values = tuple(dict.fromkeys(one.text for one in asked.values))
    full = render_history(trace.steps[:step], trace.steps[step].action)
    lines, deleted = control_contexts(trace, step, values, budget, judge.agent.tokenizer)
    if asked.loss == "label":  # a word of an option says little by itself: it is deleted from all that was seen
        lines, deleted = full, without(full, values)
    losses = [(await judge.score(asked, context)).nll for context in (full, "", lines, deleted)]
    return Control(trace.id, step, values, *losses)


def sensitivity(controls: Sequence[Control], config: TracesConfig) -> Sensitivity:
    """The verdict over all controls."""
    count = len(controls)
    if count < config.least:
        told = f"{count} decisions need an earlier value" if count != 1 else "1 decision needs an earlier value"
        sentence = f"Reader not tested: only {told}, and {config.least} are the least; fact survival alone is shown."
        return Sensitivity(count, None, None, False, sentence)
    history = response([(one.trace, one.nll_last - one.nll_full) for one in controls])
    deletion = response([(one.trace, one.nll_without - one.nll_with) for one in controls])
    good = history.beyond(config.sensitive) and deletion.beyond(config.sensitive)
    figures = (
        f"on {count} decisions that need an earlier value, taking the history away costs "
        f"{history.mean:.2f} ± {history.error:.2f} nats, deleting the value {deletion.mean:.2f} ± {deletion.error:.2f}"
    )
    sentence = f"Reader sensitive: {figures}."
    if not good:
        sentence = (
            f"Reader insensitive: {figures}, not both beyond {config.sensitive:g} standard errors; "
            "no β or κ is claimed, fact survival alone is shown."
        )
    return Sensitivity(count, history, deletion, good, sentence)


def response(rises: Sequence[tuple[str, float]]) -> Response:
    """Mean rise, with the larger of two standard errors: decisions of one trace are alike, and few traces say little
    of their spread."""
    values = np.array([rise for _, rise in rises])
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    traces = list(dict.fromkeys(name for name, _ in rises))
    if len(traces) > 1:
        mean, found = values.mean(), {name: list[float]() for name in traces}
        for name, rise in rises:
            found[name].append(rise - mean)
        sums = np.array([sum(one) for one in found.values()])
        error = max(error, float(np.sqrt(len(traces) / (len(traces) - 1) * (sums**2).sum()) / len(values)))
    return Response(float(values.mean()), error)
