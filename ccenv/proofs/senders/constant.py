"""A constant rate: formula and exact step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import Run
from ccenv.proofs.senders import loss_detection
from ccenv.proofs.senders.loss_detection import Losses
from ccenv.proofs.senders.window import WindowSender, window_of
from ccenv.proofs.solver.terms import Formula


class Constant(WindowSender):
    """A constant rate, at least one MSS per Rm, without a window."""

    name = "constant"

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Keep the rate."""
        yield view.rate[t] == view.rate[t - 1]
        yield view.rate[t] >= view.alpha
        yield window_of(view)[t] == loss_detection.inflight_known(view, t) + view.rate[t]

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Keep the rate of sample 0."""
        return losses.inflight + run.rate[0], run.rate[0], {}
