"""What an RLlib run has learnt, as named arrays: weights, moments of Adam, coefficients of the KL term. Never pickle.

Episodes that runners have begun are not among them: a resumed run begins new ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ccenv.base.errors import InputError

_MODULE, _OPTIMIZER, _KL = "module.", "optimizer.", "kl."
_STEP = "step"  # Adam's count of updates, one number


def pack(algorithm: Any) -> dict[str, np.ndarray]:
    """Return copies of what the learner of an algorithm holds."""
    state = algorithm.learner_group.get_state()["learner"]
    out: dict[str, np.ndarray] = {}
    for module, weights in state["rl_module"].items():
        for name, value in weights.items():
            out[f"{_MODULE}{module}/{name}"] = np.array(value)
    for optimizer, entry in state["optimizer"].items():
        for index, moments in entry["state"]["state"].items():
            for name, value in moments.items():
                out[f"{_OPTIMIZER}{optimizer}/{index}/{name}"] = np.atleast_1d(np.array(value))
    for module, coefficient in _learner(algorithm).curr_kl_coeffs_per_module.items():
        out[f"{_KL}{module}"] = np.atleast_1d(coefficient.detach().numpy().copy())
    return out


def unpack(algorithm: Any, tensors: dict[str, np.ndarray]) -> None:
    """Put back what :func:`pack` returned, and let the runners have it.

    Raises:
        InputError: if names or shapes do not fit the algorithm's modules.
    """
    state = algorithm.learner_group.get_state()
    own = state["learner"]
    wanted = {f"{_MODULE}{module}/{name}": np.shape(value) for module, w in own["rl_module"].items() for name, value in w.items()}
    given = {name: value.shape for name, value in tensors.items() if name.startswith(_MODULE)}
    optimizers = {name.removeprefix(_OPTIMIZER).partition("/")[0] for name in tensors if name.startswith(_OPTIMIZER)}
    if wanted != given or not optimizers <= set(own["optimizer"]):
        raise InputError("checkpoint: the weights do not fit the config")
    for module, weights in own["rl_module"].items():
        for name in weights:
            weights[name] = tensors[f"{_MODULE}{module}/{name}"]
    for optimizer, entry in own["optimizer"].items():
        moments: dict[int, dict[str, Any]] = {}
        prefix = f"{_OPTIMIZER}{optimizer}/"
        for name, value in tensors.items():
            if name.startswith(prefix):
                index, _, moment = name.removeprefix(prefix).partition("/")
                moments.setdefault(int(index), {})[moment] = float(value[0]) if moment == _STEP else value
        entry["state"]["state"] = moments
    algorithm.learner_group.set_state(state)
    coefficients = _learner(algorithm).curr_kl_coeffs_per_module
    for module in own["rl_module"]:
        coefficients[module].fill_(float(tensors[f"{_KL}{module}"][0]))
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group, inference_only=True)


def _learner(algorithm: Any) -> Any:
    return algorithm.learner_group._learner
