"""The model: answers requests with a transformers checkpoint and several LoRA adapters on it. Made for CPUs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dssr.errors import ModelError
from dssr.models.adapters import Adapters
from dssr.models.base import Choose, Chosen, Generate, Generated, Message
from dssr.models.engine.batching import Batcher, PendingRequest, RequestQueue, give_back
from dssr.models.engine.blocks import Block, Ids, PrefixCache
from dssr.models.engine.decode import MOST_REPLIES, Decoder, Reply
from dssr.models.engine.forward import ROWS, PackedModel
from dssr.models.engine.prefill import Prefiller, sort_key
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.seeds import digest_of
from dssr.types import LABELS

TAKE = 1024
"""Requests looked at together; more wait in the queue."""
POLL = 8
"""Decoding steps between looks into the queue."""
NOT_NUMBERS = "The model's scores are not numbers (NaN or infinite); check the weights, the adapter and the dtype."


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A request with the token ids of its prompt."""

    request: Generate | Choose
    ids: Ids

    @property
    def adapter(self) -> str | None:
        """Of the request; those of one adapter are computed together."""
        return self.request.adapter


class HFModel:
    """Implements `dssr.models.base.Model`; `dssr.models.load.load_model` makes one."""

    def __init__(
        self,
        *,
        name: str,
        model: Any,
        tokenizer: HFTokenizer,
        adapters: Adapters,
        weights: str,
        numerics: str,
        context_length: int,
        batch_tokens: int,
        kv_bytes: int,
    ) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.adapters = adapters
        self.weights = weights
        """Digest of the base weights."""
        self.numerics = numerics
        """All that rounding depends on."""
        self.labels = label_ids(tokenizer)
        self.batcher: Batcher[Tokenized] = Batcher(self.run)
        self.packed = PackedModel(model, context_length)
        self.prefiller = Prefiller(self.packed, PrefixCache(kv_bytes), batch_tokens)
        self.decoder = Decoder(self.packed, _ends(model, tokenizer), kv_bytes)
        self._label_tokens = torch.tensor([self.labels[label] for label in LABELS], device=self.packed.device)
        self._choices: list[PendingRequest[Tokenized]] = []
        self._texts: list[PendingRequest[Tokenized]] = []

    def fingerprint(self, adapter: str | None = None) -> str:
        """Of weights, adapter, tokenizer and template, and numerics."""
        return digest_of("hf", self.weights, self.adapters.digest(adapter), self.tokenizer.digest, self.numerics)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt under the chat template."""
        return len(self.tokenizer.chat(messages))

    async def generate(self, request: Generate) -> Generated:
        """Join the next batch of replies."""
        if request.max_tokens < 1 or not 0 <= request.temperature < float("inf"):
            raise ModelError(
                f"This model cannot generate {request.max_tokens} tokens at temperature {request.temperature}; "
                "both must be positive (temperature 0 is greedy)."
            )
        result: Generated = await self.batcher.ask(self._tokenized(request, request.max_tokens))
        return result

    async def choose(self, request: Choose) -> Chosen:
        """Join the next batch of choices."""
        unknown = [label for label in request.labels if label not in self.labels]
        if unknown or not request.labels:
            raise ModelError(
                f"This model cannot choose among {request.labels!r}; labels come from A-Z and a-z, one at least."
            )
        result: Chosen = await self.batcher.ask(self._tokenized(request, 1))
        return result

    async def close(self) -> None:
        """Stop batching and free the memory of caches."""
        self.batcher.close()
        self.prefiller.cache.clear()
        self.decoder.release()
        give_back()

    def _tokenized(self, request: Generate | Choose, reply: int) -> Tokenized:
        self.adapters.digest(request.adapter)
        ids = np.array(self.tokenizer.chat(request.messages), dtype=np.int32)
        if len(ids) + reply > self.context_length:
            raise ModelError(
                f"The prompt has {len(ids)} tokens and the reply up to {reply}, but {self.name} takes "
                f"{self.context_length} in all; shorten the prompt or raise context_length."
            )
        return Tokenized(request, ids)

    # What follows runs in the engine's thread.

    @torch.inference_mode()
    def run(self, queue: RequestQueue[Tokenized]) -> None:
        """Answers everything in the queue: choices first, since episodes wait for them, then texts by adapter."""
        self._choices, self._texts = [], []
        try:
            self._look(queue)
            while self._choices or self._texts:
                self._choose_all()
                if self._texts:
                    self._write_all(self._texts[0].item.adapter, queue)
                self._look(queue)
        finally:
            self.decoder.clear()

    def _look(self, queue: RequestQueue[Tokenized]) -> None:
        for one in queue.take(TAKE):
            (self._choices if isinstance(one.item.request, Choose) else self._texts).append(one)

    def _choose_all(self) -> None:
        pending, self._choices = self._choices, []
        for adapter in sorted({one.item.adapter for one in pending}, key=str):
            mine = [one for one in pending if one.item.adapter == adapter]
            self.adapters.use(adapter)
            prefilled = self.prefiller.run([one.item.ids for one in mine], adapter, keep=False)
            scores = self.packed.logits(torch.stack([done.state for done in prefilled]), self._label_tokens)
            for one, row in zip(mine, scores, strict=True):
                self._answer_choice(one, row)

    def _answer_choice(self, one: PendingRequest[Tokenized], scores: torch.Tensor) -> None:
        request = one.item.request
        assert isinstance(request, Choose)
        shown = scores[[LABELS.index(label) for label in request.labels]].double()
        if torch.isfinite(shown).all():
            one.answer(Chosen(tuple(torch.log_softmax(shown, 0).tolist())))
        else:
            one.answer(ModelError(NOT_NUMBERS))

    def _write_all(self, adapter: str | None, queue: RequestQueue[Tokenized]) -> None:
        """Writes the texts of one adapter, newcomers included, until none is left."""
        ready: list[Reply] = []
        while True:
            waiting = [one for one in self._texts if one.item.adapter == adapter]
            free = MOST_REPLIES - self.decoder.active - len(ready)
            if waiting and (free >= ROWS or not (self.decoder.active or ready)):
                waiting.sort(key=lambda one: sort_key(one.item.ids))
                starting = waiting[:free]
                started = {id(one) for one in starting}
                self._texts = [one for one in self._texts if id(one) not in started]
                self.adapters.use(adapter)
                ready += self._start(starting, adapter)
            fitting = self.decoder.room(ready)
            if fitting or self.decoder.wasteful():
                self.decoder.admit(ready[:fitting])
                ready = ready[fitting:]
            if not self.decoder.active and not ready and not waiting:
                return
            self.adapters.use(adapter)
            self._decode()
            self._look(queue)
            self._choose_all()

    def _start(self, pending: list[PendingRequest[Tokenized]], adapter: str | None) -> list[Reply]:
        """Computes the prompts and each reply's first token; returns the replies that go on."""
        prefilled = self.prefiller.run([one.item.ids for one in pending], adapter, keep=True)
        replies = [_reply(one, done.blocks) for one, done in zip(pending, prefilled, strict=True)]
        self.decoder.sample(replies, torch.stack([done.state for done in prefilled]))
        for reply in replies:
            if reply.done:
                self._answer_text(reply)
        return [reply for reply in replies if not reply.done]

    def _decode(self) -> None:
        for _ in range(POLL):
            going = [reply for reply in self.decoder.replies if not reply.done]
            if not going:
                return
            self.decoder.step()
            for reply in going:
                if reply.done:
                    self._answer_text(reply)

    def _answer_text(self, reply: Reply) -> None:
        if reply.broken:
            reply.request.answer(ModelError(NOT_NUMBERS))
        else:
            reply.request.answer(Generated(self.tokenizer.decode(reply.tokens), len(reply.tokens)))


def _reply(one: PendingRequest[Tokenized], blocks: list[Block]) -> Reply:
    request = one.item.request
    assert isinstance(request, Generate)
    noise = random.Random(request.seed)
    return Reply(one, blocks, len(one.item.ids), request.max_tokens, request.temperature, noise)


def _ends(model: Any, tokenizer: HFTokenizer) -> frozenset[int]:
    """Tokens that end a reply."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return frozenset(int(end) for end in (*ends, tokenizer.inner.eos_token_id) if end is not None)
