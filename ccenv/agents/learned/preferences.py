"""Policies that see a preference: weights of objectives that the application chooses, constant for a flow.

A preference is a constant input of the first layer and folds into its bias: for one preference the policy is a plain one over
the signals of its interface, which every engine evaluates. On disk the whole family is one card.
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
    """The preference in a card.

    Attributes:
        objectives: names, in the order of the inputs that follow the signals.
        default: default weight of each.
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
    """The policy of one preference, with the arrays that turn it into that of another."""

    objectives: tuple[str, ...] = ()
    preference: tuple[float, ...] = ()  # weights of the objectives, which `biases[0]` holds
    # (objectives, n) the first layer's weights of the preference
    slopes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    base: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (n,) the first layer's bias without it

    def __repr__(self) -> str:
        weights = ", ".join(f"{name} {value:g}" for name, value in zip(self.objectives, self.preference, strict=True))
        return f"PreferenceSender({self.name}: {weights})"

    @property
    def plain(self) -> PolicySender:
        """The policy of this preference alone, as engines evaluate it."""
        return PolicySender(**{one.name: getattr(self, one.name) for one in fields(PolicySender)})

    @property
    def network(self) -> PolicySender:
        """The network with the preference among its inputs, as trained; it is no policy over the interface."""
        arrays = {one.name: getattr(self, one.name) for one in fields(PolicySender)}
        arrays["weights"] = (np.vstack([self.weights[0], self.slopes]), *self.weights[1:])
        arrays["biases"] = (self.base, *self.biases[1:])
        return PolicySender(**arrays)


def with_preference(sender: PolicySender, weights: Mapping[str, float]) -> PreferenceSender:
    """Return the policy of a preference.

    Raises InputError for an unknown objective, one that is missing, or weights that are no preference.

    Args:
        sender: a policy of a family; or the whole network, whose last inputs are the weights in the order of ``weights``.
        weights: of all objectives, >= 0; they must add up to 1.
    """
    names = sender.objectives if isinstance(sender, PreferenceSender) else tuple(weights)
    for name in weights:
        if name not in names:
            raise InputError(f"{sender.name}: unknown objective {shown(name)}.{did_you_mean(str(name), names)}")
    preference = tuple(weights.get(name, 0.0) for name in names)
    if not _is_preference(preference):
        text = ", ".join(f"{name} {shown(weight)}" for name, weight in zip(names, preference, strict=True))
        raise InputError(f"{sender.name}: weights {text}; numbers from 0 to 1 that add up to 1 are needed")
    if isinstance(sender, PreferenceSender):
        biases = (sender.base + _mix(preference, sender.slopes), *sender.biases[1:])
        return replace(sender, biases=biases, preference=preference)
    arrays = {one.name: getattr(sender, one.name) for one in fields(PolicySender)}
    slopes, base = sender.weights[0][-len(names) :], sender.biases[0]
    arrays["weights"] = (sender.weights[0][: -len(names)], *sender.weights[1:])
    arrays["biases"] = (base + _mix(preference, slopes), *sender.biases[1:])
    return PreferenceSender(**arrays, objectives=names, preference=preference, slopes=slopes, base=base)


def _mix(weights: tuple[float, ...], slopes: np.ndarray) -> np.ndarray:
    """Return the sum of rows times weights, added one by one: the rounding of a BLAS product depends on memory alignment."""
    total = np.zeros(slopes.shape[1])
    for weight, row in zip(weights, slopes, strict=True):
        total += weight * row
    return total


def describe_preference(sender: PreferenceSender) -> dict[str, Any]:
    return {"preference": Preference(objectives=sender.objectives, default=sender.preference).model_dump(mode="json")}
