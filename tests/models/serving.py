"""A model on the faulty server, and what it is asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dssr.errors import ModelError
from dssr.models.base import Choose, Generate, Message
from dssr.models.server import ServerModel

KEY = "sk-very-secret-1234"
PROMPT = (Message("system", "Answer with a letter."), Message("user", "Options:\nA: go north\nAction:"))
WRITE = Generate(PROMPT, max_tokens=16, temperature=0.7, seed=(1 << 62) + 5)
Open = Callable[..., ServerModel]


def refusal(model: ServerModel, request: Generate | Choose) -> str:
    with pytest.raises(ModelError) as caught:
        asyncio.run(ask(model, request))
    return str(caught.value)


async def ask(model: ServerModel, request: Generate | Choose) -> Any:
    return await (model.generate(request) if isinstance(request, Generate) else model.choose(request))
