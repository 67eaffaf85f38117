"""The suites and the panel of the board that tests evaluate once (conftest.py)."""

from small_suite import small_suite

from ccenv.leaderboard.evaluate.damage import DamageStage
from ccenv.leaderboard.evaluate.stages import SuiteStage
from ccenv.leaderboard.submission.pack import Authorship

ONE = small_suite().scenarios[0].model_dump()
SUITE = small_suite(agents=[], scenarios=[ONE])
HARD = small_suite(name="hard", agents=[], scenarios=[ONE], adversaries=["kind", "slowest"], tags=["adversarial"])
PANEL = small_suite(name="panel", agents=["reno", "cc_qdel"], scenarios=[ONE], adversaries=["kind"], seeds=[1])
STAGES = [SuiteStage(SUITE), SuiteStage(HARD, traces=False), DamageStage(PANEL)]
LINKED = Authorship("Ada Lovelace", "MIT", "quick/1", summary="A & B", url="https://example.org/x?a=1&b=2")
