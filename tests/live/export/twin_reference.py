"""The plain reference of the beliefs, run beside the twin of an export: one place that both meet."""

import math
from collections.abc import Callable
from typing import Any

from oracles.beliefs import ReferenceBeliefs

from ccenv.agents.programs import Program
from ccenv.engine.compiled.beliefs import BeliefSettings
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.live.export.bpf import LOSS_LAG_STEPS
from ccenv.live.export.twin import UNBOUNDED, Twin


class _LaterLosses(ReferenceBeliefs):
    """Takes what was utilised from the twin, and looks at windows that end a little earlier too: losses are found late."""

    is_busy: Callable[[int], bool]

    def is_utilised(self, E: list[Any], L: list[Any], S: list[Any], x: int) -> bool:
        return x > self.start_step and self.is_busy(x)

    def _upper(self, E: list[Any], L: list[Any], S: list[Any], n: int, since: int) -> float:
        return min(super()._upper(E, L, S, n, since), super()._upper(E, L, S, n - LOSS_LAG_STEPS, since))


class TwinBesideReference(Twin):
    """A twin that notes at each step what the reference says in packets per step: C_L, C_U, C_L_lambda of both."""

    def __init__(self, program: Program, **options: Any) -> None:
        super().__init__(program, **options)
        self.pairs: list[tuple[tuple[float, float, float], tuple[float, float, float]]] = []
        self._grid = -1

    def _take_step(self, n: int, before: int) -> None:
        if self._grid != self.first:
            self._begin_reference()
        super()._take_step(n, before)
        assert n - self.first == len(self._S), "a gap: the reference keeps no history before it"
        self._S.append(before)
        self._reference.is_busy = lambda x: x + self.first in self.busy
        entered = [self.entered.get(self.first + i, (math.inf,))[0] for i in range(len(self._S))]
        theirs = self._reference.update(entered, [0] * len(self._S), self._S)
        one = 1 << self.constants.fraction_bits
        upper = math.inf if self.C_U == UNBOUNDED else self.C_U / one
        self.pairs.append(((self.C_L / one, upper, self.C_L_lambda / one), theirs))

    def _begin_reference(self) -> None:
        self._grid = self.first
        self._S = [self.served[self.first]]
        c = self.constants
        self._reference = _LaterLosses(
            rtt_steps=STEPS_PER_RTT, jitter_steps=self.jitter, dt_s=1.0, mss_bytes=1.0, settings=BeliefSettings(),
            probe_window_steps=c.probe_steps, window_steps=c.window_steps, initial_C_L_Bps=self.C_L / (1 << c.fraction_bits),
        )  # fmt: skip
        self._reference.C_L_lambda = self.C_L_lambda / (1 << c.fraction_bits)
