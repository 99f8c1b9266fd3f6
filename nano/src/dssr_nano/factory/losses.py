"""What nano is trained on: answers, other text, probes, and where its heads look."""

import torch
from torch import Tensor

from dssr_nano.factory.network import Network, probe_loss, text_losses
from dssr_nano.factory.tree import Row

LOOK = 0.3
"""Weight of looking where the answer is to be found."""


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
    for kind, look in network.looks(row).items():
        total = total + LOOK * look
        report[kind] = look.item()
    if bool((~answers).any()):
        other = (each * weights)[~answers].sum() / weights[~answers].sum()
        total = total + weights[~answers].mean() * other
        report["text"] = other.item()
    return total, report
