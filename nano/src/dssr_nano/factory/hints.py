"""Hints where attention should go when a prompt is read: training tells some heads, instead of waiting until they find
out.

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

In houses, whose foods and appliances lie in several rooms, others tell where a direction leads and what is to be
fetched.

ROOM    from a heading to the heading before it; from a food in a room's description to the room's heading; in a written
        state from a room that a way leads to, as in `From the kitchen: east to the pantry`, to the one it begins in
THERE   from the end of a line such as `go east` to the headings that were reached by it from the present room; with a
        written state to the room that this way, or the way back, leads to
UNDO    from there to where the present room was entered by the opposite move, or is what the opposite way leads to:
        the room before it, which that place looks at, is where the line leads; to itself where there is none
PLACE   from a food in the recipe to where it was seen before
GOAL    from the end of such a line to what the recipe says of the food that the next deed is about
HAVE    from there to where the current observation mentions that food; to itself where it does not
AIM     from there to the headings of the room of that deed; without any to its name

Which room lies towards which other is much the same in all houses, so where a direction leads and where the goal is
tell whether it is the way.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from dssr.worlds.cooking.recipe import OPPOSITE

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
"""(layer, head) that learn each kind of hint; negative layers count from the last. Hints from other kinds of tokens may
share a head."""


class AttentionHint(NamedTuple):
    """Attention from one place in a prompt should go to any of some others."""

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


class CueTokens(NamedTuple):
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


def mentions(ids: Sequence[int], name: Name, context: int, options: int, cues: CueTokens) -> Mentions:
    """Where one name stands before the options: with what is to be done with it, and in the current observation."""
    found = Mentions([], [])
    for at in places(ids, name, 2, options):
        last = at + len(name) - 1
        if ids[at - 1] in cues.asking:
            found.asked.append((last, at - 1))
        elif ids[at - 1] == cues.the and ids[at - 2] in cues.verbs:
            found.asked.append((last, at - 2))
        elif at >= context:
            found.held.append((last, at - 1))
        elif ids[at - 1] == cues.opening and ids[last + 1] == cues.colon:
            # A line of facts: the name, a colon, and further on what is still to be done.
            end = next((place for place in range(last, context) if ids[place] == cues.newline), context)
            found.asked.extend((place, last) for place in range(last, end) if ids[place] in cues.verbs)
    return found


def is_first_move(ids: Sequence[int], at: int, cues: CueTokens) -> bool:
    """Whether a direction at this place begins the moves of a line such as `Way to kitchen: east, north`."""
    if ids[at - 1] != cues.colon:
        return False
    line = next((place + 1 for place in range(at, 0, -1) if ids[place] == cues.newline), 0)
    return tuple(ids[line : line + len(cues.way)]) == cues.way


def question_hints(
    ids: Sequence[int],
    names: Sequence[Name],
    opened: Sequence[int],
    ends: Sequence[int],
    right: int,
    context: int,
    cues: CueTokens,
) -> Iterator[AttentionHint]:
    """All hints of a question. `names` are the options' things, `opened` and `ends` where each option line begins and
    ends, `context` where the current observation begins."""
    yield AttentionHint(FETCH, len(ids) - 2, (ends[right],))
    if ids[opened[right] + 1] in cues.moves:
        going = {end: cues.moves.get(ids[begin + 1], "") for begin, end in zip(opened, ends, strict=True)}
        yield from homeward_hints(ids, going, opened[0], cues)
    known: dict[Name, Mentions] = {}
    ways = [place for place in range(2, context) if ids[place] in cues.directions and is_first_move(ids, place, cues)]
    for name, begin, end in zip(names, opened, ends, strict=True):
        yield AttentionHint(LINE, end, (begin + 1,))
        direction = cues.moves.get(ids[begin + 1])
        if ways and direction:
            same = tuple(place for place in ways if cues.directions[ids[place]] == direction)
            yield AttentionHint(WAY, begin + 1, same or (begin + 1,))
        size = len(name)
        if tuple(ids[begin + 2 : begin + 2 + size]) != name:
            continue
        if name not in known:
            known[name] = mentions(ids, name, context, opened[0], cues)
            for source, target in (*known[name].asked, *known[name].held):
                yield AttentionHint(WORD, source, (target,))
        for kind, found in zip((MATCH, HELD), known[name], strict=True):
            if found:
                yield AttentionHint(kind, begin + 1 + size, tuple(place for place, _ in found))


def homeward_hints(
    ids: Sequence[int], going: Mapping[int, str], first: int, cues: CueTokens
) -> Iterator[AttentionHint]:
    """Hints that find the way back to where the recipe was read. `going` has the direction of each option by its end,
    `first` is where the options begin."""
    recipe = next((place for place in range(first) if ids[place] in cues.recipe), first)
    headings = [place for place in range(recipe, first) if ids[place] in cues.headings]
    if not headings:
        return
    entered: dict[int, list[int]] = {}
    moves = {place: next(at for at in range(place, -1, -1) if ids[at] in cues.steps) for place in headings}
    for place, move in moves.items():
        earlier = entered.setdefault(ids[place], [])
        yield AttentionHint(ENTRY, place, (move,))
        yield AttentionHint(AFTER, place, (recipe,))
        yield AttentionHint(AFTER, place + 1, (recipe,))
        yield AttentionHint(AGAIN, place, tuple(at + 1 for at in earlier) or (recipe,))
        earlier.append(place)
    home = entered[ids[headings[-1]]][0]
    undone = OPPOSITE[cues.steps[ids[moves[home]]]]
    for end, direction in going.items():
        if direction:
            yield AttentionHint(HERE, end, (headings[-1],))
            yield AttentionHint(HOME, end, (home,))
            yield AttentionHint(BACK, end, (home if direction == undone else end,))


def copy_hints(
    ids: Sequence[int], reply: int, previous: Sequence[int], names: Sequence[Name]
) -> Iterator[AttentionHint]:
    """The hints of a state that begins at `reply`. What stays of the previous state is copied from its place there;
    other tokens of names from wherever the request has them."""
    aligned: set[int] = set()
    # The last token may have joined with the line breaks after it.
    told = places(ids, tuple(previous[:-1]), 0, reply) if len(previous) > 1 else []
    if told:
        matcher = SequenceMatcher(None, previous[:-1], ids[reply:], autojunk=False)
        for block in matcher.get_matching_blocks():
            for place in range(block.size):
                aligned.add(reply + block.b + place)
                yield AttentionHint(COPY, reply + block.b + place - 1, (told[0] + block.a + place,))
    for name in names:
        said = places(ids, name, reply, len(ids))
        shown = places(ids, name, 0, reply) if said else []
        for at in said if shown else ():
            for offset in range(len(name)):
                if at + offset not in aligned:
                    yield AttentionHint(COPY, at + offset - 1, tuple(place + offset for place in shown))


def house_hints(
    ids: Sequence[int],
    going: Mapping[int, str],
    goal: Name,
    aim: Sequence[int],
    context: int,
    first: int,
    cues: CueTokens,
) -> Iterator[AttentionHint]:
    """All hints of houses. `going` has the direction of each option that is one by its end, `goal` is the thing of the
    next deed and `aim` its room, as heading and as word; `context` is where the current observation begins and `first`
    where the options begin."""
    yield from map_hints(ids, going, first, cues)
    named = ([place for place in range(first) if ids[place] == token] for token in aim)
    there = next((tuple(found) for found in named if found), ())
    yield from (AttentionHint(AIM, end, there) for end in going if there)
    found = mentions(ids, goal, context, first, cues)
    if not found.asked:
        return
    asked = tuple(place for place, _ in found.asked)
    held = tuple(place for place, _ in found.held)
    for end in going:
        yield AttentionHint(GOAL, end, asked)
        yield AttentionHint(HAVE, end, held or (end,))
    yield from place_hints(ids, goal, asked, first, cues)


def map_hints(ids: Sequence[int], going: Mapping[int, str], first: int, cues: CueTokens) -> Iterator[AttentionHint]:
    """Hints on the map that a history shows by headings and moves, or a written state by its sentences."""
    heading = move = start = here = -1
    reached: dict[tuple[int, str], list[int]] = {}
    entered: dict[tuple[int, str], list[int]] = {}
    for place in range(1, first):
        token = ids[place]
        if token in cues.steps:
            move = place
        elif token in cues.headings:
            if 0 <= heading < move:
                yield AttentionHint(ENTRY, place, (move,))
                yield AttentionHint(ROOM, place, (heading,))
                reached.setdefault((ids[heading], cues.steps[ids[move]]), []).append(place)
                entered.setdefault((token, cues.steps[ids[move]]), []).append(place)
            heading = place
        elif token not in cues.rooms:
            continue
        elif ids[place - 1] in cues.being:
            here = place
        elif ids[place + 1] == cues.colon:
            start = place
        elif ids[place - 1] in cues.ways and start >= 0:
            direction = cues.ways[ids[place - 1]]
            yield AttentionHint(ROOM, place, (start,))
            reached.setdefault((ids[start], direction), []).append(place)
            reached.setdefault((token, OPPOSITE[direction]), []).append(place)
            entered.setdefault((token, direction), []).append(place)
    present = heading if here < 0 else here
    for end, direction in going.items() if present >= 0 else ():
        yield AttentionHint(HERE, end, (present,))
        there = reached.get((ids[present], direction))
        if there:
            yield AttentionHint(THERE, end, tuple(there))
        yield AttentionHint(UNDO, end, tuple(entered.get((ids[present], OPPOSITE[direction]), (end,))))


def place_hints(
    ids: Sequence[int], goal: Name, asked: Sequence[int], first: int, cues: CueTokens
) -> Iterator[AttentionHint]:
    """From the recipe to where its food was seen before, and from there to the room."""
    recipe = next((place for place in range(first) if ids[place] in cues.recipe), -1)
    seen = tuple(at + len(goal) - 1 for at in places(ids, goal, 0, max(recipe, 0)))
    if not seen:
        return
    for place in asked:
        if place > recipe:
            yield AttentionHint(PLACE, place, seen)
    for place in seen:
        heading = next((at for at in range(place, -1, -1) if ids[at] in cues.headings), None)
        if heading is not None:
            yield AttentionHint(ROOM, place, (heading,))
