"""Models run by vLLM, which batches by itself: requests are handed straight on.

Prompts are rendered here, by the same code as for the other backends, and sent as token ids. On a GPU vLLM's
batch-invariant kernels are on unless the configuration or the environment (VLLM_BATCH_INVARIANT=0) says no; a CPU has
none. An engine that has them is tried when it starts: a model that must be invariant and is not is refused.
"""

import asyncio
import importlib.util
import itertools
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.adapters import SETTINGS, adapter_digest, check_adapter, file_digest
from dssr.models.base import Background, Choose, Chosen, Generate, Generated, Likelihood, Message, TokenScores
from dssr.models.guard import renormalised
from dssr.models.load import weights_folder
from dssr.models.tokenizers import HFTokenizer, first_line, label_ids, open_tokenizer
from dssr.seeds import digest_of
from dssr.types import LABELS

RANKS = (8, 16, 32, 64, 128, 256)
"""Adapter ranks for which vLLM makes room."""
CPU_BLOCK = 32
"""Tokens per cached block; the default on a CPU is too long for our prompts to share."""

LEAST_BATCH = 4096
"""Tokens in one pass on a CPU, unless the context is longer."""
TRIAL_LENGTHS = (17, 64, 250, 251, 900)
"""Tokens of the prompts with which an engine is tried alone and in a batch: some share a prefix, none a block's end."""
TRIAL_REPLY = 4


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter as the engine knows it."""

    name: str
    number: int
    """From 1; the engine tells adapters apart by it."""
    folder: str
    rank: int
    digest: str


class VllmModel:
    """Implements `dssr.models.base.Model`. Use `load_vllm` to make one."""

    def __init__(self, config: ModelConfig, folder: Path, weights: str, tokenizer: HFTokenizer) -> None:
        self.name = config.path
        self.tokenizer = tokenizer
        self.context_length = min(config.context_length, _positions(folder, config.context_length))
        self._config = config
        self._weights = weights
        self._labels = label_ids(tokenizer)
        self._adapters = _read_adapters(config, folder, weights)
        self._numbers = itertools.count()
        _prepare_environment(config)
        self._background = Background(f"The vLLM engine of {self.name}")
        try:
            self._background.wait(self._start(folder))
        except BaseException as error:
            self._background.stop()
            if isinstance(error, ModelError) or not isinstance(error, Exception):
                raise
            raise ModelError(f"vLLM could not load {self.name}: {first_line(error)}.") from error

    async def _start(self, folder: Path) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.async_llm import AsyncLLM

        import vllm

        # A share of the card, so that the reader's engine finds room beside the writer's; a CPU has its own rule.
        arguments: dict[str, Any] = {"gpu_memory_utilization": self._config.gpu_memory}
        if current_platform.is_cpu():
            arguments = _cpu_arguments(self.context_length)
        if self._adapters:
            # One more than there are adapters, or base requests in a mixed batch run under the last adapter.
            arguments |= {
                "enable_lora": True,
                "max_loras": len(self._adapters) + 1,
                "max_lora_rank": _room_for(max(adapter.rank for adapter in self._adapters.values())),
            }
        self._engine = AsyncLLM.from_engine_args(
            AsyncEngineArgs(
                model=str(folder),
                trust_remote_code=False,
                dtype=self._config.dtype,
                max_model_len=self.context_length,
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",
                max_logprobs=len(LABELS),
                disable_log_stats=True,
                **arguments,
            )
        )
        invariant = _invariant() and await self._same_in_batch()
        if self._config.batch_invariant and not invariant:
            self._engine.shutdown()
            raise ModelError(
                f"{self.name} answers differently alone and in a batch here, and its configuration says that it must "
                "not; use a device whose kernels are batch-invariant or leave batch_invariant out."
            )
        self._numerics = (vllm.__version__, current_platform.get_device_name(), invariant, self._config.threads)

    async def _same_in_batch(self) -> bool:
        """Whether prompts answered alone and together give the same bits, under every adapter; nothing is cached."""
        text = self.tokenizer.encode(" ".join(f"{label} {place}" for place, label in enumerate(LABELS * 20)))
        most = self.context_length - TRIAL_REPLY
        adapters = (None, *self._adapters.values())
        cases = [(text[: min(length, most)], adapter) for length in TRIAL_LENGTHS for adapter in adapters]
        await self._engine.reset_prefix_cache()
        together = await asyncio.gather(*(self._bits(*case) for case in cases))
        alone = []
        for case in cases:
            await self._engine.reset_prefix_cache()
            alone.append(await self._bits(*case))
        return list(together) == alone

    async def _bits(self, ids: list[int], adapter: Adapter | None) -> str:
        """Everything a short reply says: the scores of all labels, and some written tokens with theirs. As text, since
        an adapter whose scores are not numbers is not equal to itself otherwise."""
        labels = list(self._labels.values())
        sampling = {"temperature": 1.0, "seed": 0, "allowed_token_ids": labels, "logprobs": len(labels)}
        chosen = (await self._run(ids, 1, sampling, adapter)).outputs[0]
        written = (await self._run(ids, TRIAL_REPLY, {"temperature": 0.0, "logprobs": 0}, adapter)).outputs[0]
        scores = sorted((token, one.logprob) for token, one in chosen.logprobs[0].items())
        return repr((scores, list(written.token_ids), written.cumulative_logprob))

    def fingerprint(self, adapter: str | None = None) -> str:
        """Of weights, adapter, tokenizer and template, dtype and numerics."""
        lora = self._adapter(adapter)
        parts = (self._weights, lora and lora.digest, self.tokenizer.digest, self._config.dtype)
        return digest_of("vllm", *parts, self._numerics)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt under the chat template."""
        return len(self.tokenizer.chat(messages))

    async def generate(self, request: Generate) -> Generated:
        """Ask the engine for a reply; scores that are no numbers are refused."""
        if request.max_tokens < 1 or not 0 <= request.temperature < math.inf:
            raise ModelError(
                f"Cannot generate {request.max_tokens} tokens at temperature {request.temperature}; "
                "both must be positive (temperature 0 is greedy)."
            )
        # logprobs=0 reports the written tokens alone, which shows scores that are not numbers.
        seed = request.seed if request.temperature else None
        sampling = {"temperature": request.temperature, "seed": seed, "logprobs": 0}
        output = await self._ask(request, request.max_tokens, sampling)
        if output.cumulative_logprob is None or not math.isfinite(output.cumulative_logprob):
            raise ModelError("The model's scores are not finite numbers; check its weights and dtype.")
        tokens = list(output.token_ids)
        if output.finish_reason == "stop":
            tokens.pop()  # the one that ends the reply
        return Generated(self.tokenizer.decode(tokens), len(tokens))

    async def choose(self, request: Choose) -> Chosen:
        """Ask the engine for one token among the labels, with the score of each."""
        unknown = [label for label in request.labels if label not in self._labels]
        if unknown or not request.labels:
            raise ModelError(f"Cannot choose among {request.labels!r}; labels come from A-Z and a-z, one at least.")
        ids = [self._labels[label] for label in request.labels]
        sampling = {"temperature": 1.0, "allowed_token_ids": ids, "logprobs": len(ids)}
        output = await self._ask(request, 1, sampling)
        scores = output.logprobs[0]
        if any(token not in scores for token in ids):
            raise ModelError("vLLM scored other tokens than the labels; check the model's weights and dtype.")
        return Chosen(renormalised([scores[token].logprob for token in ids]))

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Give the engine prompt and reply as one prompt, and read the scores of the reply's tokens."""
        ids, starts = self.tokenizer.encode_with_starts(request.reply)
        if not ids:
            return TokenScores((), (), ())
        prompt = [*self.tokenizer.chat(request.messages), *ids]
        answer = await self._answer(prompt, request.adapter, 1, {"temperature": 0.0, "prompt_logprobs": 0})
        scores = [found[token] for token, found in zip(ids, answer.prompt_logprobs[-len(ids) :], strict=True)]
        logprobs = tuple(float(one.logprob) for one in scores)
        if not all(map(math.isfinite, logprobs)):
            raise ModelError("The model's scores are not finite numbers; check its weights and dtype.")
        return TokenScores(starts, logprobs, tuple(one.rank == 1 for one in scores))

    async def close(self) -> None:
        """Shut the engine down."""
        self._background.stop(self._shut_down)

    async def _shut_down(self) -> None:
        self._engine.shutdown()

    def _adapter(self, name: str | None) -> Adapter | None:
        if name is None:
            return None
        if name not in self._adapters:
            known = ", ".join(self._adapters) or "none"
            raise ModelError(f"Adapter {name} is not loaded (loaded: {known}); name its folder under `adapters`.")
        return self._adapters[name]

    async def _ask(self, request: Generate | Choose, reply: int, sampling: dict[str, Any]) -> Any:
        """The engine's one output for a request."""
        answer = await self._answer(self.tokenizer.chat(request.messages), request.adapter, reply, sampling)
        return answer.outputs[0]

    async def _answer(self, ids: list[int], name: str | None, reply: int, sampling: dict[str, Any]) -> Any:
        """All that the engine says to a prompt."""
        if len(ids) + reply > self.context_length:
            raise ModelError(
                f"The prompt has {len(ids)} tokens and the reply up to {reply}, but {self.name} takes "
                f"{self.context_length} in all; shorten the prompt or raise context_length."
            )
        adapter = self._adapter(name)
        try:
            answer = await self._background.run(lambda: self._run(ids, reply, sampling, adapter))
        except (ModelError, asyncio.CancelledError):
            raise
        except Exception as error:  # the engine raises many kinds, also for its own death
            raise ModelError(f"vLLM failed on a request to {self.name}: {first_line(error)}.") from error
        reason = answer.outputs[0].finish_reason
        if reason not in ("stop", "length"):
            raise ModelError(f"vLLM ended a reply of {self.name} with {reason!r}; see its log.")
        return answer

    async def _run(self, ids: list[int], reply: int, sampling: dict[str, Any], adapter: Adapter | None) -> Any:
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind

        from vllm import SamplingParams

        kind = RequestOutputKind.FINAL_ONLY
        parameters = SamplingParams(max_tokens=reply, detokenize=False, output_kind=kind, **sampling)
        lora = adapter and LoRARequest(adapter.name, adapter.number, adapter.folder)
        stream = self._engine.generate(
            {"prompt_token_ids": ids}, parameters, str(next(self._numbers)), lora_request=lora
        )
        answers = [answer async for answer in stream]
        return answers[-1]


