"""The ledger keeps the order of things: gates, then data, then verdicts."""

from pathlib import Path

import pytest

from dssr.errors import RecordError
from dssr.measure.gates import Ledger
from dssr.measure.verdicts import Check, Found, verdict

DAY = "2030-01-02T00:00:00+00:00"
PASSED = verdict("G1a", "Regret grows.", Found((Check("difference", 1.0, 0.5, 1.5, 0.0, True),)))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "study" / "ledger.jsonl")
    made.write({"G1a": "Regret grows.", "plain": "Reported."}, DAY)
    return made


def test_gates_amendments_and_verdicts_are_kept_in_order(ledger: Ledger) -> None:
    """Everything said is still there, first words first."""
    ledger.amend("G1a", "Only post-reveal walks count.", "2030-01-03T00:00:00+00:00")
    ledger.judge(PASSED, {"runs/a": "2030-01-04T00:00:00+00:00"}, "2030-01-05T00:00:00+00:00")
    assert [entry.kind for entry in ledger.entries()] == ["gate", "gate", "amendment", "verdict"]
    assert ledger.statement("G1a") == "Regret grows. [Amended 2030-01-03: Only post-reveal walks count.]"
    assert ledger.entries()[-1].verdict == PASSED
    assert ledger.entries()[-1].runs == ("runs/a",)


def test_a_gate_is_never_reworded(ledger: Ledger) -> None:
    """Writing the same words again adds nothing; other words are refused and the file stays as it was."""
    before = ledger.path.read_bytes()
    ledger.write({"G1a": "Regret grows."}, "2031-01-01T00:00:00+00:00")
    with pytest.raises(RecordError, match="amend G1a"):
        ledger.write({"G1a": "Regret does not shrink."}, DAY)
    assert ledger.path.read_bytes() == before


def test_data_older_than_the_gate_are_refused(ledger: Ledger) -> None:
    """A gate written after looking at the data is no gate."""
    with pytest.raises(RecordError, match="started before G1a"):
        ledger.judge(PASSED, {"runs/a": "2030-01-01T23:59:59+00:00"}, DAY)


def test_unknown_gates_are_refused(tmp_path: Path) -> None:
    """A verdict or an amendment needs a gate that stands."""
    empty = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(RecordError, match="dssr gates write"):
        empty.amend("G1a", "More.", DAY)
    with pytest.raises(RecordError, match="dssr gates write"):
        empty.judge(PASSED, {}, DAY)
