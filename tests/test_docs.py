"""The documents against the code: every field, table, configuration and link they name is there, none is missing."""

import ast
import asyncio
import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_main import dssr, tiny_study
from tests.test_imports import ROOMS
from typer.main import get_command

from dssr import config as configs
from dssr.cli.main import build
from dssr.errors import ConfigError
from dssr.reports.study_tables import MAKERS
from dssr.reports.training_tables import MAKES
from dssr.training import variants
from dssr.types import View

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dssr"
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("nano/**/*.md"), *SOURCE.rglob("*.md"))
    if not any(part.startswith(".") for part in page.relative_to(ROOT).parts)
)
RUNS = ROOT / "docs" / "run-directories.md"
HEADING = re.compile(r"^#{2,4} +(.*)$", re.M)
RECORD = re.compile(r"`([A-Z]\w+)`$")
LOG = re.compile(r"`(\w+)\.jsonl`")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class of the package by its name."""
    found: dict[str, ast.ClassDef] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        found |= {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    return found


def fields_of(name: str) -> dict[str, str]:
    """Field, under the name it is stored by, to its annotation."""
    return {
        stored_name(node.value) or node.target.id: ast.unparse(node.annotation)
        for node in classes()[name].body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def stored_name(default: ast.expr | None) -> str | None:
    """What `field(name=…)` says, where a field has another name on disk."""
    keywords = default.keywords if isinstance(default, ast.Call) else []
    return next((ast.literal_eval(word.value) for word in keywords if word.arg == "name"), None)


def is_record(name: str) -> bool:
    """Whether a class is stored as a record with fields of its own."""
    node = classes().get(name)
    return node is not None and any(isinstance(base, ast.Name) and base.id == "Record" for base in node.bases)


def sections(page: Path = RUNS) -> Iterator[tuple[str, str]]:
    """Heading and text of every section of a page."""
    _, *parts = re.split(r"^(#{2,4} .*)$", page.read_text(), flags=re.M)
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        yield heading.lstrip("# "), text


def described() -> dict[str, set[str]]:
    """Record to the fields in the first column of its section's table."""
    found: dict[str, set[str]] = {}
    for heading, text in sections():
        if (match := RECORD.search(heading)) and "\n|" in text:
            found[match[1]] = set(re.findall(r"^\| `(\w+)`", text, re.M))
    return found


def log_calls() -> Iterator[tuple[str, str | None]]:
    """Every log named where the code writes or reads one, with the record it is read as."""
    arguments = {"append": 3, "extend": 2, "read": 2, "read_keyed": 2}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
                continue
            first, last = node.args[0], node.args[-1]
            if arguments.get(node.func.attr) != len(node.args) or not isinstance(first, ast.Constant):
                continue
            reading = node.func.attr.startswith("read")
            yield str(first.value), last.id if reading and isinstance(last, ast.Name) else None


@pytest.mark.parametrize("name", sorted(described()))
def test_every_field_of_a_stored_record_is_described(name: str) -> None:
    """Catches a field added, renamed or taken away in the code while the page stays as it was."""
    assert name in classes(), f"docs/run-directories.md describes {name}, which no module defines"
    assert described()[name] == set(fields_of(name))


def test_records_inside_records_are_described() -> None:
    """Catches a nested record that the page mentions by type and never explains."""
    inner = {
        word
        for name in described()
        for annotation in fields_of(name).values()
        for word in re.findall(r"\w+", annotation)
        if is_record(word)
    }
    assert inner <= set(described())


def test_every_log_is_described_as_what_it_holds() -> None:
    """Catches a new log, and a log whose lines became another record."""
    told = {match[1]: heading for heading, _ in sections() if (match := LOG.match(heading))}
    for name, record in log_calls():
        assert name in told, f"docs/run-directories.md has no section for {name}.jsonl"
        assert record is None or told[name].endswith(f"`{record}`"), (name, record)


def test_every_table_of_the_report_is_explained() -> None:
    """Catches a table that the report makes and docs/report.md does not name, and a name that no table has any more."""
    text = "".join(text for heading, text in sections(ROOT / "docs" / "report.md") if heading.startswith("Tables"))
    assert set(re.findall(r"^\| `([a-z-]+)` \|", text, re.M)) == {*MAKERS, *MAKES}


def test_the_order_of_rooms_is_the_one_that_is_enforced() -> None:
    """Catches a house rearranged in the code and not in CONTRIBUTING.md."""
    (line,) = re.findall(r"^ {4}(errors settings .*)$", (ROOT / "CONTRIBUTING.md").read_text(), re.M)
    assert tuple(line.replace("|", " ").split()) == ROOMS


