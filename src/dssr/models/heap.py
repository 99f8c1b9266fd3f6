"""Memory that a closed model leaves behind.

The C library keeps what is freed, for each thread apart, and every model has a thread of its own: a study that opens
one model after the other would grow by gigabytes.
"""

import ctypes


def give_back() -> None:
    """Hands freed memory back to the system, where the C library knows how."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
