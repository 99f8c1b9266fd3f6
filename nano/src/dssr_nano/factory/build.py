"""The recipe of nano from game archive to model folder. Each part is skipped when its result is there already."""

import shutil
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers import Tokenizer

from dssr.agent.prompts import Prompts, load_prompts, reader_messages, writer_messages
from dssr.errors import UsageError
from dssr.models.scripted.formats import FORMATS
from dssr.seeds import rng_of
from dssr.session import counted
from dssr.types import Progress as ProgressCallback
from dssr.types import View
from dssr.worlds.archive import Archive
from dssr_nano import weights
from dssr_nano.factory import tokenizer
from dssr_nano.factory.curriculum import STEPS
from dssr_nano.factory.drill import drill
from dssr_nano.factory.export import CONTEXT_LENGTH
from dssr_nano.factory.grow import SIMILAR, extend_tokenizer
from dssr_nano.factory.mixture import DataSettings
from dssr_nano.factory.names import ROOMS, WORDS
from dssr_nano.factory.network import Network, Shape
from dssr_nano.factory.reader_examples import decisions, full_question, pick_options, with_new_names
from dssr_nano.factory.training import Progress, TrainingPlan, load, network_of, train
from dssr_nano.factory.transcripts import STRAYED, collect, read
from dssr_nano.factory.writer_examples import any_format, write_along
from dssr_nano.networks import Role

TRANSCRIPTS = "train.jsonl"
STRAYS = "strays.jsonl"
"""Transcripts with strays, for readers alone: they must also read the histories of badly played games."""
TOKENIZER = "tokenizer"
FILE = tokenizer.FILES[0]
WORKERS = 2
"""Processes that walk games."""
BUDGETS = (16, 24, 32, 48, 64, 96, 128, 192, 256)
SHAPE = Shape(width=160, depth=6, heads=5, inner=416)


class NetworkSpec(NamedTuple):
    """What the network of a role is made of."""

    shape: Shape = SHAPE
    rooms: tuple[int, ...] = (6,)
    games: int = 120
    """Training games of each room count that are walked: under new names and a turned compass these are enough."""
    walked: tuple[tuple[int, int], ...] = ((0, 0), (1, 0), (1, 20), (2, 0), (2, 10), (2, 20), (2, 40))
    """(number, filler) of the transcripts of each game."""
    strayed: tuple[int, ...] = ()
    """Fillers of the transcripts with strays."""
    budgets: tuple[int, ...] = (24, 32, 48, 64, 96, 128)
    """Of the states and the `oracle-b` lines that are shown."""
    tokens: int = 1500
    """Of a row, at least."""
    start_from: Role | None = None
    """Role of the shipped network that it starts as."""


HOUSE = NetworkSpec(
    rooms=(9, 12),
    games=80,
    walked=((0, 0), (1, 0), (1, 10), (2, 20), (2, 40)),
    budgets=(48, 64, 96, 128, 160),
)
SPECS: dict[Role, NetworkSpec] = {
    "reader": NetworkSpec(strayed=(0, 10, 20, 40)),
    "writer": NetworkSpec(),
    "house": HOUSE._replace(shape=SHAPE._replace(depth=9), strayed=(0, 20), tokens=800, start_from="reader"),
    "house-writer": HOUSE._replace(start_from="writer"),
}


