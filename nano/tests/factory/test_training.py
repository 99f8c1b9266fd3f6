"""The stream of rows and the training loop: what a rebuild meets, and what an interruption changes (nothing)."""

import os
import random
import signal
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file

from dssr.seeds import digest_of
from dssr.worlds.archive import Archive
from dssr_nano import weights
from dssr_nano.factory.curriculum import CYCLES, STEPS, rate_factor, stage_at
from dssr_nano.factory.hints import AIM, BACK, HOME, UNDO
from dssr_nano.factory.mixture import BLOCK, DataSettings, RowBuilder, asked_at
from dssr_nano.factory.network import Shape
from dssr_nano.factory.training import CHECKPOINT, PARTS, Progress, TrainingPlan, gradients, network_of, train
from dssr_nano.factory.transcripts import STRAYED, Transcript, collect, read
from dssr_nano.networks import Role

SMALL = Shape(80, 6, 5, 64)


@pytest.fixture(scope="module")
def data(archive: Archive, vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> DataSettings:
    file = tmp_path_factory.mktemp("corpus") / "train.jsonl"
    collect(archive, archive.games("train", level=6)[:2], file, [(0, 0), (1, 0), (1, 20)], 1)
    return DataSettings((str(file),), str(vocabulary), seed=0, role="reader", tokens=500)


def test_a_row_follows_from_its_number_alone(data: DataSettings) -> None:
    """Catches rows that depend on the rows made before them: a continued training would see other data."""
    places = [(step, part) for step in range(BLOCK - 2, BLOCK + 3) for part in range(PARTS)]
    first, second = RowBuilder(data), RowBuilder(data)
    forward = {place: first.row(*place).ids for place in places}
    backward = {place: second.row(*place).ids for place in reversed(places)}
    assert forward == backward
    assert len({tuple(ids) for ids in forward.values()}) == len(places)


@pytest.mark.parametrize("role", ["reader", "writer", "house", "house-writer"])
def test_every_kind_of_tree_is_made(data: DataSettings, role: Role) -> None:
    """Catches a stage that names a kind nobody makes, or one that cannot be laid out."""
    builder = RowBuilder(data._replace(role=role))
    stages = [stage for cycle in CYCLES[role] for stage in cycle.stages]
    starts = [sum(stage.steps for stage in stages[:number]) for number in range(len(stages))]
    for start, stage in zip(starts, stages, strict=True):
        assert stage_at(role, start) is stage
        row = builder.row(start, 0)
        assert row.sources
        assert max(row.sources) < len(row.ids)
        assert bool(row.answers) == ("writer" not in role)
    assert stage_at(role, STEPS[role] + 100) is stages[-1]


ROWS = {
    "lookup": "e6888d67eb1c1a8a631ae3e232576b01",
    "plan": "d1a018ad0a3d31bf3f65d9b35eeedc89",
    "drill": "8acf1c8c50be746b94d671361cd5e2b1",
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_rebuild_meets_the_same_text(kind: str, tmp_path: Path) -> None:
    """Catches a word of a training prompt that was changed with the code around it, and another order of random draws:
    the shipped networks were made from these rows, and a rebuild must be."""
    blank = Transcript("train-6-000", "You are hungry! Let's cook a delicious meal.", 0, (), (), ())
    (tmp_path / "train.jsonl").write_bytes(msgspec.json.encode(("train-6-000/0/0", blank)) + b"\n")
    data = DataSettings((str(tmp_path / "train.jsonl"),), str(weights("reader")), seed=0, role="reader")
    made = RowBuilder(data).tree(kind, stage_at("reader", 0), random.Random(0))
    plain = [made.trunk, made.learn, *((branch.start, branch.ids, branch.learn) for branch in made.branches)]
    assert digest_of(msgspec.to_builtins(plain)) == ROWS[kind]


def test_steps_from_room_to_room_are_asked_for_beside_the_others(data: DataSettings) -> None:
    """Catches travels that are not recognised: after a walk the way back must be there, and asked for."""
    (walked,) = [one for key, one in read(Path(data.transcripts[0])) if key.startswith("train-6-000/20")]
    travels = asked_at(walked, 0, 50, random.Random(0))
    assert travels
    assert all(walked.steps[index].plan[0].startswith(("go ", "open ")) for index in travels)
    assert any(line.startswith("Way to ") for line in walked.steps[travels[0]].oracle[0])
    assert set(asked_at(walked, 2, 50, random.Random(0))) > set(travels)


def test_what_is_sought_is_always_asked_for(data: DataSettings) -> None:
    """Catches rare deeds left to chance: with nothing else asked for, every one of them must be there, and no other."""
    _, played = next(read(Path(data.transcripts[0])))
    found = asked_at(played, 0, 0, random.Random(0), " with knife")
    cuts = [index for index, step in enumerate(played.steps) if step.plan and step.plan[0].endswith(" with knife")]
    assert found == cuts
    assert len(cuts) > 1


def test_steps_bound_for_a_room_are_all_asked_for(data: DataSettings) -> None:
    """Catches ways to a rare room left to chance, and deeds that are done there counted as ways to it."""
    (walked,) = [one for key, one in read(Path(data.transcripts[0])) if key.startswith("train-6-000/20")]
    found = asked_at(walked, 0, 0, random.Random(0), bound="kitchen")
    assert found
    assert found == asked_at(walked, 0, 50, random.Random(0))  # in six rooms every way leads to the kitchen
    assert asked_at(walked, 0, 0, random.Random(0), bound="garden") == []


@pytest.mark.parametrize(
    ("role", "first", "second", "hints"),
    [
        ("reader", 5, 6, {HOME: True, BACK: False}),
        ("house", 0, 1, {AIM: False}),
        ("house", 3, 4, {AIM: True, UNDO: False}),
    ],
)
def test_looks_are_told_from_their_stage_on(
    archive: Archive, tmp_path: Path, role: Role, first: int, second: int, hints: dict[str, bool]
) -> None:
    """Catches hints that reach the steps before them: a rebuild would meet other rows than the first build did. `hints`
    has those of the second stage, and whether the first told them, too."""
    collect(archive, archive.games("train", level=6)[:1], tmp_path / "train.jsonl", [(1, 20), (STRAYED, 40)], 1)
    builder = RowBuilder(DataSettings((str(tmp_path / "train.jsonl"),), str(weights(role)), seed=0, role=role))
    stages = [stage for cycle in CYCLES[role] for stage in cycle.stages]
    starts = [0, *accumulate(stage.steps for stage in stages)]
    before, after = (
        {kind for step in range(starts[stage], starts[stage] + 6) for kind, _ in builder.row(step, 0).hints}
        for stage in (first, second)
    )
    assert {kind: kind in before for kind in hints} == hints
    assert hints.keys() <= after


def test_a_process_that_died_is_noticed(data: DataSettings, tmp_path: Path) -> None:
    """Catches a training that waits for ever: here the processes fail on their first row."""
    lost = data._replace(transcripts=(str(tmp_path / "nowhere.jsonl"),))
    network = network_of(TrainingPlan(tmp_path, data, SMALL, steps=1))
    with pytest.raises(RuntimeError, match="died"):
        next(gradients(network, lost, 0, processes=2))


def test_more_processes_change_no_bit(data: DataSettings, tmp_path: Path) -> None:
    """Catches gradients added in the order in which processes finish, and rows that go to two of them."""
    trained = [TrainingPlan(tmp_path / str(count), data, SMALL, steps=3, processes=count) for count in (1, 2)]
    for plan in trained:
        train(plan, lambda progress: None)
    left, right = (load_file(plan.folder / CHECKPOINT) for plan in trained)
    assert all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("role", ["reader", "writer", "house", "house-writer"])
def test_the_rate_rises_and_falls_with_every_course(role: Role) -> None:
    """Catches a second cycle at the rate with which the first one ended."""
    first = 0
    for cycle in CYCLES[role]:
        last = first + cycle.steps - 1
        assert rate_factor(role, first) < 0.1 * cycle.peak
        assert rate_factor(role, first + cycle.steps // 4) == cycle.peak
        assert rate_factor(role, last) == pytest.approx(0.02 * cycle.peak)
        first = last + 1
    assert first == STEPS[role]


def test_an_interrupted_training_ends_in_the_same_weights(data: DataSettings, tmp_path: Path) -> None:
    """Catches a checkpoint without optimizer, and rows skipped or met twice after a restart: bytes must be equal. Also
    one in several files: a kill between two of them would leave weights of one step and the number of another."""

    def go(folder: str, stop: int | None) -> Progress:
        def report(progress: Progress) -> None:
            if progress.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        return train(TrainingPlan(tmp_path / folder, data, SMALL, steps=6), report)

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert go("whole", None).step == 6
        assert go("stopped", 3).step == 3
        assert go("stopped", None).step == 6
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [file.name for file in (tmp_path / "stopped").iterdir()] == [CHECKPOINT]
    left, right = (load_file(tmp_path / name / CHECKPOINT) for name in ("whole", "stopped"))
    assert all(torch.equal(left[name], right[name]) for name in left)
