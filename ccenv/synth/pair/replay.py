"""Move replay for two flows: a counterexample's network moves against another program, in exact numbers.

The moves are where tokens and service went and how a step's bytes were split between the flows; each is clamped to what is legal
for the program, and to what keeps both beliefs where they are while that is possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ccenv.programs import Program, decide
from ccenv.smt.network.setting import Setting
from ccenv.smt.replay.exact import number
from ccenv.smt.two_flow.exact import N_FLOWS, Seen
from ccenv.smt.two_flow.program import inputs_of

Values = dict[str, Any]


def replay_pair(setting: Setting, moves: Mapping[str, Any], program: Program, delays: int) -> Values | None:
    """Run two flows of a program on the moves of a counterexample.

    Args:
        setting: CCAC with an infinite buffer, sound delays.
        moves: the counterexample's numbers: start, G, S of both flows.
        program: another program.
        delays: longest delay in steps that programs tell apart.

    Returns:
        dict: numbers as the solver names them, or None where no service is legal.
    """
    run = _PairRun(setting, moves, program, delays)
    for t in range(1, setting.samples):
        if not run.step(t):
            return None
    return run.values()


class _PairRun:
    """Two flows, played forward."""

    def __init__(self, setting: Setting, moves: Mapping[str, Any], program: Program, delays: int) -> None:
        self.setting, self.moves, self.program, self.delays = setting, moves, program, delays
        self.alpha = number(moves, "alpha")
        self.G = [number(moves, "G_0")]
        self.E = [[number(moves, f"E_{i}_0")] for i in range(N_FLOWS)]
        self.S = [[number(moves, f"S_{i}_0")] for i in range(N_FLOWS)]
        self.rate = [[number(moves, f"control_{i}_0")] for i in range(N_FLOWS)]
        self.lower = [max(number(moves, f"memory_{i}_0"), self.alpha) for i in range(N_FLOWS)]
        self.past = _past(moves, delays, self.total(self.E, 0))
        said = [m for m in range(1, delays + 1) if moves.get(f"late_0_{m}")]
        # What the counterexample does not tell apart is as short as it may be.
        self.late = [max(said, default=0)]

    def total(self, curve: list[list[Fraction]], t: int) -> Fraction:
        return curve[0][t] + curve[1][t]

    def step(self, t: int) -> bool:
        for i in range(N_FLOWS):
            seen = Seen(
                self.rate[i][-1], self.lower[i], self.E[i][-1], self.S[i][-1], self.S[i], Fraction(0), self.late[-1], self.alpha,
                Fraction(0),
            )  # fmt: skip
            rate = Fraction(decide(self.program, inputs_of(seen, self.setting.jitter_steps)).rate)
            self.rate[i].append(rate)
            self.E[i].append(self.E[i][-1] + rate)
        arrived, most = self.total(self.E, t), self.G[-1] + 1
        wanted = number(self.moves, f"G_{t}")
        self.G.append(most if arrived >= most else min(max(wanted, self.G[-1], arrived), most))
        if not self._serve(t):
            return False
        self.late.append(self._delay(t))
        return True

    def _serve(self, t: int) -> bool:
        """Place S of both flows: where the counterexample did, as far as legal, and so that beliefs stay where they can."""
        d = self.setting.jitter_steps
        before = self.total(self.S, t - 1)
        reached = self.G[t - d] if t >= d else self.G[0] - d
        low, high = max(before, reached), min(self.G[t], self.total(self.E, t))
        if low > high:
            return False
        theirs = [number(self.moves, f"S_{i}_{t}") for i in range(N_FLOWS)]
        wanted = min(max(theirs[0] + theirs[1], low), high)
        caps = [min(self.S[i][s] + self.lower[i] * (t - s + d) for s in range(t)) for i in range(N_FLOWS)]
        for total, limits in (
            (wanted, caps),
            (min(max(low, min(high, caps[0] + caps[1])), wanted), caps),
            (low, caps),
            (wanted, None),
        ):
            bounds = self._split(t, total, limits)
            if bounds is not None:
                first = min(max(theirs[0], bounds[0]), bounds[1])
                self.S[0].append(first)
                self.S[1].append(total - first)
                return True
        return False

    def _split(self, t: int, total: Fraction, caps: list[Fraction] | None) -> tuple[Fraction, Fraction] | None:
        """Return the least and the most of ``total`` that may be the first flow's, first in, first out, step by step."""
        step = next(x for x in range(t + 1) if total <= self.total(self.E, x))
        start = [self.E[i][step - 1] if step else Fraction(0) for i in range(N_FLOWS)]
        least = [max(start[i], self.S[i][t - 1]) for i in range(N_FLOWS)]
        most = [self.E[i][step] for i in range(N_FLOWS)]
        if caps is not None:
            most = [min(pair) for pair in zip(most, caps, strict=True)]
        low, high = max(least[0], total - most[1]), min(most[0], total - least[1])
        return (low, high) if low <= high else None

    def _delay(self, t: int) -> int:
        if self.total(self.S, t) == self.total(self.S, t - 1):
            return self.late[-1]
        served = self.total(self.S, t)
        behind = [self.total(self.E, t - m) if m <= t else self.past[m - t - 1] for m in range(1, self.delays + 1)]
        return max((m for m, before in enumerate(behind, 1) if served <= before), default=0)

    def values(self) -> Values:
        n = self.setting.samples
        out: Values = {"alpha": self.alpha, "mu_minus": Fraction(1)}
        out |= {f"G_{t}": x for t, x in enumerate(self.G)}
        out |= {f"E_before_{k}": x for k, x in enumerate(self.past)}
        out |= {f"late_{t}_{m}": self.late[t] >= m for t in range(n) for m in range(1, self.delays + 1)}
        for i in range(N_FLOWS):
            for name, series in (("E", self.E[i]), ("S", self.S[i]), ("control", self.rate[i]), ("sent", self.rate[i])):
                out |= {f"{name}_{i}_{t}": x for t, x in enumerate(series)}
            out |= {f"memory_{i}_{t}": self.lower[i] for t in range(n)}
        return out


def _past(moves: Mapping[str, Any], delays: int, newest: Fraction) -> list[Fraction]:
    """Return E before the trace; older samples than the counterexample has are as its oldest."""
    past = [number(moves, f"E_before_{k}") for k in range(delays) if f"E_before_{k}" in moves]
    return past + [past[-1] if past else newest] * (delays - len(past))
