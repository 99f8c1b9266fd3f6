"""Log files, line by line."""

from pathlib import Path

from dssr.record.log import keys


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
