"""Makes cooking games: `tw-make` in child processes, several games each.

The same settings give the same bytes on any day and after any other game: the hash seed is fixed, each game is made
under the same file name, and the compile date, the only part that the clock decides, is blanked.
"""

import ctypes
import importlib.metadata
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from dssr.config import GamesConfig, Section
from dssr.errors import ConfigError, GameError
from dssr.types import Game, Split
from dssr.worlds.archive import md5_of
from dssr.worlds.base import GamePlan

TEXTWORLD = "1.7.0"
"""The version whose games, texts and policies the study is defined on."""
ROOMS = (1, 6, 9, 12)
"""Room counts that `tw-cooking` offers."""
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
SPLIT_SEEDS = 1_000_000
ROOM_SEEDS = 10_000
"""Width of the seed range of one (split, rooms) cell; no two cells overlap."""
PLACE = re.compile(rb'("text_grammars_path":\s*)"(?:[^"\\]|\\.)*"')
"""In the `.json` of a game."""
SERIAL = slice(0x12, 0x18)
"""Where a Z-machine file keeps its compile date."""


class CookingOptions(Section, frozen=True):
    """What `games.options` may say of cooking games; all but `first` are options of `tw-cooking` of the same name."""

    recipe: Annotated[int, Meta(ge=1)] = 3
    """Ingredients of the recipe."""
    take: Annotated[int, Meta(ge=0)] = 3
    """How many of them have to be found and taken."""
    open: bool = True
    """Doors and containers are closed at first."""
    cook: bool = True
    """Ingredients may have to be cooked."""
    cut: bool = True
    """Ingredients may have to be cut."""
    first: Annotated[int, Meta(ge=0)] = 0
    """Place of the first game in every range of seeds: archives whose ranges do not meet share no game."""


def installed_textworld() -> str:
    """Version of TextWorld in this environment."""
    try:
        return importlib.metadata.version("textworld")
    except importlib.metadata.PackageNotFoundError:
        raise GameError(f"TextWorld is not installed: install textworld=={TEXTWORLD}.") from None


def require_textworld(made_with: str) -> None:
    """Refuses a TextWorld other than the one the games were made with: texts and policies could differ."""
    here = installed_textworld()
    if here != made_with:
        raise GameError(
            f"These games were made with TextWorld {made_with} but {here} is installed: install textworld=={made_with}."
        )


def options_of(games: GamesConfig) -> CookingOptions:
    """The world's own settings, checked; refuses those that `tw-cooking` has no games for."""
    try:
        options = msgspec.convert(games.options, CookingOptions)
    except msgspec.ValidationError as error:
        known = ", ".join(CookingOptions.__struct_fields__)
        raise ConfigError(f"games.options cannot be used ({error}); cooking has {known}.") from error
    if options.take > options.recipe:
        raise ConfigError(
            f"games.options: take ({options.take}) is larger than recipe ({options.recipe}); there is nothing more to "
            "find than the recipe names."
        )
    if not games.levels or set(games.levels) - set(ROOMS) or len(set(games.levels)) != len(games.levels):
        raise ConfigError(
            f"games.levels is {list(games.levels)}, but cooking games have {', '.join(map(str, ROOMS))} rooms; give "
            "some of these, each once."
        )
    sizes = (games.train, games.valid, games.test)
    room = ROOM_SEEDS - options.first
    if min(sizes) < 0 or max(sizes) > room or not any(sizes):
        raise ConfigError(f"games.train, valid and test must lie between 0 and {room}, not all 0: {sizes}.")
    return options


def plan_games(games: GamesConfig) -> tuple[GamePlan, ...]:
    """Every game of a configuration, ordered so that all cells grow at the same pace."""
    options = options_of(games)
    sizes = {"train": games.train, "valid": games.valid, "test": games.test}
    plans = []
    for rooms in games.levels:
        for place, split in enumerate(SPLITS):
            for number in range(sizes[split]):
                seed = (place + 1) * SPLIT_SEEDS + rooms * ROOM_SEEDS + options.first + number
                plan = GamePlan(
                    id=f"{split}-{rooms}-{number:03d}",
                    split=split,
                    level=rooms,
                    seed=seed,
                    command=tw_make(options, split, rooms, seed),
                )
                plans.append(((number + 1) / sizes[split], plan))
    return tuple(plan for _, plan in sorted(plans, key=lambda pair: (pair[0], pair[1].id)))


def tw_make(options: CookingOptions, split: Split, rooms: int, seed: int) -> tuple[str, ...]:
    """The exact call for one game."""
    words = ["--recipe", str(options.recipe), "--take", str(options.take), "--go", str(rooms)]
    words += [f"--{name}" for name in ("open", "cook", "cut") if getattr(options, name)]
    words += ["--split", split, "--recipe-seed", str(seed), "--seed", str(seed)]
    return ("env", "PYTHONHASHSEED=0", "tw-make", "tw-cooking", *words, "--output", "game.z8", "--silent")


