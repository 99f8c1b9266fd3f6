"""The training loop of nano, resumable: a training that was interrupted ends in the same weights."""

import json
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save as packed
from torch import Tensor, nn

from dssr.record.files import write_whole
from dssr_nano.factory.curriculum import rate_factor
from dssr_nano.factory.grow import grow
from dssr_nano.factory.mixture import Recipe, scribe_of
from dssr_nano.factory.muon import Optimizer
from dssr_nano.factory.network import Network, Shape
from dssr_nano.factory.parts import gradients

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
class Plan:
    """One training run."""

    folder: Path
    recipe: Recipe
    shape: Shape
    steps: int
    """In all, over all sittings; the curriculum says what they are and how large the rate is."""
    rate: float = 0.004
    processes: int = 2
    """Which share the work; they change no bit."""
    save_every: float = 240.0
    """Seconds between checkpoints."""
    smaller: Path | None = None
    """Folder of a network to start from; else its first weights are made."""


def train(plan: Plan, report: Callable[[Progress], None]) -> Progress:
    """Trains up to the last step; goes on from the last checkpoint if there is one."""
    torch.manual_seed(plan.recipe.seed)
    network = network_of(plan)
    optimizer = Optimizer(network, plan.rate)
    progress = load(plan.folder, network, optimizer)
    saved, asked = time.monotonic(), _asked_to_stop()
    stream = gradients(network, plan.recipe, progress.step, plan.processes)
    while progress.step < plan.steps and not asked:
        begun = time.process_time()
        seen = next(stream)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step(rate_factor(plan.recipe.role, progress.step))
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


def network_of(plan: Plan) -> Network:
    """A network with its first weights."""
    scribe = scribe_of(plan.recipe.tokenizer)
    network = Network(plan.shape, scribe.tokens, probed_layers(plan.shape))
    if plan.smaller is not None:
        grow(network, plan.smaller, scribe.tokenizer)
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
