"""Answers kept for whoever asks the same again, never more text than stated."""

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OVERHEAD = 64
"""Characters that an entry counts for besides its text."""


def remembered(characters: int, size: Callable[P, int]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep a function's newest answers as long as the texts they were asked with have at most so many characters
    together; `size` counts those of one question. Unlike a number of entries, this bounds memory whatever the length
    of the texts. A text longer than all of it is answered and not kept."""

    def remember(function: Callable[P, R]) -> Callable[P, R]:
        known: OrderedDict[tuple[object, ...], tuple[R, int]] = OrderedDict()
        held, lock = 0, Lock()

        @wraps(function)
        def answer(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal held
            assert not kwargs, "a question is its positional arguments"
            with lock:
                if (entry := known.get(args)) is not None:
                    known.move_to_end(args)
                    return entry[0]
            found, mine = function(*args, **kwargs), OVERHEAD + size(*args, **kwargs)
            with lock:
                if mine <= characters and args not in known:
                    known[args] = found, mine
                    held += mine
                while held > characters:
                    held -= known.popitem(last=False)[1][1]
            return found

        return answer

    return remember
