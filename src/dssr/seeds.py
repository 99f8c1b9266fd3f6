"""Seeds come from content, never from the clock."""

import hashlib
import json
import random

SEED_BITS = 63


def digest_of(*parts: object) -> str:
    """Hex digest of JSON-representable parts, equal on every machine and in every process."""
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def seed_of(*parts: object) -> int:
    """A non-negative 63-bit seed that depends on the parts alone."""
    return int(digest_of(*parts), 16) & ((1 << SEED_BITS) - 1)


def rng_of(*parts: object) -> random.Random:
    """A generator seeded by the parts; `random.Random` gives the same stream on every platform."""
    return random.Random(seed_of(*parts))
