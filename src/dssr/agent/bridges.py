"""Summarisers of other packages as memories: `--memory dssr.agent.bridges:InspectSummary`.

| class | what summarises | needs |
|---|---|---|
| `InspectSummary` | Inspect's `CompactionSummary` | `pip install 'dssr[inspect]'` |
| `LangChainSummary` | LangChain's `SummarizationMiddleware`, for LangGraph too | `pip install 'dssr[langchain]'` |

A step becomes a conversation: the goal, the summary so far, what was done, what was seen. The package decides what to
ask and what to make of the reply; the reply itself comes from the writer's model through the kit, so budget, leak
check, cache and seeds are those of every memory. Override `strategy` or `middleware` for prompts of your own.

What a package puts around a summary ("Here is a summary of ...") is the same at every step and would eat the budget: it
is taken off the state and put back on before the package sees its summary again.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

from dssr.agent.memory import Kit
from dssr.errors import ConfigError, DssrError
from dssr.models.base import Message
from dssr.types import View

Reply = Callable[[Sequence[Message]], Awaitable[str]]
"""What answers the package's requests."""
MARK = "\ue002summary\ue003"
"""Stands for a summary while what surrounds it is found; private-use characters, in no text."""


class Bridge(ABC):
    """A package's summariser as a memory."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def write(self, view: View, previous: str) -> str:
        """The package's summary of the previous one and the step."""
        before, after = await self._frame(view)
        failures: list[DssrError] = []

        async def ask(messages: Sequence[Message]) -> str:
            try:
                return await self.kit.generate(messages)
            except DssrError as error:  # packages ask again or wrap it: it is told when they are done
                failures.append(error)
                return ""

        try:
            text = await self.summarise(ask, view, f"{before}{previous}{after}" if previous else "")
        finally:
            if failures:
                raise failures[0]
        return text.removeprefix(before).removesuffix(after)

    @abstractmethod
    async def summarise(self, reply: Reply, view: View, summary: str) -> str:
        """The summary message with which the package goes on after this step; `summary` is the one before."""

    async def _frame(self, view: View) -> tuple[str, str]:
        """What the package puts before and after a summary: it summarises once with a mark for a reply."""

        async def mark(messages: Sequence[Message]) -> str:
            return MARK

        before, found, after = (await self.summarise(mark, view, "")).partition(MARK)
        return (before, after) if found else ("", "")


# ---------------------------------------------------------------- Inspect


class InspectSummary(Bridge):
    """Inspect's summary compaction; `strategy` gives another one."""

    def strategy(self) -> Any:
        """The compaction: one that ends in a summary message."""
        from inspect_ai.model import CompactionSummary

        return CompactionSummary(memory=False)

    async def summarise(self, reply: Reply, view: View, summary: str) -> str:
        """Compact goal, summary, action and observation as Inspect's agents do."""
        with_package("inspect_ai", "inspect")
        from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, Model

        messages = [ChatMessageUser(content=view.goal, source="input")]
        if summary:
            messages.append(ChatMessageUser(content=summary, metadata={"summary": True}))
        if view.last_action is not None:
            messages.append(ChatMessageAssistant(content=view.last_action))
        messages.append(ChatMessageUser(content=view.observation))
        model = Model(_inspect_api()(reply, self.kit), GenerateConfig())
        _, compacted = await self.strategy().compact(model, messages, [])
        if compacted is None:
            raise ConfigError("This Inspect compaction writes no summary; use one that does, as CompactionSummary.")
        return str(compacted.text)


@cache
def _inspect_api() -> Any:
    """The writer's model as Inspect calls models."""
    from inspect_ai.model import ModelAPI, ModelOutput, modelapi

    @modelapi(name="dssr")
    class Api(ModelAPI):  # type: ignore[misc, no-any-unimported, unused-ignore]
        def __init__(self, reply: Reply, kit: Kit) -> None:
            super().__init__(model_name=kit.model.name)
            self.reply, self.kit = reply, kit

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:  # noqa: A002
            roles = {"system": "system", "assistant": "assistant"}
            asked = [Message(roles.get(one.role, "user"), one.text) for one in input]
            return ModelOutput.from_content(self.model_name, await self.reply(asked))

        async def count_text_tokens(self, text: str) -> int:
            return len(self.kit.tokenizer.encode(text))

        def collapse_user_messages(self) -> bool:
            return True  # many chat templates refuse two turns of one role

        def collapse_assistant_messages(self) -> bool:
            return True

    return Api


# ---------------------------------------------------------------- LangChain


class LangChainSummary(Bridge):
    """LangChain's summarisation of an agent's messages; `middleware` gives one with other settings."""

    def middleware(self, model: Any) -> Any:
        """The middleware on this chat model: it must summarise all but the last message."""
        from langchain.agents.middleware import SummarizationMiddleware

        return SummarizationMiddleware(model, trigger=("messages", 1), keep=("messages", 1))

    async def summarise(self, reply: Reply, view: View, summary: str) -> str:
        """Summarise goal, summary, action and observation as LangChain's agents do before they ask their model."""
        with_package("langchain", "langchain")
        from langchain_core.messages import AIMessage, HumanMessage
        from langgraph.runtime import Runtime
        from langsmith import tracing_context

        messages = [HumanMessage(view.goal), *([HumanMessage(summary)] if summary else [])]
        if view.last_action is not None:
            messages.append(AIMessage(view.last_action))
        # The middleware always keeps the newest message as it is; what is to be kept of this step is in the summary.
        messages += [HumanMessage(view.observation), HumanMessage("What next?")]
        with tracing_context(enabled=False):  # nothing goes anywhere that the configuration does not name
            chat = _langchain_model()(reply=reply)
            done = await self.middleware(chat).abefore_model({"messages": messages}, Runtime())
        written = [one for one in (done or {}).get("messages", ()) if one.type == "human"]
        if len(written) < 2:
            raise ConfigError("This LangChain middleware wrote no summary; let it summarise from the first message on.")
        return str(written[0].text)


@cache
def _langchain_model() -> Any:
    """The writer's model as LangChain calls chat models."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Chat(BaseChatModel):  # type: ignore[misc, no-any-unimported, unused-ignore]
        reply: Any

        @property
        def _llm_type(self) -> str:
            return "dssr"

        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            raise ConfigError("A memory asks its model in async code; use the middleware's async side.")

        async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            roles = {"system": "system", "ai": "assistant"}
            asked = [Message(roles.get(one.type, "user"), str(one.text)) for one in messages]
            return ChatResult(generations=[ChatGeneration(message=AIMessage(await self.reply(asked)))])

    return Chat


def with_package(module: str, extra: str) -> None:
    """Say how to get a package that is not there."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise ConfigError(f"This memory needs the package {module}; get it with `pip install 'dssr[{extra}]'`.")
