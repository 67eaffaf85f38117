"""What is measured of the flows of a batch, what they remember, and the flows that an environment drives over an interface."""

from __future__ import annotations

import numpy as np

from ccenv.agents.interface.actions import set_by_action
from ccenv.agents.interface.interface import Interface
from ccenv.agents.interface.rewards import N_TERMS, fill_terms
from ccenv.agents.interface.signals import MEASURES, N_SIGNALS, fill_signals
from ccenv.base.errors import InputError
from ccenv.base.kernels.decorator import kernel
from ccenv.engine.compiled.policies import FIRST_HISTORY, new_scratch, remember
from ccenv.engine.curve.monitor import MONITOR_DTYPE, SHARE, fill_measures, obey, start_flow_of, update_shares
from ccenv.engine.curve.step import KernelArrays, begin_cca

STATE = ("rows", "memory", "shares", "measured")
"""What a snapshot must hold of a watch."""


@kernel
def begin_flows(a, controlled, which, action_number):
    """Start controlled flows of freshly reset environments: what holds before their first action."""
    n_flows = len(controlled)
    for w in range(len(which)):
        b = which[w]
        for i in range(n_flows):
            if controlled[i]:
                row = b * n_flows + i
                if a.flow[row].sender_index >= 0:
                    begin_cca(a, a.run[0], a.env[b], a.flow[row], a.flow[row].sender_index, row, i, a.flow[row].start_step)
                start_flow_of(action_number, a.flow[row], a.env[b].mss_bytes)


@kernel
def measure_flows(a, controlled, which, numbers, history, shares, signals, measured):
    """End the intervals of the controlled flows of some environments, all at once; they remember what they have seen."""
    n_flows = len(controlled)
    for w in range(len(which)):
        b = which[w]
        ev, first_row, leader = a.env[b], b * n_flows, -1
        for i in range(n_flows):
            if controlled[i]:
                leader = i if leader < 0 else leader
                fill_measures(ev, a.flow[first_row + i], a.monitors[first_row + i], ev.step, measured[b, i])
        m = measured[b, leader]
        first = a.monitors[first_row + leader].decisions == 1
        flows, others, mean, jain = update_shares(
            a.flow, first_row, n_flows, controlled, ev.step, m.true_link_Bps, m.interval_s, first, shares[b]
        )
        for i in range(n_flows):
            if controlled[i]:
                m = measured[b, i]
                m.true_flows = flows
                m.true_others = others
                m.true_share = shares[b, i, SHARE]
                m.true_own_share_mean = mean
                m.true_jain = jain
                fill_signals(m, signals)
                remember(signals, numbers, len(numbers), history, a.policy_memory[first_row + i])


@kernel
def obey_actions(a, controlled, which, actions, number, first, second, measured):
    """Let actions (len(which), n) set rates and windows of the controlled flows of some environments."""
    n_flows = len(controlled)
    for w in range(len(which)):
        b, column = which[w], 0
        for i in range(n_flows):
            if controlled[i]:
                row = b * n_flows + i
                fl = a.flow[row]
                obey(fl, a.monitors[row], number, first, second, actions[w, column], measured[b, i])
                if fl.sender_index >= 0:
                    a.states[row].cwnd_bytes = fl.cwnd_bytes
                    a.states[row].pacing_rate_Bps = fl.rate_Bps
                column += 1


@kernel
def _rates(a, controlled, actions, number, first, second, measured, out):
    """Write the pacing rates that actions (B, n) would set to out (B, n), and note the actions as those that hold."""
    n_flows = len(controlled)
    for b in range(len(actions)):
        column = 0
        for i in range(n_flows):
            if controlled[i]:
                monitor = a.monitors[b * n_flows + i]
                monitor.action_before = monitor.action
                monitor.action = actions[b, column]
                out[b, column] = set_by_action(number, first, second, actions[b, column], measured[b, i])[0]
                column += 1


@kernel
def fill_flow_terms(a, controlled, which, measured, out):
    """Write the reward terms of the controlled flows of some environments: out is (len(which), n, N_TERMS)."""
    n_flows = len(controlled)
    for w in range(len(which)):
        b, column = which[w], 0
        for i in range(n_flows):
            if controlled[i]:
                fill_terms(measured[b, i], a.monitors[b * n_flows + i].action_before, out[w, column])
                column += 1


