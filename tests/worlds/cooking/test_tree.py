"""The stored tree: shared, kill-safe, and enough by itself."""

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

from dssr.errors import GameError
from dssr.types import Game
from dssr.worlds.archive import Archive
from dssr.worlds.base import Node
from dssr.worlds.cooking.textworld import _child
from dssr.worlds.cooking.tree import Constants, StepResult, StepTree
from dssr.worlds.cooking.world import CookingWorld

PLAYER = """
import sys
from dssr.worlds.archive import Archive
from dssr.seeds import rng_of
folder, name, seed, lines = sys.argv[1:]
archive = Archive.open(folder)
world = archive.world(name)
rng = rng_of(seed)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(lines)):
    node = world.start()
    for _ in range(8):
        if node.moment.won or node.moment.lost:
            break
        node = world.step(node, rng.choice(node.moment.admissible))
"""

ADDER = """
import sys
from pathlib import Path
from dssr.worlds.cooking.tree import StepResult, StepTree
from dssr.seeds import rng_of
tree = StepTree(Path(sys.argv[1]))
names = [f"c{number}" for number in range(400)]
rng_of("adder", sys.argv[2]).shuffle(names)
print("ready", flush=True)
sys.stdin.readline()
for name in names:
    answer = StepResult(observation=name, admissible=(), policy=(), facts=(), score=0, won=False, lost=False)
    number = tree.add(0, name, answer)
    assert tree.lines[number].observation == name
"""


def player(folder: Path, name: str, seed: int, lines: int) -> subprocess.Popen[bytes]:
    return started(PLAYER, str(folder), name, str(seed), str(lines))


