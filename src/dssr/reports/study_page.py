"""A whole study as one page to send to a colleague: what reproduced, then every table and figure, and where each number
comes from. Also as Markdown, and as a LaTeX folder that compiles.

    stages = {"valid": ["runs/grid", "runs/grid-lag"], "test": ["runs/test"]}
    study_report(StudySources("nano", stages, "runs/ledger.jsonl"), Path("docs/study-nano"))

Stages may be missing: the page says what is not there and why. Numbers come from stored runs and the ledger alone.
"""

import base64
import shutil
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup
from msgspec import field

from dssr.errors import DssrError, UsageError
from dssr.measure.gates import Entry, Ledger
from dssr.record.log import SITTINGS
from dssr.record.run import Run
from dssr.reports.findings import Reproduction, outcomes, summary_sentence, verdict_word
from dssr.reports.paper import PrintedRow
from dssr.reports.study_tables import Absent
from dssr.reports.tables import (
    Table,
    cell_text,
    latex,
    latex_text,
    markdown,
    printed,
    prose,
    to_csv,
    typeset,
)
from dssr.reports.view import asset
from dssr.reports.write import gather, write_pictures, write_text
from dssr.stats.bootstrap import written
from dssr.types import Record

DIGEST_BYTES = 16
NOT_RESULTS = (*SITTINGS, "prompts.jsonl")
"""Logs that say how a run went, not what it found."""
SELECTS = (
    *("memory", "writer", "first", "second", "budget", "filler", "protocol", "condition", "reader", "round", "seed"),
    *("bin", "threshold", "kind", "candidates", "group", "score", "quantity", "iteration", "game", "step", "since"),
)
"""Fields of a row that say which stored records it is made from."""
COUNTS = ("games", "points", "steps", "pairs")


class StudySources(Record, frozen=True):
    """What a whole study is made from: all that its page needs."""

    name: str
    """For the title, for example the configuration's."""
    stages: dict[str, list[str]]
    """Stage to its run directories. Known stages: see `STAGES`; others are shown too, with all their tables."""
    ledger: str | None = None
    """The ledger's file."""
    roles: dict[str, str] = field(default_factory=dict)
    """Which memory of the test runs is which: `dssr`, `outcome`, `one_target`, `no_hint`."""


class StageView(Record, frozen=True):
    """How a stage is shown."""

    title: str
    about: str
    tables: tuple[str, ...] = ()
    """Beginnings of the names of its tables; all tables when empty."""
    apart: tuple[str, ...] = ()
    """Published tables that belong to another split."""


VALID_TABLES, TEST_TABLES = ("paper-stage2full", "paper-stage2kappaB"), ("paper-test", "paper-testci", "paper-frontier")
STAGES = {
    "reader": StageView("The readers", "How well the trained readers choose, per kind of context."),
    "valid": StageView(
        "The validation grid", "Formats, budgets and fillers, with the measured lag; prompted writers.", (), TEST_TABLES
    ),
    "lag": StageView(
        "The write-time formats", "What gates look at on validation games, with the measured lag.", (), TEST_TABLES
    ),
    "pilot": StageView(
        "The protocol pilot",
        "Is filler lag? Only if it neither shows the facts again nor precedes them.",
        ("protocol", "paper-pilot"),
    ),
    "continuation": StageView(
        "Score against return", "Does the training score foretell how a continued episode ends?", ("score",)
    ),
    "writer": StageView("Training the writer", "Rounds, variants, seeds, and what the training signal could see."),
    "lag-grid": StageView(
        "The finer lag grid", "Success at many fillers, and by where the task begins.", ("lag-g", "paper-lag")
    ),
    "test": StageView(
        "The sealed test games",
        "Opened once: trained and prompted writers, and the second reader.",
        (),
        VALID_TABLES,
    ),
    "test-wide": StageView("Other memories on the test games", "Those that no gate looks at.", (), VALID_TABLES),
    "test-frontier": StageView("The budget frontier", "The other budgets on the test games.", (), VALID_TABLES),
}


class Source(Record, frozen=True):
    """One run directory: what another person's run can be compared with."""

    stage: str
    path: str
    command: str
    configuration: str
    device: str
    commit: str
    started: str
    rows: dict[str, int]
    """Rows per log."""
    digest: str
    """Of all result logs, by content: equal runs have equal ones."""


class Part(Record, frozen=True):
    """One stage on the page."""

    name: str
    title: str
    about: str
    tables: list[Table]
    figures: list[str]
    """Files, relative to the page."""
    runs: list[str]
    page: str | None
    """Its own page with the episodes, relative to this one."""
    problem: str | None = None
    """Why it cannot be shown."""


