"""Inspect's compaction as a memory: what does it lose on your log, and is that the budget or the summary?

pip install 'dssr[inspect]'
python examples/inspect_memory.py my-log.jsonl
"""

import sys
from typing import Any

import dssr
from dssr.agent.bridges import InspectSummary

PROMPT = "Summarise the conversation in a few lines. Keep paths, numbers and error names as they are. {addendums}"


class Lines(InspectSummary):
    """Inspect's summary with a prompt of our own; `dssr.agent.bridges:InspectSummary` has Inspect's."""

    def strategy(self) -> Any:
        """The compaction as Inspect's agents are given it."""
        from inspect_ai.model import CompactionSummary

        return CompactionSummary(memory=False, prompt=PROMPT)


def main(log: str = "examples/logs/mini-swe-agent-issue.traj.json", config: str = "smol") -> None:
    """Audit one log with it and with `summary`, and write the page."""
    study = dssr.audit(log, config, ["summary", "inspect_memory:Lines"], [128])
    print(study.frame("cells").select("memory", "budget", "delta", "beta", "kappa"))
    print("page:", dssr.report(study).page)


if __name__ == "__main__":
    main(*sys.argv[1:])
