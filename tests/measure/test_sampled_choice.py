"""Sampled choices against label probabilities: a real OpenAI-compatible server on loopback that gives none of them."""

import asyncio
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dssr.agent.episode import Agent
from dssr.agent.leaks import Watch
from dssr.agent.prompts import Reader, load_prompts, render_history
from dssr.config import ModelConfig, TracesConfig
from dssr.measure.log_losses import Judge, LoggedDecision, Scored, able, lapsed
from dssr.models.load import load_model, weights_folder
from dssr.models.server import load_server
from dssr.types import Options
from dssr.worlds.archive import Archive, Worlds
from dssr.worlds.shipped import provided

DECISIONS = 200
PATH = "nano/reader"


class Served:
    """nano's reader in stock transformers behind HTTP; whoever asks for log-probabilities gets none."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from dssr.models.tokenizers import open_tokenizer

        folder = weights_folder(PATH)
        torch.set_num_threads(1)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = open_tokenizer(folder, PATH)
        known: dict[tuple[int, ...], Any] = {}
        lock = threading.Lock()

        def next_token(ids: list[int], heat: float, seed: int) -> int:
            with lock, torch.inference_mode():
                if tuple(ids) not in known:
                    known[tuple(ids)] = model(torch.tensor([ids]), logits_to_keep=1).logits[0, -1].double()
                scores = known[tuple(ids)]
                if heat == 0:
                    return int(scores.argmax())
                noise = torch.Generator().manual_seed(seed)
                return int(torch.multinomial(torch.softmax(scores / heat, -1), 1, generator=noise))

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                self.answer({"data": [{"id": PATH, "object": "model"}]})

            def do_POST(self) -> None:
                from dssr.models.base import Message

                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if "messages" not in asked:
                    self.answer({"error": {"message": "no such endpoint"}}, 404)
                    return
                prompt = tokenizer.chat([Message(one["role"], one["content"]) for one in asked["messages"]])
                ids: list[int] = []
                for place in range(asked["max_tokens"]):
                    ids.append(next_token([*prompt, *ids], asked["temperature"], asked.get("seed", 0) + place))
                reply = {"message": {"role": "assistant", "content": tokenizer.decode(ids)}, "finish_reason": "length"}
                usage = {"completion_tokens": len(ids), "prompt_tokens": len(prompt)}
                self.answer({"choices": [{"index": 0, **reply}], "usage": usage})

            def answer(self, body: dict[str, Any], status: int = 200) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def decisions(archive: Archive) -> list[tuple[LoggedDecision, str]]:
    """Real decisions of the shipped games with contexts of various worth: the newest steps of the history."""
    found: list[tuple[LoggedDecision, str]] = []
    for filler in (0, 10, 20, 40):
        for game in archive.games("valid"):
            world = archive.world(game)
            walk = world.walk("post", filler)
            steps: list[Any] = list(walk)
            node = walk[-1].node
            while node.moment.privileged.policy and len(found) < DECISIONS:
                options = world.options(node, len(steps) - 1)
                here = steps[-1]
                kept = steps[-1 - (3 + len(found) % 20) : -1]
                context = render_history(kept, here.action)
                found.append((asked(game.id, len(steps) - 1, world.goal, here.observation, options), context))
                node = world.step(node, options.reference)
                steps.append(here._replace(action=options.reference, observation=node.moment.observation, node=node))
            world.close()
    return found


def asked(game: str, step: int, goal: str, observation: str, options: Options) -> LoggedDecision:
    return LoggedDecision(game, step, goal, observation, options.reference, options, (), "plain", "choice")


@pytest.mark.slow
def test_sampled_choices_agree_with_label_probabilities() -> None:
    """Catches a biased estimate or an error that is stated too small: over 200 decisions the sampled loss, which sees
    nothing but letters from a server, is compared with the loss from label probabilities of the same weights. The mean
    difference must be within three of its stated standard errors (a right estimate fails in 0.3 % of all seeds, and the
    seed is fixed), and at least 80 per cent of the single ones within two, give or take the floor of a sure reader."""
    served = Served()
    plain = {"path": PATH, "context_length": 4096}
    slow = {"concurrency": 4, "timeout": 1800.0}
    server = load_server(ModelConfig(backend="server", url=served.url, tokenizer=weights_folder(PATH), **plain, **slow))  # type: ignore[arg-type]
    local = load_model(ModelConfig(backend="hf", dtype="float32", device="cpu", threads=1, **plain))  # type: ignore[arg-type]
    archive = Archive.open(provided(Path("data") / "demo"))
    config = TracesConfig()
    points = decisions(archive)
    assert len(points) == DECISIONS
    agent = Agent(Worlds(archive), server, Reader(server), load_prompts(), max_actions=50)

    async def compare() -> tuple[tuple[str, ...], list[Scored], list[float]]:
        with Watch("", "test").at(0):
            kinds = await able(agent.reader)
            judge = Judge(agent, config, ("choice",), (), 0)
            found = await asyncio.gather(*(judge.score(point, context) for point, context in points))
            exact = []
            for point, context in points:
                assert point.options is not None
                nll = await Reader(local).nll(point.goal, context, point.observation, point.options)
                exact.append(lapsed(-nll, len(point.options.actions), config.lapse))
        return kinds, list(found), exact

    kinds, found, exact = asyncio.run(compare())
    asyncio.run(server.close())
    asyncio.run(local.close())
    served.server.shutdown()
    assert kinds == ("choice",)
    apart = [one.nll - true for one, true in zip(found, exact, strict=True)]
    error = math.sqrt(sum(one.variance for one in found))
    assert error > 0
    print(f"mean {sum(apart) / DECISIONS:+.4f} ± {error / DECISIONS:.4f} nats, true mean {sum(exact) / DECISIONS:.3f}")
    assert abs(sum(apart)) < 3 * error
    assert max(exact) > 1, "some decisions must be hard, or nothing is compared"
    floor = math.log(1 / (1 - config.lapse))
    within = sum(abs(gap) <= 2 * math.sqrt(one.variance) + 2 * floor for gap, one in zip(apart, found, strict=True))
    assert within >= 0.8 * DECISIONS
