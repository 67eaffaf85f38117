"""What the operator evaluates: the suites of the board and the limits of each stage."""

from __future__ import annotations

from collections.abc import Sequence

from ccenv.benchmarks.suite.curve import load_suite
from ccenv.leaderboard.evaluate.damage import DamageStage, panel
from ccenv.leaderboard.evaluate.stages import EnvelopeStage, Stage, SuiteStage
from ccenv.leaderboard.store.runs import check_published

# What entries are evaluated on: the nominal suite, whose score ranks the senders, then the one with the adversary panel.
SUITES = ("standard-v2", "worst-case-v1")


def nominal_suite() -> str:
    """Return name/version of the suite whose score ranks the senders."""
    suite = load_suite(SUITES[0])
    return f"{suite.name}/{suite.version}"


def make_stages(suites: Sequence[str], budget_s: float, traces: bool) -> list[Stage]:
    """Return the stages of an evaluation.

    Args:
        suites: names or files for senders; empty: the board's own. Adversaries always meet the panel.
        budget_s: for the verified envelope; 0: without.
        traces: whether worst traces are stored beside their views.
    """
    stages: list[Stage] = [SuiteStage(check_published(load_suite(name), name), traces) for name in suites or SUITES]
    if budget_s > 0:
        stages.append(EnvelopeStage(budget_s))
    return [*stages, DamageStage(panel())]
