"""Live runs: the kernel's senders on an emulated network with the same legal adversaries (docs/live.md). Linux only."""

from ccenv.live.requirements import Needs, live_needs
from ccenv.live.result import LiveResult
from ccenv.live.run import run_live, valid_run
from ccenv.live.scenario import LiveError, LiveScenario, load_live_scenario, read_live_scenario

__all__ = [
    "LiveError",
    "LiveResult",
    "LiveScenario",
    "Needs",
    "live_needs",
    "load_live_scenario",
    "read_live_scenario",
    "run_live",
    "valid_run",
]
