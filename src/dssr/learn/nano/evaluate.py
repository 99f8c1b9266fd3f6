"""How well a network reads: right answers at decision points, and games won, by kind of context."""

from collections.abc import Sequence

import torch

from dssr.games.archive import Archive
from dssr.games.history import render_history
from dssr.games.options import options_at
from dssr.games.protocol import phase_a
from dssr.games.world import World
from dssr.learn.nano.corpus import Seen, Transcript, oracle_of
from dssr.learn.nano.drill import Question, drill
from dssr.learn.nano.network import Network
from dssr.learn.nano.questions import (
    Asked,
    ask,
    decisions,
    full_question,
    oracle_question,
    shown,
    state_question,
    tree_of,
)
from dssr.learn.nano.rewrites import any_format, write_along
from dssr.learn.nano.scribe import Scribe
from dssr.learn.nano.tree import lay_out
from dssr.seeds import rng_of
from dssr.types import Game


@torch.no_grad()
def answers(network: Network, scribe: Scribe, asked: Sequence[Asked], shared: bool = False) -> list[int]:
    """The option the network picks, per question."""
    logits, _ = network(lay_out([tree_of(asked, shared=shared)]))
    picked = []
    for row, one in zip(logits, asked, strict=True):
        labels = torch.tensor(scribe.labels[: len(one.ends)])
        picked.append(int(row[labels].argmax()))
    return picked


def accuracy(network: Network, scribe: Scribe, transcripts: Sequence[Transcript], budget: int = 64) -> dict[str, float]:
    """Share of answers equal to the reference action, all options shown, by kind of context."""
    hits: dict[str, list[bool]] = {}
    count = lambda text: len(scribe.encode(text))  # noqa: E731
    for number, transcript in enumerate(transcripts):
        rng = rng_of("nano accuracy", transcript.game, number)
        places = sorted(rng.sample(decisions(transcript), min(4, len(decisions(transcript)))))
        written = write_along(transcript, any_format(rng), budget, 0.99, rng, count)
        kinds: dict[str, list[Question]] = {
            "full": [full_question(transcript, place) for place in places],
            "oracle": [oracle_question(transcript, place, budget, count) for place in places],
            "state": [state_question(transcript, place, written.states[place]) for place in places],
            "drill": drill(rng, 4),
        }
        for kind, questions in kinds.items():
            asked = [ask(scribe, transcript.goal, one, shown(one, 52, rng)) for one in questions]
            for one, pick in zip(asked, answers(network, scribe, asked, shared=kind == "full"), strict=True):
                hits.setdefault(kind, []).append(pick == one.right)
    return {kind: sum(each) / len(each) for kind, each in hits.items()}


def wins(
    network: Network, scribe: Scribe, archive: Archive, games: Sequence[Game], kind: str, filler: int, limit: int = 50
) -> dict[str, str]:
    """Outcome per game when the network plays Phase B; `kind` is `full` or `oracle`."""
    outcomes: dict[str, str] = {}
    count = lambda text: len(scribe.encode(text))  # noqa: E731
    for game in games:
        world = World.open(archive, game)
        walk = phase_a(world, "post", filler)
        steps = [Seen(step.command, step.observation, step.kind) for step in walk]
        node, outcome = walk[-1].node, "limit"
        for _ in range(limit):
            moment = node.moment
            if moment.won or moment.lost or not moment.privileged.policy:
                outcome = "won" if moment.won else "lost"
                break
            options = options_at(moment, game.id, len(steps) - 1)
            here = Seen(
                steps[-1].action, moment.observation, "act", options.commands, (options.reference,), oracle_of(node)
            )
            if kind == "full":
                context = render_history(steps[:-1], steps[-1].action)
                question = Question(context, here.observation, here.commands, here.plan)
            else:
                played = Transcript(game.id, world.goal, filler, (), (here,), ())
                question = oracle_question(played, 0, 64, count)
            (pick,) = answers(network, scribe, [ask(scribe, world.goal, question, options.commands)])
            node = world.step(node, options.commands[pick])
            steps.append(Seen(options.commands[pick], node.moment.observation, "act"))
        outcomes[game.id] = outcome
        world.close()
    return outcomes