def test_the_citation_names_this_version() -> None:
    """Catches a release whose citation stayed behind."""
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    built = re.search(r'^version = "(\S+)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert cited is not None
    assert built is not None
    assert cited[1] == built[1]


PUBLISHED = ("README.md", "docs/method.md", "docs/paper.md", "docs/report.md", "src/dssr/reports/assets/study.html.j2")


@pytest.mark.parametrize("page", PUBLISHED)
def test_the_published_study_is_named(page: str) -> None:
    """Catches a page that speaks of "the published study" and leaves the reader to guess which."""
    references = (ROOT / "CITATION.cff").read_text().partition("references:")[2]
    (title,) = re.findall(r'title: "(.*)"', references)
    assert title in " ".join((ROOT / page).read_text().split())


def test_every_variant_is_explained() -> None:
    """Catches a way of training that no page names."""
    for page in ("method.md", "training.md"):
        text = (ROOT / "docs" / page).read_text()
        assert all(f"`{name}`" in text for name in variants.names(configs.load("paper").writer)), page
    training = (ROOT / "docs" / "training.md").read_text()
    assert all(f"`{name}`" in training for name in variants.BEYOND)


def blocks(language: str) -> dict[str, str]:
    """Fenced blocks of a language by page and number."""
    found: dict[str, str] = {}
    for page in PAGES:
        matching = [text for kind, text in FENCE.findall(page.read_text()) if kind == language]
        found |= {f"{page.relative_to(ROOT)}:{place}": text for place, text in enumerate(matching, start=1)}
    return found


@pytest.mark.parametrize("name", blocks("toml"))
def test_every_configuration_shown_loads(name: str, tmp_path: Path) -> None:
    """Catches an example with a key that does not exist or that lacks one it needs."""
    file = tmp_path / "shown.toml"
    file.write_text(blocks("toml")[name])
    try:
        configs.load(str(file))
    except ConfigError as error:
        pytest.fail(f"{name}: {error}")


@pytest.mark.parametrize("name", blocks("python"))
def test_every_python_example_compiles(name: str) -> None:
    """Catches an example that cannot even be read; `await` at the top stands for a notebook."""
    compile(blocks("python")[name], name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_example_memory_does_what_the_page_says() -> None:
    """Catches an example that no longer fits the interface: imports, the constructor, `write`, one line per room."""
    scope: dict[str, Any] = {}
    exec(blocks("python")["docs/memory.md:1"], scope)  # the page's own text is what is tested
    memory = scope["LastSeen"](None)

    async def walked() -> str:
        state = ""
        for room, look in (("Kitchen", "An oven."), ("Pantry", "A shelf."), ("Kitchen", "An open oven.")):
            seen = View(goal="Cook.", last_action="go north", observation=f"-= {room} =-\n{look}\nNothing else.")
            state = await memory.write(seen, state)
        return state

    assert asyncio.run(walked()) == "-= Kitchen =- An open oven.\n-= Pantry =- A shelf."


def commands_shown() -> Iterator[tuple[str, list[str]]]:
    """Every `dssr …` that stands on a line of its own or between backticks, as words; remarks after # are no part."""
    for page in PAGES:
        text = FENCE.sub("", page.read_text())
        found = re.findall(r"^ {4}(dssr .*)$", text, re.M) + re.findall(r"`(dssr [^`]*)`", text)
        yield from ((str(page.relative_to(ROOT)), shlex.split(one, comments=True)[1:]) for one in found)


def test_every_command_shown_exists_with_its_options() -> None:
    """Catches a command or an option that was renamed while a page still shows the old one."""
    whole = get_command(build())
    for page, words in commands_shown():
        command: Any = whole
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        shown = f"{page}: dssr … {' '.join(words)}"
        assert command is not whole or words == ["--help"], shown
        known = {name for option in command.params for name in option.opts} | {"--help"}
        assert {word for word in words if re.match(r"--?[a-z]", word)} <= known, shown


def test_a_summary_holds_only_what_the_page_explains(archive: Any, tmp_path: Path) -> None:
    """Catches a field of `run.json` or `summary.json` that appears in a real run and nowhere on the page."""
    study = tiny_study(archive, tmp_path)
    done = dssr("diagnose", "--config", str(study), "--lag", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    named = set(re.findall(r"`(\w+)`", RUNS.read_text()))
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    keys = {*info, *info["provenance"], *keys_of(json.loads((tmp_path / "run" / "summary.json").read_text()))}
    assert {re.sub(r"_(low|high)$", "", key) for key in keys} <= named
    logs = {path.stem for path in (tmp_path / "run").glob("*.jsonl")}
    assert logs == {"episodes", "steps", "prompts", "audits", "lags", "searches", "costs"}


def keys_of(value: Any) -> set[str]:
    """Every key of a JSON document, at any depth."""
    if isinstance(value, dict):
        return {*value, *(key for inner in value.values() for key in keys_of(inner))}
    return {key for inner in value for key in keys_of(inner)} if isinstance(value, list) else set()


def anchor(heading: str) -> str:
    """The address that a Markdown page gives a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(page: Path) -> None:
    """Catches a link to a page that moved or a section that was renamed."""
    text = FENCE.sub("", page.read_text())
    for link in LINK.findall(text):
        if "://" in link:
            continue
        target, _, place = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{link} in {page.relative_to(ROOT)}"
        if place:
            assert place in {anchor(heading) for heading in HEADING.findall(file.read_text())}, link


@pytest.mark.parametrize("page", [ROOT / "LOG.md", ROOT / "nano" / "LOG.md"], ids=["findings", "nano"])
def test_a_log_has_a_verdict_for_every_entry(page: Path) -> None:
    """Catches an entry without a verdict in its title, or one that the table on top does not list."""
    text = page.read_text()
    assert "| date | claim | verdict | superseded by | run or command |" in text
    listed = set(re.findall(r"\(#([^)]+)\)", text))
    for heading in HEADING.findall(text):
        assert re.search(r"\(.*\b(stands|ships|mended|superseded|negative results?)\b.*\)$", heading), heading
        assert anchor(heading) in listed, heading
