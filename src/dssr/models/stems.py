"""Long prompts that several replies are written from: their keys are kept once and read once for many replies.

Which part of a prompt is its stem is a matter of the prompt alone, and a tile always has the same number of rows, so
company changes no bit here either.
"""

from collections.abc import Sequence

import torch

from dssr.models.kv import Node

LONG = 384
"""Shortest stem, in tokens. Shorter prompts differ from reply to reply, and copies of them are cheap."""
TILE = 8
"""Replies that read a stem together; missing ones are computed in vain."""


def stem_of(path: Sequence[Node]) -> tuple[bytes | None, int]:
    """Key and length of a prompt's stem: all but its last block, if that is long enough."""
    length = path[-1].position if path else 0
    return (path[-2].key, length) if length >= LONG else (None, 0)


class Tiles:
    """The rows that have a stem, in tiles of one stem each."""

    def __init__(self, stems: dict[bytes, torch.Tensor], keys: Sequence[bytes], device: torch.device) -> None:
        """`keys` names the stem of each row."""
        rows: dict[bytes, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        cut = [(key, mine[at : at + TILE]) for key, mine in rows.items() for at in range(0, len(mine), TILE)]
        self.stems = [stems[key] for key, _ in cut]
        filled = [row for _, mine in cut for row in (*mine, *[mine[0]] * (TILE - len(mine)))]
        places = {row: tile * TILE + at for tile, (_, mine) in enumerate(cut) for at, row in enumerate(mine)}
        self.filled = torch.tensor(filled, device=device)
        """The row at each place of each tile."""
        self.places = torch.tensor([places[row] for row in range(len(keys))], device=device)
        """Where each row stands among them."""

    def attend(self, layer: int, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the rows `q` [heads, rows, width], scaled already, read in their stems, as `read` gives it."""
        heads, _, width = q.shape
        key_heads = self.stems[0].shape[2]
        asked = q[:, self.filled].reshape(key_heads, -1, len(self.stems), TILE, width)
        asked = asked.permute(2, 0, 1, 3, 4).reshape(len(self.stems), key_heads, -1, width)
        found = [read(one, *stem[layer]) for one, stem in zip(asked, self.stems, strict=True)]
        values, weights = (self._rows(parts, heads) for parts in zip(*found, strict=True))
        return values, weights

    def _rows(self, tiles: tuple[torch.Tensor, ...], heads: int) -> torch.Tensor:
        """From one tensor per tile to one row per reply."""
        return torch.stack(tiles).reshape(len(tiles), heads, TILE, -1).transpose(1, 2).flatten(0, 1)[self.places]


def read(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of each batch entry, and the logarithm of the weight that it gives to all of these keys together."""
    scores = torch.bmm(q, keys.transpose(1, 2)).float()
    if mask is not None:
        scores = scores + mask
    total = scores.logsumexp(-1, keepdim=True)
    return torch.bmm((scores - total).exp_().to(values.dtype), values), total


def joined(one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Attention over the keys of both."""
    share = torch.sigmoid(other[1] - one[1]).to(one[0].dtype)
    return torch.lerp(one[0], other[0], share)
