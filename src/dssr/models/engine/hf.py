"""Models run by transformers on a CPU or one GPU, with several LoRA adapters on one base."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dssr.errors import ModelError
from dssr.models.adapters import Adapters
from dssr.models.base import Choose, Chosen, Generate, Generated, Message
from dssr.models.engine.batching import Batcher, Inbox, Ticket, give_back
from dssr.models.engine.decode import MOST_REPLIES, Decoder, Reply
from dssr.models.engine.kv import Ids, Store
from dssr.models.engine.packed import ROWS, Body
from dssr.models.engine.prefill import Prefiller
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.seeds import digest_of
from dssr.types import LABELS

TAKE = 1024
"""Requests looked at together; more wait in the inbox."""
POLL = 8
"""Decoding steps between looks into the inbox."""
NOT_NUMBERS = "the model's scores were not numbers (NaN or infinite); check the weights, the adapter and the dtype"


class Work:
    """A request with the token ids of its prompt."""

    __slots__ = ("adapter", "ids", "order", "request")

    def __init__(self, request: Generate | Choose, ids: Ids) -> None:
        self.request = request
        self.adapter = request.adapter
        self.ids = ids
        self.order = ids.astype(">i4").tobytes()
        """Sorts prompts with a common prefix next to each other."""


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
        self.labels = label_ids(tokenizer)
        self.batcher: Batcher[Work] = Batcher(self.run)
        self.body = Body(model, context_length)
        self.prefiller = Prefiller(self.body, Store(kv_bytes), batch_tokens)
        self.decoder = Decoder(self.body, _ends(model, tokenizer), kv_bytes)
        self._label_tokens = torch.tensor([self.labels[label] for label in LABELS], device=self.body.device)
        self._choices: list[Ticket[Work]] = []
        self._texts: list[Ticket[Work]] = []

    def fingerprint(self, adapter: str | None = None) -> str:
        return digest_of("hf", self.weights, self.adapters.digest(adapter), self.tokenizer.digest, self.numerics)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return len(self.tokenizer.chat(messages))

    async def generate(self, request: Generate) -> Generated:
        if request.max_tokens < 1 or not 0 <= request.temperature < float("inf"):
            raise ModelError(
                f"cannot generate {request.max_tokens} tokens at temperature {request.temperature}; "
                "both must be positive (temperature 0 is greedy)"
            )
        result: Generated = await self.batcher.ask(self._work(request, request.max_tokens))
        return result

    async def choose(self, request: Choose) -> Chosen:
        unknown = [label for label in request.labels if label not in self.labels]
        if unknown or not request.labels:
            raise ModelError(f"cannot choose among {request.labels!r}; labels come from A-Z and a-z, one at least")
        result: Chosen = await self.batcher.ask(self._work(request, 1))
        return result

    async def close(self) -> None:
        self.batcher.close()
        self.prefiller.store.clear()
        self.decoder.release()
        give_back()

    def _work(self, request: Generate | Choose, reply: int) -> Work:
        self.adapters.digest(request.adapter)
        ids = np.array(self.tokenizer.chat(request.messages), dtype=np.int32)
        if len(ids) + reply > self.context_length:
            raise ModelError(
                f"the prompt has {len(ids)} tokens and the reply up to {reply}, but {self.name} takes "
                f"{self.context_length} in all; shorten the prompt or raise context_length"
            )
        return Work(request, ids)

    # What follows runs in the engine's thread.

    @torch.inference_mode()
    def run(self, inbox: Inbox[Work]) -> None:
        """Answers everything in the inbox: choices first, since episodes wait for them, then texts by adapter."""
        self._choices, self._texts = [], []
        try:
            self._look(inbox)
            while self._choices or self._texts:
                self._choose_all()
                if self._texts:
                    self._write_all(self._texts[0].item.adapter, inbox)
                self._look(inbox)
        finally:
            self.decoder.clear()

    def _look(self, inbox: Inbox[Work]) -> None:
        for ticket in inbox.take(TAKE):
            (self._choices if isinstance(ticket.item.request, Choose) else self._texts).append(ticket)

    def _choose_all(self) -> None:
        tickets, self._choices = self._choices, []
        for adapter in sorted({ticket.item.adapter for ticket in tickets}, key=str):
            mine = [ticket for ticket in tickets if ticket.item.adapter == adapter]
            self.adapters.use(adapter)
            for finished, states in self.prefiller.run([ticket.item.ids for ticket in mine], adapter, keep=False):
                scores = self.body.logits(states, self._label_tokens)
                for done, row in zip(finished, scores, strict=True):
                    self._answer_choice(mine[done.index], row)

    def _answer_choice(self, ticket: Ticket[Work], scores: torch.Tensor) -> None:
        request = ticket.item.request
        assert isinstance(request, Choose)
        shown = scores[[LABELS.index(label) for label in request.labels]].double()
        if torch.isfinite(shown).all():
            ticket.answer(Chosen(tuple(torch.log_softmax(shown, 0).tolist())))
        else:
            ticket.answer(ModelError(NOT_NUMBERS))

    def _write_all(self, adapter: str | None, inbox: Inbox[Work]) -> None:
        """Writes the texts of one adapter, newcomers included, until none is left."""
        ready: list[Reply] = []
        while True:
            waiting = [ticket for ticket in self._texts if ticket.item.adapter == adapter]
            free = MOST_REPLIES - self.decoder.active - len(ready)
            if waiting and (free >= ROWS or not (self.decoder.active or ready)):
                waiting.sort(key=lambda ticket: ticket.item.order)
                starting = waiting[:free]
                started = {id(ticket) for ticket in starting}
                self._texts = [ticket for ticket in self._texts if id(ticket) not in started]
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
            self._look(inbox)
            self._choose_all()

    def _start(self, tickets: list[Ticket[Work]], adapter: str | None) -> list[Reply]:
        """Computes the prompts and each reply's first token; returns the replies that go on."""
        replies: list[Reply] = []
        for finished, states in self.prefiller.run([ticket.item.ids for ticket in tickets], adapter, keep=True):
            fresh = [_reply(tickets[done.index], done.path) for done in finished]
            self.decoder.sample(fresh, states)
            for reply in fresh:
                if reply.done:
                    self._answer_text(reply)
                else:
                    replies.append(reply)
        return replies

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
            reply.ticket.answer(ModelError(NOT_NUMBERS))
        else:
            reply.ticket.answer(Generated(self.tokenizer.decode(reply.tokens), len(reply.tokens)))


def _reply(ticket: Ticket[Work], path: list[Any]) -> Reply:
    request = ticket.item.request
    assert isinstance(request, Generate)
    noise = random.Random(request.seed)
    return Reply(ticket, path, len(ticket.item.ids), request.max_tokens, request.temperature, noise)


def _ends(model: Any, tokenizer: HFTokenizer) -> frozenset[int]:
    """Tokens that end a reply."""
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    return frozenset(int(end) for end in (*ends, tokenizer.inner.eos_token_id) if end is not None)
