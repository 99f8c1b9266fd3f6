"""Audit a log of your own with a memory of your own: which rewrite lost what, and was it the budget or the writer?"""

import sys

import dssr
from dssr.agent.memory import Kit
from dssr.types import View


class Values:
    """Keeps the newest lines that hold a digit, a slash or a dot: where concrete values mostly stand."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def write(self, view: View, previous: str) -> str:
        """Old lines and new ones, as many of the newest as fit the budget."""
        new = [line.strip() for line in f"{view.last_action or ''}\n{view.observation}".splitlines()]
        lines = [*previous.splitlines(), *(line for line in new if any(char in "/._0123456789" for char in line))]
        kept = list(dict.fromkeys(reversed(lines)))[::-1]
        while kept and len(self.kit.tokenizer.encode("\n".join(kept))) > self.kit.budget:
            del kept[0]
        return "\n".join(kept)


def main(log: str = "examples/logs/mini-swe-agent-issue.traj.json", config: str = "smol") -> None:
    """Audit one log, print what survived, write the page."""
    study = dssr.audit(log, config, ["lastk", "own_trace:Values"], [128])
    print(study.frame("cells").select("memory", "budget", "delta", "beta", "kappa"))
    for row in (study.runs[0].summary or {})["survival"]:
        print(
            f"{row['memory']}: {row['verbatim']} of {row['facts']} values kept word for word, {row['dropped']} dropped"
        )
    print("page:", dssr.report(study).page)


if __name__ == "__main__":
    main(*sys.argv[1:])
