"""Decisions of programs and policies in plain Python, for the references of both engines; the kernel: ``curve.decision``."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.agents.interface.interface import OBSERVATION, SENDER_V0
from ccenv.agents.interface.signals import N_SIGNALS
from ccenv.agents.learned.convert import PolicyReference
from ccenv.agents.programs import decide, interval, rate_at
from ccenv.agents.sender import LARGE_LOSS_SEGMENTS, PolicySender, ProgramSender, ShieldSender
from ccenv.base.random import uniform
from ccenv.engine.curve.decision import CHOICE_KEY

POSITIONS = {"lo": 0.0, "hi": 1.0, "middle": 0.5}

RANGE_LOG2 = 3.0  # of the first version's action


@dataclass
class Interval:
    """What a flow has counted since its newest decision.

    Attributes:
        lost_bytes: found lost.
        sent_before_bytes: sent before that decision.
        had_large_loss: in any interval so far.
        policy: what a policy remembers.
    """

    lost_bytes: Any = 0
    sent_before_bytes: Any = 0
    had_large_loss: bool = False
    policy: PolicyReference | None = None

    def close(
        self,
        sender: ProgramSender | PolicySender | ShieldSender,
        inputs: Mapping[str, Any],
        sent_bytes: Any,
        inflight_bytes: Any,
        keys: tuple[int, int, int, int],
        choose: Callable[[float, float], float] | None = None,
    ) -> tuple[Any, int]:
        """Let a sender decide at the end of the interval; begin the next one.

        Args:
            sender: who decides.
            inputs: value per name in ``ccenv.agents.programs.INPUTS`` but ``loss``.
            sent_bytes: cumulative.
            inflight_bytes: sent, and neither acknowledged nor found lost.
            keys: of a random choice: seed, environment, flow, step.
            choose: gives the position of an external chooser in an interval.

        Returns:
            tuple: rate in bytes/s, and for how many Rm it is held.
        """
        lost, sent = self.lost_bytes, sent_bytes - self.sent_before_bytes
        self.lost_bytes, self.sent_before_bytes = 0, sent_bytes
        policy = sender.policy if isinstance(sender, ShieldSender) else sender
        action = 0.0
        if isinstance(policy, PolicySender):
            self.policy = self.policy or PolicyReference(policy)
            action = self.policy.decide(_signals(inputs, lost / max(sent, 1.0), inflight_bytes))
        if isinstance(sender, PolicySender):
            return float(max(inputs["MSS/Rm"], inputs["C_L"] * 2.0 ** (RANGE_LOG2 * action))), 1
        if isinstance(sender, ShieldSender):
            position = POSITIONS.get(sender.chooser, 0.0)
            if sender.policy is not None:
                position = 0.5 * (action + 1.0)
            elif sender.chooser == "random":
                seed, env, flow, step = keys
                position = uniform(seed, env, CHOICE_KEY + flow, step)
            lo, hi, hold = interval(sender.program, {**inputs, "loss": lost > 0})
            if sender.chooser == "external" and choose is not None:
                position = choose(lo, hi)
            return rate_at(lo, hi, position), hold
        self.had_large_loss = self.had_large_loss or lost > LARGE_LOSS_SEGMENTS * inputs["MSS"]
        program = sender.program if self.had_large_loss or sender.start is None else sender.start
        return decide(program, {**inputs, "loss": lost > 0})


def _signals(inputs: Mapping[str, Any], lost_share: float, inflight_bytes: float) -> np.ndarray:
    C_L, Rm = inputs["C_L"], inputs["Rm"]
    values = [
        math.log2(max(inputs["C_U"] / C_L, 1.0)), inputs["qdel_L"] / Rm, inputs["qdel_U"] / Rm, lost_share,
        math.log2(max(min(inputs["rate"], 1e15) / C_L, 1e-9)), math.log2(1 + 4 * inputs["MSS"] / (C_L * Rm)),
        math.log2(max(inputs["C_L_lambda"] / C_L, 1e-9)), inputs["q_U"] / (C_L * Rm), float(inputs["utilised"]),
        inflight_bytes / (C_L * Rm),
    ]  # fmt: skip
    clipped = [min(e.high, max(e.low, value)) for e, value in zip(OBSERVATION, values, strict=True)]
    signals = np.full(N_SIGNALS, np.nan)
    signals[SENDER_V0.numbers] = clipped
    return signals
