"""Decisions of programs and policies in plain Python, for the references of both engines; the kernel: ``curve.decision``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ccenv.engine.compiled.mlp import mlp_action_reference, mlp_reference
from ccenv.engine.compiled.observation import OBSERVATION
from ccenv.engine.compiled.rng import uniform
from ccenv.engine.curve.decision import CHOICE_KEY, MLP_RANGE_LOG2
from ccenv.network.sender import LARGE_LOSS_SEGMENTS, ContractSender, MlpSender, ProgramSender
from ccenv.programs import decide, interval, rate_at

POSITIONS = {"lo": 0.0, "hi": 1.0, "middle": 0.5}


@dataclass
class Interval:
    """What a flow has counted since its newest decision.

    Attributes:
        lost_bytes: found lost.
        sent_before_bytes: sent before that decision.
        had_large_loss: in any interval so far.
    """

    lost_bytes: Any = 0
    sent_before_bytes: Any = 0
    had_large_loss: bool = False

    def close(
        self,
        sender: ProgramSender | MlpSender | ContractSender,
        inputs: Mapping[str, Any],
        sent_bytes: Any,
        inflight_bytes: Any,
        keys: tuple[int, int, int, int],
    ) -> tuple[Any, int]:
        """Let a sender decide at the end of the interval; begin the next one.

        Args:
            sender: who decides.
            inputs: value per name in ``ccenv.programs.INPUTS`` but ``loss``.
            sent_bytes: cumulative.
            inflight_bytes: sent, and neither acknowledged nor found lost.
            keys: of a random choice: seed, environment, flow, step.

        Returns:
            tuple: rate in bytes/s, and for how many Rm it is held.
        """
        lost, sent = self.lost_bytes, sent_bytes - self.sent_before_bytes
        self.lost_bytes, self.sent_before_bytes = 0, sent_bytes
        if isinstance(sender, MlpSender):
            action = mlp_action_reference(sender, _observation(inputs, lost / max(sent, 1.0), inflight_bytes))
            return float(max(inputs["MSS/Rm"], inputs["C_L"] * 2.0 ** (MLP_RANGE_LOG2 * action))), 1
        if isinstance(sender, ContractSender):
            position = POSITIONS.get(sender.chooser, 0.0)
            if sender.policy is not None:
                output = mlp_reference(sender.policy, _observation(inputs, lost / max(sent, 1.0), inflight_bytes))[0]
                position = 0.5 * (float(output) + 1.0)
            elif sender.chooser == "random":
                seed, env, flow, step = keys
                position = uniform(seed, env, CHOICE_KEY + flow, step)
            lo, hi, hold = interval(sender.program, {**inputs, "loss": lost > 0})
            return rate_at(lo, hi, position), hold
        self.had_large_loss = self.had_large_loss or lost > LARGE_LOSS_SEGMENTS * inputs["MSS"]
        program = sender.program if self.had_large_loss or sender.start is None else sender.start
        return decide(program, {**inputs, "loss": lost > 0})


def _observation(inputs: Mapping[str, Any], lost_share: float, inflight_bytes: float) -> np.ndarray:
    C_L, Rm = inputs["C_L"], inputs["Rm"]
    values = [
        math.log2(max(inputs["C_U"] / C_L, 1.0)), inputs["qdel_L"] / Rm, inputs["qdel_U"] / Rm, lost_share,
        math.log2(max(min(inputs["rate"], 1e15) / C_L, 1e-9)), math.log2(1 + 4 * inputs["MSS"] / (C_L * Rm)),
        math.log2(max(inputs["C_L_lambda"] / C_L, 1e-9)), inputs["q_U"] / (C_L * Rm), float(inputs["utilised"]),
        inflight_bytes / (C_L * Rm),
    ]  # fmt: skip
    return np.array([min(e.high, max(e.low, value)) for e, value in zip(OBSERVATION, values, strict=True)])
