"""Values, which of them must be carried, and who lost them."""

from pathlib import Path

import pytest
from tests.traces.logs import Copyist, made_trace, run_audit

from dssr.measure.log_facts import blame_rows, survival_rows
from dssr.seeds import rng_of
from dssr.traces.facts import Past, held, occurs, trace_facts, values
from dssr.traces.trace import TraceStep


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open src/app/main.py 1474", {"src/app/main.py": "path", "1474": "number"}),
        ("raise ZeroDivisionError in total_seconds()", {"ZeroDivisionError": "error", "total_seconds": "identifier"}),
        ('grep "needle in hay" notes.txt', {"needle in hay": "string", "notes.txt": "path"}),
        ("run `make test` with --fast-mode", {"make test": "command", "--fast-mode": "identifier"}),
        ("go north and open 5 doors", {}),
    ],
)
def test_values_are_found_by_kind(text: str, found: dict[str, str]) -> None:
    """Catches a kind of value that is no longer seen, and plain words taken for values."""
    assert {one.text: one.kind for one in values(text)} == found


def test_only_what_the_context_must_tell_is_carried() -> None:
    """Catches a value counted although goal or current observation tell it, or although nothing before told it."""
    steps = [
        TraceStep(None, "see a/b.py and c/d.py"),
        TraceStep("cat c/d.py", "it imports e/f.py"),
        TraceStep("cat e/f.py", "empty"),
    ]
    reference = "rm a/b.py c/d.py e/f.py g/h.py x/y.py"
    past = Past("mend x/y.py", steps, dict.fromkeys(range(3), reference))
    assert [one.text for one in past.carried(2)] == ["a/b.py", "c/d.py", "e/f.py"]
    assert [one.text for one in past.carried(1)] == ["a/b.py", "c/d.py"]
    assert past.carried(0) == []
    done = Past("", steps, {0: " cat c/d.py\n", 1: "cat a/b.py", 2: " cat c/d.py\n"})
    assert [done.is_repeat(step) for step in range(3)] == [False, False, True]


def test_the_index_of_words_finds_what_a_search_of_all_text_finds() -> None:
    """Catches a value that the index misses or makes up: as part of a longer word, between marks, over two lines."""
    rng, pieces = (
        rng_of("past"),
        ("a/b.py", "xa/b.py", "a/b.pyc", "`ls\na/b.py`", '"--- ++"', "--- ++", "é_1", "12.5", "\n"),
    )
    for _ in range(300):
        steps = [TraceStep(" ".join(rng.choices(pieces, k=2)), " ".join(rng.choices(pieces, k=2))) for _ in range(4)]
        past = Past(rng.choice(pieces), steps, {step: " ".join(rng.choices(pieces, k=3)) for step in range(4)})
        for step, reference in past.references.items():
            before = "\n".join(f"{one.action}\n{one.observation}" for one in steps[:step]) + f"\n{steps[step].action}"
            now = f"{past.goal}\n{steps[step].observation}"
            wanted = [one for one in values(reference) if occurs(one.text, before) and not occurs(one.text, now)]
            assert past.carried(step) == wanted


@pytest.mark.parametrize(
    ("value", "kind", "state", "how"),
    [
        ("src/a/fields.py", "path", "the file src/a/fields.py.", "verbatim"),
        ("src/a/fields.py", "path", "the file fields.py", "paraphrase"),
        ("src/a/fields.py", "path", "the file myfields.pyc", "gone"),
        ("1474", "number", "line 1,474 is wrong", "paraphrase"),
        ("1474", "number", "line 14740 is wrong", "gone"),
        ("ZeroDivisionError", "error", "a zero division error came", "paraphrase"),
        ("base_unit", "identifier", "the base is a unit", "gone"),
        ("needle in the hay", "string", "hay that has a needle in the dark", "paraphrase"),
        ("needle in the hay", "string", "a needle", "gone"),
    ],
)
def test_a_state_holds_a_value_by_the_stated_rule(value: str, kind: str, state: str, how: str) -> None:
    """Catches a matching rule that is looser or stricter than the documents say."""
    assert held(value, kind, state) == how  # type: ignore[arg-type]


def test_planted_losses_are_blamed_on_the_rewrite_that_dropped_them(tmp_path: Path) -> None:
    """Catches blame on the wrong rewrite or the wrong value: in 100 logs a known rewrite forgets the one value that a
    later action needs. A guess among the rewrites in between would be right in far fewer."""
    planted = {}
    for number in range(100):
        rng = rng_of("planted", number)
        seen = rng.randrange(0, 4)
        tidy = rng.randrange(seen + 1, 8)
        planted[f"log-{number}"] = (made_trace(number, seen, tidy, rng.randrange(tidy, 11)), tidy)
    traces = [trace for trace, _ in planted.values()]
    study = run_audit(traces, tmp_path / "run", Copyist(), ["tests.traces.logs:Tidier", "tests.traces.logs:Hoarder"])
    blamed = [row for row in blame_rows(study) if row.memory.endswith("Tidier")]
    right = [
        row
        for row in blamed
        if row.step == planted[row.trace][1] and row.dropped == trace_facts(planted[row.trace][0])[0].text
    ]
    assert len(right) == len(blamed) == 100
    assert not [row for row in blame_rows(study) if row.memory.endswith("Hoarder")]
    assert all(row.kappa is not None and row.kappa > 1 for row in blamed)
    lost, kept = survival_rows(study)
    assert (lost.facts, lost.dropped, lost.verbatim) == (100, 100, 0)
    assert (kept.facts, kept.dropped, kept.verbatim) == (100, 0, 100)