def started(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A process that has done its imports and waits for a line to begin."""
    call = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def begin(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def opened(archive: Archive, game: Game) -> CookingWorld:
    """The world of a game, with its tree."""
    world = archive.world(game)
    assert isinstance(world, CookingWorld)
    return world


def nodes_of(world: CookingWorld) -> list[Node]:
    """All stored positions, in the order of the file."""
    found = {0: world.start()}
    for number, line in enumerate(world._tree.lines[1:], start=1):
        found[number] = world.step(found[line.parent], line.command)
    return list(found.values())


def test_two_processes_share_one_game(fresh_archive: Archive) -> None:
    """Catches moments mixed up when two processes play one game at the same time.

    Every stored moment must equal that of a tree built by one process alone.
    """
    name = "train-1-000"
    players = [player(fresh_archive.folder, name, seed, 6) for seed in (1, 2)]
    for process in players:
        begin(process)
    assert [process.wait() for process in players] == [0, 0]
    game = fresh_archive.game(name)
    shared = opened(fresh_archive, game)
    lines = shared._tree.lines
    places = [(line.parent, line.command) for line in lines]
    assert len(set(places)) == len(places) > 25
    shared._tree.file.rename(fresh_archive.folder / "shared.jsonl")
    alone = opened(fresh_archive, game)
    for node in nodes_of(shared):
        again = alone.start()
        for command in node.actions:
            again = alone.step(again, command)
        assert again.moment == node.moment


def test_two_writers_never_store_a_step_twice(tmp_path: Path) -> None:
    """Catches a missing lock: two processes add the same 400 steps, in different orders, as fast as they can."""
    file = tmp_path / "tree.jsonl"
    nothing = StepResult(observation="", admissible=(), policy=(), facts=(), score=0, won=False, lost=False)
    StepTree(file).begin(Constants(goal="", max_score=1, recipe="", walkthrough=(), entities=()), nothing)
    adders = [started(ADDER, str(file), seed) for seed in "ab"]
    for process in adders:
        begin(process)
    assert [process.wait() for process in adders] == [0, 0]
    tree = StepTree(file)
    assert len(tree.lines) == 401
    assert {command: tree.lines[number].observation for command, number in tree.children[0].items()} == {
        f"c{number}": f"c{number}" for number in range(400)
    }


def test_a_killed_writer_leaves_a_usable_tree(fresh_archive: Archive) -> None:
    """Catches a tree that a kill makes unreadable, and a torn line that is not dropped."""
    game = fresh_archive.game("train-1-001")
    process = player(fresh_archive.folder, game.id, 1, 1000)
    begin(process)
    file = next((fresh_archive.folder / "trees").glob(f"{game.md5}*"))
    while file.read_bytes().count(b"\n") < 10:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    with file.open("ab") as torn:
        torn.write(b'0badc0de [3,"go no')
    world = opened(fresh_archive, game)
    before = len(world._tree.lines)
    assert before >= 9
    node = nodes_of(world)[0]
    fresh = [command for command in node.moment.admissible if command not in world._tree.children[0]]
    for command in fresh or ["look"]:
        world.step(node, command)
    world.close()
    again = opened(fresh_archive, game)
    assert len(again._tree.lines) == before + len(fresh)
    assert b"0badc0de" not in file.read_bytes()


def test_a_damaged_line_is_told(fresh_archive: Archive) -> None:
    """Catches a changed text that would be believed."""
    game = fresh_archive.game("train-1-002")
    opened(fresh_archive, game).close()
    file = next((fresh_archive.folder / "trees").glob(f"{game.md5}*"))
    file.write_bytes(file.read_bytes().replace(b"You are carrying nothing", b"You are carrying anything"))
    with pytest.raises(GameError, match="damaged: delete it"):
        opened(fresh_archive, game)


def test_stored_steps_need_no_textworld(fresh_archive: Archive) -> None:
    """Catches a revisit that starts TextWorld, which costs a second and more."""
    game = fresh_archive.game("train-1-003")
    first = opened(fresh_archive, game)
    for command in first.start().moment.admissible:
        first.step(first.start(), command)
    first.close()
    _child.stop()
    again = opened(fresh_archive, game)
    for command in again.start().moment.admissible:
        assert again.step(again.start(), command).moment.max_score > 0
    assert _child._process is None


def test_a_crash_of_textworld_costs_nothing_but_time(fresh_archive: Archive) -> None:
    """Catches a lost position after the TextWorld process died: it must be replayed, with the same answer."""
    game = fresh_archive.game("train-1-004")
    world = opened(fresh_archive, game)
    node = world.start()
    for _ in range(3):
        node = world.step(node, node.moment.privileged.policy[0])
    assert _child._process is not None
    os.kill(_child._process.pid, signal.SIGKILL)
    after = world.step(node, node.moment.privileged.policy[0])
    assert after.moment.score > node.moment.score or after.moment.privileged.policy == node.moment.privileged.policy[1:]


def test_a_textworld_that_grows_too_large_is_replaced(fresh_archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory without bound: with a tiny limit, every step must run in a new process, with equal answers."""
    game = fresh_archive.game("train-1-006")
    world = opened(fresh_archive, game)
    node = world.step(world.start(), "look")
    monkeypatch.setattr("dssr.worlds.cooking.textworld.MEMORY", 1)
    processes = set()
    for _ in range(2):
        before = _child._process
        node = world.step(node, node.moment.privileged.policy[0])
        processes.add(before.pid if before else None)
        assert _child._process is None
    monkeypatch.undo()
    world.step(node, node.moment.privileged.policy[0])
    assert None in processes


@pytest.mark.parametrize("command", ["look. look", "dance", "go north then go south", "", "take knife\nlook"])
def test_commands_that_are_not_offered_never_reach_textworld(archive: Archive, command: str) -> None:
    """Catches a string that could crash TextWorld, or desynchronise it, by playing several commands."""
    world = archive.world("train-6-000")
    with pytest.raises(GameError, match="not admissible"):
        world.step(world.start(), command)


def test_a_finished_game_takes_no_command(archive: Archive) -> None:
    """Catches play after the end, where TextWorld waits for RESTART or QUIT."""
    world = archive.world("train-1-000")
    node = world.start()
    while policy := node.moment.privileged.policy:
        node = world.step(node, policy[0])
    assert node.moment.won
    assert node.moment.score == node.moment.max_score
    with pytest.raises(GameError, match="over"):
        world.step(node, "look")


def test_a_closed_world_refuses_new_steps(fresh_archive: Archive) -> None:
    """Catches a raw system error from a closed file."""
    world = fresh_archive.world("train-1-005")
    world.close()
    with pytest.raises(GameError, match="closed"):
        world.step(world.start(), "look")


def test_a_linked_tree_is_not_followed(tmp_path: Path) -> None:
    """Catches steps appended to whatever file a link in somebody's archive points to."""
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "game.1.jsonl").symlink_to(tmp_path / "precious")
    with pytest.raises(GameError, match="symbolic link"):
        StepTree(tmp_path / "game.1.jsonl")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_closed_world_is_let_go_at_once(archive: Archive) -> None:
    """Catches positions and walks that keep the world they belong to, and with it all its steps, until Python looks for
    circles: a plan of many games then holds many."""
    world = archive.world(archive.games("train")[0])
    world.walk("post", 0)
    alive = weakref.ref(world)
    gc.disable()
    try:
        world.close()
        del world
        assert alive() is None
    finally:
        gc.enable()