def files_of(path: Path) -> tuple[Path, ...]:
    """The `.z8` file and its `.json` companion: a game is both."""
    return path, path.with_suffix(".json")


class _Metadata(Struct):
    settings: dict[str, Any] = {}


class _Made(Struct):
    """As much of a game's `.json` as says which split it was made for."""

    metadata: _Metadata


def refuse_other_split(game: Game, path: Path) -> None:
    """Refuse a game whose own file, which the digest covers, was made for another split than the manifest says."""
    try:
        settings = msgspec.json.decode(files_of(path)[1].read_bytes(), type=_Made).metadata.settings
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # no cooking game, and refused as such when it is played
    made = settings.get("split", game.split)
    if made != game.split:
        raise GameError(f"Game {game.id} was made as a {made} game but is listed as {game.split}: restore the archive.")


def make_games(folder: Path, plans: Sequence[GamePlan]) -> Iterator[Game]:
    """Runs `tw-make` for each plan, all in one process, and moves each game's files into the archive."""
    require_textworld(TEXTWORLD)
    with Maker() as maker:
        for plan in plans:
            with tempfile.TemporaryDirectory(f".{os.getpid()}.part", ".making.", folder) as scratch:
                maker.make(plan, Path(scratch))
                made = Path(scratch) / "game.z8"
                blank_serial(made)
                blank_place(made.with_suffix(".json"))
                target = folder / "games" / f"{plan.id}.z8"
                os.replace(made.with_suffix(".json"), target.with_suffix(".json"))
                os.replace(made, target)
            yield Game(
                id=plan.id,
                split=plan.split,
                level=plan.level,
                seed=plan.seed,
                file=f"games/{plan.id}.z8",
                md5=md5_of(files_of(target)),
                command=plan.command,
                engine=TEXTWORLD,
            )


LOG = "tw-make.log"
"""In the scratch folder of a game: what its making printed, shown only when it fails."""
MAIN = "from dssr.worlds.cooking.generate import serve; serve()"


class Maker:
    """A process that runs `tw-make` as often as it is asked to: the first game pays for imports and grammars."""

    def __init__(self) -> None:
        beside = Path(sys.executable).parent / "tw-make"
        tool = str(beside) if beside.exists() else shutil.which("tw-make")
        if tool is None:
            raise GameError("The program tw-make was not found: install textworld in this environment.")
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN, tool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONHASHSEED": "0"},
            text=True,
        )

    def __enter__(self) -> "Maker":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def make(self, plan: GamePlan, scratch: Path) -> None:
        """One game, in a folder of its own."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        words = plan.command[plan.command.index("tw-make") + 1 :]
        try:
            stdin.write(json.dumps([str(scratch.resolve()), words]) + "\n")
            stdin.flush()
            done = stdout.readline().strip()
        except OSError:
            done = ""
        if done != "0" or not (scratch / "game.z8").exists():
            log = scratch / LOG
            printed = log.read_text(errors="replace").strip() if log.exists() else ""
            last = (printed or "no output").splitlines()[-1]
            raise GameError(f"tw-make failed on game {plan.id} (seed {plan.seed}): {last}")


PR_SET_PDEATHSIG = 1
"""Linux: the signal that a process gets when its parent dies."""


def serve() -> None:
    """The child process: runs `tw-make` with the words of each line, in the folder of each line, until no line comes;
    answers each with the exit code."""
    if sys.platform == "linux":  # with a maker that is killed we end too, or we would write where it is resumed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    answers, tool = os.fdopen(os.dup(1), "w"), sys.argv[1]
    for line in sys.stdin:
        scratch, words = json.loads(line)
        os.chdir(scratch)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        sys.argv = [tool, *words]
        code: object = 0
        try:
            runpy.run_path(tool, run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
            if isinstance(code, str):
                print(code, file=sys.stderr)
        except Exception:  # whatever TextWorld raises is one game's trouble, told by its last line
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir("/")
        print(0 if code == 0 else 1, file=answers, flush=True)


def blank_place(file: Path) -> None:
    """Empties where the grammars lay when the game was made: playing does not need it, and a game made elsewhere must
    have the same digest, from which keys and seeds come."""
    file.write_bytes(PLACE.sub(rb'\1""', file.read_bytes()))


def blank_serial(file: Path) -> None:
    """Overwrites the compile date, which no game text shows and no checksum covers."""
    content = bytearray(file.read_bytes())
    content[SERIAL] = b"000000"
    file.write_bytes(content)