class Watch:
    """Monitors and memory of a batch; with an interface also the flows with an external sender, which see and set what it says.

    Attributes:
        rows: (B N,) MONITOR_DTYPE, or one that nobody uses.
        memory: (B N, words) of policies and of histories, or one row that nobody uses.
        shares: (B, N, 2) smoothed shares of the flows of an environment.
        measured: (B, N) MEASURES of the controlled flows at their newest decision.
        scratch, measures, signals: (B, ...) of decisions in the kernel.
        interface: of the flows with an external sender; None: they are not measured.
        controlled: (N,) bool, these flows.
        drives: their actions come from outside; else they are only observed, and their own senders decide.
        is_used: there are policies or an interface.
        is_measuring: monitors count what happens.
        arrays: of the engine's kernel.
    """

    def __init__(
        self,
        n_envs: int,
        n_flows: int,
        memory_words: int,
        monitoring: bool,
        interface: Interface | None,
        controlled: np.ndarray,
        *,
        drives: bool = True,
    ) -> None:
        """Allocate for B environments of N flows; ``controlled``, (N,) bool, are flows with an external sender, or observed ones.

        A flow with a policy remembers at most ``memory_words``; 0: there are no policies. ``monitoring``: some policies see more
        than beliefs.
        """
        words = max(memory_words, FIRST_HISTORY + interface.table_width if interface else 0)
        self.is_used, self.is_measuring = bool(words), monitoring or interface is not None
        self.interface, self.controlled, self.drives = interface, controlled, drives
        self.rows = np.zeros(n_envs * n_flows if self.is_measuring else 1, MONITOR_DTYPE)
        self.memory = np.zeros((n_envs * n_flows if words else 1, max(1, words)))
        self.shares, self.measured = np.zeros((n_envs, n_flows, 2)), np.zeros((n_envs, n_flows), MEASURES)
        self.scratch = new_scratch(n_envs if memory_words else 1)
        self.measures, self.signals = np.zeros(n_envs, MEASURES), np.zeros((n_envs, N_SIGNALS))
        self.arrays: KernelArrays | None = None

    def reset(self, rows: np.ndarray) -> None:
        """Begin anew at some flows."""
        if self.is_measuring:
            self.rows[rows] = np.zeros(1, MONITOR_DTYPE)
        if self.is_used:
            self.memory[rows] = 0.0

    @property
    def fresh(self) -> np.ndarray:
        """Which environments have been reset and wait for ``begin``: (B,) bool."""
        return self.field("decisions")[:, self.controlled][:, 0] == 0

    def begin(self, which: np.ndarray) -> None:
        """Begin controlled flows of freshly reset environments (indices): they see the interval of an idle flow."""
        interface = self.require_interface()
        if self.drives:
            begin_flows(self.arrays, self.controlled, which, interface.action_row[0])
        self.measure(which)

    def measure(self, which: np.ndarray) -> None:
        """End the intervals of the controlled flows of some environments (indices): they see the next one."""
        interface = self.require_interface()
        measure_flows(
            self.arrays, self.controlled, which, interface.numbers, interface.history, self.shares, self.signals[0], self.measured
        )

    def act(self, actions: np.ndarray) -> None:
        """Let actions (B, n) in [-1, 1] set rates and windows of the n controlled flows."""
        every = np.arange(len(actions))
        obey_actions(self.arrays, self.controlled, every, actions, *self.require_interface().action_row, self.measured)

    def rates_Bps(self, actions: np.ndarray) -> np.ndarray:
        """Return the pacing rates that actions (B, n) would set, (B, n); the flows take note of them and go on as they are."""
        out = np.zeros(actions.shape)
        _rates(self.arrays, self.controlled, actions, *self.require_interface().action_row, self.measured, out)
        return out

    def observations(self) -> np.ndarray:
        """Return what the controlled flows see: a new (B, n, width) float32 array."""
        interface = self.require_interface()
        width = interface.table_width
        seen = self.memory[:, FIRST_HISTORY : FIRST_HISTORY + width].reshape(len(self.shares), -1, width)
        return interface.with_extra(seen[:, self.controlled].astype(np.float32))

    def terms(self) -> np.ndarray:
        """Return the terms of the controlled flows' rewards in their newest interval: (B, n, N_TERMS)."""
        out = np.zeros((len(self.shares), int(self.controlled.sum()), N_TERMS))
        fill_flow_terms(self.arrays, self.controlled, np.arange(len(out)), self.measured, out)
        return out

    def field(self, name: str) -> np.ndarray:
        """Return a copy of a field of the monitors, (B, N)."""
        return self.rows[name].reshape(len(self.shares), -1).copy()

    def require_interface(self) -> Interface:
        """Return the interface. Raises InputError without one."""
        if self.interface is None:
            raise InputError("the engine was built without an interface: flows with an external sender are not measured")
        return self.interface
