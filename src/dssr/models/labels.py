"""The reader answers with one token: every label must be one, whatever stands before and after it."""

from collections.abc import Sequence

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.models.tokenizers import HFTokenizer
from dssr.types import LABELS

PROBE = (Message("system", "Answer with a letter."), Message("user", "Options:\nA: wait\nAction:"))


def label_ids(tokenizer: HFTokenizer, labels: Sequence[str] = LABELS) -> dict[str, int]:
    """The token of each label; refuses a tokenizer on which any label is not a single, prefix-stable token."""
    prompt = tokenizer.template(PROBE)
    start = tokenizer.encode_control(prompt)
    ids: dict[str, int] = {}
    failed: list[str] = []
    for label in labels:
        alone = tokenizer.encode(label)
        after = tokenizer.encode_control(prompt + label)
        if len(alone) == 1 and after == [*start, alone[0]] and alone[0] not in ids.values():
            ids[label] = alone[0]
        else:
            failed.append(label)
    if failed:
        raise ModelError(
            f"{len(failed)} of {len(labels)} labels are not single, prefix-stable tokens of {tokenizer.name} "
            f"({', '.join(failed)}); use another model as the reader"
        )
    return ids
