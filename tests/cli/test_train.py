"""`dssr train` on real games with a tiny real model: what it refuses, what it leaves behind, how it goes on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import make_tiny
from typer.testing import CliRunner, Result

from dssr.cli.main import build
from dssr.config import Config
from dssr.record.run import Run
from dssr.reports.write import make_report
from dssr.training import reader as assess
from dssr.training.reader_points import ReaderAccuracy
from dssr.training.results import RoundResult
from dssr.types import Episode
from dssr.worlds.archive import Archive

CONFIG = """
name = "tiny"
{top}
[games]
archive = "one"
levels = [1]
options = {{ recipe = 1, take = 1 }}
[protocol]
fillers = [0]
max_actions = 4
[writer_model]
backend = "hf"
path = "base"
dtype = "float32"
device = "cpu"
threads = 1
[agent]
budgets = [24]
{agent}
[measure]
points = 1
oracle_samples = 1
[stats]
resamples = 50
[reader]
accept = {accept}
accept_games = 1
[writer]
episodes_per_game = 1
points = 8
candidates = 3
targets = [1, 2]
gap = {gap}
rank = 2
alpha = 4
sft_batch = 4
dpo_batch = 4
selection_budget = 24
rounds = 1
"""


@pytest.fixture(scope="module")
def home(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and the games."""
    folder = tmp_path_factory.mktemp("train")
    make_tiny(folder / "base")
    (folder / "data").mkdir()
    (folder / "data" / "one").symlink_to(archive.folder / "one", target_is_directory=True)
    return folder


@pytest.fixture
def here(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    return home


def configured(name: str, accept: float = 0.0, gap: float = 0.0001, top: str = "", agent: str = "") -> str:
    Path(name).write_text(CONFIG.format(accept=accept, gap=gap, top=top, agent=agent))
    return name


def dssr(*arguments: str) -> Result:
    return CliRunner().invoke(build(), arguments)


def refused(*arguments: str) -> str:
    """The one sentence of a command that would not start."""
    done = dssr(*arguments)
    assert done.exception is not None, done.output
    assert getattr(done.exception, "exit_code", None) in (1, 2), done.exception
    sentence = str(done.exception)
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--variant", "k7"], "There is no variant 'k7'; use one of dssr, k1, no-hint, outcome, a4, chains,"),
        (["--rounds", "many"], "The rounds are 'many'; give one round or a range such as 0-1."),
        (["--rounds", "1-0"], "rounds rise from 0 to 1"),
        (["--rounds", "0-4"], "rounds rise from 0 to 1"),
        (["--rounds", "1"], "Round 1 starts from"),
        (["--variant", "k1"], "make them first, by this command with --variant dssr"),
        (["--variant", "no-hint", "--rounds", "0"], "no-hint learns from the candidates of dssr"),
        (["--seeds", "3"], "holds no trained line of seed 0; run `dssr train` without --seeds first"),
        (["--seeds", "3", "--rounds", "0"], "leave --rounds out"),
        (["--variant", "outcome"], "outcome learns from the candidates of dssr"),
        (["--variant", "a4"], "adapters/r0, which is not there; train the earlier rounds, by this command with"),
        (["--variant", "a4", "--rounds", "0-1"], "a4 begins with round 1"),
    ],
)
def test_what_cannot_start_says_so_and_leaves_nothing(here: Path, arguments: list[str], sentence: str) -> None:
    """Catches a traceback, models loaded for nothing, or a line left behind by a command that could not start."""
    assert sentence in refused("train", "-c", configured("plain.toml"), "-o", "nothing", "--force", *arguments)
    assert not Path("nothing").exists()


def test_a_backend_without_weights_is_refused(tmp_path: Path) -> None:
    """Catches an attempt to train a model whose weights lie elsewhere."""
    file = tmp_path / "served.toml"
    file.write_text('name = "served"\n[writer_model]\nbackend = "server"\nurl = "http://127.0.0.1:9/v1"\n')
    assert "A served model's weights are out of reach" in refused("train", "-c", str(file))


