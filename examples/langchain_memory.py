"""LangChain's summarisation as a memory: what does it lose on your log, and is that the budget or the summary?

pip install 'dssr[langchain]'
python examples/langchain_memory.py my-log.jsonl
"""

import sys
from typing import Any

import dssr
from dssr.agent.bridges import LangChainSummary

PROMPT = "Summarise these messages in a few lines. Keep paths, numbers and error names as they are.\n\n{messages}"


class Lines(LangChainSummary):
    """LangChain's middleware with a prompt of our own; `dssr.agent.bridges:LangChainSummary` has LangChain's."""

    def middleware(self, model: Any) -> Any:
        """The middleware as `create_agent` is given it; it summarises all but the last message."""
        from langchain.agents.middleware import SummarizationMiddleware

        return SummarizationMiddleware(model, trigger=("messages", 1), keep=("messages", 1), summary_prompt=PROMPT)


def main(log: str = "examples/logs/mini-swe-agent-issue.traj.json", config: str = "smol") -> None:
    """Audit one log with it and with `summary`, and write the page."""
    study = dssr.audit(log, config, ["summary", "langchain_memory:Lines"], [128])
    print(study.frame("cells").select("memory", "budget", "delta", "beta", "kappa"))
    print("page:", dssr.report(study).page)


if __name__ == "__main__":
    main(*sys.argv[1:])
