"""What is written for others, made again at any time from the stored runs: a report, which is page, tables and figures
in one folder, and runs for other programs, as Inspect logs, Parquet and CSV files.
"""

import datetime
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from dssr.errors import UsageError
from dssr.measure.comparisons import by_reader, reader_names, reader_rows, transfer_rows
from dssr.measure.study import Study
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.reports.page import memory_answers, study_view
from dssr.reports.paper import Setting, beside, reader_of
from dssr.reports.study_tables import Absent, setting_of, study_tables
from dssr.reports.tables import Table, inert_cell, latex, markdown, to_csv
from dssr.reports.training_tables import is_training, training_tables
from dssr.reports.view import Answer, PageView, aside, pack, render
from dssr.session import verb
from dssr.types import Audit, Cell, Episode, Lag, Record, Step, StoredPrompt

# ---------------------------------------------------------------- reports

Form = Literal["page", "markdown", "latex", "csv", "figures"]
FORMS: tuple[Form, ...] = ("page", "markdown", "latex", "csv", "figures")


class Report(Record, frozen=True):
    """What was made."""

    answers: list[Answer]
    tables: list[Table]
    absent: list[Absent]
    files: list[str]

    @property
    def page(self) -> str | None:
        """The page's file; None when it was not asked for, or when there was nothing to show on it."""
        return next((file for file in self.files if file.endswith("index.html")), None)


@verb
async def report(
    runs: Study | str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    forms: Sequence[Form] = FORMS,
    against: Literal["paper"] | None = None,
) -> Report:
    """Tables, figures and one self-contained page from stored runs; several are reported as one study.

    The folder is `out`, or lies beside the first run. `against="paper"` puts the published values beside ours.
    """
    if isinstance(runs, Study):
        paths: list[Path] = [run.path for run in runs.runs]
    else:
        paths = [Path(runs)] if isinstance(runs, (str, Path)) else [Path(one) for one in runs]
    if not paths:
        raise UsageError("No run was given; name at least one run directory.")
    folder = Path(out) if out else paths[0].parent / f"{paths[0].resolve().name}-report"
    return make_report(paths, folder, forms, against == "paper")


def make_report(
    paths: Sequence[str | Path], out: Path, forms: Sequence[Form] = FORMS, against_paper: bool = False
) -> Report:
    """Read the runs, refuse what cannot be compared, and write the forms asked for."""
    if not paths:
        raise UsageError("No run was given; name at least one run directory.")
    tables, absent, study = gather([Run.open(path) for path in paths], against_paper)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    files = _write_tables(tables, absent, out, forms)
    found, answers = write_pictures(study, tables, out, forms, against_paper)
    return Report(answers, tables, absent, [str(file) for file in (*files, *found)])


def gather(runs: Sequence[Run], against_paper: bool) -> tuple[list[Table], list[Absent], Study | None]:
    """The tables that runs give, those they cannot give, and the study of the episodes among them."""
    trained = [run for run in runs if is_training(run)]
    played = [run for run in runs if not is_training(run)]
    tables, absent = training_tables(trained)
    readers = by_reader(played)
    # One table never mixes readers: the study is that of the first, and the others stand beside it in one table.
    study = Study.load(next(iter(readers.values()))) if played else None
    if study is not None:
        matrix = transfer_rows(played) if len(readers) > 1 else []
        named = reader_names(readers).items()
        under = {name: study if place == 0 else Study.load(readers[key]) for place, (key, name) in enumerate(named)}
        mine, missing = study_tables(study, against_paper, matrix, reader_rows(under))
        tables, absent = [*mine, *tables], [*missing, *absent]
    if against_paper:
        settings = [setting_of(study, cell.protocol) for cell in study.cells] if study is not None else []
        settings += [Setting("valid", run.config.protocol.kind, reader_of(run.config)) for run in trained]
        tables = [one for table in tables for one in (table, *beside(table.name, dict.fromkeys(settings)))]
    return tables, absent, study


def _write_tables(tables: Sequence[Table], absent: Sequence[Absent], out: Path, forms: Sequence[Form]) -> list[Path]:
    files: list[Path] = []

    def write(file: Path, text: str) -> None:
        write_text(file, text)
        files.append(file)

    if "markdown" in forms:
        missing = "".join(f"- {one.name}: {one.reason}\n" for one in absent)
        text = "\n".join(markdown(table) for table in tables)
        write(out / "report.md", text + (f"\n### Not in these runs\n\n{missing}" if missing else ""))
    for table in tables:
        if "csv" in forms:
            write(out / "tables" / f"{table.name}.csv", to_csv(table))
        if "latex" in forms:
            write(out / "tables" / f"{table.name}.tex", latex(table))
    return files


