"""A report on disk: page, tables and figures in one folder, made again at any time from the stored runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dssr.errors import UsageError
from dssr.measure.study import Study
from dssr.measure.transfer import by_reader, transfer_rows
from dssr.record.files import write_whole
from dssr.record.run import Run
from dssr.reports.page import Answer
from dssr.reports.paper import BESIDE, as_table
from dssr.reports.study_tables import Absent, study_tables
from dssr.reports.tables import Table, latex, markdown, to_csv
from dssr.reports.training_tables import is_training, training_tables
from dssr.session import verb
from dssr.types import Record

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
    opened = [Run.open(path) for path in paths]
    trained = [run for run in opened if is_training(run)]
    played = [run for run in opened if not is_training(run)]
    tables, absent = training_tables(trained)
    readers = by_reader(played)
    # One table never mixes readers: the study is that of the first, and the others stand beside it in one table.
    study = Study.load(next(iter(readers.values()))) if played else None
    if study is not None:
        mine, missing = study_tables(study, against_paper, transfer_rows(played) if len(readers) > 1 else ())
        tables, absent = [*mine, *tables], [*missing, *absent]
    if against_paper:
        tables = _with_paper(tables)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    files = _write_tables(tables, absent, out, forms)
    if trained and "figures" in forms:
        from dssr.reports.figures import draw_training

        files += draw_training(tables, out / "figures")
    answers: list[Answer] = []
    if study is not None:
        found, answers = _write_pictures(study, out, forms, against_paper)
        files += found
    return Report(answers, tables, absent, [str(file) for file in files])


def _with_paper(tables: Sequence[Table]) -> list[Table]:
    """Each table followed by the published ones of its kind."""
    found: list[Table] = []
    for table in tables:
        found += [table, *(as_table(name) for name in BESIDE.get(table.name, ()))]
    return found


def _write_tables(tables: Sequence[Table], absent: Sequence[Absent], out: Path, forms: Sequence[Form]) -> list[Path]:
    files = {}
    if "markdown" in forms:
        missing = "".join(f"- {one.name}: {one.reason}\n" for one in absent)
        text = "\n".join(markdown(table) for table in tables)
        files[out / "report.md"] = text + (f"\n### Not in these runs\n\n{missing}" if missing else "")
    for table in tables:
        if "csv" in forms:
            files[out / "tables" / f"{table.name}.csv"] = to_csv(table)
        if "latex" in forms:
            files[out / "tables" / f"{table.name}.tex"] = latex(table)
    for file, text in files.items():
        _write(file, text)
    return list(files)


def _write_pictures(
    study: Study, out: Path, forms: Sequence[Form], against_paper: bool
) -> tuple[list[Path], list[Answer]]:
    # The page and the figures bring jinja2 and matplotlib, which a table alone does not need.
    from dssr.reports.explorer import pack
    from dssr.reports.page import memory_answers, render_page

    files = []
    packed = pack(study)
    if "page" in forms:
        files.append(out / "index.html")
        _write(files[-1], render_page(study, packed, against_paper))
    if "figures" in forms:
        from dssr.reports.figures import draw_figures

        files += draw_figures(study, packed.curves, out / "figures")
    return files, memory_answers(study, packed)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode("utf-8", "surrogatepass"))
