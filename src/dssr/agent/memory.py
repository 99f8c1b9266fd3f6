"""What a memory is, and the ones that are built in.

Implement `Memory.write` and you have one. It receives a `View` and its own previous state, nothing else: no options, no
reference action, no facts. The framework enforces the budget on whatever comes back. `load_memory` finds a memory by
its name: a prompted format, `dssr@ADAPTER`, or a user's `package.module:Class`.

`edit` asks for edits to numbered lines instead of a whole new state.

Contexts that nobody writes are references (`load_reference`): `full` is the whole history, `lastk` as much of its end
as fits, `mask` all actions with old observations left out, and `oracle-b` what an all-knowing writer would keep.
`enforce` is the budget: whatever a memory replies becomes a state of at most B tokens, and the log says what was done.
"""

import asyncio
import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from dssr.agent.plugged import Counter, HomeModel, OverrunError, find_class, in_thread, sources_of, told
from dssr.agent.prompts import (
    RETENTION,
    WRITER_FIELDS,
    Happened,
    Prompts,
    WatchedModel,
    check_free,
    check_request,
    render_history,
    writer_messages,
)
from dssr.agent.recall import RULES, split_rule
from dssr.errors import BudgetError, ConfigError, DssrError, ModelError
from dssr.models.base import MOST_CHARACTERS, Generate, Message, Model, Tokenizer
from dssr.seeds import SEED_BITS, digest_of, seed_of
from dssr.types import Record, View, Write

WRITE_SECONDS = 600.0
"""Most that one write of a user's memory may take, unless the configuration says otherwise."""


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
    seconds: float = WRITE_SECONDS
    """Most that one write of a user's memory may take, the model's time not counted."""

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
    """Only the returned text may cross from one step to the next: one write of each episode is asked for again at its
    end, and a memory that then answers differently (a class attribute, a file, a clock) makes the episode an error."""

    async def write(self, view: View, previous: str) -> str:
        """The new state, from this step's view and the previous state (empty at step 0)."""
        ...


# ---------------------------------------------------------------- by name

EDIT = "edit"
TRAINED = "dssr"
"""The summary prompt with a trained adapter: `dssr@NAME`."""


def load_memory(name: str, kit: Kit, prompts: Prompts) -> Memory:
    """The memory of this name, built from the kit with the adapter in the name."""
    check_memory(name)
    style, adapter = split_name(name)
    kit = msgspec.structs.replace(kit, adapter=adapter)
    style, _ = split_rule(style)
    if ":" in style:
        return Plugged(kit, importable(style))
    if style == EDIT:
        return Edited(kit, prompts.writer(EDIT, kit.budget))
    return Prompted(kit, prompts.writer(instruction_of(style), kit.budget))


def check_memory(name: str) -> None:
    """Refuse a name that no memory has; it takes no model, so that it can be said before one is loaded."""
    style, _ = split_rule(split_name(name)[0])
    if ":" in style:
        find_class(importable(style))
    elif style not in (*RETENTION, EDIT, TRAINED) and not is_reference(name):
        known = ", ".join((*RETENTION, EDIT, "dssr@ADAPTER", FULL, *_BUDGETED, "package.module:Class", "file.py:Class"))
        raise ConfigError(
            f"There is no memory {name!r}; use one of {known}; one that writes may end in +{' or +'.join(RULES)}."
        )


def split_name(memory: str) -> tuple[str, str | None]:
    """`dssr@round3` is the format `dssr` with the adapter `round3`; any format or class may have one."""
    style, _, adapter = memory.partition("@")
    if split_rule(style)[0] == TRAINED and not adapter:
        raise ConfigError("The memory dssr needs its adapter: write dssr@NAME, NAME being one of the model's adapters.")
    return style, adapter or None


def with_adapter(style: str, adapter: str) -> str:
    """The name of a format with a trained adapter: `dssr@NAME` has the summary prompt, `belief@NAME` its own."""
    return f"{TRAINED if style == 'summary' else style}@{adapter}"


