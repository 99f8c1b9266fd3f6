"""What nano is trained on: answers, other text, probes, and where its heads look."""

from bisect import bisect_right
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from dssr_nano.factory.hints import HEADS
from dssr_nano.factory.network import MARKED, Network
from dssr_nano.factory.tree import OptionSet, Row

HINT = 0.3
"""Weight of the attention hints."""
LETTER = 0.3
"""Weight of naming the letter of each option line."""
MARKS = 12.0
"""Weight of the marks of options, relative to which option is right."""


def losses(network: Network, row: Row) -> tuple[Tensor, dict[str, float]]:
    """Answers, other text, and the probes; and what they were."""
    logits, probed = network(row)
    each = text_losses(logits, row)
    answers = torch.zeros(len(row.sources), dtype=torch.bool)
    answers[row.answers] = True
    weights = torch.tensor(row.weights)
    total = torch.zeros(())
    report: dict[str, float] = {"tokens": len(row.ids)}
    if row.answers:
        answer = each[answers].mean()
        probe = probe_loss(probed, row.choices)
        total = total + answer + 0.5 * probe
        hits = (logits[answers].argmax(-1) == torch.tensor(row.targets)[answers]).float().mean()
        report |= {"answer": answer.item(), "probe": probe.item(), "right": hits.item()}
    for kind, hint in hint_losses(network, row).items():
        total = total + HINT * hint
        report[kind] = hint.item()
    if bool((~answers).any()):
        other = (each * weights)[~answers].sum() / weights[~answers].sum()
        total = total + weights[~answers].mean() * other
        report["text"] = other.item()
    return total, report


def hint_losses(network: Network, row: Row) -> dict[str, Tensor]:
    """After a call of the network on the row: the mean loss of each kind of hint the row has."""
    kinds = {kind for kind, _ in row.hints}
    found: dict[str, Tensor] = {}
    for kind, heads in HEADS.items():
        if kind in kinds:
            parts = [(network.model.parts()[number].self_attn.queries_and_keys, head) for number, head in heads]
            found[kind] = hint_loss(row, kind, [(query[head], key[head]) for (query, key), head in parts])
    return found


def hint_loss(row: Row, kind: str, heads: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """How far the attention of some heads, given as queries and keys, is from where it should go: the mean over all
    hints of a kind. Span by span, as in `tree.attend`, because a token sees nothing of other spans."""
    starts = [first for first, _, _, _ in row.spans]
    found: dict[int, list[tuple[int, set[int]]]] = {}
    for (each, source), targets in row.hints.items():
        if each == kind:
            found.setdefault(bisect_right(starts, source) - 1, []).append((source, targets))
    sizes = [last - first for first, last, _, _ in row.spans]
    queries = torch.split(torch.stack([query for query, _ in heads]), sizes, 1)
    keys = torch.split(torch.stack([key for _, key in heads]), sizes, 1)
    missed: list[Tensor] = []
    for number, hints in found.items():
        first, last, trunk_first, trunk_last = row.spans[number]
        before = trunk_last - trunk_first
        own = keys[number]
        key = torch.cat([keys[starts.index(trunk_first)][:, :before], own], 1) if before else own
        sources = torch.tensor([source - first for source, _ in hints])
        scores = queries[number][:, sources] @ key.mT / key.shape[-1] ** 0.5
        later = torch.arange(before + last - first) > sources[:, None] + before
        other = torch.ones_like(later)
        for place, (_, targets) in enumerate(hints):
            other[place, [at - first + before if at >= first else at - trunk_first for at in targets]] = False
        nothing = float("-inf")
        seen = scores.masked_fill(later, nothing).logsumexp(-1)
        missed.append(seen - scores.masked_fill(other, nothing).logsumexp(-1))
    return torch.cat(missed, 1).mean()


def text_losses(logits: Tensor, row: Row) -> Tensor:
    """The loss of every predicted token."""
    return functional.cross_entropy(logits, torch.tensor(row.targets), reduction="none")


def probe_loss(probed: list[Tensor], choices: list[OptionSet]) -> Tensor:
    """Which option is right (one of the list), and what is true of each option by itself."""
    total = torch.zeros(())
    for view in probed:
        place = 0
        for choice in choices:
            count = len(choice.ends)
            mine = view[place : place + count]
            place += count
            total = total + functional.cross_entropy(mine[:, 0][None], torch.tensor([choice.right]))
            marks = torch.tensor(choice.marks)
            given = mine[:, 1 : 1 + MARKED]
            total = total + MARKS * functional.binary_cross_entropy_with_logits(given, marks)
            total = total + LETTER * functional.cross_entropy(mine[:, 1 + MARKED :], torch.tensor(choice.letters))
    return total / max(1, len(choices) * len(probed))