def test_the_curve_of_a_reader_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches sizes that do not reach the work, and a table that mixes context variants into the curve."""
    asked: dict[str, Any] = {}
    rows = [
        ReaderAccuracy(2, trained, memory, None, 60, 12, 0.5, accuracy, accuracy - 0.1, accuracy + 0.1)
        for trained, accuracy in ((0, 0.25), (4000, 0.75))
        for memory in ("all", "full")
    ]

    def work(config: str, **arguments: Any) -> Run:
        asked.update(arguments)
        if not (tmp_path / "curve").exists():
            with Run.start(tmp_path / "curve", command="reader-curve", config=Config(name="made"), models={}) as run:
                run.extend("reader_curve", [(row.key, row) for row in rows])
                run.finish({})
        return Run.open(tmp_path / "curve")

    monkeypatch.setattr(assess, "reader_curve", work)
    done = dssr("reader", "curve", "-c", "scripted", "--points", "2000", "--points", "4000", "--training", "there")
    assert done.exit_code == 0, done.output
    assert (asked["points"], asked["training"]) == ([2000, 4000], Path("there"))
    assert "0.75 [0.65, 0.85]" in done.output
    told = json.loads(dssr("reader", "curve", "-c", "scripted", "--json").stdout)
    assert [row["trained"] for row in told["curve"]] == [0, 4000]


def test_a_reader_must_have_been_accepted(here: Path) -> None:
    """Catches training on a reader nobody has judged, or on one that was judged and failed."""
    strict = configured("strict.toml", accept=0.8)
    assert "has not been accepted; run `dssr reader accept`" in refused("train", "-c", strict, "-o", "unread")
    judged = dssr("reader", "accept", "-c", strict, "-o", "judged", "--json")
    assert judged.exit_code == 1, judged.output
    verdict = json.loads(judged.stdout)
    assert verdict["accepted"] is False
    (noted,) = Path().glob("**/readers/*.json")
    assert json.loads(noted.read_text())["success"] == verdict["success"] < 0.8
    assert "below the 80 %" in refused("train", "-c", strict, "-o", "unread")
    assert not Path("unread").exists()
    other = configured("other.toml", accept=0.8, agent='prompts = "mine"')
    Path("mine").mkdir()
    Path("mine/reader.txt").write_text("Answer with a letter.")
    assert "has not been accepted" in refused("train", "-c", other, "-o", "unread")


def test_an_adapter_of_another_base_is_refused(here: Path, tmp_path: Path) -> None:
    """Catches a reader's adapter put on weights it was not trained on, which fits in every dimension."""
    from dssr.training import fit as lora

    stranger = make_tiny(tmp_path / "stranger", seed=7)
    fit = lora.Fit(
        base=str(stranger), seed=0, work=tmp_path / "work", out=tmp_path / "adapter", rate=1e-4, epochs=1, batch=1,
        warmup=0.0, rank=2, alpha=4,
    )  # fmt: skip
    lora.save(lora.fresh(fit), fit, {"name": "reader"})
    told = refused(
        "train", "-c", configured("plain.toml"), "-o", "nothing", "--force", "--adapter", str(tmp_path / "adapter")
    )
    assert "Adapter reader was trained on" in told
    assert not Path("nothing").exists()


def test_no_qualifying_pair_ends_cleanly(here: Path) -> None:
    """Catches an error code, or an end without the gaps that explain it."""
    done = dssr("train", "-c", configured("wide.toml", gap=1000.0), "-o", "wide", "--force")
    assert done.exit_code == 0, done.output
    assert "has no pair at least 1000 apart, so the line ends with round 0" in done.stdout
    assert "quartiles" in done.stdout
    summary = Run.open("wide/dssr-s0").summary
    assert summary is not None
    assert summary["ended"] in done.stdout


