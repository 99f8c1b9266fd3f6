"""A report on disk: page, tables and figures in one folder, made again at any time from the stored runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from dssr.errors import UsageError
from dssr.measure.study import Study
from dssr.measure.transfer import by_reader, reader_names, reader_rows, transfer_rows
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.reports.explorer import pack
from dssr.reports.page import memory_answers, study_view
from dssr.reports.paper import Setting, beside, reader_of
from dssr.reports.study_tables import Absent, setting_of, study_tables
from dssr.reports.tables import Table, latex, markdown, to_csv
from dssr.reports.training_tables import is_training, training_tables
from dssr.reports.view import Answer, PageView, aside, render
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
        write_text(file, text)
    return list(files)


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
    files = {out / "index.html": render(view)} | {out / name: text for name, text in aside(view).items()}
    for old in (out / "episodes").glob("*.js"):
        if old not in files:
            old.unlink()
    for file, text in files.items():
        write_text(file, text)
    return list(files)


def write_text(file: Path, text: str) -> None:
    """A whole file, its folders made; a text that is no text (a lone half of a pair) is kept as it is."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode("utf-8", "surrogatepass"))
