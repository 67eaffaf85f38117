"""The sender's answer: PPO with rollouts in the kernel, a part of the environments attacked by a mixture of networks."""

from __future__ import annotations

from pathlib import Path as FilePath

import numpy as np

from ccenv.envs.curve.distribution import DRAWN, PathSource
from ccenv.envs.curve.task import SenderTask
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_bounded
from ccenv.training.league.config import LeagueConfig
from ccenv.network.adversary import Adversary
from ccenv.base.foreign.tensors import TYPES, read_typed
from ccenv.training.checkpoint import unpack_torch
from ccenv.training.config import TrainConfig
from ccenv.training.learner import Learner

WEIGHTS = "weights.safetensors"
_MAX_BYTES = 64 << 20


def lanes_of(config: LeagueConfig, networks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide the attacked environments among scenes and networks, by largest remainders.

    Args:
        config: of the league.
        networks: (N, M) probabilities of the networks in each scene.

    Returns:
        tuple: of each environment the scene, or DRAWN, and the network: two (B,) int64 arrays.
    """
    n_scenes = networks.shape[1]
    n = config.attacked_envs
    wanted = (networks / n_scenes).ravel() * n
    counts = np.floor(wanted + 1e-9).astype(np.int64)
    order = np.argsort(-(wanted - counts), kind="stable")
    counts[order[: n - counts.sum()]] += 1
    cells = np.repeat(np.arange(len(counts)), counts)
    scene = np.full(config.training.num_envs, DRAWN)
    network = np.zeros(config.training.num_envs, np.int64)
    scene[len(scene) - n :], network[len(scene) - n :] = cells % n_scenes, cells // n_scenes
    return scene, network


class AnswerLearner(Learner):
    """Train a sender against a mixture of networks.

    Args:
        config: of the training.
        adversaries: the network's player of each environment; None: the config's own.
        source: of the paths; None: the config's own.
        start: weights of actor and critic to begin with; None: random ones.
        log_std: logarithm of the standard deviation of the actions, with ``start``.
    """

    def __init__(
        self,
        config: TrainConfig,
        adversaries: list[Adversary] | None = None,
        source: PathSource | None = None,
        start: dict[str, np.ndarray] | None = None,
        log_std: float = 0.0,
    ) -> None:
        self._players = adversaries
        self._source = source
        super().__init__(config)
        if start is not None:
            unpack_torch(self._model.policy, {}, start | {"policy.log_std": np.full(1, log_std, np.float32)})
            self.state = self._pending = self._pack()

    def _make_task(self) -> SenderTask:
        return SenderTask(self.config.num_envs, self._settings, adversaries=self._players, source=self._source)

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """Actor and critic as they are now, for :func:`save_weights`."""
        return {name: array for name, array in self.state.tensors.items() if name.startswith("policy.")}


def save_weights(folder: FilePath, weights: dict[str, np.ndarray]) -> None:
    """Write actor and critic: what a later answer begins with."""
    require_extra("safetensors", "train")
    from safetensors.numpy import save

    write_atomic(folder / WEIGHTS, save({name: np.ascontiguousarray(array) for name, array in weights.items()}))


def load_weights(folder: FilePath) -> dict[str, np.ndarray]:
    """Read them. Raises InputError if the file is damaged or foreign."""
    file = folder / WEIGHTS
    found = read_typed(read_bounded(file, _MAX_BYTES), str(file), TYPES, max_tensors=256, max_header_bytes=1 << 20)
    if not all(name.startswith("policy.") for name in found):
        raise InputError(f"{file}: not the weights of a league's sender")
    return found
