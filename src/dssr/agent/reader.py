"""The reader: a distribution over the options shown, from goal, context and observation alone."""

import random
from collections.abc import Sequence

from dssr.agent.prompts import load_prompts, reader_messages
from dssr.errors import ModelError
from dssr.models.base import Choose, Message, Model, Tokenizer
from dssr.types import LABELS, Options


class Reader:
    """A model with one adapter and one instruction."""

    def __init__(self, model: Model, adapter: str | None = None, instruction: str | None = None) -> None:
        self.model = model
        self.adapter = adapter
        self.instruction = load_prompts().reader if instruction is None else instruction

    @property
    def tokenizer(self) -> Tokenizer:
        """Its own; budgets are counted with the agent's, which may be another reader's."""
        return self.model.tokenizer

    def fingerprint(self) -> str:
        """Of the model with the reader's adapter; the instruction is not part of it."""
        return self.model.fingerprint(self.adapter)

    def messages(self, goal: str, context: str, observation: str, actions: Sequence[str]) -> tuple[Message, ...]:
        """The prompt for one decision."""
        return reader_messages(self.instruction, goal, context, observation, actions)

    async def score(self, goal: str, context: str, observation: str, actions: Sequence[str]) -> tuple[float, ...]:
        """Log-probability of each action, renormalised over these."""
        labels = LABELS[: len(actions)]
        messages = self.messages(goal, context, observation, actions)
        logprobs = (await self.model.choose(Choose(messages, labels, self.adapter))).logprobs
        if len(logprobs) != len(labels):
            raise ModelError(f"The reader scored {len(logprobs)} of {len(labels)} options; its backend must score all.")
        return logprobs

    async def nll(self, goal: str, context: str, observation: str, options: Options) -> float:
        """Decision loss of one context: -log p(a*)."""
        return nll_of(await self.score(goal, context, observation, options.actions), options)


def nll_of(logprobs: Sequence[float], options: Options) -> float:
    """Decision loss of a distribution over the options: -log p(a*)."""
    # A sure reader has log-probability 0, whose negation would be stored as -0.0.
    return 0.0 - logprobs[options.actions.index(options.reference)]


def most_likely(logprobs: Sequence[float], actions: Sequence[str]) -> str:
    """The argmax; among equals the first shown."""
    return actions[max(range(len(actions)), key=lambda place: logprobs[place])]


def explore(actions: Sequence[str], best: str, epsilon: float, rng: random.Random) -> str:
    """Epsilon-greedy: `best`, or with chance `epsilon` any action."""
    return rng.choice(actions) if rng.random() < epsilon else best