def load_vllm(config: ModelConfig) -> VllmModel:
    """Starts an engine; all that can be refused is refused before that."""
    found = importlib.util.find_spec("vllm")
    if found is None or found.origin is None:  # a mere folder of that name is no package
        raise ModelError("The vllm backend needs vLLM; install it with `pip install 'dssr[vllm]'`.")
    folder = _local_folder(weights_folder(config.path), config.revision)
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no config.json with *.safetensors weights; dssr loads no other kind.")
    _check_claim(config)
    weights = file_digest(folder / "config.json", *files)
    return VllmModel(config, folder, weights, open_tokenizer(folder, config.path))


def _check_claim(config: ModelConfig) -> None:
    """Refuse at once what no test on this machine could show."""
    import torch

    if not config.batch_invariant:
        return
    if not torch.cuda.is_available():
        raise ModelError(
            f"{config.path} must be batch-invariant, and vLLM has no such kernels on a CPU; "
            "use a GPU, the hf backend, or leave batch_invariant out."
        )
    if os.environ.get("VLLM_BATCH_INVARIANT", "1") != "1":
        raise ModelError(
            f"{config.path} must be batch-invariant, and VLLM_BATCH_INVARIANT switches that off; take it out of the "
            "environment or leave batch_invariant out."
        )


