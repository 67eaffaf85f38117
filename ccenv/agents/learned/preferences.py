"""Policies that see a preference: weights of objectives that the application chooses, the same for the whole life of a flow.

A preference is a constant input of the first layer, so it is a part of that layer's bias: for one preference the policy is a
plain one over the signals of its interface, which every engine plays. On disk the whole family is one card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from ccenv.agents.sender import PolicySender
from ccenv.base.config import StrictModel
from ccenv.base.errors import InputError, did_you_mean
from ccenv.base.foreign import is_finite, shown

_SUM_ERROR = 1e-6
MAX_OBJECTIVES = 8


class Preference(StrictModel):
    """What the card of such a policy says of its last inputs.

    Attributes:
        objectives: names, in the order of the inputs that follow the signals.
        default: weight of each where nobody gives one.
    """

    objectives: tuple[str, ...] = Field(min_length=2, max_length=MAX_OBJECTIVES)
    default: tuple[float, ...]

    @model_validator(mode="after")
    def _weights(self) -> Preference:
        if len(set(self.objectives)) < len(self.objectives) or not all(name.isidentifier() for name in self.objectives):
            raise ValueError(
                f"objectives: {', '.join(self.objectives)[:100]}; distinct names of letters, digits and '_' are needed"
            )
        if len(self.default) != len(self.objectives) or not _is_preference(self.default):
            raise ValueError("default: one weight from 0 to 1 for each objective is needed; they must add up to 1")
        return self


def _is_preference(weights: tuple[float, ...]) -> bool:
    return all(is_finite(w) and 0.0 <= w <= 1.0 for w in weights) and abs(sum(weights) - 1.0) <= _SUM_ERROR


@dataclass(frozen=True)
class PreferenceSender(PolicySender):
    """The policy of one preference, and what makes it one of another.

    Attributes:
        objectives: names.
        preference: weights of the objectives, which ``biases[0]`` holds.
        slopes: (objectives, n) the first layer's weights of the preference.
        base: (n,) the first layer's bias without it.
    """

    objectives: tuple[str, ...] = ()
    preference: tuple[float, ...] = ()
    slopes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    base: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        """Return one line."""
        weights = ", ".join(f"{name} {value:g}" for name, value in zip(self.objectives, self.preference, strict=True))
        return f"PreferenceSender({self.name}: {weights})"

    @property
    def plain(self) -> PolicySender:
        """The policy of this preference alone, as engines and results know policies."""
        return PolicySender(**{one.name: getattr(self, one.name) for one in fields(PolicySender)})

    @property
    def whole(self) -> PolicySender:
        """The network with the preference among its inputs, as it was trained; it is no policy over the interface."""
        own = {one.name: getattr(self, one.name) for one in fields(PolicySender)}
        own["weights"] = (np.vstack([self.weights[0], self.slopes]), *self.weights[1:])
        own["biases"] = (self.base, *self.biases[1:])
        return PolicySender(**own)


def with_preference(sender: PolicySender, weights: Mapping[str, float]) -> PreferenceSender:
    """Return a policy as one preference makes it.

    Args:
        sender: a policy of a family; or the whole network, whose last inputs are the weights in the order of ``weights``.
        weights: of all objectives, >= 0; they must add up to 1.

    Raises:
        InputError: for an unknown objective, one that is missing, or weights that are no preference.
    """
    names = sender.objectives if isinstance(sender, PreferenceSender) else tuple(weights)
    for name in weights:
        if name not in names:
            raise InputError(f"{sender.name}: unknown objective {shown(name)}.{did_you_mean(str(name), names)}")
    given = tuple(weights.get(name, 0.0) for name in names)
    if not _is_preference(given):
        said = ", ".join(f"{name} {shown(weight)}" for name, weight in zip(names, given, strict=True))
        raise InputError(f"{sender.name}: weights {said}; numbers from 0 to 1 that add up to 1 are needed")
    if isinstance(sender, PreferenceSender):
        biases = (sender.base + _mixed(given, sender.slopes), *sender.biases[1:])
        return replace(sender, biases=biases, preference=given)
    own = {one.name: getattr(sender, one.name) for one in fields(PolicySender)}
    slopes, base = sender.weights[0][-len(names) :], sender.biases[0]
    own["weights"] = (sender.weights[0][: -len(names)], *sender.weights[1:])
    own["biases"] = (base + _mixed(given, slopes), *sender.biases[1:])
    return PreferenceSender(**own, objectives=names, preference=given, slopes=slopes, base=base)


def _mixed(weights: tuple[float, ...], slopes: np.ndarray) -> np.ndarray:
    """Return the sum of rows times weights, added one by one: a library's product rounds by where its arrays lie in memory."""
    total = np.zeros(slopes.shape[1])
    for weight, row in zip(weights, slopes, strict=True):
        total += weight * row
    return total


def described(sender: PreferenceSender) -> dict[str, Any]:
    """Return what a card says of the preference."""
    return {"preference": Preference(objectives=sender.objectives, default=sender.preference).model_dump(mode="json")}
