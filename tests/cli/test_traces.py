"""`dssr audit` and `dssr trace` as a user calls them."""

import csv
import json
import re
from pathlib import Path

from tests.cli.test_main import dssr

LOGS = Path(__file__).parents[2] / "examples" / "logs"


def test_from_a_log_to_the_page(tmp_path: Path) -> None:
    """Catches a way from one's own log to the page that breaks anywhere: check, plan, audit, report, export."""
    logs = [str(path) for path in sorted(LOGS.glob("*traj*"))]
    done = dssr("trace", "check", *logs, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4 traces, all good" in done.stdout
    asked = ("-c", "scripted", "-m", "summary", "-m", "lastk", "-b", "64", "--every", "2")
    done = dssr("audit", *logs, *asked, "--plan", "--price-in", "1", "--price-out", "2", "--json", cwd=tmp_path)
    plan = json.loads(done.stdout)
    assert plan["total"]["cost"] > 0
    assert plan["total"]["calls"] > plan["total"]["new_calls"] > 0
    assert not (tmp_path / "runs").exists()
    done = dssr("audit", *logs, *asked, "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in ("log by log", "Reader sensitive", "values that later actions need", "summary, 64 tokens: budget loss"):
        assert part in done.stdout + done.stderr, part
    told = re.search(r"cost: ([\d,]+) model calls, ([\d,]+) answered from the cache and ([\d,]+) computed", done.stdout)
    assert told is not None, done.stdout
    calls, cached, computed = (int(number.replace(",", "")) for number in told.groups())
    assert calls >= cached + computed > computed > plan["total"]["new_calls"] / 2
    done = dssr("report", "run", "-o", "report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "report" / "index.html").read_text()
    assert "decisions made as logged" in page
    assert "computed model calls" in page
    assert "minutes on the clock" in (tmp_path / "report" / "report.md").read_text()
    (cost,) = csv.DictReader((tmp_path / "report" / "tables" / "costs.csv").open())
    assert (int(cost["calls"]), int(cost["computed"])) == (calls, computed)
    assert int(cost["tokens_in"]) > 1000
    assert (tmp_path / "report" / "tables" / "blame.csv").is_file()
    assert (tmp_path / "report" / "tables" / "fact-survival.csv").is_file()
    done = dssr("trace", "export", *logs, "-o", "all.jsonl", cwd=tmp_path)
    assert "4 traces" in done.stdout
    shown = dssr("trace", "show", "all.jsonl", "--facts", cwd=tmp_path)
    assert "end_of_edit" in shown.stdout


def test_what_the_list_names_is_seen_nowhere(tmp_path: Path) -> None:
    """Catches a secret of a log that --redact lets through: into the terminal, an exported trace, the run, its cache or
    its page; and a list that cannot be read, which must stop everything."""
    secret = "ghp_s3cr3tTOKEN"
    log = (LOGS / "mini-swe-agent-issue.traj.json").read_text()
    (tmp_path / "log.json").write_text(log.replace("missing_colon", f"missing_{secret}"))
    (tmp_path / "list.txt").write_text("# tokens of any account\n/ghp_\\w+/\n")
    hidden = ("--redact", "list.txt")
    shown = dssr("trace", "show", "log.json", *hidden, cwd=tmp_path)
    assert "[redacted]" in shown.stdout
    told = [shown, dssr("trace", "export", "log.json", "-o", "traces.jsonl", *hidden, cwd=tmp_path)]
    asked = ("log.json", "-c", "scripted", "-m", "summary", "-m", "lastk", "-b", "64", "-o", "run")
    told.append(dssr("audit", *asked, *hidden, cwd=tmp_path))
    told.append(dssr("report", "run", "-o", "report", cwd=tmp_path))
    for done in told:
        assert done.returncode == 0, done.stderr
        assert secret not in done.stdout + done.stderr
    made = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "log.json"]
    assert {"traces.jsonl", "prompts.jsonl", "responses.db", "index.html"} <= {path.name for path in made}
    assert not [path for path in made if secret.encode() in path.read_bytes()]
    assert dssr("audit", *asked[:-1], "other", "--redact", "missing.txt", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "other").exists()


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    """Catches a traceback, or exit 0, on a log that cannot be audited; nothing is left behind."""
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "idle.jsonl").write_text('{"id": "a", "goal": "x", "steps": [{"observation": "o"}]}\n')
    for name, said in (("empty.jsonl", "is empty"), ("idle.jsonl", "no decision"), ("missing.jsonl", "cannot be read")):
        done = dssr("audit", name, "-c", "scripted", "-o", "run", cwd=tmp_path)
        assert done.returncode == 2, name
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert dssr("trace", "check", "idle.jsonl", cwd=tmp_path).returncode == 2
    assert not (tmp_path / "run").exists()
