"""The shipped configurations, and how a configuration is read, checked and written out."""

from pathlib import Path
from typing import Any

import msgspec
import msgspec.toml

from dssr.config import Config
from dssr.errors import ConfigError

SHIPPED = Path(__file__).parent


BASE = "base"
"""Key of a file that states what differs from another configuration."""


def load(name: str) -> Config:
    """Read a shipped configuration by name, or any TOML file by path."""
    path = _find(name, Path())
    plain = _read(path, ())
    try:
        config = msgspec.convert(plain, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_readable(str(error))}.") from error
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _find(name: str, beside: Path) -> Path:
    """The file of a shipped name, or of a path seen from a folder."""
    shipped = SHIPPED / f"{name}.toml"
    path = shipped if shipped.exists() else beside / name
    if not path.is_file():
        raise ConfigError(f"No configuration {name!r}: give a TOML file or one of {', '.join(names())}.")
    return path


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A file's settings laid over those of its base, if it names one."""
    if path.resolve() in above:
        raise ConfigError(f"{path}: {BASE} leads back to this file; name another configuration.")
    try:
        plain: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    base = plain.pop(BASE, None)
    if base is None:
        return plain
    if not isinstance(base, str):
        raise ConfigError(f"{path}: {BASE} must be the name or the path of a configuration, not {base!r}.")
    try:
        found = _find(base, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return _laid_over(_read(found, (*above, path.resolve())), plain)


def _laid_over(under: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """Sections are joined key by key; any other value replaces the one below."""
    joined = dict(under)
    for name, value in upper.items():
        below = under.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        joined[name] = _laid_over(below, value) if both else value  # type: ignore[arg-type]
    return joined


def names() -> list[str]:
    """The shipped configurations."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def resolved(config: Config) -> str:
    """The whole configuration as TOML, defaults written out; `load` reads it back."""
    return msgspec.toml.encode(_without_none(msgspec.to_builtins(config))).decode()


def check(config: Config) -> None:
    """Refuse numbers and combinations that no run could mean."""
    for key, values in _numbers(msgspec.to_builtins(config)):
        for value in values:
            if value < 0:
                raise ConfigError(f"{key} is {value}, but must not be negative.")
    for key, share in _shares(config):
        if not 0 <= share <= 1:
            raise ConfigError(f"{key} is {share}, but is a share and must lie between 0 and 1.")
    if not config.protocol.fillers:
        raise ConfigError("protocol.fillers is empty; give at least one walk length, for example [0].")
    for key, counts in _at_least_one(config):
        if not counts or min(counts) < 1:
            raise ConfigError(f"{key} must be at least 1.")
    if config.games.take > config.games.recipe:
        raise ConfigError(
            "games.take is larger than games.recipe: there is nothing more to find than the recipe names."
        )
    unknown = sorted(set(config.games.rooms) - {1, 6, 9, 12})
    if unknown:
        raise ConfigError(f"games.rooms has {unknown[0]}, but TextWorld makes cooking games of 1, 6, 9 or 12 rooms.")
    model = config.reader_model or config.writer_model
    if config.agent.reader_adapter is not None and config.agent.reader_adapter not in model.adapters:
        raise ConfigError(
            f"agent.reader_adapter names {config.agent.reader_adapter!r}, which its model's adapters lack."
        )
    for key, one in (("writer_model", config.writer_model), ("reader_model", config.reader_model)):
        if one is not None and one.backend == "server" and not one.url:
            raise ConfigError(f"{key}.url is missing: a server backend needs the address to ask.")


def _numbers(plain: dict[str, Any], prefix: str = "") -> list[tuple[str, list[float]]]:
    found: list[tuple[str, list[float]]] = []
    for name, value in plain.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            found.append((prefix + name, [value]))
        elif isinstance(value, (list, tuple)):
            found.append((prefix + name, [one for one in value if isinstance(one, (int, float))]))
    return found


def _shares(config: Config) -> list[tuple[str, float]]:
    return [
        ("agent.epsilon", config.agent.epsilon),
        ("reader.full_share", config.reader.full_share),
        ("reader.epsilon", config.reader.epsilon),
        ("reader.held_out", config.reader.held_out),
        ("reader.accept", config.reader.accept),
        ("reader.warmup", config.reader.warmup),
        ("writer.epsilon", config.writer.epsilon),
        ("writer.phase_a_share", config.writer.phase_a_share),
        ("writer.outcome_phase_a_share", config.writer.outcome_phase_a_share),
        ("stats.level", config.stats.level),
        ("writer_model.retention", config.writer_model.retention),
    ]


def _at_least_one(config: Config) -> list[tuple[str, tuple[int, ...]]]:
    return [
        ("agent.budgets", config.agent.budgets),
        ("games.rooms", config.games.rooms),
        ("games.recipe", (config.games.recipe,)),
        ("protocol.max_actions", (config.protocol.max_actions,)),
        ("measure.points", (config.measure.points,)),
        ("measure.oracle_samples", (config.measure.oracle_samples,)),
        ("measure.block", (config.measure.block,)),
        ("stats.resamples", (config.stats.resamples,)),
        ("writer.targets", config.writer.targets),
        ("writer.games", (1 if config.writer.games is None else config.writer.games,)),
    ]


def _readable(message: str) -> str:
    """msgspec writes `Object contains unknown field `x` - at `$.games``; say it as key names."""
    message = message.replace("Object contains unknown field", "unknown key")
    if " - at `$" in message:
        what, _, where = message.partition(" - at `$")
        where = where.strip("`.").replace("...", "")
        return f"{what} in [{where}]" if "unknown key" in what else f"{where}: {what}"
    return message


def _without_none(plain: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null; a missing key means the default, which is None wherever None is allowed."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in plain.items()
        if value is not None
    }