class StudyData(Record, frozen=True):
    """Everything on the page."""

    name: str
    outcomes: list[Reproduction]
    parts: list[Part]
    absent: list[Absent]
    ledger: list[Entry]
    sources: list[Source]

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return summary_sentence(self.outcomes)

    @property
    def measured(self) -> list[Reproduction]:
        """The findings that have a number here."""
        return [one for one in self.outcomes if one.ours is not None]

    @property
    def unmeasured(self) -> dict[tuple[str, str], list[Reproduction]]:
        """The others, by gate and reason."""
        found: dict[tuple[str, str], list[Reproduction]] = {}
        for one in self.outcomes:
            if one.ours is None:
                found.setdefault((one.finding.gate, one.why), []).append(one)
        return found

    @property
    def verdicts(self) -> list[Entry]:
        """The last verdict on each gate."""
        return list({entry.gate: entry for entry in self.ledger if entry.verdict is not None}.values())


def study_report(sources: StudySources, out: Path, against_paper: bool = True) -> list[Path]:
    """Write the page, its Markdown and LaTeX twins, and every table and figure; returns the files, the page first."""
    if not any(sources.stages.values()):
        raise UsageError("No stage of the study has a run; name at least one run directory.")
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; give a folder.")
    data = gather_study(sources, out, against_paper)
    files = {out / "index.html": render_html(data, out), out / "study.md": render_markdown(data)}
    for part in data.parts:
        for table in part.tables:
            files[out / "tables" / f"{table.name}.csv"] = to_csv(table)
            files[out / "latex" / "tables" / f"{table.name}.tex"] = latex(table)
    files[out / "latex" / "study.tex"] = render_latex(data)
    for file, text in files.items():
        write_text(file, text)
    figures = [out / name for part in data.parts for name in part.figures]
    for part in data.parts:
        for name in part.figures:
            figures.append(out / "latex" / _figure(part, name))
            figures[-1].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(out / name, figures[-1])
    return [*files, *figures]


def _figure(part: Part, name: str) -> str:
    """Where the LaTeX folder keeps a figure: the folder can be sent alone."""
    return f"figures/{part.name}-{Path(name).name}"


def gather_study(sources: StudySources, out: Path, against_paper: bool = True) -> StudyData:
    """Read every stage; figures and the stages' own pages are written on the way, since both may be large."""
    parts, absent, found = [], [], set()
    for name in [*(one for one in STAGES if one in sources.stages), *(n for n in sources.stages if n not in STAGES)]:
        part, missing = _part(name, sources.stages[name], out, against_paper)
        parts.append(part)
        absent += missing
        found |= {table.name.removeprefix(f"{name}-") for table in part.tables}
    ledger = Ledger(sources.ledger) if sources.ledger and Path(sources.ledger).exists() else None
    return StudyData(
        name=sources.name,
        outcomes=outcomes(sources.stages, ledger, sources.roles),
        parts=parts,
        absent=list({one.name: one for one in absent if one.name not in found}.values()),
        ledger=ledger.entries() if ledger else [],
        sources=[source_of(name, Run.open(path)) for name, paths in sources.stages.items() for path in paths],
    )


def _part(name: str, paths: Sequence[str], out: Path, against_paper: bool) -> tuple[Part, list[Absent]]:
    stage = STAGES.get(name, StageView(name, ""))
    try:
        tables, absent, study = gather([Run.open(path) for path in paths], against_paper)
        files, _ = write_pictures(study, tables, out / "stages" / name, ("page", "figures"), against_paper)
    except DssrError as error:
        return Part(name, stage.title, stage.about, [], [], list(paths), None, str(error)), []
    mine = [table for table in tables if table.name not in stage.apart]
    shown = [table for table in mine if not stage.tables or table.name.startswith(stage.tables)]
    named = [msgspec.structs.replace(table, name=f"{name}-{table.name}") for table in shown]
    figures = [str(file.relative_to(out)) for file in files if file.suffix == ".png"]
    page = next((str(file.relative_to(out)) for file in files if file.name == "index.html"), None)
    return Part(name, stage.title, stage.about, named, figures, list(paths), page), absent


