"""nano: the small built-in model of dssr, its weights and the factory that makes them."""

from pathlib import Path

WEIGHTS = Path(__file__).parent / "weights"
"""Folder of the networks: `writer`, `reader`, and what else is shipped beside them."""


def weights(part: str) -> Path:
    """The folder of one network, for names such as `nano/writer`."""
    from dssr.errors import ModelError

    there = ", ".join(sorted(f"nano/{each.name}" for each in WEIGHTS.glob("*/"))) or "none"
    if not part:
        raise ModelError(f"nano has a network for each role; say one of {there}.")
    if not (WEIGHTS / part).is_dir():
        raise ModelError(f"nano/{part} is not in this installation (there: {there}); make it with `dssr nano build`.")
    return WEIGHTS / part
