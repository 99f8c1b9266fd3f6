"""Makes an archive: `tw-make` in child processes, one game each, resumable after a kill.

The same settings give the same bytes on any day: the hash seed is fixed, each game is made under the same
file name, and the compile date, the only part that the clock decides, is blanked.
"""

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dssr.config import GamesConfig
from dssr.errors import ConfigError, GameError
from dssr.types import Game, Record, Split
from dssr.worlds.cooking.archive import (
    MANIFEST,
    PARTIAL,
    SETTINGS,
    Archive,
    Settings,
    md5_of,
    read_manifest,
    read_settings,
)

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

OnProgress = Callable[[int, int], None]


class GamePlan(Record, frozen=True):
    """One game to make."""

    id: str
    split: Split
    rooms: int
    seed: int
    command: tuple[str, ...]


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


def plan_games(config: GamesConfig) -> tuple[GamePlan, ...]:
    """Every game of a configuration, ordered so that all cells grow at the same pace."""
    check_config(config)
    sizes = {"train": config.train, "valid": config.valid, "test": config.test}
    plans = []
    for rooms in config.rooms:
        for place, split in enumerate(SPLITS):
            for number in range(sizes[split]):
                seed = (place + 1) * SPLIT_SEEDS + rooms * ROOM_SEEDS + number
                plan = GamePlan(
                    id=f"{split}-{rooms}-{number:03d}",
                    split=split,
                    rooms=rooms,
                    seed=seed,
                    command=tw_make(config, split, rooms, seed),
                )
                plans.append(((number + 1) / sizes[split], plan))
    return tuple(plan for _, plan in sorted(plans, key=lambda pair: (pair[0], pair[1].id)))


def check_config(config: GamesConfig) -> None:
    """Refuses settings that `tw-cooking` has no games for."""
    wrong = [rooms for rooms in config.rooms if rooms not in ROOMS]
    if wrong or not config.rooms or len(set(config.rooms)) != len(config.rooms):
        raise ConfigError(f"games.rooms must be different numbers out of {ROOMS}, not {config.rooms}.")
    if not 0 <= config.take <= config.recipe or config.recipe < 1:
        raise ConfigError(
            f"games.take ({config.take}) must lie between 0 and games.recipe ({config.recipe}), at least 1."
        )
    sizes = (config.train, config.valid, config.test)
    if min(sizes) < 0 or max(sizes) > ROOM_SEEDS or not any(sizes):
        raise ConfigError(f"games.train, valid and test must lie between 0 and {ROOM_SEEDS}, not all 0: {sizes}.")


def tw_make(config: GamesConfig, split: Split, rooms: int, seed: int) -> tuple[str, ...]:
    """The exact call for one game."""
    options = ["--recipe", str(config.recipe), "--take", str(config.take), "--go", str(rooms)]
    options += [f"--{name}" for name in ("open", "cook", "cut") if getattr(config, name)]
    options += ["--split", split, "--recipe-seed", str(seed), "--seed", str(seed)]
    return ("env", "PYTHONHASHSEED=0", "tw-make", "tw-cooking", *options, "--output", "game.z8", "--silent")


def make_archive(
    config: GamesConfig,
    folder: str | Path,
    workers: int = 1,
    on_progress: OnProgress | None = None,
    resume: bool = True,
) -> Archive:
    """Makes what is missing of an archive. A finished one is refused; a begun one is, without `resume`."""
    folder = Path(folder)
    require_textworld(TEXTWORLD)
    if not resume and (folder / SETTINGS).exists() and not (folder / MANIFEST).exists():
        raise GameError(f"Archive {folder} is only half made: finish it with --resume, or choose another folder.")
    plans = plan_games(config)
    folder.mkdir(parents=True, exist_ok=True)
    with only_maker(folder):
        prepare(folder, config)
        partial = folder / PARTIAL
        known = {game.id for game in read_manifest(partial)} if partial.exists() else set()
        todo = [plan for plan in plans if plan.id not in known]
        make_all(folder, todo, workers, lambda done: on_progress and on_progress(len(known) + done, len(plans)))
        os.replace(partial, folder / MANIFEST)
    return Archive.open(folder)


@contextmanager
def only_maker(folder: Path) -> Iterator[None]:
    """Two processes must not make one archive; the lock goes with the process that holds it."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GameError(f"Archive {folder} is being made by another process: wait for it.") from None
        yield


def prepare(folder: Path, config: GamesConfig) -> None:
    """Writes the settings of a new archive, or checks that a begun one has the same."""
    if (folder / MANIFEST).exists():
        raise GameError(f"Archive {folder} is finished and never made again: choose another folder or delete it.")
    settings = Settings(games=config, textworld=TEXTWORLD)
    if not (folder / SETTINGS).exists():
        begun = folder / f"{SETTINGS}.new"
        begun.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")
        os.replace(begun, folder / SETTINGS)
    elif read_settings(folder) != settings:
        raise GameError(f"Archive {folder} was begun with other settings: choose another folder or delete it.")
    partial = folder / PARTIAL
    if partial.exists():
        whole, newline, _ = partial.read_bytes().rpartition(b"\n")
        partial.write_bytes(whole + newline)


def make_all(folder: Path, plans: list[GamePlan], workers: int, on_done: Callable[[int], object]) -> None:
    """Makes the planned games and lists each as soon as its files are in place."""
    (folder / "games").mkdir(exist_ok=True)
    with (folder / PARTIAL).open("ab", buffering=0) as manifest, ThreadPoolExecutor(workers) as pool:
        futures: list[Future[Game]] = [pool.submit(make_game, folder, plan) for plan in plans]
        on_done(0)
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                manifest.write(msgspec.json.encode(future.result()) + b"\n")
                on_done(done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def make_game(folder: Path, plan: GamePlan) -> Game:
    """Runs `tw-make` for one game and moves its files into the archive."""
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder) as scratch:
        run_tw_make(plan, Path(scratch))
        made = Path(scratch) / "game.z8"
        blank_serial(made)
        blank_place(made.with_suffix(".json"))
        target = folder / "games" / f"{plan.id}.z8"
        os.replace(made.with_suffix(".json"), target.with_suffix(".json"))
        os.replace(made, target)
    return Game(
        id=plan.id,
        split=plan.split,
        rooms=plan.rooms,
        seed=plan.seed,
        file=f"games/{plan.id}.z8",
        md5=md5_of(target),
        command=plan.command,
        textworld=TEXTWORLD,
    )


def run_tw_make(plan: GamePlan, scratch: Path) -> None:
    """The child process; what it prints is shown only when it fails."""
    beside = Path(sys.executable).parent / "tw-make"
    tool = str(beside) if beside.exists() else shutil.which("tw-make")
    if tool is None:
        raise GameError("The program tw-make was not found: install textworld in this environment.")
    call = [sys.executable, tool, *plan.command[plan.command.index("tw-make") + 1 :]]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(call, cwd=scratch, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (scratch / "game.z8").exists():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise GameError(f"tw-make failed on game {plan.id} (seed {plan.seed}): {last}")


def blank_place(file: Path) -> None:
    """Empties where the grammars lay when the game was made: playing does not need it, and a game made elsewhere must
    have the same digest, from which keys and seeds come."""
    file.write_bytes(PLACE.sub(rb'\1""', file.read_bytes()))


def blank_serial(file: Path) -> None:
    """Overwrites the compile date, which no game text shows and no checksum covers."""
    content = bytearray(file.read_bytes())
    content[SERIAL] = b"000000"
    file.write_bytes(content)
