"""Claims as text and back: `render` writes a state in one of the four prompted formats, `understand` reads any context.

Sections of a state stand newest first: who copies it until the budget ends loses what was not touched for long. Only
`guide` puts the recipe before everything else. A context may also be raw history, alone or after a state, or the lines
of `oracle-b`, which name only what still matters and give ways as lists of moves. `order_of` and `question_of` take the
fields out of the two prompts; their layout is the agent's, and only its literals are known here.
"""

import re
from typing import Literal, NamedTuple

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.models.scripted.claims import APPLIANCES, PARTICIPLES, TOOL, Claim, finished, put, replay, thing
from dssr.types import View
from dssr.worlds.cooking.recipe import DIRECTIONS

Format = Literal["summary", "belief", "slots", "guide"]
FORMATS: tuple[Format, ...] = ("summary", "belief", "slots", "guide")
SLOTS = ("Progress:", "Attempted actions:", "Saved observations:")
NOTHING = "none"
RECIPE = "Recipe"


# ---------------------------------------------------------------- writing states


def render(style: Format, claims: list[Claim]) -> str:
    """The claims as one state."""
    claims = _shown(claims)
    if style == "belief":
        return "\n".join(f"{sentence(claim)} [{_trust(claim)}]" for claim in reversed(claims))
    if style == "slots":
        return _slots(claims)
    sections = _sections(claims)
    if style == "guide":
        sections.sort(key=lambda line: not line.startswith(RECIPE))
    return " ".join(_status(claims) + sections)


def sentence(claim: Claim) -> str:
    """One claim by itself."""
    args = claim.args
    if claim.kind == "here":
        return f"you are in the {args[0]}"
    if claim.kind == "carry":
        return f"you carry the {_prepared(args[0], args[1])}"
    if claim.kind == "at":
        return f"the {_prepared(args[0], args[4])} is {_placed(args)}in the {args[3]}"
    if claim.kind == "fixture":
        return f"the {args[0]} stands in the {args[1]}" + (f" and is {args[2]}" if args[2] else "")
    if claim.kind == "exit":
        return f"from the {args[0]}: {_way(args)}"
    if claim.kind == "did":
        return f"tried: {args[0]}"
    return f"recipe: {_directive(claim)}"


def _shown(claims: list[Claim]) -> list[Claim]:
    """A bare ingredient says nothing beside its directives."""
    directed = {claim.args[1] for claim in claims if claim.kind == "do"}
    return [claim for claim in claims if not (claim.kind == "need" and claim.args[0] in directed)]


def _trust(claim: Claim) -> str:
    if claim.kind == "exit" and not claim.args[2]:
        return "unsure"
    return "likely" if claim.kind in ("at", "did") else "certain"


def _slots(claims: list[Claim]) -> str:
    tried = ", ".join(claim.args[0] for claim in claims if claim.kind == "did")
    contents = (" ".join(_status(claims)), tried, " ".join(_sections(claims)))
    return "\n".join(f"{label} {content or NOTHING}" for label, content in zip(SLOTS, contents, strict=True))


def _status(claims: list[Claim]) -> list[str]:
    lines = [f"You are in the {claim.args[0]}." for claim in claims if claim.kind == "here"]
    held = [_prepared(*claim.args) for claim in claims if claim.kind == "carry"]
    return lines + ([f"You carry {', '.join(map(_one, held))}."] if held else [])


def _sections(claims: list[Claim]) -> list[str]:
    """Recipe and rooms, the one touched last first."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        name = _section(claim)
        if name is not None:
            groups[name] = [*groups.pop(name, []), claim]
    return [f"{name}: {_listed(members)}." for name, members in reversed(groups.items())]


def _section(claim: Claim) -> str | None:
    if claim.kind in ("need", "do"):
        return RECIPE
    if claim.kind == "at":
        return f"In the {claim.args[3]}"
    if claim.kind == "fixture":
        return f"In the {claim.args[1]}"
    return f"From the {claim.args[0]}" if claim.kind == "exit" else None


def _listed(claims: list[Claim]) -> str:
    """The claims of one section."""
    if claims[0].kind in ("need", "do"):
        return ", ".join(map(_directive, claims))
    if claims[0].kind == "exit":
        return ", ".join(_way(claim.args) for claim in claims)
    return ", ".join(map(_inside, claims))


def _inside(claim: Claim) -> str:
    """A thing or a piece of furniture in the list of its room."""
    if claim.kind == "fixture":
        return " ".join(filter(None, (claim.args[0], claim.args[2])))
    return f"{_one(_prepared(claim.args[0], claim.args[4]))} {_placed(claim.args)}".rstrip()


def _one(name: str) -> str:
    """The name as the game lists it, so that a writer can copy it."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _placed(args: tuple[str, ...]) -> str:
    """Where in its room a thing is, if that is told."""
    return f"{args[1]} the {args[2]} " if args[2] else ""


