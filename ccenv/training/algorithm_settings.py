"""Settings of the learning algorithms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.engine.compiled.mlp import MAX_WIDTH


class PpoSettings(StrictModel):
    """Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) as Stable-Baselines3 implements it.

    Attributes:
        n_steps: environment steps per environment and iteration.
        batch_size: samples per gradient step.
        n_epochs: passes over the samples of an iteration.
        learning_rate: of Adam.
        gamma: discount per environment step.
        gae_lambda: of the generalised advantage estimate.
        clip_range: of the probability ratio.
        entropy_weight: of the entropy bonus.
        value_weight: of the value loss.
        max_gradient_norm: larger gradients are scaled down.
        hidden: widths of the hidden layers of policy and value network.
        activation: ``"tanh"`` or ``"relu"``.
        log_std: initial logarithm of the standard deviation of the actions.
        rollouts: ``"kernel"``: policy and environments in one compiled loop (``ccenv.training.ppo``); ``"python"``: the
            library's own loop. Both mean the same; the random numbers differ.
    """

    n_steps: int = Field(default=32, ge=2)
    batch_size: int = Field(default=1024, ge=2)
    n_epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    clip_range: float = Field(default=0.2, gt=0, allow_inf_nan=False)
    entropy_weight: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    value_weight: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    max_gradient_norm: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=5)
    activation: Literal["tanh", "relu"] = "tanh"
    log_std: float = Field(default=-0.7, ge=-10, le=2)
    rollouts: Literal["kernel", "python"] = "kernel"

    @model_validator(mode="after")
    def _widths(self) -> PpoSettings:
        check_widths(self.hidden)
        return self


class OffPolicySettings(StrictModel):
    """What SAC and TD3 have in common. Hidden layers are tanh: the kernel has one activation, and it squashes actions.

    Attributes:
        n_steps: environment steps per environment and iteration.
        gradient_steps: gradient steps per iteration.
        batch_size: samples per gradient step.
        buffer_size: samples that are remembered.
        learning_starts: steps of random actions at first.
        learning_rate: of Adam.
        gamma: discount per environment step.
        tau: how far the target networks follow per gradient step.
        hidden: widths of the hidden layers of actor and critics.
    """

    n_steps: int = Field(default=4, ge=1)
    gradient_steps: int = Field(default=16, ge=1)
    batch_size: int = Field(default=256, ge=2)
    buffer_size: int = Field(default=65_536, ge=256, le=4_194_304)
    learning_starts: int = Field(default=4096, ge=0)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    tau: float = Field(default=0.02, gt=0, le=1)
    hidden: tuple[int, ...] = Field(default=(64, 64), min_length=1, max_length=4)

    @model_validator(mode="after")
    def _widths(self) -> OffPolicySettings:
        check_widths(self.hidden)
        return self


class SacSettings(OffPolicySettings):
    """Soft actor-critic (Haarnoja et al. 2018, arXiv:1812.05905); the entropy weight adapts itself.

    Attributes:
        initial_entropy_weight: where it starts.
    """

    initial_entropy_weight: float = Field(default=0.1, gt=0, allow_inf_nan=False)


class Td3Settings(OffPolicySettings):
    """Twin delayed DDPG (Fujimoto et al. 2018, arXiv:1802.09477).

    Attributes:
        noise_std: standard deviation of the noise on actions.
        policy_delay: critic updates per actor update.
    """

    noise_std: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    policy_delay: int = Field(default=2, ge=1)


def check_widths(hidden: tuple[int, ...]) -> None:
    """Raise ValueError for hidden layers that the kernel cannot evaluate."""
    if not all(1 <= width <= MAX_WIDTH for width in hidden):
        raise ValueError(f"hidden {list(hidden)}: widths must lie in 1 to {MAX_WIDTH}, what the kernel can evaluate")
