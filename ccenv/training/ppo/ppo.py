"""Stable-Baselines3's PPO with rollouts in the kernel, and its policy, whose networks the kernel can evaluate."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from ccenv.base.errors import InputError
from ccenv.engine.compiled.policies import MAX_LAYERS, MAX_WIDTH
from ccenv.envs.clients.sb3 import CcenvVecEnv
from ccenv.envs.rollouts.actor_critic import ActorCritic, pack_actor_critic
from ccenv.envs.rollouts.memory import Memory, RolloutCore
from ccenv.training.ppo.update import CLIPPED, ENTROPY_LOSS, KL, POLICY_LOSS, VALUE_LOSS, Losses, Samples, Update

_ACTIVATIONS: dict[type[nn.Module], str] = {nn.Tanh: "tanh", nn.ReLU: "relu"}


class KernelPolicy(ActorCriticPolicy):
    """``MlpPolicy`` with the same parameters under the same names; arguments as there.

    Raises InputError for what the kernel does not have: more than MAX_LAYERS layers, layers wider than MAX_WIDTH, activations
    other than tanh and ReLU, feature extractors, state-dependent noise.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._update: Update | None = None
        if type(self.features_extractor) is not FlattenExtractor or self.use_sde or self.squash_output:
            raise InputError("rollouts in the kernel need plain observations and plain noise: no features extractor, no use_sde")
        if self.activation_fn not in _ACTIVATIONS:
            raise InputError(f"activation {self.activation_fn.__name__}: the kernel has {', '.join(_ACTIVATIONS.values())}")
        for layers in self._layers():
            widths = [layer.out_features for layer in layers]
            if len(layers) > MAX_LAYERS or max(widths) > MAX_WIDTH:
                raise InputError(f"layers {widths}: the kernel evaluates at most {MAX_LAYERS} layers of at most {MAX_WIDTH}")

    def _layers(self) -> tuple[list[nn.Linear], list[nn.Linear]]:
        extractor = self.mlp_extractor
        return _linear(extractor.policy_net, self.action_net), _linear(extractor.value_net, self.value_net)

    def pack(self, levels: int) -> ActorCritic:
        """Return the current weights for the kernel; ``levels`` as in ``Losses``.

        Raises ValueError if weights are not finite, as torch's distributions do.
        """
        both = [[(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in layers] for layers in self._layers()]
        log_std = np.zeros(0) if levels else self.log_std.detach().numpy()
        numbers = [log_std, *(array for layers in both for layer in layers for array in layer)]
        if not all(np.isfinite(array).all() for array in numbers):
            raise ValueError("Expected parameters of the policy to be finite")
        return pack_actor_critic(both[0], both[1], _ACTIVATIONS[self.activation_fn], log_std, levels)

    def update(self, batch_size: int) -> Update:
        """Return the :class:`Update` for minibatches of at most ``batch_size`` samples."""
        if self._update is None or self._update.batch_size < batch_size:
            self._update = Update(self, self._layers(), self.activation_fn is nn.Tanh, batch_size)
        return self._update


def _linear(*parts: nn.Module) -> list[nn.Linear]:
    return [module for part in parts for module in part.modules() if isinstance(module, nn.Linear)]


KEYS = 2**53


class KernelPPO(PPO):
    """PPO with the arguments of Stable-Baselines3, ``policy`` apart, over ``make_sb3``'s environments in no wrapper.

    ``collect_rollouts`` runs actor, critic, noise, log-probabilities and the environments' steps in one kernel, and fills in the
    same observations, values, bootstraps of truncated episodes and episode starts as the library's own loop. Only the noise
    differs: it is keyed by one number per rollout, drawn from torch's generator, and by environment, action and step, so it does
    not depend on the number of threads. Callbacks are called once per step, in order, after the rollout. ``train`` takes the
    library's gradient steps without an autograd graph; ``gradient_norms`` are those of the newest ``train``, before clipping.

    Raises InputError for other environments, or policies that the kernel cannot evaluate.
    """

    def __init__(self, env: CcenvVecEnv, **settings: Any) -> None:
        if not isinstance(env, CcenvVecEnv):
            raise InputError(f"rollouts in the kernel need the environments of make_sb3 in no wrapper, not {type(env).__name__}")
        env.rollouts()
        self.gradient_norms: list[float] = []
        super().__init__(KernelPolicy, env, device="cpu", **settings)

    def train(self) -> None:
        """Take the gradient steps of a rollout: the library's losses, minibatches, clipping, optimiser, early stop and logs."""
        policy = self.policy
        if not isinstance(policy, KernelPolicy):
            raise InputError("gradient steps without a graph need a KernelPolicy")
        policy.set_training_mode(True)
        self._update_learning_rate(policy.optimizer)
        buffer, update = self.rollout_buffer, policy.update(self.batch_size)
        clip = self.clip_range(self._current_progress_remaining)  # type: ignore[operator]
        clip_value = np.inf
        if self.clip_range_vf is not None:
            clip_value = self.clip_range_vf(self._current_progress_remaining)  # type: ignore[operator]
        weights, levels = (float(self.ent_coef), float(self.vf_coef)), int(self.env.rollouts().levels)  # type: ignore[union-attr]
        losses = Losses(float(clip), float(clip_value), *weights, self.normalize_advantage, levels)
        flat = Samples(*(buffer.swap_and_flatten(getattr(buffer, name)) for name in Samples._fields))
        flat = flat._replace(**{name: getattr(flat, name).ravel() for name in Samples._fields[2:]})
        measured: list[np.ndarray] = []
        self.gradient_norms.clear()
        in_epoch = 0
        for _ in range(self.n_epochs):
            order, in_epoch, enough = np.random.permutation(len(flat.actions)), 0, False
            samples = Samples(*(np.take(array, order, axis=0) for array in flat))
            for first in range(0, len(order), self.batch_size):
                measured.append(update.measure(losses, samples, first, min(first + self.batch_size, len(order))))
                in_epoch += 1
                if self.target_kl is not None and measured[-1][KL] > 1.5 * self.target_kl:
                    enough = True
                    break
                self.gradient_norms.append(update.clip(self.max_grad_norm))
                update.step(policy.optimizer)
            self._n_updates += 1
            if enough:
                break
        self._log(np.array(measured), in_epoch, losses)
        self.logger.record("train/explained_variance", explained_variance(flat.values, flat.returns))

    def _log(self, measured: np.ndarray, in_epoch: int, losses: Losses) -> None:
        """Record the losses of all minibatches as Stable-Baselines3 does; the KL divergence is that of the last epoch."""
        mean, last = measured.mean(axis=0), measured[-1]
        self.logger.record("train/entropy_loss", mean[ENTROPY_LOSS])
        self.logger.record("train/policy_gradient_loss", mean[POLICY_LOSS])
        self.logger.record("train/value_loss", mean[VALUE_LOSS])
        self.logger.record("train/approx_kl", measured[-in_epoch:, KL].mean())
        self.logger.record("train/clip_fraction", mean[CLIPPED])
        weighed = losses.entropy_weight * last[ENTROPY_LOSS] + losses.value_weight * last[VALUE_LOSS]
        self.logger.record("train/loss", last[POLICY_LOSS] + weighed)
        if hasattr(self.policy, "log_std"):
            self.logger.record("train/std", float(torch.exp(self.policy.log_std.detach()).mean()))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/clip_range", losses.clip)
        if self.clip_range_vf is not None:
            self.logger.record("train/clip_range_vf", losses.clip_value)

    def collect_rollouts(self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int) -> bool:
        """Fill the buffer with a rollout; return False if a callback ended the training."""
        if not isinstance(env, CcenvVecEnv) or not isinstance(self.policy, KernelPolicy):
            raise InputError("rollouts in the kernel need make_sb3's environments and a KernelPolicy")
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        core = env.rollouts()
        key = int(torch.randint(KEYS, ()))
        starts = np.asarray(self._last_episode_starts, np.bool_)[:: core.rows_per_env].copy()
        memory, bonus, infos = collect(core, self.policy, rollout_buffer, starts, key, self.gamma)
        new_obs = env.task.observe()
        self._last_obs, self._last_episode_starts = new_obs, memory.dones[-1].copy()
        raw_rewards = rollout_buffer.rewards.copy()
        rollout_buffer.rewards += bonus
        rollout_buffer.pos, rollout_buffer.full = rollout_buffer.buffer_size, True
        for step in range(n_rollout_steps):
            self.num_timesteps += env.num_envs
            last = step == n_rollout_steps - 1
            callback.update_locals(
                {
                    "self": self,
                    "env": env,
                    "rollout_buffer": rollout_buffer,
                    "n_rollout_steps": n_rollout_steps,
                    "n_steps": step,
                    "actions": rollout_buffer.actions[step],
                    "values": rollout_buffer.values[step],
                    "log_probs": rollout_buffer.log_probs[step],
                    "rewards": raw_rewards[step],
                    "dones": memory.dones[step],
                    "infos": infos[step],
                    "new_obs": new_obs if last else rollout_buffer.observations[step + 1],
                }
            )
            if not callback.on_step():
                return False
        with torch.no_grad():
            last_values = self.policy.predict_values(torch.as_tensor(new_obs))
        rollout_buffer.compute_returns_and_advantage(last_values=last_values, dones=memory.dones[-1])
        callback.on_rollout_end()
        return True


def collect(
    core: RolloutCore, policy: KernelPolicy, buffer: RolloutBuffer, starts: np.ndarray, key: int, gamma: float
) -> tuple[Memory, np.ndarray, list[list[dict[str, Any]]]]:
    """Let a kernel fill an empty buffer's observations, actions, rewards, values, log-probabilities and episode starts.

    ``starts`` (B,) marks environments at the start of an episode; ``key`` is that of the noise. Returned are the memory; the
    bonus (T, B R) of an episode's last reward, gamma times the value of its last state; infos per step.
    """
    B, R = core.num_envs, core.rows_per_env
    shape = buffer.rewards.shape
    memory = Memory(
        observations=buffer.observations,
        actions=np.zeros(buffer.actions.shape, np.float32),
        rewards=buffer.rewards,
        values=buffer.values,
        log_probs=buffer.log_probs,
        episode_starts=buffer.episode_starts,
        dones=np.zeros(shape, np.bool_),
        at=np.zeros(B, np.int64),
        starting=starts,
        ended=np.zeros(B, np.bool_),
        final=np.zeros((B * R, buffer.observations.shape[2]), np.float32),
        final_values=np.zeros(B * R, np.float32),
    )
    networks = policy.pack(core.levels)
    bonus = np.zeros(shape, np.float32)
    infos: list[list[dict[str, Any]]] = [[{} for _ in range(shape[1])] for _ in range(shape[0])]
    while True:
        core.play(networks, memory, key)
        if not memory.ended.any():
            buffer.actions[:] = memory.actions
            return memory, bonus, infos
        rows = np.flatnonzero(np.repeat(memory.ended, R))
        steps = memory.at[rows // R] - 1
        bonus[steps, rows] = np.float32(gamma) * memory.final_values[rows]
        for step, row, metrics in zip(steps.tolist(), rows.tolist(), core.finish(memory.ended), strict=True):
            infos[step][row] = {**metrics, "terminal_observation": memory.final[row].copy(), "TimeLimit.truncated": True}
        memory.ended[:] = False
