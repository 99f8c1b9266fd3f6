"""Workers that need not load torch anew for every kill: one clean process loads it and forks each of them.

A worker is still a process of its own with its own pipes to the process that stores, which is the one that is killed.
What it does not have is that process's files and locks, which it would have if it were forked from there.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from dssr.scale import processes

CLIENT = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as ours:
    ours.connect({place!r})
    socket.send_fds(ours, [b"pipes"], [0, 1, 2])
    sys.exit(int(ours.recv(8) or b"1"))
"""
"""What is started in a worker's place: it hands its pipes on, and ends as the worker does."""
READY = b"ready\n"


@contextmanager
def workers() -> Iterator[None]:
    """Have workers forked by a warm process for as long as this is open."""
    with tempfile.TemporaryDirectory() as folder:  # a socket's path must be short
        place = f"{folder}/warm"
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, place], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert server.stdout is not None
        cold, processes.MAIN = processes.MAIN, CLIENT.format(place=place)
        try:
            assert server.stdout.readline() == READY
            yield
        finally:
            processes.MAIN = cold
            server.kill()
            server.wait()
            server.stdout.close()


def serve(place: str) -> None:
    """Fork a worker for each caller, until killed."""
    import peft  # noqa: F401
    import textworld  # noqa: F401
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401

    import dssr.models.engine.hf
    import dssr.session  # noqa: F401

    os.environ.update(processes.ONE_THREAD)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here waits for those who wait for the workers
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        listening.listen()
        os.write(1, READY)
        while True:
            caller, _ = listening.accept()
            if os.fork() == 0:
                wait_for_worker(caller)
            caller.close()


def wait_for_worker(caller: socket.socket) -> None:
    """Fork the worker and tell the caller how it ended; its parent meanwhile serves others."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pipes = socket.recv_fds(caller, 8, 3)[1]
    child = os.fork()
    if child == 0:
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
            os.close(pipe)
        caller.close()
        code = 1
        try:
            processes.serve()
            code = 0
        finally:
            os._exit(code)
    for pipe in pipes:  # a copy kept here would hide the other side's end
        os.close(pipe)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        caller.sendall(str(abs(ended)).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
