"""Custom observations: named linear features of the observation of ``ccenv/Sender-v0``, folded exactly into the first layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION_HIGH, OBSERVATION_LOW
from ccenv.base.errors import InputError, did_you_mean, require_extra, shown
from ccenv.base.foreign import is_finite

ELEMENTS = (
    "bounds_ratio",
    "qdel_L",
    "qdel_U",
    "lost_share",
    "rate_ratio",
    "segment",
    "lambda_ratio",
    "queue",
    "utilised",
    "inflight",
)
"""Short names of ``ccenv.agents.interface.interface.OBSERVATION``, in its order."""
CONSTANT = "1"
MOST_FEATURES = 256


class Observation:
    """A custom observation: n linear features, (n, N_OBSERVATION) ``matrix`` and ``offset``, of what a sender sees.

    Example:
        >>> view = ccenv.Observation("rate_ratio", "lost_share", gap={"qdel_U": 1, "qdel_L": -1})
        >>> model = PPO("MlpPolicy", view.wrap(make_sb3()))
    """

    def __init__(self, *elements: str, **features: Mapping[str, float]) -> None:
        """Name the features. Raises InputError for an unknown element, a coefficient that is no finite number, or no feature.

        Args:
            elements: names of ELEMENTS, used unchanged.
            features: name -> element -> coefficient; the element ``"1"`` is a constant.
        """
        rows: dict[str, Mapping[str, float]] = {str(name): {name: 1.0} for name in elements}
        for name in [name for name in features if name in rows] or [e for e in elements if elements.count(e) > 1]:
            raise InputError(f"observation: feature {name!r} is named twice")
        rows |= features
        if not 1 <= len(rows) <= MOST_FEATURES:
            raise InputError(f"observation: {len(rows)} features; 1 to {MOST_FEATURES} are allowed, of {', '.join(ELEMENTS)}")
        self.names = tuple(rows)
        self.matrix, self.offset = np.zeros((len(rows), N_OBSERVATION)), np.zeros(len(rows))
        for row, (name, terms) in enumerate(rows.items()):
            if not isinstance(terms, Mapping):
                raise InputError(f"observation: feature {name!r} is {shown(terms)}; a table of element: coefficient is needed")
            for element, coefficient in terms.items():
                self._set(row, name, element, coefficient)

    def _set(self, row: int, name: str, element: str, coefficient: float) -> None:
        if not is_finite(coefficient):
            raise InputError(
                f"observation: coefficient of {element!r} in {name!r} is {shown(coefficient)}; a finite number is needed"
            )
        if element == CONSTANT:
            self.offset[row] = coefficient
        elif element in ELEMENTS:
            self.matrix[row, ELEMENTS.index(element)] = coefficient
        else:
            hint = did_you_mean(str(element), [*ELEMENTS, CONSTANT])
            raise InputError(f"observation: unknown element {shown(element)}.{hint}")

    @property
    def low(self) -> np.ndarray:
        """Smallest value of each feature, (n,) float32."""
        return self._bound(OBSERVATION_LOW, OBSERVATION_HIGH)

    @property
    def high(self) -> np.ndarray:
        """Largest value of each feature, (n,) float32."""
        return self._bound(OBSERVATION_HIGH, OBSERVATION_LOW)

    def _bound(self, where_positive: np.ndarray, where_negative: np.ndarray) -> np.ndarray:
        total = np.maximum(self.matrix, 0) @ where_positive + np.minimum(self.matrix, 0) @ where_negative + self.offset
        bound: np.ndarray = total.astype(np.float32)
        return bound

    def of(self, observation: np.ndarray) -> np.ndarray:
        """Return the features of observations: (..., N_OBSERVATION) to (..., n), float32.

        Raises InputError for another number of elements, as with several controlled flows.
        """
        seen = np.asarray(observation)
        if seen.shape[-1:] != (N_OBSERVATION,):
            raise InputError(f"observation: shape {seen.shape}; the last axis must have {N_OBSERVATION} elements, of one flow")
        return np.asarray(seen @ self.matrix.T + self.offset, np.float32)

    def space(self) -> Any:
        from gymnasium.spaces import Box

        return Box(self.low, self.high, dtype=np.float32)

    def wrap(self, env: Any) -> Any:
        """Wrap ``ccenv/Sender-v0`` with one controlled flow, a ``gymnasium.Env`` or an SB3 ``VecEnv``, to show the features.

        Raises InputError for anything else.
        """
        import gymnasium

        if getattr(getattr(env, "observation_space", None), "shape", None) != (N_OBSERVATION,):
            raise InputError(f"observation: {shown(type(env).__name__)} is no ccenv/Sender-v0 with one controlled flow")
        if isinstance(env, gymnasium.Env):
            return gymnasium.wrappers.TransformObservation(env, self.of, self.space())
        require_extra("stable_baselines3", "train")
        return _sb3_wrapper(self, env)

    def __repr__(self) -> str:
        return f"Observation({', '.join(self.names)})"


def _sb3_wrapper(view: Observation, env: Any) -> Any:
    from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

    if not isinstance(env, VecEnv):
        raise InputError(f"observation: {shown(type(env).__name__)} is neither a gymnasium.Env nor a VecEnv")

    class ViewedVecEnv(VecEnvWrapper):
        """Shows the features of a view."""

        def reset(self) -> np.ndarray:
            return view.of(np.asarray(self.venv.reset()))

        def step_wait(self) -> Any:
            observations, rewards, dones, infos = self.venv.step_wait()
            for info in infos:
                if "terminal_observation" in info:
                    info["terminal_observation"] = view.of(info["terminal_observation"])
            return view.of(np.asarray(observations)), rewards, dones, infos

    return ViewedVecEnv(env, observation_space=view.space())
