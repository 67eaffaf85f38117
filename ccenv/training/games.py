"""Learning a solved game by config: PPO and DQN of Stable-Baselines3, judged exactly, beside the value of the game."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, require_extra
from ccenv.base.foreign import read_yaml
from ccenv.proofs.games.players import Sender, Solved, optimal_share, regret_of

CONFIGS = "ccenv.configs.learn"


class GameTraining(StrictModel):
    """How a policy learns a game.

    Attributes:
        algorithm: of Stable-Baselines3.
        num_envs: games played at a time.
        total_steps: of all of them together.
        evaluate_every_steps: between two rows of the learning curve.
        network: whom it learns against (``ccenv.envs.game.GameSettings``).
        hidden: widths of the ReLU layers.
        normalise_reward: divide rewards by a running estimate of the spread of the return.
        seed: of everything random.
        parameters: further arguments of the algorithm.
    """

    algorithm: Literal["ppo", "dqn"]
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
    """What was learnt.

    Attributes:
        sender: the policy on every board, for every number of steps left.
        curve: a row per evaluation: ``steps``, ``cpu_s``, ``regret`` (optimal network), ``worst``, ``random``, ``optimal_share``.
        value: of the game.
    """

    sender: Sender
    curve: list[dict[str, Any]]
    value: int


def load_training(name: str) -> GameTraining:
    """Read a config: a shipped name or the path of a YAML file. Raises UnknownNameError or InputError."""
    file = find_data(CONFIGS, name, ".yaml", "config of a game's learner")
    return validate(GameTraining, read_yaml(file), file.name)


def learn(game: str, training: GameTraining, progress: Callable[[dict[str, Any]], None] = lambda row: None) -> Learned:
    """Learn a game; every evaluation plays the policy on all boards against three networks, exactly.

    Args:
        game: a shipped game or a YAML file.
        training: how.
        progress: called with each row of the curve.

    Raises:
        InputError: for parameters that the algorithm does not take.
        MissingExtraError: without Stable-Baselines3.
    """
    require_extra("stable_baselines3", "train")
    import stable_baselines3
    import torch
    from stable_baselines3.common.vec_env import VecNormalize

    from ccenv.envs.clients.sb3 import make_sb3

    env = make_sb3("ccenv/Game-v0", training.num_envs, game=game, network=training.network)
    env.seed(training.seed)
    core: Any = env.task.core
    played: Any = VecNormalize(env, norm_obs=False, gamma=0.99) if training.normalise_reward else env
    build = {"ppo": stable_baselines3.PPO, "dqn": stable_baselines3.DQN}[training.algorithm]
    network = {"net_arch": list(training.hidden), "activation_fn": torch.nn.ReLU}
    try:
        model: Any = build("MlpPolicy", played, seed=training.seed, device="cpu", policy_kwargs=network, **training.parameters)
    except TypeError as error:
        raise InputError(f"parameters: {error}") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # results must not depend on how many there are
    try:
        return _curve(model, core, training, progress)
    finally:
        torch.set_num_threads(threads)


def _curve(model: Any, core: Any, training: GameTraining, progress: Callable[[dict[str, Any]], None]) -> Learned:
    """Let a model learn, and judge it now and then."""
    begin, curve = time.process_time(), []
    while model.num_timesteps < training.total_steps:
        model.learn(training.evaluate_every_steps, reset_num_timesteps=False)
        sender = _tabulated(model, core)
        regret, worst, random = (regret_of(sender, core.solved, name) for name in ("optimal", "worst", "random"))
        row = {"steps": int(model.num_timesteps), "cpu_s": round(time.process_time() - begin, 1)}
        row |= {"regret": regret, "worst": worst, "random": random, "optimal_share": optimal_share(sender, core.solved)}
        curve.append(row)
        progress(row)
    return Learned(_tabulated(model, core), curve, core.solved.value)


def _tabulated(model: Any, core: Any) -> Sender:
    """Return what a policy does on every board and for every number of steps left; of an illegal number nothing is sent."""
    solved: Solved = core.solved
    actions = np.zeros((solved.horizon_steps + 1, len(solved.boards)), dtype=np.int32)
    for left in range(1, solved.horizon_steps + 1):
        chosen, _ = model.predict(core.observations_of(np.arange(len(solved.boards)), left), deterministic=True)
        actions[left] = np.where(chosen < solved.boards.actions, chosen, 0)
    return Sender("learned", actions)
