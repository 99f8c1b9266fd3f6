"""Cleaning of what TextWorld prints."""

import pytest

from dssr.worlds.cooking.recipe import brief, clean, room_header, with_inventory

BAR = "\n>" + " " * 60 + "-= Living Room =-3/12"


@pytest.mark.parametrize(
    ("feedback", "cleaned"),
    [
        ("\nTaken.\n\n" + BAR, "Taken."),
        ("\n-= Shed =-\nA  shed.\n\n\n\nA door." + BAR, "-= Shed =-\nA  shed.\n\n\n\nA door."),
        (
            "\nA sign reads:\n> go -= Shed =-1/2 now\nThat is all.\n" + BAR,
            "A sign reads:\n> go -= Shed =-1/2 now\nThat is all.",
        ),
        ("Bye.\n\n> ", "Bye."),
        ("\n\n $$$$ \\$$\n\nCook!\n\n-= Shed =-\nA shed." + BAR, "Cook!\n\n-= Shed =-\nA shed."),
        ("\nYou cook. Cook! Cook!" + BAR, "You cook. Cook! Cook!"),
        (BAR, ""),
    ],
)
def test_only_banner_prompt_and_status_go(feedback: str, cleaned: str) -> None:
    """Catches cleaning that eats inner text, inner blank lines or a `>` inside the text."""
    assert clean(feedback, "Cook!") == cleaned


def test_headers_and_brief() -> None:
    """Catches a header missed, or found inside a line."""
    text = with_inventory("You go.\n\n-= Living Room =-\nBig. It says -= Shed =- here.", " You are carrying: a knife. ")
    assert room_header(text) == "Living Room"
    assert brief(text) == "-= Living Room =-\n\nYou are carrying: a knife."
    assert room_header("It says -= Shed =- here.") is None
    assert with_inventory("", "You are carrying nothing.") == "You are carrying nothing."
