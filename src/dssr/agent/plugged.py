"""A user's class: found, told apart by its source, and run so that whatever it does costs its episode alone.

Plug-ins are code with all the rights of the program. What is here guards against mistakes, not against malice.
"""

import ast
import asyncio
import ctypes
import importlib
import inspect
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dssr.agent.prompts import WatchedModel
from dssr.errors import ConfigError, LeakError
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, Tokenizer, TokenScores, ask_likelihood

R = TypeVar("R")

# ---------------------------------------------------------------- what it is given


class Counter:
    """The tokenizer as a user's class gets it: what the class does to this object changes no count of ours."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.name = tokenizer.name
        self._inner = tokenizer

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return self._inner.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids."""
        return self._inner.decode(ids)


class HomeModel(WatchedModel):
    """The model as a user's class gets it, callable from the thread in which the class writes."""

    def __init__(self, model: WatchedModel) -> None:
        super().__init__(model, lambda messages: None)
        self._home = asyncio.get_running_loop()
        self._since, self._waited, self._pending = time.monotonic(), 0.0, 0
        self.refused: LeakError | None = None
        """What was wrong with a request."""

    @property
    def tokenizer(self) -> Tokenizer:
        """A copy, as in the kit."""
        return Counter(self.model.tokenizer)

    @property
    def spent(self) -> float:
        """Seconds since the start in which no answer of the model was waited for."""
        return 0.0 if self._pending else time.monotonic() - self._since - self._waited

    async def generate(self, request: Generate) -> Generated:
        """Answered by the run's event loop."""
        return await self._at_home(self.model.generate(request))

    async def choose(self, request: Choose) -> Chosen:
        """Answered by the run's event loop."""
        return await self._at_home(self.model.choose(request))

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Answered by the run's event loop."""
        return await self._at_home(ask_likelihood(self.model, request))

    async def _at_home(self, call: Coroutine[Any, Any, R]) -> R:
        async def timed() -> R:
            begun, self._pending = time.monotonic(), self._pending + 1
            try:
                return await call
            except LeakError as error:
                self.refused = error
                raise
            finally:
                self._pending -= 1
                self._waited += time.monotonic() - begun

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(timed(), self._home))


# ---------------------------------------------------------------- how it is run


async def in_thread(work: Callable[[], Coroutine[Any, Any, R]], left: Callable[[], float]) -> R:
    """What the work returns, done in a thread that is left to itself when no second is left.

    Of what it raises, all that would end more than the work (an exit, a cancellation, a library's panic) comes back as
    an ordinary error.
    """
    home = asyncio.get_running_loop()
    ended: asyncio.Future[R] = home.create_future()
    inside: list[tuple[asyncio.AbstractEventLoop, Any]] = []

    async def begin() -> R:
        inside.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work()

    def settle(result: R | None, error: Exception | None) -> None:
        if not ended.done():
            ended.set_exception(error) if error is not None else ended.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, trouble = None, None
        try:
            result = asyncio.run(begin())
        except Exception as error:
            trouble = error
        except BaseException as error:
            trouble = EndedError(said(error)).with_traceback(error.__traceback__)
        with suppress(RuntimeError):  # nobody waits any more
            home.call_soon_threadsafe(settle, result, trouble)

    # In the episode's context, by which the leak check knows whose requests it sees.
    thread = threading.Thread(target=copy_context().run, args=(run,), name="dssr-memory", daemon=True)
    thread.start()
    try:
        while not ended.done():
            if (seconds := left()) <= 0:
                raise OverrunError
            await asyncio.wait({ended}, timeout=seconds)
        return ended.result()
    finally:
        if ended.cancel():  # nobody waits for it any more
            for loop, task in inside:  # ends what awaits; the line after it, what computes
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(task.cancel)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


class OverrunError(Exception):
    """No second was left."""


class EndedError(Exception):
    """Stands for what ends more than the code that raised it."""


def said(error: BaseException) -> str:
    """An error as a part of a sentence."""
    if isinstance(error, EndedError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def line_of(error: BaseException) -> str | None:
    """File and line in the user's own code where an error arose; None where there is no such line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(place) for place in INSTALLED)]
    return f"{Path(own[-1].filename).name}, line {own[-1].lineno}" if own else None


def told(error: BaseException) -> str:
    """An error as a part of a sentence, with its place; that of a wrong syntax is told by the error itself."""
    line = None if isinstance(error, SyntaxError) else line_of(error)
    return said(error) if line is None else f"{said(error)} ({line})"


INSTALLED = (Path(__file__).parents[1], *(Path(place) for place in sysconfig.get_paths().values()))
"""Where code lies that is not the user's: of this package, of Python and of other packages."""


# ---------------------------------------------------------------- which one it is


def find_class(name: str) -> Any:
    """The class that `package.module:Class` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except (ModuleNotFoundError, AttributeError) as error:
        place = line_of(error)
        raise ConfigError(f"The memory {name} cannot be imported: {error}{f' ({place})' if place else ''}.") from error
    except BaseException as error:  # whatever a module does when it is imported, an exit included
        raise ConfigError(f"The memory {name} cannot be imported: its module fails with {told(error)}.") from error
    if not callable(found) or not inspect.iscoroutinefunction(getattr(found, "write", None)):
        raise ConfigError(f"{name} is no memory: it needs to be a class with `async def write(self, view, previous)`.")
    return found


def sources_of(name: str) -> tuple[tuple[str, str], ...]:
    """Files and texts of the module that a class is found in, of the one that defines it, and of every module beside
    these that they import: a constant or a helper there decides as much as the class. The rest is installed packages,
    which `run.json` lists."""
    return _sources(name, find_class(name))


@cache  # as they are when the class is first met: what lies on the disk later is not what runs
def _sources(name: str, found: Any) -> tuple[tuple[str, str], ...]:
    texts: dict[str, str] = {}
    for module in dict.fromkeys((name.partition(":")[0], found.__module__)):
        file = getattr(sys.modules.get(module), "__file__", None)
        if file is not None and Path(file).is_file():
            _add_sources(Path(file).resolve(), module, texts)
    if not texts:
        with suppress(OSError, TypeError):  # typed into a prompt, or compiled
            texts[name] = inspect.getsource(found)
    return tuple(sorted(texts.items()))


def _add_sources(file: Path, module: str, texts: dict[str, str]) -> None:
    """The file and what it imports, as far as that lies beside it; of installed packages, in the same one."""
    top, depth = module.partition(".")[0], module.count(".") + (file.name == "__init__.py")
    root = file.parents[depth]
    installed = root in {Path(place).resolve() for place in sysconfig.get_paths().values()}
    owed = [(file, module if file.name == "__init__.py" else module.rpartition(".")[0])]
    while owed:
        path, package = owed.pop()
        if (known := path.relative_to(root).as_posix()) in texts:
            continue
        texts[known] = path.read_bytes().decode("utf-8", "replace")
        for asked in _imported(texts[known], package):
            if installed and asked.partition(".")[0] != top:
                continue
            parts = asked.split(".")
            for end in range(1, len(parts) + 1):
                inner, place = ".".join(parts[:end]), root.joinpath(*parts[:end])
                if (place / "__init__.py").is_file():
                    owed.append((place / "__init__.py", inner))
                elif place.with_suffix(".py").is_file():
                    owed.append((place.with_suffix(".py"), inner.rpartition(".")[0]))


def _imported(text: str, package: str) -> Iterator[str]:
    """Full names of all that a source may import, wherever the statement stands."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)
