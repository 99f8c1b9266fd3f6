"""Looks for houses, whose foods and appliances lie in several rooms: where a direction leads, what is to be fetched.

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

from dssr.worlds.cooking.words import OPPOSITE
from dssr_nano.factory.looks import (
    AIM,
    ENTRY,
    GOAL,
    HAVE,
    HERE,
    PLACE,
    ROOM,
    THERE,
    UNDO,
    Look,
    Name,
    Words,
    mentions,
    places,
)


def house_looks(
    ids: Sequence[int],
    going: Mapping[int, str],
    goal: Name,
    aim: Sequence[int],
    context: int,
    first: int,
    words: Words,
) -> Iterator[Look]:
    """All of them. `going` has the direction of each option that is one by its end, `goal` is the thing of the next
    deed and `aim` its room, as heading and as word; `context` is where the current observation begins and `first` where
    the options begin."""
    yield from map_looks(ids, going, first, words)
    named = ([place for place in range(first) if ids[place] == token] for token in aim)
    there = next((tuple(found) for found in named if found), ())
    yield from (Look(AIM, end, there) for end in going if there)
    found = mentions(ids, goal, context, first, words)
    if not found.asked:
        return
    asked = tuple(place for place, _ in found.asked)
    held = tuple(place for place, _ in found.held)
    for end in going:
        yield Look(GOAL, end, asked)
        yield Look(HAVE, end, held or (end,))
    yield from place_looks(ids, goal, asked, first, words)


def map_looks(ids: Sequence[int], going: Mapping[int, str], first: int, words: Words) -> Iterator[Look]:
    """Looks on the map that a history shows by headings and moves, or a written state by its sentences."""
    heading = move = start = here = -1
    reached: dict[tuple[int, str], list[int]] = {}
    entered: dict[tuple[int, str], list[int]] = {}
    for place in range(1, first):
        token = ids[place]
        if token in words.steps:
            move = place
        elif token in words.headings:
            if 0 <= heading < move:
                yield Look(ENTRY, place, (move,))
                yield Look(ROOM, place, (heading,))
                reached.setdefault((ids[heading], words.steps[ids[move]]), []).append(place)
                entered.setdefault((token, words.steps[ids[move]]), []).append(place)
            heading = place
        elif token not in words.rooms:
            continue
        elif ids[place - 1] in words.being:
            here = place
        elif ids[place + 1] == words.colon:
            start = place
        elif ids[place - 1] in words.ways and start >= 0:
            direction = words.ways[ids[place - 1]]
            yield Look(ROOM, place, (start,))
            reached.setdefault((ids[start], direction), []).append(place)
            reached.setdefault((token, OPPOSITE[direction]), []).append(place)
            entered.setdefault((token, direction), []).append(place)
    present = heading if here < 0 else here
    for end, direction in going.items() if present >= 0 else ():
        yield Look(HERE, end, (present,))
        there = reached.get((ids[present], direction))
        if there:
            yield Look(THERE, end, tuple(there))
        yield Look(UNDO, end, tuple(entered.get((ids[present], OPPOSITE[direction]), (end,))))


def place_looks(ids: Sequence[int], goal: Name, asked: Sequence[int], first: int, words: Words) -> Iterator[Look]:
    """From the recipe to where its food was seen before, and from there to the room."""
    recipe = next((place for place in range(first) if ids[place] in words.recipe), -1)
    seen = tuple(at + len(goal) - 1 for at in places(ids, goal, 0, max(recipe, 0)))
    if not seen:
        return
    for place in asked:
        if place > recipe:
            yield Look(PLACE, place, seen)
    for place in seen:
        heading = next((at for at in range(place, -1, -1) if ids[at] in words.headings), None)
        if heading is not None:
            yield Look(ROOM, place, (heading,))
