"""A study so small that a line of it trains in seconds."""

from pathlib import Path

from dssr.config import (
    AgentConfig,
    Config,
    GamesConfig,
    MeasureConfig,
    ModelConfig,
    ProtocolConfig,
    StatsConfig,
    WriterConfig,
)
from dssr.worlds.archive import Archive


def study(archive: Archive, base: Path, data: Path) -> Config:
    """One-room games, a budget of 24 tokens, a handful of points."""
    games = data / "one"
    if not games.exists():
        data.mkdir(parents=True, exist_ok=True)
        games.symlink_to(archive.folder / "one", target_is_directory=True)
    return Config(
        name="tiny",
        data=str(data),
        cache_gib=1.0,
        games=GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}),
        protocol=ProtocolConfig(fillers=(0,), max_actions=4),
        writer_model=ModelConfig(backend="hf", path=str(base), dtype="float32", device="cpu", threads=1),
        agent=AgentConfig(budgets=(24,)),
        measure=MeasureConfig(points=1, oracle_samples=1),
        stats=StatsConfig(resamples=50),
        writer=WriterConfig(
            episodes_per_game=1,
            points=8,
            candidates=3,
            targets=(1, 2),
            gap=0.0001,
            outcome_points=6,
            outcome_gap=0.0,
            rank=2,
            alpha=4,
            sft_batch=4,
            dpo_batch=4,
            selection_budget=24,
            a4_candidates=4,
        ),
    )
