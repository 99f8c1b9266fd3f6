"""Training on enforced scores and on a teacher's rewrites, with the scripted writer on real games."""

import asyncio
from pathlib import Path

import msgspec
import pytest

import dssr
from dssr.agent.episode import stored
from dssr.agent.prompts import check_request, writer_messages
from dssr.config import Config, WriterConfig
from dssr.measure.candidates import Candidate, CandidateScorer, WritePoint, points_of, request_at
from dssr.measure.hindsight import HINDSIGHT, Teacher, marked, reminded, supported
from dssr.measure.lag import measure_lag
from dssr.models.base import Generate, Generated
from dssr.models.scripted import ScriptedModel
from dssr.models.scripted.formats import order_of
from dssr.record.run import Run
from dssr.session import Session
from dssr.training.line import Line
from dssr.training.round import Round
from dssr.training.variants import variant_of
from dssr.types import Chunk, Lag, Search, View
from dssr.worlds.archive import Archive
from dssr.worlds.shipped import unpack

GAMES = Path(__file__).parents[1] / "games" / "six.tar.xz"
WRITER = WriterConfig(
    episodes_per_game=1,
    candidates=3,
    targets=(1, 4),
    rounds=2,
    gap=0.01,
    enforced_points=8,
    enforced_samples=(2, 0),
    hindsight_points=24,
    chain_fillers=((0, 10),),
    selection_budget=64,
    validation_games=1,
)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Six games, and a writer that forgets so much that what it keeps matters."""
    folder = tmp_path_factory.mktemp("objectives")
    unpack(GAMES, folder / "data" / "six")
    scripted = dssr.load("scripted")
    return msgspec.structs.replace(
        scripted,
        data=str(folder / "data"),
        runs=str(folder / "runs"),
        cache_gib=0.0,
        games=msgspec.structs.replace(scripted.games, archive="six", train=3, valid=2, test=1),
        agent=msgspec.structs.replace(scripted.agent, budgets=(64,)),
        protocol=msgspec.structs.replace(scripted.protocol, fillers=(0, 10)),
        measure=msgspec.structs.replace(scripted.measure, points=1, oracle_samples=1),
        writer=WRITER,
    )


@pytest.fixture(scope="module")
def enforced(config: Config) -> Path:
    """Rounds 0 and 1 of a line of `enforced`."""
    out = Path(config.runs) / "study"
    dssr.train(config, "enforced", rounds="0-1", out=out, force=True, workers=1)
    return out / "enforced-s0"


@pytest.fixture(scope="module")
def hindsight(config: Config) -> Path:
    """Round 0 of a line of `hindsight`."""
    out = Path(config.runs) / "study"
    dssr.train(config, "hindsight", rounds="0", out=out, force=True, workers=1)
    return out / "hindsight-s0"


def candidates(run: Run) -> dict[str, list[Candidate]]:
    found: dict[str, list[Candidate]] = {}
    for one in run.read("candidates", Candidate):
        found.setdefault(one.point, []).append(one)
    return found


# ---------------------------------------------------------------- enforced


def test_samples_fall_from_round_to_round() -> None:
    """Catches an annealing that is not followed or ends with its list, and samples for a variant that has none."""
    variant = variant_of("enforced", WRITER)
    assert [variant.sampling(number).enforced for number in range(4)] == [2, 0, 0, 0]
    assert [variant.imitates(number) for number in range(3)] == [True, False, False]
    assert variant_of("dssr", WRITER).sampling(0).enforced is None
    assert WriterConfig().enforced_samples[-1] == 0


def test_enforced_scores_rank_the_candidates_until_they_are_the_plain_ones(config: Config, enforced: Path) -> None:
    """Catches scores of another number of samples than the round's, and a line that learns by the plain score: the
    stored scores are made again, those of round 0 with two samples, those of round 1 as `dssr` makes them."""
    found: list[tuple[float, float, float]] = []

    async def again(number: int) -> None:
        run = Run.open(enforced / f"round-{number}")
        groups, points = candidates(run), {one.key: one for one in run.read("points", WritePoint)}
        played = {one.episode.key: one for one in stored(run)}
        line = Line(config, "enforced", 0, enforced)
        async with line.session(number - 1) as session:
            with session.run(enforced.parent / f"again-{number}", "round", [], {}, resume=False) as (_, agent):
                for key, group in groups.items():
                    point, sampling = points[key], line.variant.sampling(number)
                    scorer = CandidateScorer(played[point.episode], agent, sampling, config.writer, 0)
                    for one in group:
                        own, plain = await scorer.enforced(point, one.state), await scorer.recursive(point, one.state)
                        assert one.scores == own
                        found.append((number, own["E4"], plain["S4"]))

    asyncio.run(again(0))
    asyncio.run(again(1))
    assert any(own != plain for number, own, plain in found if number == 0)
    assert all(own == plain for number, own, plain in found if number == 1)
    run = Run.open(enforced / "round-0")
    work = Round(run, run.config, variant_of("enforced", WRITER), 0, 0)
    best = [max(group, key=lambda one: (one.scores["E4"], -one.index)).state for group in work.groups().values()]
    assert [one.reply for one in work.examples(Archive.open(Path(config.data) / "six"))] == best


# ---------------------------------------------------------------- hindsight


def test_the_marked_chunk_had_passed() -> None:
    """Catches a teacher shown what comes only later, a chunk that hardly matters, and the later one of two equals."""
    chunks = (Chunk("visit", 0, 1), Chunk("visit", 2, 3), Chunk("recipe", 4, 6), Chunk("block", 7, 9))
    lag = Lag("e", 10, 1.0, chunks, (0.6, 0.6, 2.0, 5.0))
    assert marked(lag, 10, 0.5) == (chunks[3], 5.0)
    assert marked(lag, 7, 0.5) == (chunks[2], 2.0)
    assert marked(lag, 5, 0.5) == (chunks[2], 2.0)
    assert marked(lag, 4, 0.5) == (chunks[0], 0.6)
    assert marked(lag, 4, 0.7) is None
    assert marked(lag, 0, 0.0) is None


@pytest.mark.parametrize(
    ("rewrite", "previous", "followed"),
    [
        ("Bedroom. Chop the carrot.", "Recipe: chop the carrot.", True),
        ("Bedroom. Chop the carrot.", "Recipe: chop the apple.", False),
        ("Bedroom. Chop the carrot.", "", False),
        ("Bedroom.", "Recipe: chop the carrot.", False),
        ("The lamp is in the bedroom.", "The kitchen is south.", False),
    ],
    ids=["still held", "lost in part", "lost", "teacher says nothing of it", "only what is seen anyway"],
)
def test_the_teacher_is_followed_where_its_words_are_in_the_input(rewrite: str, previous: str, followed: bool) -> None:
    """Catches a student that is taught to invent what its input has lost, and rewrites learnt that carry nothing."""
    view = View("cook", "go north", "Bedroom. The lamp is here.")
    assert supported(rewrite, "The recipe by the lamp says: chop the carrot.", view, previous) is followed


def test_the_student_learns_the_teachers_rewrite_of_its_own_request(config: Config, hindsight: Path) -> None:
    """Catches the chunk left in what the student is asked, a rewrite learnt that may not be followed, and a teacher
    that sees another chunk than the one that matters or steps after the point: requests, chunks and rewrites are made
    again by hand. The line is finished, so the leak check has seen every prompt."""
    run = Run.open(hindsight / "round-0")
    groups, played = candidates(run), {one.episode.key: one for one in stored(run)}
    work = Round(run, run.config, variant_of("hindsight", WRITER), 0, 0)
    examples = {one.messages[-1].content: one.reply for one in work.examples(Archive.open(Path(config.data) / "six"))}
    taught = 0

    async def again() -> None:
        nonlocal taught
        async with Session(config) as session:
            with session.run(hindsight.parent / "again-h", "round", [], {}, resume=False) as (_, agent):
                for point in work.points():
                    one = played[point.episode]
                    scorer = CandidateScorer(one, agent, work.variant.sampling(0), config.writer, 0)
                    view, previous = request_at(one.steps, point.step, scorer.goal)
                    marks: dict[tuple[int, int], float] = {}
                    for target in (point.targets[0], point.targets[-1]):
                        lag = await measure_lag(one, target, scorer.goal, agent, config.measure.block, scorer.watch)
                        rises = [
                            (rise, -chunk.first, min(chunk.last, point.step - 1))
                            for rise, chunk in zip(lag.rises, lag.chunks, strict=True)
                            if chunk.first < point.step and rise >= config.measure.lag_threshold
                        ]
                        for rise, first, last in [max(rises)] if rises else []:
                            marks[-first, last] = max(rise, marks.get((-first, last), 0.0))
                    group = groups.get(point.key, [])
                    assert len(group) == (1 + len(marks) if marks else 0)
                    asked = writer_messages(scorer.memory.system, view, previous)[-1].content
                    for teacher, ((first, last), rise) in zip(group[1:], marks.items(), strict=True):
                        steps = one.steps[first : last + 1]
                        shown = reminded(previous, steps)
                        check_request(scorer.memory.messages(view, shown), view, shown)
                        assert shown.startswith(previous)
                        assert all(step.observation in shown for step in steps)
                        assert teacher.scores[HINDSIGHT] in (0.0, rise)
                        with scorer.watch.at(point.step):
                            reply = await scorer.memory.sample(view, shown, 0.0, 0)
                        assert reply.startswith(teacher.state)
                    best = max((one.scores[HINDSIGHT] for one in group), default=0.0)
                    taught += best > 0
                    if best > 0:
                        chosen = [one.state for one in group if one.scores[HINDSIGHT] == best]
                        assert examples[asked] == chosen[0]

    asyncio.run(again())
    assert taught == len(examples) > 0
    assert sum(one.leaked for one in run.read("searches", Search)) == 0


class Copying(ScriptedModel):
    """Repeats the end of a previous state in which steps of the history stand, and keeps all states it was shown."""

    def __init__(self) -> None:
        super().__init__(0.9, 65536)
        self.shown: set[str] = set()

    async def generate(self, request: Generate) -> Generated:
        previous = order_of(request.messages).previous
        self.shown.add(previous)
        found = await super().generate(request)
        words = previous.split()[-30:]
        return msgspec.structs.replace(found, text=" ".join(words)) if "> " in previous else found


def test_the_teacher_is_shown_the_chunk_and_may_not_always_be_followed(config: Config, hindsight: Path) -> None:
    """Catches a teacher that is not shown the chunk, or not as the end of the state, and one that is followed where
    the student could only invent: this one repeats the chunk, whose words few states still hold in full."""
    run, model = Run.open(hindsight / "round-0"), Copying()
    found: list[tuple[float, bool]] = []

    async def teach() -> None:
        async with Session(config, models=(model, model)) as session:
            with session.run(hindsight.parent / "copying", "round", [], {}, resume=False) as (_, agent):
                for played in stored(run):
                    sampling = variant_of("hindsight", WRITER).sampling(0)
                    scorer = CandidateScorer(played, agent, sampling, config.writer, 0)
                    teacher = Teacher(scorer, config.measure)
                    for point in points_of(played.episode, played.steps, 30)[::3]:
                        view, previous = scorer.request(point)
                        for one in (await teacher.candidates(point))[1:]:
                            chunks = [shown for shown in model.shown if " ".join(shown.split()).endswith(one.state)]
                            assert any(shown.startswith(previous) for shown in chunks)
                            found.append((one.scores[HINDSIGHT], supported(one.state, one.state, view, previous)))

    asyncio.run(teach())
    assert any(score == 0.0 for score, _ in found)
    assert all(score == 0.0 for score, known in found if not known)


def test_two_processes_find_what_one_finds(config: Config, hindsight: Path) -> None:
    """Catches a way of trying candidates that cannot be sent to a worker, or that depends on who else is there."""
    other = Line(config, "hindsight", 0, hindsight.parent / "two" / "hindsight-s0", workers=2)
    asyncio.run(other.data(0))
    one, two = (Run.open(place / "round-0") for place in (hindsight, other.directory))
    assert candidates(one) == candidates(two)