def _way(args: tuple[str, ...]) -> str:
    _, direction, to, door, state = args
    way = f"{direction} to the {to}" if to else f"{direction} unexplored"
    return f"{way} ({state} {door})" if door else way


def _directive(claim: Claim) -> str:
    return f"use the {claim.args[0]}" if claim.kind == "need" else f"{claim.args[0]} the {claim.args[1]}"


def _prepared(name: str, words: str) -> str:
    return f"{words} {name}" if words else name


# ---------------------------------------------------------------- reading contexts

_TAG = re.compile(r"\s*\[(?:certain|likely|unsure)\]\s*$")
_SENTENCE = re.compile(r"(?<=[.])\s+|\n+")
_AT = re.compile(r"the (.+) is (?:(in|on) the (.+?) )?in the (.+)$")
_STANDS = re.compile(r"the (.+?) stands in the (.+?)(?: and is (open|closed))?$")
_WAY = re.compile(r"(north|south|east|west) (?:to the ([^(]+?)|unexplored)(?: \((open|closed|locked) ([^)]+)\))?$")
_PLACED = re.compile(r"(.+) (in|on) the (.+)$")
_ARTICLE = re.compile(r"^(?:an?|some|the) ")
_RAW = re.compile(r"^(?:> ?\S|-= .+? =-)", re.M)


def understand(context: str) -> list[Claim]:
    """The claims of any reader's context: `oracle-b`, a state, raw history, or a state followed by raw steps."""
    if is_lines(context):
        return parse_lines(context)
    raw = _RAW.search(context)
    start = raw.start() if raw else len(context)
    return finished(replay(parse(context[:start]), context[start:]))


def parse(text: str) -> list[Claim]:
    """The claims of a state, oldest first; sentences of any other kind say nothing to the scripted model."""
    claims: list[Claim] = []
    for piece in reversed(_SENTENCE.split(text)):
        for claim in _piece_claims(_TAG.sub("", piece).strip().rstrip(".")):
            claims = put(claims, claim)
    return claims


def _piece_claims(piece: str) -> list[Claim]:
    for label in (SLOTS[0], SLOTS[2]):
        piece = piece.removeprefix(label).strip()
    head, colon, rest = piece.partition(": ")
    label = head.lower()
    if piece.startswith(SLOTS[1]):
        return [Claim("did", (command,)) for command in rest.split(", ") if command != NOTHING]
    if not colon:
        return _plain_claims(piece[:1].lower() + piece[1:])
    if label == "tried":
        return [Claim("did", (rest,))]
    if label == "recipe":
        return [claim for part in rest.split(", ") if (claim := _read_directive(part))]
    if label.startswith("in the "):
        return [_read_inside(part, head[7:]) for part in rest.split(", ")]
    if label.startswith("from the "):
        return [claim for part in rest.split(", ") if (claim := _read_way(part, head[9:]))]
    return []


def _plain_claims(piece: str) -> list[Claim]:
    if piece.startswith("you are in the "):
        return [Claim("here", (piece[15:],))]
    if piece.startswith("you carry "):
        return [Claim("carry", tuple(thing(_ARTICLE.sub("", name)))) for name in piece[10:].split(", ")]
    if match := _STANDS.match(piece):
        return [Claim("fixture", (match.group(1), match.group(2), match.group(3) or ""))]
    if match := _AT.match(piece):
        item = thing(match.group(1))
        return [Claim("at", (item.name, match.group(2) or "", match.group(3) or "", match.group(4), item.words))]
    return []


def _read_directive(part: str) -> Claim | None:
    verb, _, name = part.partition(" the ")
    if verb == "use" and name:
        return Claim("need", (name,))
    return Claim("do", (verb, name)) if verb in PARTICIPLES and name else None


def _read_inside(part: str, room: str) -> Claim:
    """What a room's list says of one thing. What has neither a place nor a state is a thing, unless an appliance."""
    name, _, state = part.rpartition(" ")
    if name and state in ("open", "closed"):
        return Claim("fixture", (name, room, state))
    if part in APPLIANCES.values():
        return Claim("fixture", (part, room, ""))
    match = _PLACED.match(part)
    item = thing(_ARTICLE.sub("", match.group(1) if match else part))
    return Claim("at", (item.name, *(match.group(2, 3) if match else ("", "")), room, item.words))