def _local_folder(path: str, revision: str | None) -> Path:
    """Where the files lie, downloaded first if `path` is a hub name."""
    if Path(path).is_dir():
        return Path(path)
    from huggingface_hub import snapshot_download

    try:
        kinds = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
        return Path(snapshot_download(path, revision=revision, allow_patterns=kinds))
    except Exception as error:  # the hub raises many kinds for a missing, private or unreachable model
        raise ModelError(f"No model could be read from {path}: {first_line(error)}.") from error


def _read_adapters(config: ModelConfig, folder: Path, weights: str) -> dict[str, Adapter]:
    """Checks every adapter against the base before the engine starts, which takes a minute."""
    if not config.adapters:
        return {}
    skeleton = _skeleton(folder)
    adapters: dict[str, Adapter] = {}
    for number, name in enumerate(sorted(config.adapters), start=1):
        place = Path(config.adapters[name])
        check_adapter(place, name, skeleton, config.path, weights)
        rank = int(json.loads((place / SETTINGS).read_text())["r"])
        adapters[name] = Adapter(name, number, str(place), rank, adapter_digest(place))
    return adapters


def _skeleton(folder: Path) -> Any:
    """The model's layers without their weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        settings = AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        return AutoModelForCausalLM.from_config(settings, trust_remote_code=False)


def _positions(folder: Path, default: int) -> int:
    settings = json.loads((folder / "config.json").read_text())
    return int(settings.get("max_position_embeddings") or default)


def _cpu_arguments(context_length: int) -> dict[str, Any]:
    """Prompts are not split on a CPU: there a seeded request whose prompt is computed in parts ends the engine."""
    return {
        "block_size": CPU_BLOCK,
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": max(context_length, LEAST_BATCH),
    }


def _room_for(rank: int) -> int:
    for room in RANKS:
        if rank <= room:
            return room
    raise ModelError(f"An adapter has rank {rank}; vLLM takes at most {RANKS[-1]}.")


def _prepare_environment(config: ModelConfig) -> None:
    """vLLM reads these when it is imported; what the user has set stays."""
    import torch

    if not torch.cuda.is_available():
        os.environ["VLLM_BATCH_INVARIANT"] = "0"
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")
        if config.threads:
            os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            os.environ["OMP_NUM_THREADS"] = str(config.threads)
    if config.batch_invariant is False:
        os.environ["VLLM_BATCH_INVARIANT"] = "0"
    os.environ.setdefault("VLLM_BATCH_INVARIANT", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # Its log goes to stdout otherwise, where programs read our output.
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def _invariant() -> bool:
    return os.environ["VLLM_BATCH_INVARIANT"] == "1"
