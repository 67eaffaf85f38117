"""Learning a solved game by config, PPO and DQN of Stable-Baselines3 or PPO of RLlib: judged exactly, beside the value."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, require_extra
from ccenv.base.files import write_atomic
from ccenv.base.foreign import read_yaml
from ccenv.envs.game import solved_game
from ccenv.proofs.games.players import Layers, optimal_share, policy_sender, regret_of

CONFIGS = "ccenv.configs.learn"


class GameTraining(StrictModel):
    """How a policy learns a game.

    Attributes:
        algorithm: ``ppo`` and ``dqn`` of Stable-Baselines3, ``rllib`` for RLlib's PPO.
        num_envs: games played at a time.
        total_steps: of all of them together.
        evaluate_every_steps: between two rows of the learning curve; RLlib's rows are its iterations.
        network: whom it learns against (``ccenv.envs.game.GameSettings``).
        hidden: widths of the ReLU layers.
        normalise_reward: divide rewards by a running estimate of the spread of the return (Stable-Baselines3).
        seed: of everything random.
        parameters: further arguments of the algorithm.
    """

    algorithm: Literal["ppo", "dqn", "rllib"]
    num_envs: int = Field(default=64, ge=1, le=65_536)
    total_steps: int = Field(ge=1)
    evaluate_every_steps: int = Field(ge=1)
    network: Literal["optimal", "random"] = "optimal"
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=5)
    normalise_reward: bool = False
    seed: int = Field(default=1, ge=0, lt=2**31)
    parameters: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Learned:
    """What was learnt: the first policy with the least regret against its worst network, and the value of the game.

    A row of the curve has ``steps``, ``cpu_s``, ``regret`` (optimal network), ``worst``, ``random`` and ``optimal_share``.
    """

    layers: Layers
    curve: list[dict[str, Any]]
    value: int

    def save(self, file: FilePath) -> None:
        """Write the policy in float32, for ``ccenv.proofs.games.players.sender_on``."""
        from safetensors.numpy import save

        arrays = {f"{kind}{i}": array for i, layer in enumerate(self.layers) for kind, array in zip("wb", layer, strict=True)}
        write_atomic(file, save({name: np.ascontiguousarray(array, dtype=np.float32) for name, array in arrays.items()}))


def load_training(name: str) -> GameTraining:
    """Read a config: a shipped name or the path of a YAML file. Raises UnknownNameError or InputError."""
    file = find_data(CONFIGS, name, ".yaml", "config of a game's learner")
    return validate(GameTraining, read_yaml(file), file.name)


def learn(game: str, training: GameTraining, progress: Callable[[dict[str, Any]], None] = lambda row: None) -> Learned:
    """Learn a game; every evaluation plays the policy on all boards against three networks, exactly.

    Raises InputError for parameters that the algorithm does not take; MissingExtraError without Stable-Baselines3 or RLlib.
    """
    require_extra("torch", "train")
    import torch

    solved, begin, threads = solved_game(game, None), time.process_time(), torch.get_num_threads()
    best, curve = Layers(), list[dict[str, Any]]()
    torch.set_num_threads(1)  # results must not depend on how many there are
    try:
        for steps, layers in (_rllib if training.algorithm == "rllib" else _sb3)(game, training):
            sender = policy_sender("learned", layers, solved)
            regret, worst, random = (regret_of(sender, solved, name) for name in ("optimal", "worst", "random"))
            row = {"steps": steps, "cpu_s": round(time.process_time() - begin, 1), "regret": regret, "worst": worst}
            if not curve or worst < min(earlier["worst"] for earlier in curve):
                best = layers
            curve.append(row | {"random": random, "optimal_share": optimal_share(sender, solved)})
            progress(curve[-1])
    finally:
        torch.set_num_threads(threads)
    return Learned(best, curve, solved.value)


def _sb3(game: str, training: GameTraining) -> Iterator[tuple[int, Layers]]:
    require_extra("stable_baselines3", "train")
    import stable_baselines3
    import torch
    from stable_baselines3.common.vec_env import VecNormalize

    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3("ccenv/Game-v0", training.num_envs, game=game, network=training.network)
    env.seed(training.seed)
    played: Any = VecNormalize(env, norm_obs=False, gamma=0.99) if training.normalise_reward else env
    build = {"ppo": stable_baselines3.PPO, "dqn": stable_baselines3.DQN}[training.algorithm]
    network = {"net_arch": list(training.hidden), "activation_fn": torch.nn.ReLU}
    try:
        model: Any = build("MlpPolicy", played, seed=training.seed, device="cpu", policy_kwargs=network, **training.parameters)
    except TypeError as error:
        raise InputError(f"parameters: {error}") from None
    policy = model.policy
    parts = [policy.mlp_extractor.policy_net, policy.action_net] if training.algorithm == "ppo" else [model.q_net.q_net]
    dense = [layer for part in parts for layer in part.modules() if isinstance(layer, torch.nn.Linear)]
    while model.num_timesteps < training.total_steps:
        model.learn(training.evaluate_every_steps, reset_num_timesteps=False)
        arrays = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in dense]
        yield int(model.num_timesteps), [(w.astype(np.float64), b.astype(np.float64)) for w, b in arrays]


def _rllib(game: str, training: GameTraining) -> Iterator[tuple[int, Layers]]:
    require_extra("ray", "rllib")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    from ccenv.base.workers import start_ray
    from ccenv.envs.clients.rllib import register_rllib
    from ccenv.training.rllib.run import mean_layers

    ray = start_ray(1)
    register_rllib()
    start: Any = PPOConfig  # Ray gives it no types
    model = DefaultModelConfig(fcnet_hiddens=list(training.hidden), fcnet_activation="relu")
    config = start().learners(num_learners=0).rl_module(model_config=model).debugging(seed=training.seed, log_level="ERROR")
    config.environment("ccenv/Game-v0", env_config={"game": game, "network": training.network})
    vectors = {"num_envs_per_env_runner": training.num_envs, "gym_env_vectorize_mode": "vector_entry_point"}
    config.env_runners(num_env_runners=0, **vectors)
    try:
        try:
            config.training(train_batch_size_per_learner=training.evaluate_every_steps, **training.parameters)
        except TypeError as error:
            raise InputError(f"parameters: {error}") from None
        algorithm, steps = config.build_algo(), 0
        while steps < training.total_steps:
            steps = int(algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"])
            state = algorithm.get_module("default_policy").get_state()
            yield steps, list(zip(*mean_layers(state, len(state["pi.net.mlp.0.bias"])), strict=True))
        algorithm.stop()
    finally:
        ray.shutdown()
