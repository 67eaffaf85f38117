"""Settings of the recipes: what a training config says under the key ``recipe``."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from ccenv.agents.interface.interface import Interface, Weights
from ccenv.agents.interface.signals import signal
from ccenv.base.config import StrictModel

Range = tuple[float, float]


def _rising(ends: Range) -> Range:
    if not ends[0] <= ends[1]:
        raise ValueError(f"[{ends[0]:g}, {ends[1]:g}]: the lower number comes first")
    return ends


class Property(StrictModel):
    """What a policy must do in a box of states: a bound of its action.

    Attributes:
        name: for results.
        box: range of each signal, the same in all intervals of the history; signals that are not named: any value.
        at_most: upper bound of the action; None: none.
        at_least: lower bound of it.
    """

    name: str = Field(min_length=1, max_length=60)
    box: dict[str, Annotated[Range, AfterValidator(_rising)]]
    at_most: float | None = Field(default=None, ge=-1, le=1)
    at_least: float | None = Field(default=None, ge=-1, le=1)

    @model_validator(mode="after")
    def _says_something(self) -> Property:
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
    """A certificate in the loss: bounds of the action over boxes of states are pushed to where a property holds ([Canopy]).

    After the gradient steps of each iteration come ``steps`` steps down the mean of how far the bounds of random pieces of each
    box miss the property by.

    Attributes:
        properties: what is certified.
        piece: length of a piece, as a share of the box in each direction.
        pieces: pieces of each property per step.
        steps: gradient steps per iteration.
        learning_rate: of them, of an Adam of their own.
        margin: by which the bounds are to keep the property.
    """

    properties: tuple[Property, ...] = Field(min_length=1, max_length=16)
    piece: float = Field(default=0.25, gt=0, le=1)
    pieces: int = Field(default=128, ge=1, le=65_536)
    steps: int = Field(default=10, ge=0, le=10_000)
    learning_rate: float = Field(default=0.001, gt=0, allow_inf_nan=False)
    margin: float = Field(default=0.05, ge=0, le=1)


class ImitationSettings(StrictModel):
    """Imitation of an oracle that knows the path: DAgger towards the window that fills it and no buffer (Indigo of [Pantheon]).

    Attributes:
        window_bdp: the oracle's window, in products of the flow's share of the link's rate and the propagation RTT.
        teacher_share: share of the decisions of the first iteration that the oracle takes; the others are the policy's.
        teacher_decay: by which that share shrinks from iteration to iteration.
        keep: newest examples that are learnt from.
        gradient_steps: per iteration, on ``ppo.batch_size`` examples each.
    """

    window_bdp: float = Field(default=1.0, gt=0, le=16)
    teacher_share: float = Field(default=1.0, ge=0, le=1)
    teacher_decay: float = Field(default=0.5, ge=0, le=1)
    keep: int = Field(default=100_000, ge=256, le=2_000_000)
    gradient_steps: int = Field(default=100, ge=1, le=100_000)


class PreferenceSettings(StrictModel):
    """One policy for many preferences: weights of objectives are a part of what it sees, and weigh its reward (MOCC).

    Each episode has weights of its own, drawn evenly from those that add up to 1.

    Attributes:
        objectives: weights of reward terms, by the objective's name.
        default: the preference of the policy where nobody gives one.
        only: no draws: each episode has the default (a control run).
    """

    objectives: dict[str, Weights] = Field(min_length=2, max_length=8)
    default: dict[str, Annotated[float, Field(ge=0, le=1)]]
    only: bool = False

    @model_validator(mode="after")
    def _names_fit(self) -> PreferenceSettings:
        if set(self.default) != set(self.objectives) or abs(sum(self.default.values()) - 1.0) > 1e-6:
            raise ValueError(f"default: one weight for each of {', '.join(self.objectives)} is needed; they must add up to 1")
        if not all(name.isidentifier() for name in self.objectives):
            raise ValueError(f"objectives: {', '.join(self.objectives)}; names of letters, digits and '_' are needed")
        return self

    def reward(self) -> dict[str, float]:
        """Return the weights of reward terms at the default preference."""
        found: dict[str, float] = {}
        for name, weights in self.objectives.items():
            for term, weight in weights.items():
                found[term] = found.get(term, 0.0) + self.default[name] * weight
        return found


class GapSettings(StrictModel):
    """A curriculum by the gap to a baseline: what the policy does worst at against a classic CCA is trained more ([Genet]).

    Each round draws boxes in the ranges of the scenario, plays the policy and the baseline in each, and promotes the box with the
    largest gap of rewards: from then on ``share`` of the environments draw from it, the others as before.

    Attributes:
        baseline: the classic CCA.
        start_step: plain training until here.
        round_steps: environment steps of a round.
        share: of the environments that a promoted box gets; 0: none, and no search (a control run).
        width: of a box, as a share of each range.
        boxes: that a round compares.
        networks: that each of them is compared on.
        decisions: of a comparison.
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
    """What is added to PPO; at most one of them.

    Attributes:
        certificate, imitation, preferences, gap: see there; None: plain PPO.
    """

    certificate: CertificateSettings | None = None
    imitation: ImitationSettings | None = None
    preferences: PreferenceSettings | None = None
    gap: GapSettings | None = None

    @property
    def asked(self) -> str:
        """Name of the one that is set; empty: none."""
        return next((name for name in type(self).model_fields if getattr(self, name) is not None), "")

    def reward(self) -> dict[str, Any]:
        """Return the reward that stands for that of the environment, as an argument of it; empty: its own."""
        return {} if self.preferences is None else {"reward": self.preferences.reward()}

    def check(self, packet: dict[str, Any] | None, algorithm: str, *, own_times: bool, robust: bool, python: bool) -> None:
        """Raise ValueError for a recipe that a run cannot have.

        Args:
            packet: the run's packet environment; None: another one.
            algorithm: of the run.
            own_times: flows decide at their own times.
            robust: there are robust rounds.
            python: rollouts are the library's own.
        """
        asked = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if not asked:
            return
        where = f"recipe.{asked[0]}"
        if len(asked) > 1:
            raise ValueError(f"recipe: {' and '.join(asked)} are set; one of them is allowed")
        if packet is None or algorithm != "ppo" or own_times or robust:
            raise ValueError(f"{where}: it is for PPO senders per packet that decide at once, without mixture and robust rounds")
        if packet.get("contract") is not None or packet.get("n_actions") is not None:
            raise ValueError(f"{where}: it is for actions that are numbers, outside contracts")
        if self.preferences is not None and "reward" in packet:
            raise ValueError("recipe.preferences: the objectives are the reward; leave packet.reward out")
        if self.preferences is not None and not python:
            raise ValueError("recipe.preferences: rewards that change by episode are no kernel's; set ppo.rollouts to 'python'")
        if self.imitation is not None and packet.get("action") != "cwnd_exp2":
            raise ValueError(
                f"recipe.imitation: the oracle sets windows; packet.action is {packet.get('action')!r}, not 'cwnd_exp2'"
            )
