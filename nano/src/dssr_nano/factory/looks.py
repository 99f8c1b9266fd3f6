"""Where attention should go when a question is read: training tells some heads, instead of waiting until they find out.

FETCH   from where the answer is given to the end of the right option line
LINE    from the end of an option line to its verb
MATCH   from a food named in an option to where the recipe says what to do with it
WAY     from a direction in an option to the line of moves that begins with it; to itself when others do
HELD    from a food named in an option to where the current observation mentions it
WORD    from a food in the recipe or the observation to the word before its name: the verb, or the state it is in;
        in a line of facts from the verb back to the name
COPY    when a state is written: from before a token to where the request has it

Six lead home through a whole history. Whoever walks from the kitchen comes into a room for the first time from the
kitchen's side, so the way back is the opposite of that first move.

ENTRY   from the heading of a room to the move that led there
AFTER   from what stands behind the recipe, headings and the token after each, to the recipe
AGAIN   from a heading to what followed the same heading since the recipe; to the recipe where it is the first
HERE    from the end of a line such as `go east` to the last heading
HOME    from there to the first heading of the same room since the recipe
BACK    the same where the line undoes the move that led there; to itself where it does not

In houses whose foods lie in several rooms a network also learns `house.py`.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from dssr.worlds.cooking.words import OPPOSITE

FETCH, LINE, MATCH, WAY, HELD, WORD, COPY = "fetch", "line", "match", "way", "held", "word", "copy"
ENTRY, AFTER, AGAIN, HERE, HOME, BACK = "entry", "after", "again", "here", "home", "back"
ROOM, THERE, GOAL, HAVE, PLACE, AIM, UNDO = "room", "there", "goal", "have", "place", "aim", "undo"
HEADS: dict[str, tuple[tuple[int, int], ...]] = {
    WORD: ((1, 2),),
    LINE: ((1, 3),),
    MATCH: ((2, 0),),
    WAY: ((2, 0),),
    HELD: ((2, 4),),
    FETCH: ((-2, 4), (-1, 4)),
    COPY: ((1, 1), (2, 1), (3, 1)),
    ENTRY: ((1, 3),),
    AFTER: ((1, 0),),
    AGAIN: ((2, 1),),
    HERE: ((1, 2),),
    HOME: ((3, 4),),
    BACK: ((3, 0),),
    ROOM: ((2, 4),),
    PLACE: ((3, 0),),
    THERE: ((4, 0),),
    UNDO: ((4, 1),),
    GOAL: ((5, 1),),
    HAVE: ((5, 2),),
    AIM: ((6, 0),),
}
"""(layer, head) that learn each look; negative layers count from the last. Looks from other kinds of tokens may share
a head."""


class Look(NamedTuple):
    """From one place in a prompt to any of some others."""

    kind: str
    source: int
    targets: tuple[int, ...]


def thing_of(command: str) -> str:
    """What a command is about."""
    return command.split(" ", 1)[-1].split(" with ")[0].split(" from ")[0]


def places(ids: Sequence[int], name: Sequence[int], first: int, last: int) -> list[int]:
    """Where the name begins in ids[first:last]."""
    size = len(name)
    return [at for at in range(first, last - size + 1) if ids[at] == name[0] and tuple(ids[at : at + size]) == name]


class Words(NamedTuple):
    """Tokens by which directives are recognised."""

    asking: frozenset[int]
    """End in a verb and its article, as `fry the`."""
    verbs: frozenset[int]
    """End in a verb, as ` fry`."""
    the: int
    opening: int
    """Ends `The`, which opens a line of facts."""
    way: tuple[int, ...]
    """`Way to`, which opens a line of moves."""
    directions: dict[int, str]
    """Tokens that are a direction, as ` east` or ` east,`."""
    moves: dict[int, str]
    """Tokens that are an option's command, as `. go east`."""
    colon: int
    newline: int
    headings: frozenset[int]
    """Tokens that are a room's heading, as `-= Pantry =-`."""
    steps: dict[int, str]
    """Tokens that are a move of the history, as `> go east`."""
    recipe: frozenset[int]
    """Stand in the recipe and nowhere else."""
    rooms: frozenset[int]
    """Tokens that are a room's name inside a sentence."""
    being: frozenset[int]
    """Tokens that stand before the present room in a written state."""
    ways: dict[int, str]
    """Tokens of a written state that lead from room to room, as ` east to the`."""


Name = tuple[int, ...]
"""A food's name as tokens."""


class Mentions(NamedTuple):
    """(where to look, what that place should know of): of one name in one prompt."""

    asked: list[tuple[int, int]]
    held: list[tuple[int, int]]


