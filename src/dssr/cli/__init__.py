"""The command line: parse, call, print."""

import os
import signal
import sys
from contextlib import suppress

INTERRUPTED = 130


def start() -> None:
    """`dssr`. Nothing heavy is imported before Ctrl-C is heard, and a second Ctrl-C changes nothing."""
    if "--debug" not in sys.argv:
        # An event loop that is thrown away in the middle of an interrupt complains of it, to nobody's use.
        sys.unraisablehook = lambda _: None
    try:
        from dssr.cli.main import run

        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        end_interrupted()
    sys.exit(code)


def end_interrupted() -> None:
    """Say what holds for this command and end at once: waiting for threads here would only invite another Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    hint = "nothing was changed; give the same command again."
    if "dssr.cli.main" in sys.modules:
        with suppress(Exception):  # it may have been interrupted while it was being imported
            hint = sys.modules["dssr.cli.main"].hint(sys.argv[1:])
    sys.stderr.write(f"dssr: interrupted; {hint}\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
