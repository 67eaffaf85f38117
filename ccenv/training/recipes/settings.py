"""Settings of the recipes, under the key ``recipe`` of a training config."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from ccenv.agents.interface.interface import Interface, Weights
from ccenv.agents.interface.signals import signal
from ccenv.base.config import StrictModel

Range = tuple[float, float]


def _require_rising(ends: Range) -> Range:
    if not ends[0] <= ends[1]:
        raise ValueError(f"[{ends[0]:g}, {ends[1]:g}]: the lower number comes first")
    return ends


class Property(StrictModel):
    """A bound of a policy's action over a box of states.

    Attributes:
        name: in results.
        box: range of each signal, the same in all intervals of the history; other signals take any value.
        at_most: upper bound of the action, or None.
        at_least: lower bound of the action, or None.
    """

    name: str = Field(min_length=1, max_length=60)
    box: dict[str, Annotated[Range, AfterValidator(_require_rising)]]
    at_most: float | None = Field(default=None, ge=-1, le=1)
    at_least: float | None = Field(default=None, ge=-1, le=1)

    @model_validator(mode="after")
    def _check_bounds(self) -> Property:
        for name, ends in self.box.items():
            row = signal(name)
            if not row.low <= ends[0] <= ends[1] <= row.high:
                raise ValueError(f"box.{name} is [{ends[0]:g}, {ends[1]:g}]; it must lie in [{row.low:g}, {row.high:g}]")
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError(f"property {self.name!r}: give at_most or at_least, one of them")
        return self

    def limits(self, sees: Interface) -> tuple[np.ndarray, np.ndarray]:
        """Return the box as lowest and highest observation, (width,) float64 each."""
        low, high = (np.array(ends, np.float64) for ends in sees.limits())
        for place, name in enumerate(sees.signals * sees.history):
            if name in self.box:
                low[place], high[place] = self.box[name]
        return low, high


class CertificateSettings(StrictModel):
    """A certificate in the loss, which pushes bounds of the action over boxes of states towards a property ([Canopy]).

    The gradient steps of each iteration are followed by ``steps`` steps on the mean distance by which the bounds of random pieces
    of each box violate the property.

    Attributes:
        properties: to certify.
        piece: length of a piece, as a share of the box in each direction.
        pieces: pieces of each property per step.
        steps: gradient steps per iteration.
        learning_rate: of a separate Adam for these steps.
        margin: by which the bounds must keep the property.
    """

    properties: tuple[Property, ...] = Field(min_length=1, max_length=16)
    piece: float = Field(default=0.25, gt=0, le=1)
    pieces: int = Field(default=128, ge=1, le=65_536)
    steps: int = Field(default=10, ge=0, le=10_000)
    learning_rate: float = Field(default=0.001, gt=0, allow_inf_nan=False)
    margin: float = Field(default=0.05, ge=0, le=1)


class ImitationSettings(StrictModel):
    """Imitation of an oracle that knows the path: DAgger to the window that fills the path and no buffer (Indigo, [Pantheon]).

    Attributes:
        window_bdp: the oracle's window, in units of the flow's share of the link rate times the propagation RTT.
        teacher_share: share of the first iteration's decisions that the oracle takes; the policy takes the others.
        teacher_decay: factor on that share from iteration to iteration.
        keep: number of newest examples to learn from.
        gradient_steps: per iteration, on ``ppo.batch_size`` examples each.
    """

    window_bdp: float = Field(default=1.0, gt=0, le=16)
    teacher_share: float = Field(default=1.0, ge=0, le=1)
    teacher_decay: float = Field(default=0.5, ge=0, le=1)
    keep: int = Field(default=100_000, ge=256, le=2_000_000)
    gradient_steps: int = Field(default=100, ge=1, le=100_000)


class PreferenceSettings(StrictModel):
    """One policy for many preferences: the weights of objectives are part of its observation and weigh its reward (MOCC).

    Each episode draws its weights uniformly from the simplex.

    Attributes:
        objectives: weights of reward terms, by the objective's name.
        default: preference of the policy where none is given.
        only: every episode has the default preference (a control run).
    """

    objectives: dict[str, Weights] = Field(min_length=2, max_length=8)
    default: dict[str, Annotated[float, Field(ge=0, le=1)]]
    only: bool = False

    @model_validator(mode="after")
    def _check_names(self) -> PreferenceSettings:
        if set(self.default) != set(self.objectives) or abs(sum(self.default.values()) - 1.0) > 1e-6:
            raise ValueError(f"default: one weight for each of {', '.join(self.objectives)} is needed; they must add up to 1")
        if not all(name.isidentifier() for name in self.objectives):
            raise ValueError(f"objectives: {', '.join(self.objectives)}; names of letters, digits and '_' are needed")
        return self

    def reward(self) -> dict[str, float]:
        """Return the weights of reward terms at the default preference."""
        weights_of_terms: dict[str, float] = {}
        for name, weights in self.objectives.items():
            for term, weight in weights.items():
                weights_of_terms[term] = weights_of_terms.get(term, 0.0) + self.default[name] * weight
        return weights_of_terms


class GapSettings(StrictModel):
    """A curriculum by the gap to a baseline: networks on which the policy falls behind a classic CCA are trained more ([Genet]).

    Each round draws boxes in the ranges of the scenario, plays the policy and the baseline in each, and promotes the box with the
    largest gap of rewards: from then on ``share`` of the environments draw from it, the others as before.

    Attributes:
        baseline: the classic CCA.
        start_step: plain training before it.
        round_steps: environment steps of a round.
        share: share of the environments for a promoted box; 0: none, and no search (a control run).
        width: of a box, as a share of each range.
        boxes: compared in a round.
        networks: per box in the comparison.
        decisions: per network in the comparison.
    """

    baseline: str = "bbr1"
    start_step: int = Field(ge=1)
    round_steps: int = Field(ge=1)
    share: float = Field(default=0.3, ge=0, lt=1)
    width: float = Field(default=0.25, gt=0, le=1)
    boxes: int = Field(default=32, ge=1, le=4096)
    networks: int = Field(default=8, ge=1, le=1024)
    decisions: int = Field(default=100, ge=4, le=100_000)

    def round_at(self, step: int) -> int:
        """Return the number of the round at a step; 0: before the first."""
        return 0 if step < self.start_step else 1 + (step - self.start_step) // self.round_steps


class Recipe(StrictModel):
    """The recipe on top of PPO; plain PPO if all are None.

    Attributes:
        certificate, imitation, preferences, gap: at most one of them, see there.
    """

    certificate: CertificateSettings | None = None
    imitation: ImitationSettings | None = None
    preferences: PreferenceSettings | None = None
    gap: GapSettings | None = None

    @property
    def asked(self) -> str:
        """Name of the recipe that is set, or an empty string."""
        return next((name for name in type(self).model_fields if getattr(self, name) is not None), "")

    def reward(self) -> dict[str, Any]:
        """Return the reward that replaces the environment's, as its argument; empty if there is none."""
        return {} if self.preferences is None else {"reward": self.preferences.reward()}

    def check(self, packet: dict[str, Any] | None, algorithm: str, *, own_times: bool, robust: bool, python: bool) -> None:
        """Raise ValueError for a recipe that does not fit the settings of a run."""
        enabled = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if not enabled:
            return
        key = f"recipe.{enabled[0]}"
        if len(enabled) > 1:
            raise ValueError(f"recipe: {' and '.join(enabled)} are set; one of them is allowed")
        if packet is None or algorithm != "ppo" or own_times or robust:
            raise ValueError(f"{key}: it is for PPO senders per packet that decide at once, without mixture and robust rounds")
        if packet.get("shield") is not None or packet.get("n_actions") is not None:
            raise ValueError(f"{key}: it is for actions that are numbers, outside shields")
        if self.preferences is not None and "reward" in packet:
            raise ValueError("recipe.preferences: the objectives are the reward; leave packet.reward out")
        if self.preferences is not None and not python:
            raise ValueError("recipe.preferences: rewards that change by episode are no kernel's; set ppo.rollouts to 'python'")
        if self.imitation is not None and packet.get("action") != "cwnd_exp2":
            raise ValueError(
                f"recipe.imitation: the oracle sets windows; packet.action is {packet.get('action')!r}, not 'cwnd_exp2'"
            )
