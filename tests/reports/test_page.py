"""The page as a file: complete, self-contained, safe against the texts it shows."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.reports.synthetic import NASTY

from dssr.measure.study import Study
from dssr.reports.page import study_view
from dssr.reports.view import Packed, aside, pack, render


class Scripts(HTMLParser):
    """Collects the text of script elements, as a browser would cut them, and every address mentioned."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self._here: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        known = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        if tag == "script":
            self._here = known.get("id") or "code"
            self.texts[self._here] = ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._here = None

    def handle_data(self, data: str) -> None:
        if self._here is not None:
            self.texts[self._here] += data


def read(page: str) -> Scripts:
    parser = Scripts()
    parser.feed(page)
    return parser


def opened(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text)))
    return found


@pytest.fixture(scope="module")
def study(made_run: Path) -> Study:
    return Study.load([made_run])


@pytest.fixture(scope="module")
def packed(study: Study) -> Packed:
    return pack(study)


def test_nothing_is_fetched_and_nothing_breaks_out(study: Study, packed: Packed) -> None:
    """Catches a page that needs the network, and a state that closes a script element."""
    page = render(study_view(study, packed))
    found = read(page)
    assert all(address.startswith("#") for address in found.addresses)
    assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)[a-z0-9.-]+\.[a-z]{2,}", page)
    assert found.tags.count("script") == 2 + len(packed.chunks)
    assert found.tags.count("img") == 0
    assert NASTY not in page
    blocks = [opened(text) for name, text in found.texts.items() if name.startswith("chunk-")]
    assert all(any(NASTY in text for text in block["strings"]) for block in blocks)
    json.loads(found.texts["summary"])


def test_hostile_names_stay_text(study: Study, packed: Packed) -> None:
    """Catches summary data, which is not packed, written into the page unescaped."""
    hostile = msgspec.structs.replace(packed, games=[{"id": NASTY, "level": 6, "split": "valid"}])
    found = read(render(study_view(study, hostile)))
    assert found.tags.count("script") == 2 + len(packed.chunks)
    assert json.loads(found.texts["summary"])["games"][0]["id"] == NASTY
    assert not set(found.texts["summary"]) & set("<>&")


def test_packed_episodes_hold_the_stored_ones(study: Study, packed: Packed) -> None:
    """Catches the explorer showing a text, a probability or an audit of another step or episode."""
    from dssr.reports.view import ordered

    cells = ordered(study)
    blocks = [opened(text) for text in packed.chunks]
    assert len(packed.episodes) == sum(len(games) for games in study.episodes.values())
    for row in packed.episodes:
        game, cell = packed.games[row[0]]["id"], cells[row[1]]
        block = blocks[row[0]]
        one, episode = block["episodes"][row[10]], study.episodes[cell][game]
        assert episode.key.startswith(row[11])
        assert packed.runs[row[12]] == str(study.runs[0].path)
        steps = study.steps(episode.key)
        assert len(one["steps"]) == len(steps) == row[5]
        for kept, step in zip(one["steps"], steps, strict=True):
            assert block["strings"][kept[3]] == step.observation
            written = cell.memory != "full" and (step.index < episode.begin or step.decision is not None)
            assert (kept[4] is not None) == written
            assert kept[4] is None or block["strings"][kept[4]] == step.write.state
            if step.decision is not None:
                commands = tuple(block["strings"][place] for place in kept[8][0])
                assert commands == step.decision.options.actions
                named = [block["strings"][place] for place in kept[8][1:4]]
                assert named == [step.decision.options.reference, step.decision.action, step.decision.argmax]
                assert kept[8][4] == pytest.approx(step.decision.logprobs, abs=1e-4)
        audits = study.audits[cell].get(game, [])
        assert set(one["audits"]) == {str(audit.step) for audit in audits}
        for audit in audits:
            assert one["audits"][str(audit.step)][0] == pytest.approx(audit.nll_state, abs=1e-4)


def test_equal_texts_are_stored_once(packed: Packed) -> None:
    """Catches the string table growing with the episodes: the walks of one game show the same rooms."""
    for text in packed.chunks:
        strings = opened(text)["strings"]
        assert len(strings) == len(set(strings))


def test_a_large_study_keeps_the_telling_games_inside(study: Study, packed: Packed) -> None:
    """Catches a page that grows without limit, that loses games, or that keeps others than those it speaks of."""
    small = pack(study, limit=len(packed.chunks[0]) + 1)
    assert len(small.inside) == 1 < len(packed.inside) == len(study.games)
    assert (small.curves, [*small.chunks], small.start) == (packed.curves, [*packed.chunks], packed.start)
    worst = max(
        (audit.kappa, game)
        for cell in study.cells
        for game, audits in study.audits[cell].items()
        for audit in audits
        if cell.memory != "oracle-b" and study.episodes[cell][game].outcome == "lost"
    )
    assert small.games[small.inside[0]]["id"] == worst[1]
    view = study_view(study, small)
    page, files = render(view), dict(aside(view))
    assert f"the other {len(files)} are in the folder" in page
    assert len(files) == len(study.games) - 1
    for name, text in files.items():
        place = int(name.removeprefix("episodes/").removesuffix(".js"))
        assert text == f'episodesArrived({place},"{packed.chunks[place]}")\n'
        assert packed.chunks[place] not in page


def test_the_same_run_gives_the_same_page(study: Study, packed: Packed) -> None:
    """Catches time stamps and unordered sets in the output."""
    assert render(study_view(study, pack(study))) == render(study_view(study, packed))
