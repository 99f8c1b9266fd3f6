"""A memory of your own is a class with one method. Budget, leak check, audit and report work on it as on ours.

python examples/own_memory.py
dssr diagnose --config demo --memory examples/own_memory.py:Newest --memory examples/own_memory.py:Shortened
"""

import sys
from pathlib import Path

import dssr

INSTRUCTION = "Shorten this note. Keep what later actions will need. Reply with the note alone."


class Newest:
    """Keeps the newest observations, as many as fit; needs no model."""

    def __init__(self, kit: dssr.Kit) -> None:
        self.kit = kit

    async def write(self, view: dssr.View, previous: str) -> str:
        """The new state, from this step's view and the state before. Only the text returned crosses a step."""
        lines = [f"> {view.last_action}", view.observation, previous]
        return "\n".join(lines)  # cut to the budget afterwards, whatever is returned


class Shortened:
    """Asks the writer's model to shorten the previous note with the new observation."""

    def __init__(self, kit: dssr.Kit) -> None:
        self.kit = kit

    async def write(self, view: dssr.View, previous: str) -> str:
        """One call of the model per step."""
        note = f"{previous}\n> {view.last_action}\n{view.observation}"
        messages = (dssr.Message("system", INSTRUCTION), dssr.Message("user", note))
        return await self.kit.generate(messages)


def main(config: str = "demo") -> None:
    """Both memories beside `summary`, on two of the shipped games."""
    sys.path.insert(0, str(Path(__file__).parent))  # memories are named as module:Class
    memories = ["summary", "own_memory:Newest", "own_memory:Shortened"]
    budget = dssr.load(config).agent.budgets[-1]
    study = dssr.diagnose(config, memories=memories, budgets=[budget], fillers=[0], games=2)
    print(study.frame("cells").select("memory", "success", "kappa"))


if __name__ == "__main__":
    main(*sys.argv[1:])
