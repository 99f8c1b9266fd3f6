"""The prompt files, and how a user's own replace them."""

from pathlib import Path

from dssr.errors import ConfigError
from dssr.types import Record

SHIPPED = Path(__file__).parent / "prompts"
RETENTION = ("summary", "belief", "slots", "guide")
FILES = ("writer", "reader", *RETENTION)


class Prompts(Record, frozen=True):
    """Texts by file name without `.txt`."""

    texts: dict[str, str]

    @property
    def reader(self) -> str:
        return self.texts["reader"]

    def writer(self, style: str, budget: int) -> str:
        """The writer's system message: the shared framing with one retention instruction and the budget."""
        framed = self.texts["writer"].replace("{retention}", self.texts[style])
        return framed.replace("{budget}", str(budget))


def load_prompts(folder: str | Path | None = None) -> Prompts:
    """The shipped prompts; a file of the same name in `folder` replaces one."""
    chosen = {name: SHIPPED / f"{name}.txt" for name in FILES}
    if folder is not None:
        own = {name: path for name in FILES if (path := Path(folder) / f"{name}.txt").is_file()}
        if not own:
            wanted = ", ".join(f"{name}.txt" for name in FILES)
            raise ConfigError(f"{folder} holds no prompt file; give a folder with at least one of {wanted}.")
        chosen |= own
    texts = {name: _read(path) for name, path in chosen.items()}
    for gap in ("{retention}", "{budget}"):
        if gap not in texts["writer"]:
            raise ConfigError(f"{chosen['writer']} lacks {gap}; put it where that text belongs.")
    return Prompts(texts)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}.") from error
