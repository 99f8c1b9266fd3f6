"""Real vLLM on a tiny random model. Run with `make test-vllm`; each file starts one engine."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.vllm.checkpoint import ADAPTERS, CONTEXT, make_checkpoint

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.base import Choose, Generate, Model
from dssr.models.load import load_model
from dssr.testing import ask

START_SECONDS = 480


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `base`, `other` (another base), and one per adapter."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="session", autouse=True)
def small_engine() -> None:
    """A tiny model needs little memory and one thread; vLLM would take half the memory and every core."""
    os.environ |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }


def settings(checkpoint: Path, backend: str, adapters: tuple[str, ...] = ADAPTERS) -> ModelConfig:
    return ModelConfig(
        backend=backend,  # type: ignore[arg-type]
        path=str(checkpoint / "base"),
        dtype="float32",
        threads=1,
        context_length=CONTEXT,
        adapters={name: str(checkpoint / name) for name in adapters},
    )


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> Iterator[Model]:
    """The same weights run by transformers."""
    model = load_model(settings(checkpoint, "hf"))
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[Model]:
    model = load_model(settings(checkpoint, "vllm"))
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def address(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Base address of vLLM's own server, on the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log.txt"
    command = [
        # The server behind `vllm serve`; that command asks for a package named vllm, which the CPU build is not.
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(checkpoint / "base")),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--max-model-len", str(CONTEXT), "--enforce-eager", "--block-size", "32"),
        # On a CPU a seeded request ends the engine when its prompt is computed in parts.
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"),
        *("--enable-lora", "--max-loras", str(len(ADAPTERS) + 1), "--max-lora-rank", "8"),
        *("--lora-modules", *(f"{name}={checkpoint / name}" for name in ADAPTERS)),
    ]
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        _wait_until_healthy(port, process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_healthy(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"the vLLM server did not start:\n{log.read_text()[-3000:]}")


def refusal(model: Model, request: Generate | Choose) -> str:
    with pytest.raises(ModelError) as caught:
        ask(model, [request])
    return str(caught.value)


def distance(one: Sequence[float], other: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))
