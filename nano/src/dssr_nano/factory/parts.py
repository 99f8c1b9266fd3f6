"""The gradient of a step in parts: every row in a process of its own, all on the same shared weights.

The parts are added in the order of their rows, so how many processes share them changes no bit of the result.
Every row follows from its step and place alone, so a training that is continued meets the rows it would have met.
"""

import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing import get_context

from dssr_nano.factory.losses import losses
from dssr_nano.factory.mixture import Maker, Recipe
from dssr_nano.factory.network import Network

PARTS = 2
"""Rows of one step."""

Seen = dict[str, float]
SUMMED = ("tokens", "seconds")
"""What is not averaged over the parts; the seconds are a processor's, so other work beside it does not count."""


class Worker(NamedTuple):
    """The parent's side of a process."""

    connection: Connection
    parts: tuple[int, ...]
    """Which rows of each step are its own."""


def gradients(network: Network, recipe: Recipe, first: int, processes: int) -> Iterator[Seen]:
    """Fills the gradients of the network for step `first` and all after it; between two of them the weights may change.
    Yields what was seen over all parts."""
    network.share_memory()
    shared = [[_shared(one) for one in network.parameters()] for _ in range(PARTS)]
    context = get_context("spawn")
    workers, children = [], []
    for number in range(processes):
        here, there = context.Pipe()
        parts = tuple(range(number, PARTS, processes))
        child = context.Process(target=_work, args=(network, recipe, first, parts, shared, there), daemon=True)
        child.start()
        there.close()
        workers.append(Worker(here, parts))
        children.append(child)
    try:
        while True:
            yield _gather(network, workers, shared)
            for worker in workers:
                worker.connection.send(None)
    finally:
        for child in children:
            child.kill()


def _shared(like: Tensor) -> Tensor:
    made: Tensor = torch.zeros_like(like).share_memory_()  # type: ignore[no-untyped-call]
    return made


def _gather(network: Network, workers: Sequence[Worker], shared: Sequence[Sequence[Tensor]]) -> Seen:
    seen: dict[int, Seen] = {}
    for worker in workers:
        try:
            seen |= zip(worker.parts, worker.connection.recv(), strict=True)
        except (EOFError, OSError):
            raise RuntimeError("A process that makes nano's gradients died; its error is above.") from None
    for place, weight in enumerate(network.parameters()):
        weight.grad = torch.stack([part[place] for part in shared]).sum(0) / PARTS
    ordered = [seen[part] for part in range(PARTS)]
    kinds = dict.fromkeys(kind for one in ordered for kind in one)
    told = {kind: [one[kind] for one in ordered if kind in one] for kind in kinds}
    return {kind: sum(values) / (1 if kind in SUMMED else len(values)) for kind, values in told.items()}


def _work(
    network: Network,
    recipe: Recipe,
    first: int,
    parts: Sequence[int],
    shared: Sequence[Sequence[Tensor]],
    connection: Connection,
) -> None:
    # The parent decides when to end; a signal to the whole group must not tear a step apart.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    makers, step, begun = {part: Maker(recipe) for part in parts}, first, time.process_time()
    weights = list(network.parameters())
    while True:
        rows = [maker.row(step, part) for part, maker in makers.items()]
        if step > first:
            try:
                connection.recv()
            except EOFError:  # the parent is gone
                return
        seen = []
        for part, row in zip(parts, rows, strict=True):
            loss, told = losses(network, row)
            found = torch.autograd.grad(loss, weights, allow_unused=True)
            for slot, gradient in zip(shared[part], found, strict=True):
                slot.zero_() if gradient is None else slot.copy_(gradient)
            now = time.process_time()
            seen.append(told | {"seconds": now - begun})
            begun = now
        connection.send(seen)
        step += 1
