"""Speed of training on this machine: PPO on the native batch, and the kernel with policies on both sides."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

from ccenv.benchmarks.timing import rates
from ccenv.agents.interface.observation import N_OBSERVATION, OBSERVATION_VERSION
from ccenv.engine.curve.engine import CurveEngine
from ccenv.envs.curve.network_observation import network_elements
from ccenv.network.adversary import MlpAdversary
from ccenv.network.path import make_path
from ccenv.agents.sender import PolicySender
from ccenv.training.config import load_config

CONFIG, FAST = "quick_sender", "fast_sender"
ITERATIONS = 12
N_ENVS, STEPS_PER_RTT, CALL_STEPS = 128, 4, 64
WIDTHS = (16, 64)


def measure() -> dict[str, float]:
    """Return environment-steps per second of PPO (sampling and updates together), and flow-steps per second of the kernel.

    PPO is measured on one recipe with Stable-Baselines3's own rollouts and with those of the kernel, and on the recipe that is
    made for the kernel (FAST). The kernel plays a policy against a network policy, both with two hidden layers of 16 or 64.
    """
    out: dict[str, float] = {}
    for key, config, rollouts in (
        ("train_ppo_steps_per_s", CONFIG, "python"),
        ("train_ppo_same_recipe_kernel_rollouts_steps_per_s", CONFIG, "kernel"),
        ("train_ppo_kernel_rollouts_steps_per_s", FAST, "kernel"),
    ):
        median, best = _ppo(config, rollouts)
        out[key], out[f"{key}_best"] = round(median), round(best)
    for width in WIDTHS:
        engine = _engine(width)
        median, best = rates(lambda e=engine: e.advance(CALL_STEPS), N_ENVS * CALL_STEPS)  # type: ignore[misc]
        out[f"curve_mlp_{width}_flow_steps_per_s"], out[f"curve_mlp_{width}_flow_steps_per_s_best"] = round(median), round(best)
    return out


def _ppo(config_name: str, rollouts: str) -> tuple[float, float]:
    """Return median and best steps per second over the iterations of a run after its first one."""
    from ccenv.training.learner import Learner

    config = load_config(config_name, ["evaluation.every_steps=0", f"ppo.rollouts={rollouts}"])
    learner = Learner(config.model_copy(update={"total_steps": ITERATIONS * config.iteration_steps}))
    at = [time.perf_counter()]
    learner.run(lambda state, progress: at.append(time.perf_counter()) or False)  # type: ignore[func-returns-value]
    took = np.diff(at)[1:]
    return config.iteration_steps / float(np.median(took)), config.iteration_steps / float(took.min())


def _engine(width: int) -> CurveEngine:
    rng = np.random.Generator(np.random.Philox(0))

    def layers(n_in: int, n_out: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        sizes = (n_in, width, width, n_out)
        weights = tuple(rng.normal(0, 0.3, pair) for pair in pairwise(sizes))
        return weights, tuple(np.zeros(n) for n in sizes[1:])

    sender = PolicySender("speed", *layers(N_OBSERVATION, 1), "tanh")
    network = MlpAdversary("speed", *layers(len(network_elements(1)), 2), "tanh", OBSERVATION_VERSION, (0, 2))
    path = make_path(link_rate_mbps=48, rtt_ms=40, jitter_ms=40, buffer_bdp=6)
    return CurveEngine([path] * N_ENVS, model="ccac", senders=[sender], adversary=network, steps_per_rtt=STEPS_PER_RTT)
