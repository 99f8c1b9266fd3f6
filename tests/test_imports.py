"""The house of the architecture: who may import whom, and what starting up costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "dssr"
ROOMS = (
    "errors", "settings", "seeds", "types", "config", "stats", "record", "worlds", "traces", "models",
    "scale", "agent", "session", "measure", "training", "reports", "studies", "testing", "cli",
)  # fmt: skip
HEAVY = {"torch", "transformers", "peft", "trl", "vllm", "ray", "textworld"}
ALLOWED_HEAVY = {"models", "training", "worlds", "scale"}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports_of(path: Path, top_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules() -> list[tuple[str, Path]]:
    found = [(path.relative_to(SOURCE).parts[0].removesuffix(".py"), path) for path in SOURCE.rglob("*.py")]
    return [(room, path) for room, path in found if room != "__init__"]


def test_modules_import_only_from_rooms_to_their_left() -> None:
    """Catches a cycle or a dependency against the flow; the walk sees imports inside functions too."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for room, path in modules()
        for name in imports_of(path)
        if name.startswith("dssr.") and ROOMS.index(room_of(name)) > ROOMS.index(room)
    ]
    assert not wrong, wrong


def test_every_room_is_known() -> None:
    """Catches a new folder that no rule covers."""
    assert {room for room, _ in modules()} <= set(ROOMS)


def test_heavy_libraries_stay_in_their_rooms() -> None:
    """Catches torch, transformers or TextWorld reached from a room that should not know them."""
    wrong = []
    for room, path in modules():
        heavy = {name.split(".")[0] for name in imports_of(path)} & HEAVY
        if room not in ALLOWED_HEAVY and heavy:
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(heavy)}")
        if heavy - {"worlds": {"textworld"}, "scale": {"ray"}}.get(room, heavy):
            wrong.append(f"{path.relative_to(SOURCE)} imports {sorted(heavy)}")
    assert not wrong, wrong


def test_only_worlds_know_which_world_it_is() -> None:
    """Catches a part outside `worlds/` that works for cooking games alone. The scripted model is a player of these
    games and may know their words."""
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for room, path in modules()
        for name in imports_of(path)
        if re.match(r"dssr\.worlds\.(?!base\b|archive\b|shipped\b)", name)
        and room != "worlds"
        and SOURCE / "models" / "scripted" not in path.parents
    ]
    assert not wrong, wrong


def test_start_up_is_light() -> None:
    """Catches a heavy import at start-up: `dssr --help` must not load torch, transformers, polars or matplotlib."""
    code = (
        "import sys; sys.argv = ['dssr', '--help']\n"
        "from dssr.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({n.split('.')[0] for n in sys.modules} & "
        "{'torch', 'transformers', 'polars', 'matplotlib', 'textworld', 'scipy', 'jinja2', 'trl', 'peft'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_a_class_name_occurs_once() -> None:
    """Catches two records of one name, which a reader of an import or an error cannot tell apart."""
    found: dict[str, list[str]] = {}
    for _, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
