"""The choice put before the reader at one step."""

from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import LABELS, Moment, Options

HIDDEN = ("examine ", "close ", "put ", "insert ")
SHOWN = "examine cookbook"


def is_option(command: str) -> bool:
    """Whether an admissible command may be shown: the others only re-print or undo."""
    return command == SHOWN or not (command in ("look", "inventory") or command.startswith(HIDDEN))


def options_at(moment: Moment, game_id: str, step: int) -> Options:
    """The lettered commands, in an order that depends on game and step alone, and the reference among them."""
    if not moment.privileged.policy:
        raise GameError(f"Game {game_id} has no reference action at step {step}: it is over or cannot be won.")
    reference = moment.privileged.policy[0]
    commands = [command for command in moment.admissible if is_option(command)]
    appended = reference not in commands
    if appended:
        commands.append(reference)
    rng_of("options", game_id, step).shuffle(commands)
    others = [command for command in commands if command != reference][: len(LABELS) - 1]
    kept = {*others, reference}
    return Options(
        commands=tuple(command for command in commands if command in kept),
        reference=reference,
        appended=appended,
        dropped=len(commands) - len(kept),
    )
