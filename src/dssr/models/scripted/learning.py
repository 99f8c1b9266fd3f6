"""How the scripted writer learns: its one parameter, the retention, is fitted to states that scored well.

An adapter is a folder with `scripted.json`. What a rewrite keeps of the recipe tells the retention it was written with:
of all facts the recipe is what the budget takes last. Imitation takes the mean share over the best states; preferences
move the retention by what the better states keep beyond the worse ones.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.models.scripted.claims import Claim
from dssr.models.scripted.formats import order_of, parse
from dssr.types import Record

ADAPTER = "scripted.json"


class Learnt(Record, frozen=True):
    """Content of an adapter of the scripted writer."""

    retention: float
    """Chance that a fact survives a rewrite."""


def read_adapter(folder: Path) -> float:
    """The retention that an adapter holds."""
    try:
        return msgspec.json.decode((folder / ADAPTER).read_bytes(), type=Learnt).retention
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelError(
            f"{folder} is no adapter of the scripted writer ({error}); train one with `dssr train`."
        ) from error


def write_adapter(folder: Path, retention: float, card: Mapping[str, Any]) -> None:
    """Make an adapter's folder, whole or not at all."""
    if folder.exists():
        raise ModelError(f"{folder} exists; an adapter is never overwritten, choose another folder.")
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    (draft / ADAPTER).write_bytes(msgspec.json.encode(Learnt(retention)))
    (draft / "card.json").write_text(json.dumps({**card, "retention": retention}, indent=1, sort_keys=True) + "\n")
    os.replace(draft, folder)


def imitated(examples: Iterable[tuple[Sequence[Message], str]]) -> float:
    """The retention with which these replies seem to be written."""
    return fmean(kept_share(messages, reply) for messages, reply in examples)


def preferred(start: float, pairs: Iterable[tuple[Sequence[Message], str, str]]) -> float:
    """The retention moved by what chosen replies keep beyond rejected ones."""
    gains = [kept_share(messages, chosen) - kept_share(messages, worse) for messages, chosen, worse in pairs]
    return min(max(start + fmean(gains), 0.0), 1.0)


def kept_share(messages: Sequence[Message], reply: str) -> float:
    """Share of the directives in the previous state that a reply keeps, but for those just done; 1 without any."""
    order = order_of(tuple(messages))
    action = order.view.last_action or ""
    old = {claim for claim in _directives(order.previous) if action.startswith("take ") or claim.args[1] not in action}
    return len(old & _directives(reply)) / len(old) if old else 1.0


def _directives(state: str) -> set[Claim]:
    return {claim for claim in parse(state) if claim.kind == "do"}
