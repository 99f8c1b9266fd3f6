"""A session's agent for tests that are not async themselves."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dssr.agent.episode import Agent
from dssr.config import Config
from dssr.models.base import Model
from dssr.session import Session
from dssr.types import Job
from dssr.worlds.archive import Archive


@contextmanager
def open_agent(config: Config, archive: Archive, model: Model, jobs: Sequence[Job] = ()) -> Iterator[Agent]:
    """What episodes are played with, closed at the end."""
    session = Session(config, archive=archive, models=(model, model))
    try:
        yield session.agent(jobs)
    finally:
        asyncio.run(session.close())