def sample_texts(transcripts: Path, each: int = 400) -> list[str]:
    """What the tokenizer learns from: prompts of both roles, under new names only."""
    prompts = load_prompts()
    texts: list[str] = []
    for number, (_, transcript) in enumerate(sorted(read(transcripts), key=lambda one: one[0])):
        rng = rng_of("nano tokenizer", 0, number)
        named = with_new_names(transcript, rng, keep=0.0)
        for index in rng.sample(decisions(named), 2):
            question = full_question(named, index)
            shuffled = pick_options(question, 52, rng)
            messages = reader_messages("", named.goal, question.context, question.observation, shuffled)
            texts.append(messages[1].content)
        texts += [
            reader_messages("", named.goal, asked.context, asked.observation, asked.commands)[1].content
            for asked in drill(rng, 2)
        ]
        if number < each // 3:
            # Budgets are not countable before there is a tokenizer; nine characters make about one token.
            budget = rng.choice((24, 48, 96))
            written = write_along(named, any_format(rng), budget, 0.95, rng, lambda text: len(text) // 9)
            texts += written.states
            for index in rng.sample(range(1, len(named.steps)), 8):
                view = View(named.goal, named.steps[index].action, named.steps[index].observation)
                texts.append(writer_messages("", view, written.states[index - 1])[1].content)
    # Words of names become tokens both at the start of a line and inside it.
    lists = ["\n".join(WORDS), " ".join(("", *WORDS))] * (len(texts) // 8)
    return texts + lists + _instructions(prompts, len(texts))


def _instructions(prompts: Prompts, many: int) -> list[str]:
    """The system messages, so often that their sentences become single tokens."""
    writer = [prompts.writer(style, budget) for style in FORMATS for budget in BUDGETS]
    return [prompts.reader] * (many // 4) + writer * max(1, many // 100)


def new_tokenizer(folder: Path) -> None:
    """Trains a tokenizer on the transcripts."""
    made = tokenizer.train(sample_texts(folder / TRANSCRIPTS), (*WORDS, *ROOMS))
    tokenizer.save(made, folder / TOKENIZER, CONTEXT_LENGTH)


def ensure_tokenizer(folder: Path, new: bool, start_from: Role | None) -> None:
    """The tokenizer of the package, if there is none in the folder and no new one is wanted: networks that share it can
    read what each other wrote. A network that starts as a smaller one has that one's, with the words it lacks."""
    place = folder / TOKENIZER
    if _holds_one(folder):
        return
    if start_from is not None:
        held = Tokenizer.from_file(str(weights(start_from) / FILE))
        tokenizer.save(extend_tokenizer(held), place, CONTEXT_LENGTH)
        return
    if new:
        new_tokenizer(folder)
        return
    place.mkdir(parents=True, exist_ok=True)
    for name in tokenizer.FILES:
        shutil.copyfile(weights("writer") / name, place / name)


def check_tokenizer(folder: Path, new: bool, start_from: Role | None) -> None:
    """A folder keeps its tokenizer, since its networks are built on it. Where a call has trained one, the next goes on
    with that."""
    if start_from is not None and new:
        raise UsageError(f"This network starts as {start_from} and reads as that does: leave out --new-tokenizer.")
    if not _holds_one(folder):
        return
    held = Tokenizer.from_file(str(folder / TOKENIZER / FILE))
    if start_from is not None and any(len(tokenizer.cut(held, text)) > 1 for text in SIMILAR):
        raise UsageError(f"{folder} has a tokenizer without the words of houses; give another --folder.")
    if new and (folder / TOKENIZER / FILE).read_bytes() == (weights("writer") / FILE).read_bytes():
        raise UsageError(f"{folder} already uses the package's tokenizer; to train a new one, give another --folder.")


def _holds_one(folder: Path) -> bool:
    return (folder / TOKENIZER / FILE).exists()


def plan_of(folder: Path, role: Role, seed: int, shape: Shape) -> TrainingPlan:
    """The training run of a role: which rows, how many steps, and where its checkpoint lies."""
    spec = SPECS[role]
    files = (TRANSCRIPTS, STRAYS) if spec.strayed else (TRANSCRIPTS,)
    transcripts = tuple(str(folder / file) for file in files)
    data = DataSettings(transcripts, str(folder / TOKENIZER), seed, role, spec.tokens, spec.budgets)
    place = folder / f"checkpoint-{role}-{seed}-{'x'.join(map(str, shape))}"
    first = None if spec.start_from is None else weights(spec.start_from)
    return TrainingPlan(place, data, shape, STEPS[role], start_from=first)


def build(
    archive: Archive,
    folder: Path,
    role: Role,
    seed: int,
    shape: Shape,
    tell: ProgressCallback,
    own_tokenizer: bool = False,
) -> tuple[Network, Progress]:
    """Everything up to the trained network; goes on where an earlier call stopped. Networks made in one
    folder share transcripts and tokenizer."""
    spec = SPECS[role]
    check_tokenizer(folder, own_tokenizer, spec.start_from)
    games = [game for rooms in spec.rooms for game in archive.games("train", rooms)[: spec.games]]
    if not games:
        few = " or ".join(map(str, spec.rooms))
        raise UsageError(
            f"{archive.folder} has no training games of {few} rooms; the {role} network learns from those."
        )
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {TRANSCRIPTS: spec.walked, STRAYS: tuple((STRAYED, filler) for filler in spec.strayed)}
    for file, each in wanted.items():
        if not each:
            continue
        collect(archive, games, folder / file, each, WORKERS, counted(tell, file))
    ensure_tokenizer(folder, own_tokenizer, spec.start_from)
    plan = plan_of(folder, role, seed, shape)
    torch.set_num_threads(1)  # sums depend on how many threads share them; processes share the work instead
    told = counted(tell, "training")
    train(plan, lambda progress: told(progress.step, plan.steps))
    return restore(plan)


def restore(plan: TrainingPlan) -> tuple[Network, Progress]:
    """The network of the last checkpoint."""
    network = network_of(plan)
    return network, load(plan.folder, network, None)