def source_of(stage: str, run: Run) -> Source:
    """A run with its rows and the digest of its results."""
    origin = run.info.provenance
    digest, rows = blake2b(digest_size=DIGEST_BYTES), {}
    for file in sorted(run.path.glob("*.jsonl")):
        content = file.read_bytes()
        rows[file.stem] = content.count(b"\n")
        if file.name not in NOT_RESULTS:
            digest.update(file.name.encode() + b"\0" + content)
    commit = "unknown" if origin.commit is None else origin.commit[:10] + (" (changed)" if origin.dirty else "")
    name = f"{run.config.name} ({run.info.digest[:8]})"
    head = (stage, str(run.path), run.info.command, name, origin.device, commit, origin.started)
    return Source(*head, rows, digest.hexdigest())


# ---------------------------------------------------------------- where a number comes from


def origin_of(row: Record, part: Part) -> str:
    """The runs and rows that a line of a table is made from, in words."""
    if isinstance(row, PrintedRow):
        return "as published"
    known = [(name, getattr(row, name, None)) for name in SELECTS]
    chosen = ", ".join(
        f"{name} {value}" for name, value in known if isinstance(value, str | int | float) and value != ""
    )
    counts = [(name, getattr(row, name, None)) for name in COUNTS]
    size = ", ".join(f"{value} {name}" for name, value in counts if isinstance(value, int))
    return f"runs: {', '.join(part.runs)}; rows: {chosen or 'all'}{f' ({size})' if size else ''}"


# ---------------------------------------------------------------- a finding as a picture

WIDE, HIGH, EDGE = 170, 26, 8
"""Of the picture, in pixels."""


def picture(one: Reproduction) -> str:
    """Zero, our estimate with its interval, and the published one, on a scale of their own; an SVG."""
    ours, theirs = one.ours, one.published
    if ours is None:
        return ""
    mine = [ours.estimate, ours.low, ours.high]
    other = [] if theirs is None else [theirs.estimate, theirs.low, theirs.high]
    known = [0.0, *(value for value in (*mine, *other) if value is not None)]
    low, high = min(known), max(known)
    unit = (WIDE - 2 * EDGE) / ((high - low) or 1.0)

    def x(value: float | None) -> str:
        return f"{EDGE + ((value or 0.0) - low) * unit:.1f}"

    def line(ends: Sequence[float | None], y: int, color: str) -> str:
        if None in ends:
            return ""
        return f'<line x1="{x(ends[0])}" x2="{x(ends[1])}" y1="{y}" y2="{y}" stroke="{color}" stroke-width="2"/>'

    parts = [f'<line class="zero" x1="{x(0)}" x2="{x(0)}" y1="0" y2="{HIGH}"/>', line(mine[1:], 8, "var(--ink)")]
    parts.append(f'<circle cx="{x(ours.estimate)}" cy="8" r="4" fill="var(--ink)"/>')
    if theirs is not None:
        parts.append(line(other[1:], 19, "var(--accent)"))
        parts.append(f'<circle cx="{x(theirs.estimate)}" cy="19" r="3.5" fill="var(--card)" stroke="var(--accent)"/>')
    label = f"here {one.here}, published {one.there}, {one.finding.said}"
    head = f'<svg class="forest" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" role="img"'
    return f'{head} aria-label="{label}">{"".join(parts)}</svg>'


# ---------------------------------------------------------------- forms


