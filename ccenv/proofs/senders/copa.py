"""Copa as CCAC states it: formula and exact step."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from ccenv.proofs.formulas.encode import Needs
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.run import Run, law, number
from ccenv.proofs.senders.loss_detection import Losses
from ccenv.proofs.senders.window import WindowSender, delay_is, window_of
from ccenv.proofs.solver.terms import Formula, all_of, any_of, larger


class Copa(WindowSender):
    """Copa as published in CCAC: each Rm cwnd changes by one MSS; the delays of the last Rm + D bound which way.

    cwnd may rise if cwnd*max(0, d-1) <= MSS*(Rm + max(0, d-1)) for the delay d now, and fall if cwnd*d >= MSS*(Rm + d) for the
    delay d one D ago: the standing queue is some value in between. Paced at cwnd/Rm.
    """

    name = "copa"

    def needs(self, setting: Setting) -> Needs:
        """Return all delays up to the trace length."""
        return Needs(delays=frozenset(range(1, setting.samples + 1)))

    def step(self, view: View, t: int) -> Iterator[Formula]:
        """Yield one MSS up or down; free while the delays of sample t - 1 - D are unknown."""
        cwnd = window_of(view)
        yield view.rate[t] == cwnd[t]
        yield cwnd[t] > 0
        if t < 2:
            return
        rises = any_of(
            all_of([here, cwnd[t - 1] * max(0, d - 1) <= view.alpha * (1 + max(0, d - 1))]) for d, here in delay_is(view, t - 1)
        )
        falls = any_of(all_of([here, cwnd[t - 1] * d >= view.alpha * (1 + d)]) for d, here in delay_is(view, t - 2))
        up = cwnd[t] == cwnd[t - 1] + view.alpha
        down = cwnd[t] == larger(view.alpha, cwnd[t - 1] - view.alpha)
        yield any_of([all_of([rises, up]), all_of([falls, down])])

    def play(self, run: Run, t: int, state: dict[str, Any], losses: Losses) -> tuple[Fraction, Fraction, dict[str, Any]]:
        """Check that the solver's window is one MSS away in a direction that the delays allow."""
        cwnd, before = number(run.values, f"cwnd_{t}"), state["cwnd"]
        if t >= 2:
            now, earlier = (run.delay(x) for x in (t - 1, t - 2))
            rises = before * max(0, now - 1) <= run.alpha * (1 + max(0, now - 1))
            falls = before * earlier >= run.alpha * (1 + earlier)
            legal = (rises and cwnd == before + run.alpha) or (falls and cwnd == max(run.alpha, before - run.alpha))
            law("Copa moves by one MSS as its delays allow", t, legal, cwnd)
        return cwnd, cwnd, {}
