"""Game text: what TextWorld prints, without banner, prompt and status bar, and the room headers in it."""

import re

STATUS = re.compile(r"\n>[ ]*(-= [^\n]+? =--?\d+/\d+)?\s*\Z")
"""The prompt and, on its line, the status bar: room, score and turn count."""
HEADER = re.compile(r"^-= (.+?) =-$", re.MULTILINE)


def clean(feedback: str, goal: str) -> str:
    """Feedback without banner, prompt line, status line and outer blank lines; otherwise untouched."""
    text = STATUS.sub("", feedback)
    banner, found, rest = text.partition(goal)
    if found and "$$" in banner:
        text = goal + rest
    return text.strip()


def with_inventory(text: str, inventory: str) -> str:
    """An observation: cleaned feedback, then what the player carries."""
    return f"{text}\n\n{inventory.strip()}" if text else inventory.strip()


def room_header(observation: str) -> str | None:
    """The room named by a `-= Room =-` line, or None when the text has no such line."""
    found = HEADER.search(observation)
    return found.group(1) if found else None


def brief(observation: str) -> str:
    """A walking step without the room's contents: its header and the inventory sentence."""
    found = HEADER.search(observation)
    inventory = observation.rpartition("\n\n")[2]
    return f"{found.group(0)}\n\n{inventory}" if found else observation
