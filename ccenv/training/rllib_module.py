"""The policy that RLlib trains: its default PPO network, started as the recipe of docs/training.md starts one."""

from __future__ import annotations

from typing import Any

from ccenv.errors import require_extra

require_extra("ray", "rllib")
require_extra("torch", "train")

import torch  # noqa: E402  (only after the checks that name the extra)
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # noqa: E402

LOG_STD = "log_std"  # our key among those of RLlib's model config


class RecipeModule(DefaultPPOTorchRLModule):
    """Deviations of the actions are weights of their own, and small at first; so are the mean actions."""

    def setup(self) -> None:
        """Build RLlib's networks, then set what its settings cannot."""
        super().setup()
        settings: Any = self.model_config
        with torch.no_grad():
            self.pi.log_std.fill_(settings[LOG_STD])
            for part in self.pi.net.modules():
                if isinstance(part, torch.nn.Linear):
                    torch.nn.init.orthogonal_(part.weight, 0.01)


def module_spec(hidden: tuple[int, ...], log_std: float) -> RLModuleSpec:
    """Return the specification of a policy.

    Args:
        hidden: widths of the tanh layers, of policy and value network alike.
        log_std: initial logarithm of the standard deviation of the actions.
    """
    settings: dict[str, Any] = vars(DefaultModelConfig()) | {
        "fcnet_hiddens": list(hidden),
        "fcnet_activation": "tanh",
        "fcnet_kernel_initializer": "orthogonal_",
        "fcnet_kernel_initializer_kwargs": {"gain": 2**0.5},
        "fcnet_bias_initializer": "zeros_",
        "head_fcnet_bias_initializer": "zeros_",
        "vf_share_layers": False,
        "free_log_std": True,
    }
    return RLModuleSpec(module_class=RecipeModule, model_config=settings | {LOG_STD: log_std})
