"""`dssr cache`: what the response cache holds, and emptying it."""

from typing import TYPE_CHECKING

import typer

from dssr.cli import options
from dssr.cli.show import emit, say
from dssr.errors import UsageError

if TYPE_CHECKING:
    from dssr.models.cache import Cache


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The stored answers of models.", no_args_is_help=True)
    group.command("show")(show)
    group.command("clear")(clear)
    app.add_typer(group, name="cache")


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
