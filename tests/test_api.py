"""dssr from Python: the public names, what importing costs, and the examples as a reader would run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import dssr
from dssr.session import Verb

ROOT = Path(__file__).parents[1]
VERBS = ["make_games", "diagnose", "lag", "audit", "fork", "check", "reader_train", "reader_accept", "train"]
VERBS += ["continuation", "evaluate", "gates", "report", "export", "plan", "play", "judge", "approve", "transfer"]
VERBS += ["reader_curve", "plan_audit"]
QUICK = "scripted"
"""Examples run with rules instead of a network here: what is tested is the way through the API."""


def run(code: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "nano" / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=environment)


def test_public_names_exist_and_are_documented() -> None:
    """Catches a name that is promised and not there, a verb without its async twin, and one that nobody explained."""
    for name in dssr.__all__:
        assert hasattr(dssr, name), name
        if name != "__version__":
            assert getattr(dssr, name).__doc__, name
    for name in VERBS:
        assert isinstance(getattr(dssr, name), Verb), name
    assert set(dssr.__all__) <= set(dir(dssr))
    with pytest.raises(AttributeError, match="no attribute 'diagnos'"):
        _ = dssr.diagnos


def test_verbs_stay_verbs_after_everything_was_imported(tmp_path: Path) -> None:
    """Catches a room of the package that hides the verb of the same name once it is imported."""
    code = (
        "import dssr, importlib, pkgutil\n"
        "skipped = ('dssr.models.vllm', 'dssr.testing')\n"
        "for found in pkgutil.walk_packages(dssr.__path__, 'dssr.'):\n"
        "    if found.name not in skipped: importlib.import_module(found.name)\n"
        f"print(sorted(n for n in {VERBS!r} if not hasattr(getattr(dssr, n), 'aio')))"
    )
    done = run(code, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def test_importing_is_light(tmp_path: Path) -> None:
    """Catches a heavy import at start: half a second of processor time is the promise, and nothing heavy is loaded."""
    code = (
        "import sys, time; begin = time.process_time(); import dssr; spent = time.process_time() - begin\n"
        "heavy = {'torch', 'transformers', 'polars', 'matplotlib', 'numpy', 'textworld'} & set(sys.modules)\n"
        "import json; print(json.dumps([spent, sorted(heavy)]))"
    )
    spent, heavy = json.loads(run(code, tmp_path).stdout)
    assert heavy == []
    assert spent < 0.5


def test_hello_runs(tmp_path: Path) -> None:
    """Catches a README whose ten lines of Python do not run: they are examples/hello.py, word for word."""
    hello = (ROOT / "examples" / "hello.py").read_text()
    body = hello.split('"""\n\n', 1)[1]
    assert f"```python\n{body}```" in (ROOT / "README.md").read_text()
    done = run(hello.replace('"demo"', '"quick.toml"').replace("[80]", "[64]"), quick(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "summary, 64 tokens: budget loss β =" in done.stdout
    assert Path(tmp_path, done.stdout.strip().splitlines()[-1].removeprefix("page: ")).is_file()


def test_own_memories_run(tmp_path: Path) -> None:
    """Catches an example memory that no longer fits the interface: all its episodes would be errors."""
    code = (ROOT / "examples" / "own_memory.py").read_text()
    (tmp_path / "own_memory.py").write_text(code)
    quick(tmp_path, "nano")  # a memory with words of its own needs a model that reads any
    done = run("import own_memory; own_memory.main('quick.toml')", tmp_path)
    assert done.returncode == 0, done.stderr
    (episodes,) = tmp_path.glob("runs/*/episodes.jsonl")
    rows = [json.loads(line) for line in episodes.read_text().splitlines()]
    assert {row["job"]["cell"]["memory"].rpartition(":")[2] for row in rows} == {"summary", "Newest", "Shortened"}
    assert [row["error"] for row in rows] == [None] * len(rows)


def test_own_traces_run(tmp_path: Path) -> None:
    """Catches the example of a log and a memory of one's own that no longer fits the interface."""
    (tmp_path / "own_trace.py").write_text((ROOT / "examples" / "own_trace.py").read_text())
    log = ROOT / "examples" / "logs" / "mini-swe-agent-issue.traj.json"
    done = run(f"import own_trace; own_trace.main({str(log)!r}, 'scripted')", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "own_trace:Values: " in done.stdout
    assert Path(tmp_path, done.stdout.strip().splitlines()[-1].removeprefix("page: ")).is_file()


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a verb that fails where an event loop runs already, and a study that does not show itself."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "nano" / "src")]))
    text = (ROOT / "examples" / "diagnosis.ipynb").read_text()
    text = text.replace('\\"demo\\"', '\\"quick.toml\\"').replace("[80]", "[64]")
    notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(quick(tmp_path))}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert "κ" in pages[0]
    assert any("index.html" in output.get("data", {}).get("text/plain", "") for output in shown)


def quick(folder: Path, base: str = QUICK) -> Path:
    """A folder with a configuration that plays the demo's games with rules instead of a network, or with few audits."""
    games = f'base = "{base}"\nname = "quick"\n[games]\narchive = "demo"\ntrain = 0\nvalid = 6\ntest = 0\n'
    (folder / "quick.toml").write_text(f"{games}[agent]\nbudgets = [64]\n[measure]\npoints = 1\noracle_samples = 2\n")
    return folder
