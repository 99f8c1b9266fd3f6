"""`dssr cache`: what the response cache holds, and emptying it."""

from typing import TYPE_CHECKING

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, emit, load_config, say
from dssr.errors import UsageError

if TYPE_CHECKING:
    from dssr.models.cache import Cache


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The stored answers of models.", no_args_is_help=True)
    group.command("show")(show)
    group.command("clear")(clear)
    app.add_typer(group, name="cache")


def show(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Entries and size of the cache."""
    cache = _open(config)
    stats = cache.stats()
    cache.close()
    emit({"file": stats.path, "entries": stats.entries, "bytes": stats.bytes, "limit": cache.limit}, as_json)


def clear(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Forget all answers. Runs are not touched; they only take longer to repeat."""
    cache = _open(config)
    entries = cache.stats().entries
    cache.clear()
    cache.close()
    say(f"{entries} answers forgotten", as_json)
    if as_json:
        emit({"cleared": entries}, as_json)


def _open(name: str) -> "Cache":
    from dssr.models.load import open_cache

    cache = open_cache(load_config(name))
    if cache is None:
        raise UsageError(f"the configuration {name} has its response cache switched off (cache_gib = 0)")
    return cache