def _read_way(part: str, room: str) -> Claim | None:
    match = _WAY.match(part)
    if not match or match.group(1) not in DIRECTIONS:
        return None
    direction, to, state, door = match.groups()
    return Claim("exit", (room, direction, to or "", door or "", state or ""))


# ---------------------------------------------------------------- reading oracle-b

_LINE_ROOM = "Room: "
_LINE_WAY = re.compile(r"Way to (.+?): (.+)$")
_LINE_THING = re.compile(r"The (.+?): (?:(carried)|(?:(in|on) ([^,;]+), )?([^,;]+))(?:; (.+))?$")


def is_lines(context: str) -> bool:
    """Whether a context is `oracle-b`'s."""
    return context.startswith(_LINE_ROOM)


def parse_lines(context: str) -> list[Claim]:
    """The claims of all lines."""
    first, *rest = context.splitlines()
    claims = [Claim("here", (first.removeprefix(_LINE_ROOM).strip(),))]
    for line in rest:
        if way := _LINE_WAY.match(line):
            claims.append(Claim("way", (way[1], way[2].split(", ")[0])))
        elif thing := _LINE_THING.match(line):
            claims += _line_claims(*thing.groups(default=""))
    return claims


def _line_claims(name: str, is_carried: str, preposition: str, holder: str, room: str, verbs: str) -> list[Claim]:
    if name in APPLIANCES.values():
        return [Claim("fixture", (name, room, ""))]
    claims = [] if is_carried else [Claim("at", (name, preposition, holder, room, ""))]
    if name != TOOL:
        claims.append(Claim("need", (name,)))
        claims += [Claim("do", (verb, name)) for verb in verbs.split(", ") if verb in PARTICIPLES]
    return claims


# ---------------------------------------------------------------- prompts

_BUDGET = re.compile(r"(\d+) tokens")
_OPTION = re.compile(r"^([A-Za-z])\. (.+)$", re.M)
_WRITER = re.compile(
    r"\AGoal:\n(?P<goal>.*?)\n\nPrevious state:\n(?P<previous>.*)"
    r"\n\nLast action:\n(?P<action>.*?)\n\nNew observation:\n(?P<observation>.*)\Z",
    re.S,
)
_READER = re.compile(
    r"\AGoal:\n(?P<goal>.*?)\n\n<CONTEXT>\n(?P<context>.*)\n</CONTEXT>"
    r"\n\nCurrent observation:\n(?P<observation>.*)\n\nOptions:\n(?P<options>.*)\n\nAction:\Z",
    re.S,
)


class Question(NamedTuple):
    """A reader's prompt."""

    goal: str
    context: str
    observation: str
    commands: dict[str, str]
    """Label to command."""


class Order(NamedTuple):
    """A writer's prompt."""

    style: Format
    budget: int | None
    """None when the system message names no number of tokens."""
    previous: str
    view: View


def order_of(messages: tuple[Message, ...]) -> Order:
    """What a writer's messages ask for."""
    match = _WRITER.match(_user(messages))
    if match is None:
        raise ModelError(
            "The scripted model cannot read this writer's prompt; its user message must have the fields "
            "Goal, Previous state, Last action and New observation, in that order."
        )
    system = "\n".join(message.content for message in messages if message.role == "system")
    budget = _BUDGET.search(system)
    action = None if match["action"] == "(none)" else match["action"]
    view = View(match["goal"], action, match["observation"])
    previous = match["previous"]
    return Order(_style(system), int(budget[1]) if budget else None, "" if previous == "(empty)" else previous, view)


def question_of(messages: tuple[Message, ...]) -> Question:
    """What a reader's messages ask."""
    match = _READER.match(_user(messages))
    if match is None:
        raise ModelError(
            "The scripted model cannot read this reader's prompt; its user message must have the fields "
            "Goal, CONTEXT, Current observation, Options and Action, in that order."
        )
    context = match["context"]
    commands = {label: command.strip() for label, command in _OPTION.findall(match["options"])}
    return Question(match["goal"], "" if context == "(empty)" else context, match["observation"], commands)


def _user(messages: tuple[Message, ...]) -> str:
    return "\n".join(message.content for message in messages if message.role == "user")


def _style(system: str) -> Format:
    """Each retention instruction has words the others lack."""
    if "[certain]" in system:
        return "belief"
    if "Saved observations:" in system:
        return "slots"
    if "stove" in system and "oven" in system:
        return "guide"
    return "summary"
