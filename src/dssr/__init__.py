"""dssr: measure and reduce write-time regret in constant-context LLM agents.

    import dssr

    study = dssr.diagnose("demo", memories=["full", "summary"], budgets=[80], fillers=[0, 20])
    print(study.frame("cells"))
    dssr.report(study, out="report")

Verbs are ordinary functions; inside async code `await dssr.diagnose.aio(…)` is the same. Nothing heavy is imported
until it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dssr.agent.memory import Kit as Kit
    from dssr.agent.memory import Memory as Memory
    from dssr.config import Config as Config
    from dssr.config import load as load
    from dssr.errors import DssrError as DssrError
    from dssr.measure.archives import check_games as check_games
    from dssr.measure.archives import game_stats as game_stats
    from dssr.measure.archives import make_games as make_games
    from dssr.measure.compare import compare as compare
    from dssr.measure.comparisons import transfer as transfer
    from dssr.measure.continuation import continuation as continuation
    from dssr.measure.diagnose import check as check
    from dssr.measure.diagnose import diagnose as diagnose
    from dssr.measure.diagnose import evaluate as evaluate
    from dssr.measure.diagnose import fork as fork
    from dssr.measure.diagnose import lag as lag
    from dssr.measure.diagnose import play as play
    from dssr.measure.gates import amend as amend
    from dssr.measure.gates import approve as approve
    from dssr.measure.gates import gates as gates
    from dssr.measure.gates import judge as judge
    from dssr.measure.logs import audit as audit
    from dssr.measure.logs import plan_audit as plan_audit
    from dssr.measure.plan import plan as plan
    from dssr.measure.study import Study as Study
    from dssr.models.base import Generate as Generate
    from dssr.models.base import Message as Message
    from dssr.record.run import open_run as open_run
    from dssr.reports.decompose import decompose as decompose
    from dssr.reports.write import export as export
    from dssr.reports.write import report as report
    from dssr.session import Session as Session
    from dssr.studies.stages import study as study
    from dssr.studies.stages import study_plan as study_plan
    from dssr.studies.stages import study_states as study_states
    from dssr.traces.importers import open_traces as open_traces
    from dssr.traces.trace import Trace as Trace
    from dssr.training.lines import train as train
    from dssr.training.lines import train_seeds as train_seeds
    from dssr.training.reader import reader_accept as reader_accept
    from dssr.training.reader import reader_curve as reader_curve
    from dssr.training.reader import reader_train as reader_train
    from dssr.types import View as View
    from dssr.types import Workers as Workers

HOMES = {
    "dssr.agent.memory": ("Kit", "Memory"),
    "dssr.config": ("Config", "load"),
    "dssr.errors": ("DssrError",),
    "dssr.measure.archives": ("check_games", "game_stats", "make_games"),
    "dssr.measure.compare": ("compare",),
    "dssr.measure.comparisons": ("transfer",),
    "dssr.measure.continuation": ("continuation",),
    "dssr.measure.diagnose": ("check", "diagnose", "evaluate", "fork", "lag", "play"),
    "dssr.measure.gates": ("amend", "approve", "gates", "judge"),
    "dssr.measure.logs": ("audit", "plan_audit"),
    "dssr.measure.plan": ("plan",),
    "dssr.measure.study": ("Study",),
    "dssr.models.base": ("Generate", "Message"),
    "dssr.record.run": ("open_run",),
    "dssr.reports.decompose": ("decompose",),
    "dssr.reports.write": ("export", "report"),
    "dssr.session": ("Session",),
    "dssr.studies.stages": ("study", "study_plan", "study_states"),
    "dssr.training.lines": ("train", "train_seeds"),
    "dssr.training.reader": ("reader_accept", "reader_curve", "reader_train"),
    "dssr.traces.importers": ("open_traces",),
    "dssr.traces.trace": ("Trace",),
    "dssr.types": ("View", "Workers"),
}
"""Module to the public names that live in it."""
_HOME_OF = {name: home for home, names in HOMES.items() for name in names}
__all__ = [*sorted(_HOME_OF), "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'dssr' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME_OF])
