"""Memories that write: the prompted formats, and a user's own class."""

import importlib
import inspect
from collections.abc import Callable

import msgspec

from dssr.agent.base import Kit, Memory
from dssr.agent.layout import writer_messages
from dssr.agent.structure import Gate, check_free, check_request
from dssr.agent.texts import RETENTION, Prompts
from dssr.errors import ConfigError, DssrError, ModelError
from dssr.models.base import Generate, Message
from dssr.seeds import SEED_BITS, digest_of, seed_of
from dssr.types import View

TRAINED = "dssr"
"""The summary prompt with a trained adapter: `dssr@NAME`."""


class Prompted:
    """Asks the model to update the state, under one retention instruction."""

    def __init__(self, kit: Kit, system: str) -> None:
        self.kit = kit
        self.system = system

    async def write(self, view: View, previous: str) -> str:
        return await self.sample(view, previous, self.kit.temperature, 0)

    async def sample(self, view: View, previous: str, temperature: float, index: int) -> str:
        """Reply number `index` to one request. Equal requests give equal replies, whichever episode asks."""
        messages = self.messages(view, previous)
        check_request(messages, view, previous)
        first = seed_of(self.kit.seed, [(message.role, message.content) for message in messages])
        request = Generate(
            messages=messages,
            max_tokens=self.kit.budget,
            temperature=temperature,
            seed=(first + index) % (1 << SEED_BITS) if temperature > 0 else 0,
            adapter=self.kit.adapter,
        )
        return (await self.kit.model.generate(request)).text

    def messages(self, view: View, previous: str) -> tuple[Message, ...]:
        return writer_messages(self.system, view, previous)


class Plugged:
    """A user's class. It is built anew for each write, so that nothing but the text can cross a step."""

    def __init__(self, kit: Kit, name: str) -> None:
        self.kit = kit
        self.name = name
        self.build = find_class(name)

    async def write(self, view: View, previous: str) -> str:
        gate = Gate(self.kit.model, lambda messages: check_free(messages, view, previous))
        try:
            state = await self.build(msgspec.structs.replace(self.kit, model=gate)).write(view, previous)
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


def split_name(memory: str) -> tuple[str, str | None]:
    """`dssr@round3` is the format `dssr` with the adapter `round3`."""
    style, _, adapter = memory.partition("@")
    if style == TRAINED and not adapter:
        raise ConfigError("The memory dssr needs its adapter: write dssr@NAME, NAME being one of the model's adapters.")
    return style, adapter or None


def load_memory(name: str, kit: Kit, prompts: Prompts) -> Memory:
    """The memory of this name, for a kit whose adapter is the one in the name."""
    style, adapter = split_name(name)
    if ":" in style:
        return Plugged(kit, style)
    if style != TRAINED and style not in RETENTION:
        known = ", ".join((*RETENTION, "dssr@ADAPTER", "full", "lastk", "oracle-b", "package.module:Class"))
        raise ConfigError(f"There is no memory {name!r}; use one of {known}.")
    kit = msgspec.structs.replace(kit, adapter=adapter)
    return Prompted(kit, prompts.writer(instruction_of(style), kit.budget))


def instruction_of(style: str) -> str:
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
