"""Conformance suites for whoever writes a model, a memory, a world or an importer of logs. They fit pytest and do not
import it:

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

from dssr.testing.models import ModelSubject, ModelSuite, ask, refused
from dssr.testing.worlds import MemorySuite, TraceSuite, WorldSuite

__all__ = ["MemorySuite", "ModelSubject", "ModelSuite", "TraceSuite", "WorldSuite", "ask", "refused"]