def mentions(ids: Sequence[int], name: Name, context: int, options: int, words: Words) -> Mentions:
    found = Mentions([], [])
    for at in places(ids, name, 2, options):
        last = at + len(name) - 1
        if ids[at - 1] in words.asking:
            found.asked.append((last, at - 1))
        elif ids[at - 1] == words.the and ids[at - 2] in words.verbs:
            found.asked.append((last, at - 2))
        elif at >= context:
            found.held.append((last, at - 1))
        elif ids[at - 1] == words.opening and ids[last + 1] == words.colon:
            # A line of facts: the name, a colon, and further on what is still to be done.
            end = next((place for place in range(last, context) if ids[place] == words.newline), context)
            found.asked.extend((place, last) for place in range(last, end) if ids[place] in words.verbs)
    return found


def is_first_move(ids: Sequence[int], at: int, words: Words) -> bool:
    """Whether a direction at this place begins the moves of a line such as `Way to kitchen: east, north`."""
    if ids[at - 1] != words.colon:
        return False
    line = next((place + 1 for place in range(at, 0, -1) if ids[place] == words.newline), 0)
    return tuple(ids[line : line + len(words.way)]) == words.way


def looks_of(
    ids: Sequence[int],
    names: Sequence[Name],
    opened: Sequence[int],
    ends: Sequence[int],
    right: int,
    context: int,
    words: Words,
) -> Iterator[Look]:
    """All looks of a question. `names` are the options' things, `opened` and `ends` where each option line begins and
    ends, `context` where the current observation begins."""
    yield Look(FETCH, len(ids) - 2, (ends[right],))
    if ids[opened[right] + 1] in words.moves:
        going = {end: words.moves.get(ids[begin + 1], "") for begin, end in zip(opened, ends, strict=True)}
        yield from homeward(ids, going, opened[0], words)
    known: dict[Name, Mentions] = {}
    ways = [place for place in range(2, context) if ids[place] in words.directions and is_first_move(ids, place, words)]
    for name, begin, end in zip(names, opened, ends, strict=True):
        yield Look(LINE, end, (begin + 1,))
        direction = words.moves.get(ids[begin + 1])
        if ways and direction:
            same = tuple(place for place in ways if words.directions[ids[place]] == direction)
            yield Look(WAY, begin + 1, same or (begin + 1,))
        size = len(name)
        if tuple(ids[begin + 2 : begin + 2 + size]) != name:
            continue
        if name not in known:
            known[name] = mentions(ids, name, context, opened[0], words)
            for source, target in (*known[name].asked, *known[name].held):
                yield Look(WORD, source, (target,))
        for kind, found in zip((MATCH, HELD), known[name], strict=True):
            if found:
                yield Look(kind, begin + 1 + size, tuple(place for place, _ in found))


def homeward(ids: Sequence[int], going: Mapping[int, str], first: int, words: Words) -> Iterator[Look]:
    """Looks that find the way back to where the recipe was read. `going` has the direction of each option by its end,
    `first` is where the options begin."""
    recipe = next((place for place in range(first) if ids[place] in words.recipe), first)
    headings = [place for place in range(recipe, first) if ids[place] in words.headings]
    if not headings:
        return
    entered: dict[int, list[int]] = {}
    moves = {place: next(at for at in range(place, -1, -1) if ids[at] in words.steps) for place in headings}
    for place, move in moves.items():
        earlier = entered.setdefault(ids[place], [])
        yield Look(ENTRY, place, (move,))
        yield Look(AFTER, place, (recipe,))
        yield Look(AFTER, place + 1, (recipe,))
        yield Look(AGAIN, place, tuple(at + 1 for at in earlier) or (recipe,))
        earlier.append(place)
    home = entered[ids[headings[-1]]][0]
    undone = OPPOSITE[words.steps[ids[moves[home]]]]
    for end, direction in going.items():
        if direction:
            yield Look(HERE, end, (headings[-1],))
            yield Look(HOME, end, (home,))
            yield Look(BACK, end, (home if direction == undone else end,))


def copies_of(ids: Sequence[int], reply: int, previous: Sequence[int], names: Sequence[Name]) -> Iterator[Look]:
    """The looks of a state that begins at `reply`. What stays of the previous state is copied from its place there;
    other tokens of names from wherever the request has them."""
    aligned: set[int] = set()
    # The last token may have joined with the line breaks after it.
    told = places(ids, tuple(previous[:-1]), 0, reply) if len(previous) > 1 else []
    if told:
        matcher = SequenceMatcher(None, previous[:-1], ids[reply:], autojunk=False)
        for block in matcher.get_matching_blocks():
            for place in range(block.size):
                aligned.add(reply + block.b + place)
                yield Look(COPY, reply + block.b + place - 1, (told[0] + block.a + place,))
    for name in names:
        said = places(ids, name, reply, len(ids))
        shown = places(ids, name, 0, reply) if said else []
        for at in said if shown else ():
            for offset in range(len(name)):
                if at + offset not in aligned:
                    yield Look(COPY, at + offset - 1, tuple(place + offset for place in shown))
