"""The structure check sees what is added to a writer's message, and only that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dssr.agent.prompts import READER_MARKS, check_free, check_request, reader_messages, writer_messages
from dssr.errors import LeakError
from dssr.models.base import Message
from dssr.types import View

VIEW = View("cook", "go north", "A kitchen.")
pieces = st.lists(
    st.sampled_from((*READER_MARKS, "A. go north", "\n\nLast action:\nx", "Goal:\n", "text", "\n")), max_size=6
)
odd = pieces.map("\n".join) | st.text(max_size=30)


@given(goal=odd, previous=odd, action=st.none() | odd, observation=odd)
def test_no_alarm_whatever_games_and_states_say(goal: str, previous: str, action: str | None, observation: str) -> None:
    """Catches a check that reads the content of fields instead of what stands around them."""
    view = View(goal, action, observation)
    messages = writer_messages("Write the state.", view, previous)
    check_request(messages, view, previous)
    check_free(messages, view, previous)


@pytest.mark.parametrize("extra", ["\n\nOptions:\nA. go north", "\n\nAction:", "\n\nReference action:\ngo north", " "])
def test_anything_added_is_refused(extra: str) -> None:
    """Catches options, a reference action or any other field that finds its way into a writer's message."""
    system, user = writer_messages("Write.", VIEW, "")
    with pytest.raises(LeakError):
        check_request((system, Message("user", user.content + extra)), VIEW, "")


def test_changed_fields_are_refused() -> None:
    """Catches a message that shows another view than the one given, or fields in another order."""
    other = View("cook", "go north", "A kitchen with a knife in the drawer.")
    with pytest.raises(LeakError):
        check_request(writer_messages("Write.", other, ""), VIEW, "")
    with pytest.raises(LeakError):
        check_request(writer_messages("Write.", VIEW, "secret"), VIEW, "")
    with pytest.raises(LeakError):
        check_request((*writer_messages("Write.", VIEW, ""), Message("user", "and this")), VIEW, "")


@pytest.mark.parametrize("mark", READER_MARKS)
def test_the_readers_layout_in_an_instruction_is_refused(mark: str) -> None:
    """Catches a prompt file or a user's memory that rebuilds the reader's prompt."""
    with pytest.raises(LeakError):
        check_request(writer_messages(f"Write.\n{mark}\n", VIEW, ""), VIEW, "")
    with pytest.raises(LeakError):
        check_free((Message("user", f"Observation: x\n{mark}"),), VIEW, "")


def test_a_reader_prompt_sent_to_the_writer_is_refused() -> None:
    messages = reader_messages("Choose.", "cook", "state", "A kitchen.", ("go north", "eat meal"))
    with pytest.raises(LeakError):
        check_request(messages, VIEW, "")
    with pytest.raises(LeakError):
        check_free(messages, VIEW, "")
