"""The network that training meets by default: per episode one of four plain ways to move."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.base.random import uniform
from ccenv.agents.callbacks import record
from ccenv.network.adversary import ScriptedAdversary

# Fields of the state: cumulative shares of the kinds, then what one episode has drawn.
MIXTURE_STATE = record(
    "below_kind", "below_uniform", "below_sticky", "choice", "service", "waste", "service_half_steps", "waste_half_steps"
)


class MoveMixture(StrictModel):
    """Relative frequencies of the kinds of network, one kind per episode.

    Attributes:
        kind: delivers everything at once and wastes every spare token.
        uniform: independent uniform moves in each step.
        sticky: uniform moves kept for two Rm on average.
        bang_bang: moves that switch between 0 and 1, with half periods of one step to four Rm.
    """

    kind: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    uniform: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    sticky: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    bang_bang: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _some(self) -> MoveMixture:
        if not self.kind + self.uniform + self.sticky + self.bang_bang > 0:
            raise ValueError("at least one share must be positive")
        return self

    def adversary(self) -> ScriptedAdversary:
        """Return the adversary that plays this mixture."""
        total = self.kind + self.uniform + self.sticky + self.bang_bang
        shares = {
            "below_kind": self.kind / total,
            "below_uniform": (self.kind + self.uniform) / total,
            "below_sticky": (self.kind + self.uniform + self.sticky) / total,
        }
        return ScriptedAdversary("mixture", MIXTURE_STATE, init, play, shares)


def init(state: Any, view: Any) -> None:
    """Draw what this episode's network does; all flows of an episode meet the same kind."""
    state.choice = uniform(view.seed, view.env, 0.0, 0.0)
    state.service = uniform(view.seed, view.env, view.flow, 1.0)
    state.waste = uniform(view.seed, view.env, view.flow, 2.0)
    state.service_half_steps = 1.0 + (uniform(view.seed, view.env, view.flow, 3.0) * 4.0 * view.steps_per_rtt) // 1.0
    state.waste_half_steps = 1.0 + (uniform(view.seed, view.env, view.flow, 4.0) * 4.0 * view.steps_per_rtt) // 1.0


def play(state: Any, view: Any, move: Any) -> None:
    """Choose the moves of one flow for one step."""
    move.loss = 0.0
    if state.choice < state.below_kind:
        move.service = 1.0
        move.waste = 1.0
        move.rate = 1.0
        return
    counter = 5.0 + 3.0 * view.step
    if state.choice < state.below_uniform:
        move.service = uniform(view.seed, view.env, view.flow, counter)
        move.waste = uniform(view.seed, view.env, view.flow, counter + 1.0)
    elif state.choice < state.below_sticky:
        if uniform(view.seed, view.env, view.flow, counter + 2.0) * 2.0 * view.steps_per_rtt < 1.0:
            state.service = uniform(view.seed, view.env, view.flow, counter)
            state.waste = uniform(view.seed, view.env, view.flow, counter + 1.0)
        move.service = state.service
        move.waste = state.waste
    else:
        move.service = (view.step // state.service_half_steps) % 2.0
        move.waste = (view.step // state.waste_half_steps) % 2.0
    move.rate = move.service
