"""Conformance suites for whoever writes a model, a memory or a world. They need no import of pytest, but fit it:

    from dssr.testing import MemorySuite

    class TestMine(MemorySuite):
        @pytest.fixture
        def memory(self) -> str:
            return "mine:Memory"                # as `--memory` takes it

        @pytest.fixture
        def worlds(self) -> Worlds:
            return Worlds(Archive.open("data/demo"))

        @pytest.fixture
        def game(self) -> str:
            return "valid-6-000"

Each suite says which fixtures it asks for. Call `pytest.register_assert_rewrite("dssr.testing")` in a `conftest.py`
for longer messages.
"""

from dssr.testing.memories import MemorySuite
from dssr.testing.models import ModelSubject, ModelSuite, ask, refused
from dssr.testing.worlds import WorldSuite

__all__ = ["MemorySuite", "ModelSubject", "ModelSuite", "WorldSuite", "ask", "refused"]
