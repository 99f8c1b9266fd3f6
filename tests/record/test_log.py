"""Log files, line by line."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from dssr.record.log import KeySet, keys


def test_keys_are_found_by_parsing(tmp_path: Path) -> None:
    """Catches a search for bytes that look like a key: a line may say so in its text, or have its fields in another
    order or with spaces."""
    path = tmp_path / "steps.jsonl"
    lines = [
        b'{"state": "\\"key\\":\\"other:0001\\"", "key": "one:0001"}\n',
        b'{"index":2,"nested":{"key":"other:0002"},"key":"one:0002"}\n',
    ]
    path.write_bytes(b"".join(lines))
    assert list(keys(path)) == [("one:0001", len(lines[0])), ("one:0002", len(lines[1]))]


NUMBERED = st.builds("{}:{:04d}".format, st.sampled_from(["a", "b:c"]), st.integers(0, 9999))


@given(st.lists(NUMBERED))
@example(["a:0001", "a:1", "a:00001", "a", ":0001", "a:٠٠٠١", "a:-001", "a:0001:0001"])
def test_keys_are_told_apart_however_they_end(keys: list[str]) -> None:
    """Catches a step taken for stored because another has its number, and a key that only looks numbered."""
    known = KeySet()
    for place, key in enumerate(keys):
        assert (key in known) == (key in keys[:place])
        known.add(key)
    assert all(key in known for key in keys)
    assert "a:0001x" not in known
