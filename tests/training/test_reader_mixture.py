"""The reader's training mixture has exactly the stated weights."""

from collections import Counter
from fractions import Fraction

from dssr.config import Config, ReaderConfig
from dssr.training.reader_points import (
    ReaderPoint,
    apportion,
    batches,
    context_variants,
    held_out,
    jobs_for,
    nested,
    stratified,
)
from dssr.types import Game, Options


def game(number: int) -> Game:
    return Game(
        id=f"train-6-{number:03d}", split="train", level=6, seed=number, file="", md5="", command=(), engine="1.7.0"
    )


def points(memory: str, budget: int | None, count: int) -> list[ReaderPoint]:
    options = Options(actions=("go north", "go south"), reference="go north", appended=False, dropped=0)
    return [
        ReaderPoint(
            game="g", episode=f"{memory}-{budget}-{n // 5}", step=n % 5, memory=memory, budget=budget, goal="g",
            context="c", observation="o", options=options,
        )
        for n in range(count)
    ]  # fmt: skip


def test_nineteen_variants_with_a_quarter_for_full_history() -> None:
    """Catches a lost variant or a share that is not exact: 6,000 points are 1,500 full and 250 of each other kind."""
    kinds = context_variants(ReaderConfig())
    assert len(kinds) == 19
    counts = apportion(6000, [kind.share for kind in kinds])
    assert counts == [1500] + [250] * 18


def test_a_share_of_nothing_is_no_variant() -> None:
    """Catches a division by zero, hours into the training, when one side of the mixture is left out."""
    for share, memories in ((0.0, {"lastk"}), (1.0, {"full"})):
        config = ReaderConfig(memories=("lastk",), budgets=(64,), full_share=share, points=50)
        supply = points("full", None, 90) + points("lastk", 64, 90)
        assert Counter(one.memory for one in stratified(supply, config, 0)) == dict.fromkeys(memories, 50)


def test_apportion_adds_up_for_any_shares() -> None:
    """Catches rounding that loses or invents points."""
    for total in (0, 1, 7, 100, 999):
        counts = apportion(total, [0.25, 0.3, 0.3, 0.15])
        assert sum(counts) == total
        assert all(
            abs(count - Fraction(share) * total) < 1
            for count, share in zip(counts, (0.25, 0.3, 0.3, 0.15), strict=True)
        )


def test_episodes_are_dealt_by_the_shares() -> None:
    """Catches an iteration in which a kind of context never occurs, and one that depends on the order of games."""
    games = [game(n) for n in range(40)]
    jobs = jobs_for(games, Config(name="paper"), "reference", 1)
    counts = Counter((job.cell.memory, job.cell.budget) for job in jobs)
    assert counts["full", None] == 40
    assert set(counts.values()) <= {40, 6, 7}
    assert len({(job.game, job.cell.filler) for job in jobs}) == 160
    assert jobs == jobs_for(games, Config(name="paper"), "reference", 1)


def test_the_sample_keeps_the_weights_when_a_variant_is_scarce() -> None:
    """Catches a short variant that silently shifts the mixture."""
    config = ReaderConfig(memories=("summary", "lastk"), budgets=(64,), full_share=0.5, points=1000)
    supply = points("full", None, 900) + points("summary", 64, 20) + points("lastk", 64, 900)
    assert Counter(one.memory for one in stratified(supply, config, 0)) == {"full": 40, "summary": 20, "lastk": 20}


def test_every_beginning_of_the_nested_order_follows_the_shares() -> None:
    """Catches a learning curve whose smaller samples have another mixture. Shares of 1/2, 1/4, 1/4 over 40 points: the
    first 8 are 4, 2, 2, the first 20 are 10, 5, 5, and no beginning is a point or more away from its share."""
    config = ReaderConfig(memories=("summary", "lastk"), budgets=(64,), full_share=0.5, points=40)
    supply = points("full", None, 20) + points("summary", 64, 10) + points("lastk", 64, 10)
    order = nested(supply, config, 0)
    assert Counter(one.memory for one in order[:8]) == {"full": 4, "summary": 2, "lastk": 2}
    assert Counter(one.memory for one in order[:20]) == {"full": 10, "summary": 5, "lastk": 5}
    for size in range(1, 41):
        counts = Counter(one.memory for one in order[:size])
        for memory, share in (("full", 0.5), ("summary", 0.25), ("lastk", 0.25)):
            assert abs(counts[memory] - share * size) < 1
    assert sorted(one.key for one in order) == sorted(one.key for one in supply)
    assert order == nested(reversed(supply), config, 0)
    assert order != nested(supply, config, 1)


def test_batches_keep_an_episode_together() -> None:
    """Catches an order that tears shared prefixes apart: at most one episode is split at each batch border."""
    supply = points("full", None, 100)
    made = batches(supply, 16, 0, "epoch", 0)
    assert sorted(p.key for batch in made for p in batch) == sorted(p.key for p in supply)
    assert sum(len({p.episode for p in batch}) for batch in made) <= 20 + len(made) - 1
    assert made != batches(supply, 16, 0, "epoch", 1)


def test_whole_games_are_held_out() -> None:
    """Catches a monitor that has seen the map of its games."""
    games = [game(n) for n in range(80)]
    train, kept = held_out(games, 0.05, 0)
    assert len(kept) == 4
    assert not {one.id for one in train} & {one.id for one in kept}
    assert len(train) + len(kept) == 80