def write_pictures(
    study: Study | None, tables: Sequence[Table], out: Path, forms: Sequence[Form], against_paper: bool
) -> tuple[list[Path], list[Answer]]:
    """The page and the figures, as far as asked for and as far as there is something to draw, and the answers."""
    files: list[Path] = []
    if "figures" in forms:
        # matplotlib is slow to load, and a table alone does not need it.
        from dssr.reports.figures import draw_figures, draw_training

        files += draw_training(tables, out / "figures")
    if study is None:
        return files, []
    packed = pack(study)
    if "page" in forms:
        files += write_page(study_view(study, packed, against_paper), out)
    if "figures" in forms:
        files += draw_figures(study, packed.curves, out / "figures")
    return files, memory_answers(study, packed)


def write_page(view: PageView, out: Path) -> list[Path]:
    """The page, and beside it the episodes that would make it too large; returns the files, the page first."""
    files = [out / "index.html"]
    write_text(files[0], render(view))
    for name, text in aside(view):
        files.append(out / name)
        write_text(files[-1], text)
    for old in {*(out / "episodes").glob("*.js")} - {*files}:
        old.unlink()
    return files


def write_text(file: Path, text: str) -> None:
    """A whole file, its folders made; a text that is no text (a lone half of a pair) is kept as it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode("utf-8", "surrogatepass"))


# ---------------------------------------------------------------- runs for other programs

LOGS: dict[str, type[Record]] = {
    "episodes": Episode,
    "steps": Step,
    "audits": Audit,
    "lags": Lag,
    "prompts": StoredPrompt,
}


Ending = Literal["inspect", "parquet", "csv"]


@verb
async def export(run: str | Path, form: Ending, *, out: str | Path) -> list[Path]:
    """A run for other programs: one Inspect log per cell, or one Parquet or CSV file per log."""
    opened = Run.open(run)
    return export_inspect(opened, Path(out)) if form == "inspect" else export_flat(opened, Path(out), form)


# ---------------------------------------------------------------- flat files


def flat_rows(run: Run, name: str) -> Iterator[dict[str, Any]]:
    """Records of one log as flat rows: nested fields joined by a dot, lists as JSON text, audits with δ, β, κ."""
    for key, record in run.read_keyed(name, LOGS[name]):
        row: dict[str, Any] = {"key": key}
        _flatten(msgspec.to_builtins(record), "", row)
        if isinstance(record, Audit):
            row |= {"delta": record.delta, "beta": record.beta, "kappa": record.kappa}
        if isinstance(record, Step):
            row["episode"] = key.partition(":")[0]
        yield row


def _flatten(value: dict[str, Any], prefix: str, row: dict[str, Any]) -> None:
    for name, one in value.items():
        if isinstance(one, dict):
            _flatten(one, f"{prefix}{name}.", row)
        else:
            row[f"{prefix}{name}"] = msgspec.json.encode(one).decode() if isinstance(one, list | tuple) else one


def export_flat(run: Run, out: Path, ending: str) -> list[Path]:
    """One file per log that the run holds; `ending` is `parquet` or `csv`."""
    import polars

    made = []
    for name in LOGS:
        rows = list(flat_rows(run, name))
        if ending == "csv":  # which people open in spreadsheets; Parquet keeps every text as it is
            rows = [{inert_cell(column): inert_cell(value) for column, value in row.items()} for row in rows]
        if not rows:
            continue
        # Optional parts (a step without a decision) leave columns out of some rows.
        columns = dict.fromkeys(column for row in rows for column in row)
        frame = polars.DataFrame([{c: row.get(c) for c in columns} for row in rows], infer_schema_length=None)
        made.append(_folder(out) / f"{name}.{ending}")
        packed = io.BytesIO()  # whole in memory, so that the file is whole or not there
        frame.write_parquet(packed) if ending == "parquet" else frame.write_csv(packed)
        write_whole(made[-1], packed.getvalue())
    if not made:
        raise UsageError(f"{run.path} holds no records to export; make some with `dssr diagnose`.")
    return made


# ---------------------------------------------------------------- Inspect


def export_inspect(run: Run, out: Path) -> list[Path]:
    """One Inspect log per cell, one sample per game; open the folder with `inspect view --log-dir`."""
    try:
        from inspect_ai.log import write_eval_log
    except ImportError as error:
        raise UsageError(
            "Inspect logs need the package inspect-ai; get it with `pip install 'dssr[inspect]'`."
        ) from error
    cells: dict[Cell, list[Episode]] = {}
    for episode in run.read("episodes", Episode):
        cells.setdefault(episode.job.cell, []).append(episode)
    if not cells:
        raise UsageError(f"{run.path} holds no episode to export; make some with `dssr diagnose`.")
    steps: dict[str, list[Step]] = {}
    for key, step in run.read_keyed("steps", Step):
        steps.setdefault(key.partition(":")[0], []).append(step)
    audits: dict[str, list[Audit]] = {}
    for audit in run.read("audits", Audit):
        audits.setdefault(audit.episode, []).append(audit)
    made = []
    for cell, episodes in cells.items():
        samples = [_sample(one, steps.get(one.key, []), audits.get(one.key, [])) for one in episodes]
        file = _folder(out) / f"{cell_slug(cell)}.eval"
        write_eval_log(_log(run, cell, episodes, samples), str(file))
        made.append(file)
    return made


def cell_slug(cell: Cell) -> str:
    """A file name for a cell."""
    safe = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in cell.memory)
    budget = "" if cell.budget is None else f"_b{cell.budget}"
    return f"{safe}{budget}_f{cell.filler}_{cell.protocol}"


def _log(run: Run, cell: Cell, episodes: Sequence[Episode], samples: list[Any]) -> Any:
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalMetric, EvalPlan, EvalResults, EvalScore, EvalSpec

    finished = [episode for episode in episodes if episode.outcome != "error"]
    won = sum(episode.outcome == "won" for episode in finished)
    metrics = {"accuracy": EvalMetric(name="accuracy", value=won / len(finished))} if finished else {}
    origin = run.info.provenance
    return EvalLog(
        status="success",
        eval=EvalSpec(
            created=_moment(origin.started),
            task=f"dssr/{cell_slug(cell)}",
            task_args=msgspec.to_builtins(cell),
            dataset=EvalDataset(
                name=run.config.games.archive, samples=len(episodes), sample_ids=[e.job.game for e in episodes]
            ),
            model=f"dssr/{run.config.writer_model.path}",
            config=EvalConfig(epochs=1),
            packages=dict(one.split("==", 1) for one in origin.packages if "==" in one),
            metadata={
                "models": run.info.models,
                "device": origin.device,
                "commit": origin.commit,
                "run": run.path.name,
            },
        ),
        plan=EvalPlan(name="constant-context agent"),
        results=EvalResults(
            total_samples=len(episodes),
            completed_samples=len(finished),
            scores=[EvalScore(name="won", scorer="won", scored_samples=len(finished), metrics=metrics)],
        ),
        samples=samples,
    )


def _moment(started: str) -> str:
    return datetime.datetime.fromisoformat(started).astimezone(datetime.timezone.utc).isoformat()


def _sample(episode: Episode, steps: Sequence[Step], audits: Sequence[Audit]) -> Any:
    from inspect_ai.log import EvalSample
    from inspect_ai.scorer import Score

    scores = {}
    if episode.outcome != "error":
        scores["won"] = Score(value=int(episode.outcome == "won"), answer=episode.outcome)
        scores["score"] = Score(value=episode.score / episode.max_score)
        for name in ("delta", "beta", "kappa") if audits else ():
            scores[name] = Score(value=sum(getattr(audit, name) for audit in audits) / len(audits))
    return EvalSample(
        id=episode.job.game,
        epoch=1,
        input=steps[0].observation if steps else episode.job.game,
        target="won",
        messages=[message for step in steps for message in _messages(step)],
        scores=scores or None,
        metadata=msgspec.to_builtins(episode) | {"audits": [_losses(audit) for audit in audits]},
        error=_error(episode.error) if episode.error is not None else None,
    )


def _error(text: str) -> Any:
    from inspect_ai.log import EvalError

    return EvalError(message=text, traceback=text, traceback_ansi=text)


def _losses(audit: Audit) -> dict[str, Any]:
    return {"step": audit.step, "delta": audit.delta, "beta": audit.beta, "kappa": audit.kappa}


def _messages(step: Step) -> list[Any]:
    """What was seen, and what was kept and done: a user and an assistant message."""
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser

    place = f"step-{step.index:04d}"
    facts: dict[str, Any] = {"step": step.index, "kind": step.kind, "room": step.place, "tokens": step.write.tokens}
    kept = step.write.state or f"({step.write.note or 'empty'})"
    reply = f"State:\n{kept}"
    if step.decision is not None:
        reply += f"\n\nAction: {step.decision.action}"
        facts |= {"reference": step.decision.options.reference, "nll": step.decision.nll}
        if step.decision.recall is not None:
            facts |= {"recall": msgspec.to_builtins(step.decision.recall)}
    seen = step.observation if step.action is None else f"> {step.action}\n{step.observation}"
    user = ChatMessageUser(id=f"{place}-seen", content=seen)
    return [user, ChatMessageAssistant(id=f"{place}-kept", content=reply, metadata=facts)]


def _folder(out: Path) -> Path:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    return out
