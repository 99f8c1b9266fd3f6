"""What a memory is, and the ones that are built in.

Implement `Memory.write` and you have one. It receives a `View` and its own previous state, nothing else: no options, no
reference action, no facts. The framework enforces the budget on whatever comes back. `load_memory` finds a memory by
its name: a prompted format, `dssr@ADAPTER`, or a user's `package.module:Class`.

Contexts that nobody writes are references (`load_reference`): `full` is the whole history, `lastk` as much of its end
as fits, and `oracle-b` what an all-knowing writer would keep. `enforce` is the budget: whatever a memory replies
becomes a state of at most B tokens, and the log says what was done.
"""

import importlib
import inspect
import unicodedata
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from dssr.agent.prompts import (
    RETENTION,
    WRITER_FIELDS,
    Prompts,
    WatchedModel,
    check_free,
    check_request,
    render_history,
    writer_messages,
)
from dssr.errors import BudgetError, ConfigError, DssrError, ModelError
from dssr.models.base import Generate, Message, Model, Tokenizer
from dssr.seeds import SEED_BITS, digest_of, seed_of
from dssr.types import Record, Step, View, Write


class Kit(Record, frozen=True):
    """What a memory is built from: `Class(kit)`."""

    budget: int
    """Tokens a state may have, by `tokenizer`."""
    tokenizer: Tokenizer
    """The one that counts: the first reader's, whichever reads."""
    model: Model
    """The writer's model; a memory without a model ignores it."""
    adapter: str | None
    """Name of the writer's adapter; None for the bare model."""
    temperature: float
    """At which states are written."""
    seed: int
    """From which every request draws its own."""

    async def generate(self, messages: Sequence[Message], temperature: float | None = None, index: int = 0) -> str:
        """The model's reply to one request, at most the budget's tokens long.

        Its seed comes from the request and from `index`, the number of the sample: equal requests give equal replies,
        whichever episode asks.
        """
        heat = self.temperature if temperature is None else temperature
        first = seed_of(self.seed, [(message.role, message.content) for message in messages])
        request = Generate(
            messages=tuple(messages),
            max_tokens=self.budget,
            temperature=heat,
            seed=(first + index) % (1 << SEED_BITS) if heat > 0 else 0,
            adapter=self.adapter,
        )
        return (await self.model.generate(request)).text


class Memory(Protocol):
    """Only the returned text crosses from one step to the next."""

    async def write(self, view: View, previous: str) -> str:
        """The new state, from this step's view and the previous state (empty at step 0)."""
        ...


# ---------------------------------------------------------------- by name

TRAINED = "dssr"
"""The summary prompt with a trained adapter: `dssr@NAME`."""


def load_memory(name: str, kit: Kit, prompts: Prompts) -> Memory:
    """The memory of this name, built from the kit with the adapter in the name."""
    style, adapter = split_name(name)
    kit = msgspec.structs.replace(kit, adapter=adapter)
    if ":" in style:
        return Plugged(kit, style)
    if style != TRAINED and style not in RETENTION:
        known = ", ".join((*RETENTION, "dssr@ADAPTER", "full", "lastk", "oracle-b", "package.module:Class"))
        raise ConfigError(f"There is no memory {name!r}; use one of {known}.")
    return Prompted(kit, prompts.writer(instruction_of(style), kit.budget))


def split_name(memory: str) -> tuple[str, str | None]:
    """`dssr@round3` is the format `dssr` with the adapter `round3`; any format or class may have one."""
    style, _, adapter = memory.partition("@")
    if style == TRAINED and not adapter:
        raise ConfigError("The memory dssr needs its adapter: write dssr@NAME, NAME being one of the model's adapters.")
    return style, adapter or None


def with_adapter(style: str, adapter: str) -> str:
    """The name of a format with a trained adapter: `dssr@NAME` has the summary prompt, `belief@NAME` its own."""
    return f"{TRAINED if style == 'summary' else style}@{adapter}"


def instruction_of(style: str) -> str:
    """The format whose retention instruction a memory is written under."""
    return "summary" if style == TRAINED else style


def identity_of(name: str, prompts: Prompts) -> str:
    """Digest of the texts or the code that make a memory what it is, apart from the models."""
    style, _ = split_name(name)
    if ":" in style:
        try:
            return digest_of(style, inspect.getsource(find_class(style)))
        except (OSError, TypeError):
            return digest_of(style)
    if style in RETENTION or style == TRAINED:
        return digest_of(prompts.writer(instruction_of(style), 0))
    return digest_of(style)


# ---------------------------------------------------------------- memories that write


class Prompted:
    """Asks the model to update the state, under one retention instruction."""

    def __init__(self, kit: Kit, system: str) -> None:
        self.kit = kit
        self.system = system

    async def write(self, view: View, previous: str) -> str:
        """One reply to the step's request, at the temperature of the kit."""
        return await self.sample(view, previous, self.kit.temperature, 0)

    async def sample(self, view: View, previous: str, temperature: float, index: int) -> str:
        """Reply number `index` to one request. Equal requests give equal replies, whichever episode asks."""
        messages = self.messages(view, previous)
        check_request(messages, view, previous)
        return await self.kit.generate(messages, temperature, index)

    def messages(self, view: View, previous: str) -> tuple[Message, ...]:
        """The request for one step."""
        return writer_messages(self.system, view, previous)