def importable(style: str) -> str:
    """`folder/file.py:Class` as `file:Class`, its folder made known to Python; any other name stays as it is."""
    module, _, attribute = style.partition(":")
    if not module.endswith(".py"):
        return style
    file = Path(module).resolve()
    if not file.is_file():
        raise ConfigError(f"There is no file {module} to take the memory {attribute} from.")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    return f"{file.stem}:{attribute}"


def instruction_of(style: str) -> str:
    """The format whose retention instruction a memory is written under."""
    style, _ = split_rule(style)
    return "summary" if style == TRAINED else style


def identity_of(name: str, prompts: Prompts) -> str:
    """Digest of the texts or the code that make a memory what it is, apart from the models."""
    style = importable(split_rule(split_name(name)[0])[0])
    if ":" in style:
        return digest_of(style, sources_of(style))
    if style in (*RETENTION, EDIT, TRAINED):
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
        """Reply number `index`; equal requests give equal replies, whoever asks."""
        return await self.kit.generate(self.messages(view, previous), temperature, index)

    async def samples(self, view: View, previous: str, temperature: float, count: int) -> list[str]:
        """So many replies asked together, as `sample` gives each; the request, which may be long, is made once."""
        messages = self.messages(view, previous)
        return await asyncio.gather(*(self.kit.generate(messages, temperature, index) for index in range(count)))

    def messages(self, view: View, previous: str) -> tuple[Message, ...]:
        """The request for one step, checked to hold its own fields and nothing of the reader's."""
        messages = writer_messages(self.system, view, previous)
        check_request(messages, view, previous)
        return messages


_EDIT = re.compile(r"(KEEP|DROP|REPLACE)\s+(\d+)\b[.:]?\s*(.*)|ADD\b[.:]?\s*(.+)")


class Edited:
    """Asks the model for edits to its numbered lines; a line that it does not mention stays.

    A reply without a single edit adds its lines: what is new is not lost because the model answered in plain words.
    Where the lines outgrow the budget, the oldest go first.
    """

    def __init__(self, kit: Kit, system: str) -> None:
        self.kit = kit
        self.system = system

    async def write(self, view: View, previous: str) -> str:
        """The previous lines with the reply's edits."""
        lines = previous.split("\n") if previous else []
        shown = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))
        messages = writer_messages(self.system, view, shown)
        check_request(messages, view, shown)
        kept = edited(lines, await self.kit.generate(messages))
        while len(kept) > 1 and len(self.kit.tokenizer.encode("\n".join(kept))) > self.kit.budget:
            del kept[0]
        return "\n".join(kept)


def edited(lines: Sequence[str], reply: str) -> list[str]:
    """The lines after the edits of a reply; numbers that no line has are no edits."""
    changed: dict[int, str | None] = {}
    added: list[str] = []
    asked = [line.strip(" -*\t") for line in reply.splitlines() if line.strip(" -*\t")]
    edits = [_EDIT.fullmatch(line) for line in asked]
    for edit in edits:
        if edit is None:
            continue
        if edit[4]:
            added.append(edit[4].strip())
        elif edit[1] != "KEEP" and 0 < int(edit[2]) <= len(lines):
            changed[int(edit[2])] = edit[3].strip() or None if edit[1] == "REPLACE" else None
    if not any(edits):
        added = asked
    old = [changed.get(number, line) for number, line in enumerate(lines, start=1)]
    return [line for line in (*old, *(line for line in added if line not in lines)) if line]


# ---------------------------------------------------------------- a user's own


