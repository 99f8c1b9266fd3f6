"""TextWorld cooking as a kind of world: find things in a house, prepare them as the cookbook says, eat the meal."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dssr.config import GamesConfig
from dssr.types import Game, Step
from dssr.worlds.base import ChunkKind, GamePlan, Words
from dssr.worlds.cooking import generate
from dssr.worlds.cooking.facts import FORM_WORDS
from dssr.worlds.cooking.recipe import Directive, directives
from dssr.worlds.cooking.words import KITCHEN
from dssr.worlds.cooking.world import CookingWorld


class Cooking:
    """The games of `tw-cooking`; a level is a number of rooms."""

    engine = generate.TEXTWORLD
    form_words = FORM_WORDS
    words = Words(
        task="recipe",
        fact="directive",
        level="rooms",
        home=KITCHEN,
        reveal_chunk=ChunkKind("cookbook", "the cookbook"),
        visit_chunk=ChunkKind("visit", "a room visit before the task"),
        block_chunk=ChunkKind("block", "a step of the task itself"),
    )

    def settled(self, games: GamesConfig) -> GamesConfig:
        """The section with recipe, take, open, cook and cut written out."""
        options = generate.options_of(games)
        return msgspec.structs.replace(games, options=msgspec.to_builtins(options))

    def plans(self, games: GamesConfig) -> tuple[GamePlan, ...]:
        """Every game, ordered so that all cells grow at the same pace."""
        return generate.plan_games(games)

    def make(self, plan: GamePlan, folder: Path) -> Game:
        """Runs `tw-make`."""
        return generate.make_game(folder, plan)

    def files(self, path: Path) -> tuple[Path, ...]:
        """The `.z8` file and its `.json` companion."""
        return generate.files_of(path)

    def open(self, game: Game, path: Path, kept: Path) -> CookingWorld:
        """The game with its stored tree."""
        generate.require_textworld(game.engine)
        generate.refuse_other_split(game, path)
        return CookingWorld(game, path, kept)

    def facts(self, steps: Sequence[Step], reveal: int) -> tuple[Directive, ...]:
        """The directives of the recipe as the log shows it."""
        return directives(steps[reveal].observation)

    def is_home(self, place: str) -> bool:
        """Whether it is the kitchen."""
        return place == KITCHEN


COOKING = Cooking()
