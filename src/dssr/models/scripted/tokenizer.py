"""A tokenizer without a vocabulary: words and marks, long words in pieces, and every id spells its own bytes."""

import re
from collections.abc import Sequence

from dssr.errors import ModelError

_PIECE = re.compile(r" ?\w+| ?[^\w\s]|\s")
_BYTES = 7
"""Bytes of text per token, so that an id stays below 2**63."""
_ALONE, _SPACED = 1, 2
"""Leading byte of an id: does a space stand before the piece?"""


class WordTokenizer:
    """`decode(encode(text)) == text` for any text that UTF-8 can hold."""

    @property
    def name(self) -> str:
        return "words"

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in _PIECE.findall(text):
            spaced = len(piece) > 1 and piece[0] == " "
            data = piece[spaced:].encode("utf-8", "surrogatepass")
            for start in range(0, len(data), _BYTES):
                mark = _SPACED if spaced and start == 0 else _ALONE
                ids.append(int.from_bytes(bytes([mark]) + data[start : start + _BYTES], "big"))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        data = bytearray()
        for number in ids:
            raw = number.to_bytes((number.bit_length() + 7) // 8, "big") if number > 0 else b""
            if raw[:1] not in (b"\x01", b"\x02"):
                raise ModelError(f"{number} is no token of the scripted model; decode only what its tokenizer encoded.")
            data += (b" " if raw[0] == _SPACED else b"") + raw[1:]
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")
