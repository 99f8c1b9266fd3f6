"""The four directions."""

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
"""In the order in which exits are listed and tried."""
DIRECTIONS = tuple(OPPOSITE)
CLOCKWISE = ("north", "east", "south", "west")