def render_html(data: StudyData, out: Path) -> str:
    """One file: figures are inside it."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=printed
    )
    environment.globals |= {"cell_text": cell_text, "origin_of": origin_of, "verdict_word": verdict_word}
    environment.globals |= {"written": written, "picture": lambda one: Markup(picture(one))}
    environment.filters |= {"typeset": typeset, "prose": prose}
    script = "\n".join(asset(name) for name in ("util.js", "study.js"))
    pictures = {name: _inline(out / name) for part in data.parts for name in part.figures}
    return environment.from_string(asset("study.html.j2")).render(
        data=data,
        pictures=pictures,
        kind={"reproduced": "kept", "holds here": "kept", "the opposite here": "writer", "not shown here": "budget"},
        css=Markup(asset("page.css")),
        script=Markup(script),
    )


def _inline(file: Path) -> str:
    drawn = file.with_suffix(".svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"


def render_markdown(data: StudyData) -> str:
    """The same as text; figures are files beside it."""
    lines = [f"# Study: {data.name}", "", data.sentence, "", "| gate | finding | here | published | outcome |"]
    lines += ["|---|---|---|---|---|"]
    for one in data.outcomes:
        there = one.there if one.published is None else f"{one.there} ({one.published.where})"
        claim = f"{one.finding.claim}, {one.finding.said}"
        lines.append(f"| {one.finding.gate} | {claim} | {one.here} | {there} | {one.word} |")
    lines += ["", *(f"- {gate}, {len(found)} not measured: {why}" for (gate, why), found in data.unmeasured.items())]
    if data.verdicts:
        lines += [
            "",
            "## Gates",
            "",
            "| gate | verdict | check | estimate | threshold | detectable |",
            "|---|---|---|---|---|---|",
        ]
    for entry in data.verdicts:
        for line in check_lines(entry):
            lines.append("| " + " | ".join(line) + " |")
    for part in data.parts:
        lines += ["", f"## {part.title}", "", part.about, "", f"Runs: {', '.join(part.runs)}", ""]
        lines += [part.problem] if part.problem else []
        lines += [f"![{Path(name).stem}]({name})" for name in part.figures]
        lines += ["", *(markdown(table) for table in part.tables)]
    lines += ["", "## Ledger", "", *(f"- {e.date[:10]} {e.kind} {e.gate}: {e.text}" for e in data.ledger)]
    lines += ["", "## Not in these runs", "", *(f"- {one.name}: {one.reason}" for one in data.absent)]
    lines += [
        "",
        "## Sources",
        "",
        "| stage | run | command | configuration | rows | digest |",
        "|---|---|---|---|---|---|",
    ]
    for run in data.sources:
        rows = ", ".join(f"{name} {count:,}" for name, count in run.rows.items())
        lines.append(f"| {run.stage} | {run.path} | {run.command} | {run.configuration} | {rows} | `{run.digest}` |")
    return "\n".join(lines) + "\n"


def check_lines(entry: Entry) -> list[tuple[str, ...]]:
    """Of a verdict: gate, its word, and per check what, the estimate, the threshold, the detectable effect."""
    if entry.verdict is None:
        return []
    word, lines = verdict_word(entry.verdict), []
    for check in entry.verdict.checks:
        found = check.interval.text("number") if check.interval else written(check.estimate, "number")
        ends = ["–" if value is None else written(value, "number") for value in (check.threshold, check.detectable)]
        lines.append((entry.gate, word, check.what, found, *ends))
    return lines


HEAD = r"""\documentclass[10pt]{article}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx,array}
\usepackage[hidelinks]{hyperref}
\setlength{\tabcolsep}{4pt}
\begin{document}
"""


def render_latex(data: StudyData) -> str:
    """A document that inputs every table and shows every figure; `pdflatex study.tex` in its folder makes a PDF."""
    lines = [HEAD, rf"\title{{Study: {latex_text(data.name)}}}\date{{}}\maketitle", latex_text(data.sentence), ""]
    lines += [r"\section*{What reproduced}", r"\begin{longtable}{lp{6cm}lll}", r"\toprule"]
    lines += [r"gate & finding & here & published & outcome \\", r"\midrule\endhead"]
    for one in data.outcomes:
        cells = (one.finding.gate, f"{one.finding.claim}, {one.finding.said}", one.here, one.there, one.word)
        lines.append(" & ".join(map(latex_text, cells)) + r" \\")
    lines += [r"\bottomrule", r"\end{longtable}"]
    if data.verdicts:
        lines += [r"\section*{Gates}", r"{\small\begin{longtable}{llp{5.5cm}lll}", r"\toprule"]
        lines += [r"gate & verdict & check & estimate & threshold & detectable \\", r"\midrule\endhead"]
        lines += [" & ".join(map(latex_text, line)) + r" \\" for entry in data.verdicts for line in check_lines(entry)]
        lines += [r"\bottomrule", r"\end{longtable}}"]
    for part in data.parts:
        lines += [rf"\section*{{{latex_text(part.title)}}}", latex_text(part.about), ""]
        for name in part.figures:
            lines += [
                rf"\begin{{center}}\includegraphics[width=0.9\linewidth]{{{_figure(part, name)}}}\end{{center}}",
                "",
            ]
        lines += [rf"\input{{tables/{table.name}}}" for table in part.tables]
        lines.append(r"\clearpage")
    lines += [r"\section*{Sources}", r"\begin{itemize}"]
    lines += [
        rf"\item {latex_text(f'{one.stage}: {one.path}, {one.configuration}, {one.digest}')}" for one in data.sources
    ]
    return "\n".join([*lines, r"\end{itemize}", r"\end{document}", ""])


def as_json(data: StudyData) -> list[dict[str, Any]]:
    """The findings for programs."""
    return [
        {
            "gate": one.finding.gate,
            "claim": one.finding.claim,
            "here": None if one.ours is None else msgspec.to_builtins(one.ours),
            "published": None if one.published is None else msgspec.to_builtins(one.published),
            "outcome": one.word,
            "why": one.why,
        }
        for one in data.outcomes
    ]
