"""The model: answers requests with a transformers checkpoint and several LoRA adapters on it. Made for CPUs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dssr.errors import ModelError
from dssr.models.adapters import Adapters
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, Message, TokenScores
from dssr.models.engine.batching import Batcher, PendingRequest, RequestQueue, give_back
from dssr.models.engine.blocks import FLOAT, BlockPool, Ids, blocks_for
from dssr.models.engine.decode import MOST_REPLIES, Decoder, Reply
from dssr.models.engine.network import PackedModel
from dssr.models.engine.prefill import Prefiller, sort_key
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.seeds import digest_of
from dssr.types import LABELS

TAKE = 1024
"""Requests looked at together; more wait in the queue."""
SCORED_AT_ONCE = 128
"""States whose scores over the whole vocabulary are held at once."""
STEPS = 8
"""Decoding steps between looks at which replies have ended."""
NOT_NUMBERS = "The model's scores are not numbers (NaN or infinite); check the weights, the adapter and the dtype."


@dataclass(frozen=True, slots=True)
class Tokenized:
    """A request with the token ids of its prompt."""

    request: Generate | Choose | Likelihood
    ids: Ids
    reply: Ids | None = None
    """Token ids of the reply to be scored, if there is one."""
    starts: tuple[int, ...] = ()
    """Characters at which its tokens begin."""

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
        self.packed = PackedModel(model, adapters, context_length, [self.labels[label] for label in LABELS])
        # A prompt and the one before it must fit, however long.
        count = max(kv_bytes // (self.packed.block_numbers * FLOAT), 2 * blocks_for(context_length) + 2)
        self.pool = BlockPool(self.packed.block_numbers, count)
        self.prefiller = Prefiller(self.packed, self.pool, batch_tokens)
        self.decoder = Decoder(self.packed, self.pool, _ends(model, tokenizer))
        self._choices: list[PendingRequest[Tokenized]] = []
        self._texts: list[PendingRequest[Tokenized]] = []
        self._given: list[PendingRequest[Tokenized]] = []

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

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Join the next batch of given replies."""
        ids, starts = self.tokenizer.encode_with_starts(request.reply)
        if not ids:
            return TokenScores((), (), ())
        asked = self._tokenized(request, len(ids))
        given = Tokenized(request, asked.ids, self._known(ids), starts)
        result: TokenScores = await self.batcher.ask(given)
        return result

    async def close(self) -> None:
        """Stop batching and free the memory of caches."""
        self.batcher.close()
        self.prefiller.clear()
        self.pool.release()
        give_back()

    def _tokenized(self, request: Generate | Choose | Likelihood, reply: int) -> Tokenized:
        self.adapters.digest(request.adapter)
        ids = self._known(self.tokenizer.chat(request.messages))
        if len(ids) + reply > self.context_length:
            raise ModelError(
                f"The prompt has {len(ids)} tokens and the reply up to {reply}, but {self.name} takes "
                f"{self.context_length} in all; shorten the prompt or raise context_length."
            )
        return Tokenized(request, ids)

    def _known(self, ids: Sequence[int]) -> Ids:
        """Refuses tokens of a tokenizer that is larger than the model."""
        if ids and max(ids) >= self.packed.vocabulary:
            raise ModelError(
                f"The tokenizer of {self.name} has a token {max(ids)}, and the model knows {self.packed.vocabulary}; "
                "use the tokenizer that it was trained with."
            )
        return np.array(ids, dtype=np.int32)

    # What follows runs in the engine's thread.

    @torch.inference_mode()
    def run(self, queue: RequestQueue[Tokenized]) -> None:
        """Answers everything in the queue: choices first, since episodes wait for them, then texts by adapter."""
        self._choices, self._texts, self._given = [], [], []
        try:
            self._look(queue)
            while self._choices or self._texts or self._given:
                self._choose_all()
                self._score_all()
                if self._texts:
                    self._write_all(self._texts[0].item.adapter)
                self._look(queue)
        finally:
            self.decoder.clear()

    def _look(self, queue: RequestQueue[Tokenized]) -> None:
        for one in queue.take(TAKE):
            kinds = {Choose: self._choices, Generate: self._texts, Likelihood: self._given}
            kinds[type(one.item.request)].append(one)

    def _choose_all(self) -> None:
        pending, self._choices = self._choices, []
        for adapter in sorted({one.item.adapter for one in pending}, key=str):
            mine = [one for one in pending if one.item.adapter == adapter]
            self.packed.use(adapter)
            prefilled = self.prefiller.run([one.item.ids for one in mine], adapter, keep=False)
            scores = self.packed.logits(torch.stack([done.state for done in prefilled]), labels=True)
            for one, row in zip(mine, scores, strict=True):
                self._answer_choice(one, row)

    def _score_all(self) -> None:
        pending, self._given = self._given, []
        pending.sort(key=lambda one: (str(one.item.adapter), sort_key(one.item.ids)))
        for one in pending:
            self.packed.use(one.item.adapter)
            assert one.item.reply is not None
            item = one.item
            found = self._score(item.ids, one.item.reply, item.starts, item.adapter)
            one.answer(ModelError(NOT_NUMBERS) if found is None else found)

    def _score(self, prompt: Ids, reply: Ids, starts: tuple[int, ...], adapter: str | None) -> TokenScores | None:
        """The scores of a reply after a prompt; None when they are not numbers."""
        states = self.prefiller.states(np.concatenate((prompt, reply[:-1])), adapter, len(prompt) - 1)
        logprobs: list[float] = []
        best: list[bool] = []
        for first in range(0, len(states), SCORED_AT_ONCE):
            scores = self.packed.logits(states[first : first + SCORED_AT_ONCE]).double()
            if not torch.isfinite(scores.amax(-1)).all():
                return None
            tokens = torch.tensor(reply[first : first + SCORED_AT_ONCE].tolist())
            mine = scores.gather(1, tokens[:, None])[:, 0]
            logprobs += (mine - scores.logsumexp(-1)).tolist()
            best += (mine >= scores.amax(-1)).tolist()
        return TokenScores(starts, tuple(logprobs), tuple(best))

    def _answer_choice(self, one: PendingRequest[Tokenized], scores: torch.Tensor) -> None:
        request = one.item.request
        assert isinstance(request, Choose)
        shown = scores[[LABELS.index(label) for label in request.labels]].double()
        if torch.isfinite(shown).all():
            one.answer(Chosen(tuple(torch.log_softmax(shown, 0).tolist())))
        else:
            one.answer(ModelError(NOT_NUMBERS))

    def _write_all(self, adapter: str | None) -> None:
        """Writes the texts of one adapter until none is left; those that wait take the places of those that end."""
        while True:
            waiting = [one for one in self._texts if one.item.adapter == adapter]
            under_way = len(self.decoder.replies)
            if not waiting and not under_way:
                return
            if waiting and under_way <= MOST_REPLIES - MOST_REPLIES // 8:
                waiting.sort(key=lambda one: sort_key(one.item.ids))
                starting = waiting[: self.decoder.fitting([(one.item.ids, _most(one)) for one in waiting])]
                started = {id(one) for one in starting}
                self._texts = [one for one in self._texts if id(one) not in started]
                self._start(starting, adapter)
            for _ in range(STEPS):
                if not self.decoder.replies:
                    break
                for reply in self.decoder.step():
                    self._answer_text(reply)

    def _start(self, pending: list[PendingRequest[Tokenized]], adapter: str | None) -> None:
        """Computes the prompts and each reply's first token; those that go on join the others."""
        if not pending:
            return
        self.packed.use(adapter)
        prefilled = self.prefiller.run([one.item.ids for one in pending], adapter, keep=True)
        replies = [_reply(one, done.blocks) for one, done in zip(pending, prefilled, strict=True)]
        self.decoder.sample(replies, [()] * len(replies), torch.stack([done.state for done in prefilled]))
        self.decoder.admit(replies)
        for reply in replies:
            if reply.done:
                self._answer_text(reply)

    def _answer_text(self, reply: Reply) -> None:
        if reply.broken:
            reply.request.answer(ModelError(NOT_NUMBERS))
        else:
            reply.request.answer(Generated(self.tokenizer.decode(reply.tokens), len(reply.tokens)))


def _reply(one: PendingRequest[Tokenized], blocks: list[int]) -> Reply:
    request = one.item.request
    assert isinstance(request, Generate)
    return Reply(one, blocks, one.item.ids, request.max_tokens, request.temperature, random.Random(request.seed))


def _most(one: PendingRequest[Tokenized]) -> int:
    assert isinstance(one.item.request, Generate)
    return one.item.request.max_tokens


def _ends(model: Any, tokenizer: HFTokenizer) -> frozenset[int]:
    """Tokens that end a reply."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return frozenset(int(end) for end in (*ends, tokenizer.inner.eos_token_id) if end is not None)
