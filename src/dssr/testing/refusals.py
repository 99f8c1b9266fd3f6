"""What pytest has as `raises`, without pytest: the suites must be importable where it is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from dssr.errors import DssrError


@contextmanager
def refused(kind: type[DssrError], word: str = "") -> Iterator[None]:
    """The block must raise an error of this kind whose sentence holds the word."""
    try:
        yield
    except kind as error:
        if word not in str(error):
            raise AssertionError(f"{error!r} does not speak of {word!r}") from error
        return
    raise AssertionError(f"no {kind.__name__} was raised")