class Plugged:
    """A user's class. It is built anew for each write, so that nothing but the text can cross a step.

    Each write has a thread and an event loop of its own: one that never ends, or that ends the program, costs its
    episode alone. What it asks of the model is answered where the run lives, and that time is not counted.
    """

    def __init__(self, kit: Kit, name: str) -> None:
        self.kit = msgspec.structs.replace(kit, tokenizer=Counter(kit.tokenizer))
        self.name = name
        self.build: Callable[[Kit], Memory] = find_class(name)

    async def write(self, view: View, previous: str) -> str:
        """What the user's class returns; whatever it raises becomes one sentence."""
        asked = HomeModel(WatchedModel(self.kit.model, lambda messages: check_free(messages, view, previous)))
        kit = msgspec.structs.replace(self.kit, model=asked)

        async def work() -> str:
            return await self.build(kit).write(view, previous)

        try:
            state = await in_thread(work, lambda: kit.seconds - asked.spent)
        except DssrError:
            raise
        except OverrunError:
            raise ModelError(
                f"The memory {self.name} took more than {kit.seconds:g} seconds for one write, not counting the model; "
                "mend it, or set agent.write_seconds."
            ) from None
        except Exception as error:
            raise ModelError(f"The memory {self.name} failed with {told(error)}.") from error
        if asked.refused is not None:  # a class that catches everything does not get round it
            raise asked.refused
        if not isinstance(state, str):
            raise ModelError(
                f"The memory {self.name} returned {type(state).__name__}; `write` must return the state's text."
            )
        return state


# ---------------------------------------------------------------- references

FULL = "full"
ORACLE_B = "oracle-b"
OracleLines = Callable[[bool], Sequence[str]]
"""The lines of `oracle-b` at one position, the most important first, in their long form (True) or their short one."""


class Reference(Protocol):
    """A context computed from the record instead of written: `full`, `lastk`, `mask`, `oracle-b`. Built in only."""

    def render(self, history: Sequence[Happened], last_action: str | None, oracle: OracleLines) -> str:
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

    def render(self, history: Sequence[Happened], last_action: str | None, oracle: OracleLines) -> str:
        """All of it."""
        return render_history(history, last_action)


class LastK:
    """The most recent steps that fit whole, then the last action."""

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: Sequence[Happened], last_action: str | None, oracle: OracleLines) -> str:
        """As many whole steps from the end as the budget holds."""
        shown = render_history((), last_action)
        for count in range(1, len(history) + 1):
            longer = render_history(history[-count:], last_action)
            if len(self.tokenizer.encode(longer)) > self.budget:
                break
            shown = longer
        return shown


STUB = "(observation left out)"


class Masked:
    """Observation masking: all actions, and the newest observations that fit; older ones become a stub.

    Where even the stubs do not fit, the oldest steps are left out.
    """

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: Sequence[Happened], last_action: str | None, oracle: OracleLines) -> str:
        """As many steps as fit with a stub each, then as many observations in full, newest first."""
        first = next(
            (n for n in range(len(history)) if self._fits(history[n:], len(history), last_action)), len(history)
        )
        shown = history[first:]
        masked = len(shown)
        while masked and self._fits(shown, masked - 1, last_action):
            masked -= 1
        return self._text(shown, masked, last_action)

    def _fits(self, steps: Sequence[Happened], masked: int, last_action: str | None) -> bool:
        return len(self.tokenizer.encode(self._text(steps, masked, last_action))) <= self.budget

    def _text(self, steps: Sequence[Happened], masked: int, last_action: str | None) -> str:
        """The steps with the first so many observations replaced by the stub."""
        stubs = [Stubbed(step.action, STUB) for step in steps[:masked]]
        return render_history([*stubs, *steps[masked:]], last_action)


class Stubbed(Record, frozen=True):
    """A step without what was seen."""

    action: str | None
    observation: str


class OracleB:
    """The reference context of this name."""

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: Sequence[Happened], last_action: str | None, oracle: OracleLines) -> str:
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


_BUDGETED: dict[str, Callable[[int, Tokenizer], Reference]] = {"lastk": LastK, "mask": Masked, ORACLE_B: OracleB}


def enforce(reply: str, budget: int, tokenizer: Tokenizer) -> Write:
    """The state that `reply` stands for. Enforcing a state a second time leaves it as it is."""
    if budget < 1:
        raise BudgetError(f"A budget of {budget} tokens leaves no room for a state; use at least 1.")
    text, notes = _clean(reply[:MOST_CHARACTERS])
    if len(reply) > MOST_CHARACTERS:
        notes.append(f"only the first {MOST_CHARACTERS} characters were read")
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