class Plugged:
    """A user's class. It is built anew for each write, so that nothing but the text can cross a step."""

    def __init__(self, kit: Kit, name: str) -> None:
        self.kit = kit
        self.name = name
        self.build = find_class(name)

    async def write(self, view: View, previous: str) -> str:
        """What the user's class returns; whatever it raises becomes one sentence."""
        watched = WatchedModel(self.kit.model, lambda messages: check_free(messages, view, previous))
        try:
            state = await self.build(msgspec.structs.replace(self.kit, model=watched)).write(view, previous)
        except DssrError:
            raise
        except Exception as error:
            raise ModelError(f"The memory {self.name} failed with {type(error).__name__}: {error}.") from error
        if not isinstance(state, str):
            raise ModelError(
                f"The memory {self.name} returned {type(state).__name__}; `write` must return the state's text."
            )
        return state


def find_class(name: str) -> Callable[[Kit], Memory]:
    """The class that `package.module:Class` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The memory {name} cannot be imported: {error}.") from error
    if not callable(found) or not inspect.iscoroutinefunction(getattr(found, "write", None)):
        raise ConfigError(f"{name} is no memory: it needs to be a class with `async def write(self, view, previous)`.")
    return found  # type: ignore[no-any-return]


# ---------------------------------------------------------------- references

FULL = "full"
OracleLines = Callable[[bool], Sequence[str]]
"""The lines of `oracle-b` at one position, the most important first, in their long form (True) or their short one."""


class Reference(Protocol):
    """A context computed from the record instead of written: `full`, `lastk`, `oracle-b`. Built in only."""

    def render(self, history: tuple[Step, ...], last_action: str | None, oracle: OracleLines) -> str:
        """The reader's context at the step that follows `history`."""
        ...


def is_reference(name: str) -> bool:
    """Whether nobody writes this context: it is rendered from the record."""
    return name == FULL or name in _BUDGETED


def load_reference(name: str, budget: int | None, tokenizer: Tokenizer) -> Reference:
    """The reference context of this name; only `full` has no budget."""
    if name == FULL:
        return Full()
    if budget is None:
        raise ConfigError(f"The memory {name} needs a budget; only full goes without.")
    return _BUDGETED[name](budget, tokenizer)


class Full:
    """The whole rendered history, without a budget."""

    def render(self, history: tuple[Step, ...], last_action: str | None, oracle: OracleLines) -> str:
        """All of it."""
        return render_history(history, last_action)


class LastK:
    """The most recent steps that fit whole, then the last action."""

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: tuple[Step, ...], last_action: str | None, oracle: OracleLines) -> str:
        """As many whole steps from the end as the budget holds."""
        shown = render_history((), last_action)
        for count in range(1, len(history) + 1):
            longer = render_history(history[-count:], last_action)
            if len(self.tokenizer.encode(longer)) > self.budget:
                break
            shown = longer
        return shown


class OracleB:
    """The reference context of this name."""

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: tuple[Step, ...], last_action: str | None, oracle: OracleLines) -> str:
        """The long form if it fits, else as many lines of the short one as fit, the most important first."""
        long = oracle(True)
        if self._fits(long):
            return "\n".join(long)
        kept: list[str] = []
        for line in oracle(False):
            if not self._fits([*kept, line]):
                break
            kept.append(line)
        return "\n".join(kept)

    def _fits(self, lines: Sequence[str]) -> bool:
        return len(self.tokenizer.encode("\n".join(lines))) <= self.budget


_BUDGETED: dict[str, Callable[[int, Tokenizer], Reference]] = {"lastk": LastK, "oracle-b": OracleB}


def enforce(reply: str, budget: int, tokenizer: Tokenizer) -> Write:
    """The state that `reply` stands for. Enforcing a state a second time leaves it as it is."""
    if budget < 1:
        raise BudgetError(f"A budget of {budget} tokens leaves no room for a state; use at least 1.")
    text, notes = _clean(reply)
    ids = tokenizer.encode(text)
    state = text if len(ids) <= budget else _cut(ids, budget, tokenizer)
    return Write(
        state=state,
        tokens=len(tokenizer.encode(state)),
        raw_tokens=len(ids),
        truncated=len(ids) > budget,
        note="; ".join(notes) or None,
    )


def _cut(ids: list[int], budget: int, tokenizer: Tokenizer) -> str:
    """The longest beginning of `ids` whose decoded text takes at most `budget` tokens when encoded again."""
    for length in range(budget, 0, -1):
        text = _clean(tokenizer.decode(ids[:length]))[0]
        if len(tokenizer.encode(text)) <= budget:
            return text
    return ""


def _clean(reply: str) -> tuple[str, list[str]]:
    """Text that can be stored and shown everywhere, and what had to be changed for it."""
    notes: list[str] = []
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if any(unicodedata.category(char) == "Cs" for char in text):
        text = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) == "Cs" else char for char in text)
        notes.append("broken Unicode replaced")
    kept = "".join(char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc")
    if kept != text:
        notes.append("control characters removed")
    text = kept.strip()
    if not text:
        notes.append("empty reply")
    if sum(line.strip() in WRITER_FIELDS for line in text.split("\n")) > 1:
        notes.append("the reply repeats its prompt")
    return text, notes
