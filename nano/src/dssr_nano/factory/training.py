"""The training loop of nano, resumable: a training that was interrupted ends in the same weights.

Every row of a step has its gradient in a process of its own, all on the same shared weights. The gradients are added in
the order of their rows, so how many processes share them changes no bit of the result. Every row follows from its step
and place alone, so a training that is continued meets the rows it would have met.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save as packed
from torch import Tensor, nn
from torch.multiprocessing import get_context

from dssr.record.log import write_whole
from dssr_nano.factory.curriculum import rate_factor
from dssr_nano.factory.grow import grow
from dssr_nano.factory.losses import losses
from dssr_nano.factory.mixture import DataSettings, RowBuilder, load_encoder
from dssr_nano.factory.muon import Optimizer
from dssr_nano.factory.network import Network, Shape

CHECKPOINT = "checkpoint.safetensors"
"""One file, so that weights, optimizer and step are always of the same moment."""
NETWORK, OPTIMIZER = "network/", "optimizer/"
"""How the names of its tensors begin."""
PROGRESS = "progress"


@dataclass
class Progress:
    """Where training stands."""

    step: int = 0
    right: float = 0.0
    """Running share of right answers."""
    tokens: int = 0
    seconds: float = 0.0
    """Of a processor, over all processes."""


@dataclass(frozen=True)
class TrainingPlan:
    """One training run."""

    folder: Path
    data: DataSettings
    shape: Shape
    steps: int
    """In all, also when it is interrupted; the curriculum says what they are and how large the rate is."""
    rate: float = 0.004
    processes: int = 2
    """Which share the work; they change no bit."""
    save_every: float = 240.0
    """Seconds between checkpoints."""
    start_from: Path | None = None
    """Folder of a network to start from; else its first weights are made."""


def train(plan: TrainingPlan, report: Callable[[Progress], None]) -> Progress:
    """Trains up to the last step; goes on from the last checkpoint if there is one."""
    torch.manual_seed(plan.data.seed)
    network = network_of(plan)
    optimizer = Optimizer(network, plan.rate)
    progress = load(plan.folder, network, optimizer)
    saved, asked = time.monotonic(), _asked_to_stop()
    stream = gradients(network, plan.data, progress.step, plan.processes)
    while progress.step < plan.steps and not asked:
        begun = time.process_time()
        seen = next(stream)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step(rate_factor(plan.data.role, progress.step))
        _account(progress, seen, time.process_time() - begun)
        report(progress)
        if time.monotonic() - saved > plan.save_every:
            save(plan.folder, network, optimizer, progress)
            saved = time.monotonic()
    save(plan.folder, network, optimizer, progress)
    stream.close()  # type: ignore[attr-defined]
    return progress


def _asked_to_stop() -> list[int]:
    """Fills up when the process is told to end, so that the loop can save first."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    return asked


def network_of(plan: TrainingPlan) -> Network:
    """A network with its first weights."""
    encoder = load_encoder(plan.data.tokenizer)
    network = Network(plan.shape, encoder.init_vocabulary, probed_layers(plan.shape))
    if plan.start_from is not None:
        grow(network, plan.start_from, encoder.tokenizer)
    return network


def probed_layers(shape: Shape) -> tuple[int, ...]:
    """The options are judged well before the last layers, which then only fetch the label."""
    return (shape.depth - 2, shape.depth - 1)


def _account(progress: Progress, seen: dict[str, float], own: float) -> None:
    progress.step += 1
    progress.tokens += int(seen["tokens"])
    progress.seconds += seen["seconds"] + own
    progress.right += 0.04 * (seen.get("right", progress.right) - progress.right)


def save(folder: Path, network: Network, optimizer: Optimizer, progress: Progress) -> None:
    """Puts a checkpoint in the place of the last one; whoever is killed here keeps that."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{NETWORK}{name}": value for name, value in network.state_dict().items()}
    tensors |= {f"{OPTIMIZER}{name}": value for name, value in optimizer.state().items()}
    whole = {name: value.contiguous() for name, value in tensors.items()}
    write_whole(folder / CHECKPOINT, packed(whole, metadata={PROGRESS: json.dumps(asdict(progress))}))


def load(folder: Path, network: Network, optimizer: Optimizer | None) -> Progress:
    """The last checkpoint of a folder; a fresh start where there is none."""
    if not (folder / CHECKPOINT).exists():
        return Progress()
    with safe_open(str(folder / CHECKPOINT), framework="pt") as file:
        stored: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        progress = Progress(**json.loads(file.metadata()[PROGRESS]))
    network.load_state_dict(_part(stored, NETWORK))
    if optimizer is not None:
        optimizer.restore(_part(stored, OPTIMIZER))
    return progress


def _part(stored: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): value for name, value in stored.items() if name.startswith(start)}


# ---------------------------------------------------------------- gradients

PARTS = 2
"""Rows of one step."""

Metrics = dict[str, float]
"""What one step told: losses by name, tokens, seconds."""
SUMMED = ("tokens", "seconds")
"""What is not averaged over the parts; the seconds are a processor's, so other work beside it does not count."""


class Worker(NamedTuple):
    """The parent's side of a process."""

    connection: Connection
    parts: tuple[int, ...]
    """Which rows of each step are its own."""


def gradients(network: Network, data: DataSettings, first: int, processes: int) -> Iterator[Metrics]:
    """Fills the gradients of the network for step `first` and all after it; between two of them the weights may change.
    Yields what was seen over all parts."""
    network.share_memory()
    shared = [[_shared(one) for one in network.parameters()] for _ in range(PARTS)]
    context = get_context("spawn")
    workers, children = [], []
    for number in range(processes):
        here, there = context.Pipe()
        parts = tuple(range(number, PARTS, processes))
        child = context.Process(target=_work, args=(network, data, first, parts, shared, there), daemon=True)
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


def _gather(network: Network, workers: Sequence[Worker], shared: Sequence[Sequence[Tensor]]) -> Metrics:
    seen: dict[int, Metrics] = {}
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
    data: DataSettings,
    first: int,
    parts: Sequence[int],
    shared: Sequence[Sequence[Tensor]],
    connection: Connection,
) -> None:
    # The parent decides when to end; a signal to the whole group must not tear a step apart.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    builders, step, begun = {part: RowBuilder(data) for part in parts}, first, time.process_time()
    weights = list(network.parameters())
    while True:
        rows = [builder.row(step, part) for part, builder in builders.items()]
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
