"""A chat-completions server that misbehaves on request, in plain Python.

Each request takes the next behaviour from `script`; when the script is empty the answer is a good one.
"""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler"], None]


class FaultyServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[Behaviour] = []
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.cards: list[dict[str, Any]] = [card("tiny"), card("tuned")]
        self.delay = 0.0
        self.active = self.most_active = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def shutdown(self) -> None:
        self.ended.set()
        super().shutdown()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the game."""


class Handler(BaseHTTPRequestHandler):
    server: FaultyServer
    protocol_version = "HTTP/1.1"
    asked: dict[str, Any]

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self.reply(200, {"object": "list", "data": self.server.cards})

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append(self.asked)
            self.server.keys.append(self.headers["Authorization"])
            self.server.active += 1
            self.server.most_active = max(self.server.most_active, self.server.active)
            behave = self.server.script.pop(0) if self.server.script else good
        try:
            time.sleep(self.server.delay)
            behave(self)
        finally:
            with self.server.lock:
                self.server.active -= 1

    def reply(self, status: int, body: object, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)


def card(name: str, **fields: object) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": time.time_ns(), "owned_by": "someone", **fields}


def completion(text: str = "the fridge", tokens: int = 10, **choice: object) -> dict[str, Any]:
    return {
        "choices": [{"index": 0, "message": {"content": text}, "finish_reason": "stop", **choice}],
        "usage": {"prompt_tokens": 5, "completion_tokens": tokens},
    }


def scored(scores: dict[str, float], positions: int = 1) -> dict[str, Any]:
    top = [{"token": token, "logprob": value} for token, value in scores.items()]
    position = {"token": "A", "logprob": -0.1, "top_logprobs": top}
    return completion("A", 1, logprobs={"content": [position] * positions}, finish_reason="length")


def good(handler: Handler) -> None:
    if handler.asked.get("logprobs"):
        handler.reply(200, scored({"A": -0.5, "B": -1.5, " A": -2.5, "C": -3.5}))
    else:
        handler.reply(200, completion())


def answer(body: object) -> Behaviour:
    return lambda handler: handler.reply(200, body)


def fail(status: int, message: str = "no", **headers: str) -> Behaviour:
    return lambda handler: handler.reply(status, {"error": {"message": message}}, **headers)


def silent(handler: Handler) -> None:
    """No answer as long as the server runs."""
    handler.server.ended.wait()
    handler.close_connection = True


def together(number: int) -> Behaviour:
    """A good answer as soon as so many requests wait for theirs; none before."""
    barrier = threading.Barrier(number)

    def behave(handler: Handler) -> None:
        barrier.wait()
        good(handler)

    return behave


def trickle(handler: Handler) -> None:
    """A byte now and then: no single read is slow, the whole never ends."""
    data = json.dumps(completion()).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    for byte in data:
        handler.wfile.write(bytes([byte]))
        handler.wfile.flush()
        time.sleep(0.1)


def cut(handler: Handler) -> None:
    """Half an answer, then the connection is gone."""
    data = json.dumps(completion()).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