@pytest.mark.slow
def test_a_study_from_the_first_round_to_the_seeds(here: Path) -> None:
    """Catches a line that cannot be lengthened, a forced reader that is not recorded, output that programs cannot read,
    a variant that collects for itself, seeds that are not trained or that collect, a configuration of theirs that does
    not load, and rows that the report cannot use."""
    config = configured("plain.toml")
    common = ("train", "-c", config, "-o", "study", "--force", "--json")
    first = json_of(*common, "--rounds", "0")
    assert [row["round"] for row in first["rounds"]] == ["untrained", 0]
    assert first["expected"]["hours"] > 0
    assert {load["work"] for load in first["expected"]["loads"]} == {
        "collection", "candidates", "scoring", "training", "validation"
    }  # fmt: skip
    assert not first["finished"]
    assert Run.open("study/dssr-s0").info.arguments == {"variant": "dssr", "seed": 0, "forced": True}
    assert "continue it with --resume" in refused(*common)
    whole = json_of(*common, "--resume")
    assert [row["round"] for row in whole["rounds"]] == ["untrained", 0, 1]
    assert {load["work"] for load in whole["expected"]["loads"]} >= {"collection", "validation"}
    assert whole["finished"]
    assert "is finished" in refused(*common, "--resume")

    variant = json_of(*common, "--variant", "k1")
    assert {load["work"] for load in variant["expected"]["loads"]} == {"training", "validation"}
    assert not Path("study/k1-s0/round-0").exists()

    foreign = ("train", "-c", configured("foreign.toml", gap=0.5), "-o", "study", "--force", "--variant", "no-hint")
    assert "made with another configuration" in refused(*foreign)

    seeds = json_of(*common, "--seeds", "2")
    assert len({row["seed"] for row in seeds["seeds"]}) == 2
    assert seeds["selected"]["writer"] in ("dssr", "K=1")
    assert {load["work"] for load in seeds["expected"]["loads"]} == {"training", "validation"}
    assert not Path("study/dssr-s1").exists()
    assert not Path("study/k1-s1").exists()
    again = json_of(*common, "--seeds", "2")
    assert again == seeds | {"expected": {}}, "what is there is read, not trained again"
    measured = ("diagnose", "-c", seeds["config"], "-g", "1", "-o", "measured", "--json")
    assert json_of(*measured, *(part for one in seeds["memories"] for part in ("-m", one)))
    assert {one.job.cell.memory for one in Run.open("measured").read("episodes", Episode)} == {*seeds["memories"]}

    rows = list(Run.open("study/dssr-s0").read("rounds", RoundResult))
    assert [(row.writer, row.round) for row in rows] == [("untrained", -1), ("dssr", 0), ("dssr", 1)]
    assert rows[0].gain is None
    assert rows[1].gain is not None
    made = make_report([*seeds["lines"], "study/dssr-s0", "study/k1-s0"], Path("report"), ["csv"])
    wanted = {"rounds-success", "rounds-kappa", "rounds-gain", "horizon", "seeds", "credit", "pair-gaps", "coverage"}
    assert wanted <= {table.name for table in made.tables}


def json_of(*arguments: str) -> dict[str, Any]:
    done = dssr(*arguments)
    assert done.exit_code == 0, (done.exception, done.output)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.slow
def test_interrupted_training_says_how_to_go_on(here: Path) -> None:
    """Catches Ctrl-C that loses the line or prints a traceback; a resume then finishes it."""
    command = [
        sys.executable,
        "-m",
        "dssr.cli.main",
        "train",
        "-c",
        configured("plain.toml"),
        "-o",
        "stopped",
        "--force",
    ]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while child.poll() is None and not Path("stopped/dssr-s0/round-0/episodes.jsonl").exists():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    told = child.communicate()[1]
    assert child.returncode == 130, told
    assert "--resume" in told.strip().splitlines()[-1]
    assert "Traceback" not in told
    assert dssr(*command[3:], "--rounds", "0", "--resume").exit_code == 0
    assert Path("stopped/dssr-s0/adapters/r0/adapter_model.safetensors").exists()
