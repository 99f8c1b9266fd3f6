"""The training loop of nano: resumable, with a curriculum on the number of options and on the kind of context."""

import json
import math
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dssr.learn.nano.mixture import Dials, Recipe, rows, scribe_of
from dssr.learn.nano.muon import Optimizer
from dssr.learn.nano.network import Network, Shape, probe_loss, text_losses
from dssr.learn.nano.tree import Row

STEPS = "progress.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
LOOK = 0.3
"""Weight of looking where the answer is to be found."""
DECAY = 0.6
"""Last part of the training time, over which the rate falls to zero."""


@dataclass(frozen=True)
class Stage:
    """One stretch of the curriculum, left when the share of right answers passes."""

    shares: dict[str, float]
    options: int = 52
    """Most options shown."""
    plain: float = 0.0
    """Share of drills with one-word names."""
    filler: int = 40
    """Longest walk in the histories."""
    echo: float = 0.3
    passing: float = 0.85
    """In a stage without questions: the mean probability of the predicted text."""


STAGES = (
    Stage(
        {"look": 0.1, "drill": 0.45, "plan": 0.1, "oracle": 0.2, "full": 0.15, "writer": 0.6},
        options=16,
        plain=0.3,
        filler=0,
        passing=0.78,
    ),
    Stage(
        {"look": 0.05, "drill": 0.35, "plan": 0.05, "oracle": 0.25, "full": 0.2, "state": 0.1, "writer": 0.8},
        plain=0.1,
        filler=0,
    ),
    Stage(
        {"drill": 0.2, "oracle": 0.25, "state": 0.15, "full": 0.25, "writer": 1.2, "digest": 0.1},
        filler=0,
        echo=0.1,
        passing=0.88,
    ),
    Stage(
        {"drill": 0.04, "oracle": 0.15, "state": 0.25, "full": 0.06, "writer": 2.0, "digest": 0.12},
        echo=0.1,
        passing=2.0,
    ),
)


@dataclass
class Progress:
    """Where training stands."""

    step: int = 0
    stage: int = 0
    right: float = 0.0
    """Running share of right answers."""
    since: int = 0
    """Steps since the curriculum last moved."""
    tokens: int = 0
    seconds: float = 0.0

    def advance(self) -> bool:
        """Moves on when the model passes; says whether it did."""
        if self.since < 60 or self.right < STAGES[self.stage].passing or self.stage == len(STAGES) - 1:
            return False
        self.stage += 1
        self.since, self.right = 0, 0.0
        return True


@dataclass(frozen=True)
class Plan:
    """One training run."""

    folder: Path
    recipe: Recipe
    shape: Shape
    rate: float = 0.004
    warmup: int = 50
    seconds: float = 6000.0
    """Training time in all, over all sittings; see DECAY."""
    save_every: float = 240.0


def losses(network: Network, row: Row) -> tuple[Tensor, dict[str, float]]:
    """Answers, other text, and the probes; and what they were."""
    logits, probed = network(row)
    each = text_losses(logits, row)
    answers = torch.zeros(len(row.sources), dtype=torch.bool)
    answers[row.answers] = True
    weights = torch.tensor(row.weights)
    total = torch.zeros(())
    report: dict[str, float] = {"tokens": len(row.ids)}
    if row.answers:
        answer = each[answers].mean()
        probe = probe_loss(probed, row.choices)
        total = total + answer + 0.5 * probe
        hits = (logits[answers].argmax(-1) == torch.tensor(row.targets)[answers]).float().mean()
        report |= {"answer": answer.item(), "probe": probe.item(), "right": hits.item()}
    for kind, look in network.looks(row).items():
        total = total + LOOK * look
        report[kind] = look.item()
    if bool((~answers).any()):
        other = (each * weights)[~answers].sum() / weights[~answers].sum()
        total = total + weights[~answers].mean() * other
        report["text"] = other.item()
    return total, report


def rate_factor(progress: Progress, plan: Plan) -> float:
    warm = min(1.0, (progress.step + 1) / plan.warmup)
    left = 1.0 - progress.seconds / plan.seconds
    return warm * max(0.02, min(1.0, left / DECAY))


def train(plan: Plan, report: Callable[[Progress, dict[str, float]], None]) -> Progress:
    """Trains until the time is used up; goes on from the last checkpoint if there is one."""
    torch.manual_seed(plan.recipe.seed)
    network = network_of(plan)
    optimizer = Optimizer(network, plan.rate)
    progress = load(plan.folder, network, optimizer)
    dials = Dials()
    _turn(dials, progress)
    saved, asked = time.monotonic(), _asked_to_stop()
    stream = rows(plan.recipe, dials, progress.step)
    for row in stream:
        begun = time.monotonic()
        loss, seen = losses(network, row)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step(rate_factor(progress, plan))
        _account(progress, seen, time.monotonic() - begun)
        report(progress, seen)
        if progress.advance():
            _turn(dials, progress)
        done = progress.seconds >= plan.seconds or bool(asked)
        if done or time.monotonic() - saved > plan.save_every:
            save(plan.folder, network, optimizer, progress)
            saved = time.monotonic()
        if done:
            break
    stream.close()  # type: ignore[attr-defined]
    return progress


def _asked_to_stop() -> list[int]:
    """Fills up when the process is told to end, so that the loop can save first."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    return asked


def network_of(plan: Plan) -> Network:
    """A network with its first weights."""
    return Network(plan.shape, scribe_of(plan.recipe.tokenizer).tokens, probed_layers(plan.shape))


def probed_layers(shape: Shape) -> tuple[int, ...]:
    """The options are judged well before the last layers, which then only fetch the label."""
    return (shape.depth - 2, shape.depth - 1)


def _turn(dials: Dials, progress: Progress) -> None:
    stage = STAGES[progress.stage]
    dials.options.value = stage.options
    dials.mix(**stage.shares)
    dials.echo.value = stage.echo
    dials.plain.value = stage.plain
    dials.filler.value = stage.filler


def _account(progress: Progress, seen: dict[str, float], seconds: float) -> None:
    progress.step += 1
    progress.since += 1
    progress.tokens += int(seen["tokens"])
    progress.seconds += seconds
    passed = seen["right"] if "right" in seen else math.exp(-seen["text"])
    progress.right += 0.04 * (passed - progress.right)


def save(folder: Path, network: Network, optimizer: Optimizer, progress: Progress) -> None:
    """Writes a checkpoint beside the old one, then puts it in its place."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in ((WEIGHTS, network.state_dict()), (OPTIMIZER, optimizer.state())):
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.new")
        (folder / f"{name}.new").replace(folder / name)
    (folder / STEPS).write_text(json.dumps(asdict(progress)), encoding="utf-8")


def load(folder: Path, network: Network, optimizer: Optimizer | None) -> Progress:
    """The last checkpoint of a folder; a fresh start where there is none."""
    if not (folder / STEPS).exists():
        return Progress()
    network.load_state_dict(load_file(folder / WEIGHTS))
    if optimizer is not None:
        optimizer.restore(load_file(folder / OPTIMIZER))
    return Progress(**json.loads((folder / STEPS).read_text(encoding="utf-8")))
