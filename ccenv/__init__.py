"""ccenv: environment, benchmark and proving ground for Internet congestion control.

Example:
    >>> import ccenv
    >>> ccenv.compare(["cubic", "copa"], rate="50mbps", rtt="40ms").to_frame()
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import did_you_mean
from ccenv.base.provenance import VERSION as __version__

__all__ = [
    "CcenvError",
    "CurveEngine",
    "Observation",
    "PythonSender",
    "Trace",
    "__version__",
    "attack",
    "compare",
    "evaluate",
    "from_onnx",
    "from_sb3",
    "from_torch",
    "list_agents",
    "load_trace",
    "make_adversary",
    "make_path",
    "make_sender",
    "open_run",
    "run_suite",
    "save_policy",
    "simulate",
    "train",
    "verify",
]


class _WhenGymnasium:
    """Makes the environments' ids known as soon as Gymnasium is imported: ccenv itself does not need it."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the module's spec as the others find it, with a loader that registers the ids afterwards."""
        if name != "gymnasium":
            return None
        finders = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not cls)
        spec = next((spec for spec in finders if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: Any) -> None:
                load(module)
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not cls]
                importlib.import_module("ccenv.envs").register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    importlib.import_module("ccenv.envs").register()
elif _WhenGymnasium not in sys.meta_path:
    sys.meta_path.insert(0, _WhenGymnasium)


# What is brought only when it is used: name -> where it lives.
_LAZY = {
    "CcenvError": "ccenv.base.errors:CcenvError",
    "CurveEngine": "ccenv.engine.curve.engine:CurveEngine",
    "Observation": "ccenv.agents.learned.observation:Observation",
    "PythonSender": "ccenv.agents.python_sender:PythonSender",
    "Trace": "ccenv.network.trace:Trace",
    "attack": "ccenv.attacks.run:attack",
    "compare": "ccenv.benchmarks.compare:compare",
    "evaluate": "ccenv.benchmarks.run.runner:evaluate",
    "from_onnx": "ccenv.agents.learned.convert:from_onnx",
    "from_sb3": "ccenv.agents.learned.convert:from_sb3",
    "from_torch": "ccenv.agents.learned.convert:from_torch",
    "list_agents": "ccenv.agents.load:list_agents",
    "load_trace": "ccenv.network.trace:load_trace",
    "make_adversary": "ccenv.adversaries.load:load_adversary",
    "make_path": "ccenv.network.path:make_path",
    "make_sender": "ccenv.agents.load:load_sender",
    "open_run": "ccenv.training.analysis:open_run",
    "run_suite": "ccenv.benchmarks.run.runner:run_suite",
    "save_policy": "ccenv.agents.learned:save_policy",
    "simulate": "ccenv.simulation:simulate",
    "train": "ccenv.training.run:train",
    "verify": "ccenv.proofs.claims.ask:verify",
}

if TYPE_CHECKING:
    from ccenv.adversaries.load import load_adversary as make_adversary
    from ccenv.agents.learned import save_policy as save_policy
    from ccenv.agents.learned.convert import from_onnx as from_onnx
    from ccenv.agents.learned.convert import from_sb3 as from_sb3
    from ccenv.agents.learned.convert import from_torch as from_torch
    from ccenv.agents.learned.observation import Observation as Observation
    from ccenv.agents.load import list_agents as list_agents
    from ccenv.agents.load import load_sender as make_sender
    from ccenv.agents.python_sender import PythonSender as PythonSender
    from ccenv.attacks.run import attack as attack
    from ccenv.base.errors import CcenvError as CcenvError
    from ccenv.benchmarks.compare import compare as compare
    from ccenv.benchmarks.run.runner import evaluate as evaluate
    from ccenv.benchmarks.run.runner import run_suite as run_suite
    from ccenv.engine.curve.engine import CurveEngine as CurveEngine
    from ccenv.network.path import make_path as make_path
    from ccenv.network.trace import Trace as Trace
    from ccenv.network.trace import load_trace as load_trace
    from ccenv.proofs.claims.ask import verify as verify
    from ccenv.simulation import simulate as simulate
    from ccenv.training.analysis import open_run
    from ccenv.training.run import train as train


def __getattr__(name: str) -> object:
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'ccenv' has no attribute {name!r}.{did_you_mean(name, __all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
