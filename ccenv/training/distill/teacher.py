"""The policy that is distilled, and what its own config says a good sender is."""

from __future__ import annotations

from dataclasses import dataclass

from ccenv.agents.learned import is_policy, load_policy, policy_notes
from ccenv.base.config import validate
from ccenv.engine.compiled.policies import require_signals
from ccenv.envs.curve.reward import RewardWeights
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings
from ccenv.base.errors import InputError, did_you_mean
from ccenv.agents.interface.actions import action
from ccenv.agents.interface.signals import CURVE
from ccenv.agents.sender import PolicySender
from ccenv.training.settings import RobustSettings

USUAL_WORLD = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=4, staggered=True)
"""The environment of the shipped nominal configs."""


@dataclass(frozen=True)
class Teacher:
    """A policy with what it was trained for.

    Attributes:
        policy: it.
        world: that it was trained in; that of the shipped nominal configs if its card has no config.
        robust: its rounds against attacks; None if it had none.
    """

    policy: PolicySender
    world: EnvSettings
    robust: RobustSettings | None

    @property
    def weights(self) -> RewardWeights:
        """Weights of the terms that programs are scored by."""
        return self.world.reward if isinstance(self.world.reward, RewardWeights) else RewardWeights()

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self.policy.name


def load_teacher(checkpoint: str) -> Teacher:
    """Read a policy by file, folder of a training run or name in the zoo.

    A program is scored by terms of ``RewardWeights``: where the policy was trained for others, by the default ones.

    Raises:
        InputError: if there is none, it sets windows, or its card has a config that is none.
    """
    if not is_policy(checkpoint):
        from ccenv.agents import AGENTS
        from ccenv.agents.learned.zoo import FOLDER

        known = AGENTS.names("learned")
        if checkpoint not in known:
            raise InputError(
                f"{checkpoint!r} is no learned policy: the folder of a training run, its .safetensors file or the name of "
                f"one in the zoo is needed.{did_you_mean(checkpoint, known)}"
            )
        checkpoint = str(FOLDER / f"{checkpoint}.safetensors")
    policy = load_policy(checkpoint)
    if not isinstance(policy, PolicySender):
        raise InputError(f"{checkpoint!r} chooses inside a contract, which is proved as it is: there is nothing to distil")
    sees = policy.interface
    if action(sees.action).sets != "rate":
        raise InputError(f"{checkpoint}: {sees.action!r} sets a window; a belief program sets rates, so it cannot be distilled")
    require_signals(policy, CURVE)
    config = policy_notes(checkpoint).get("config")
    if not isinstance(config, dict):
        return Teacher(policy, USUAL_WORLD, None)
    environment, robust = config.get("environment"), config.get("robust")
    world = validate(EnvSettings, environment or {}, f"{checkpoint}: notes.config.environment")
    if world.senders.count(EXTERNAL) != 1:
        raise InputError(f"{checkpoint}: notes.config.environment.senders is {list(world.senders)}; one must be 'external'")
    if not isinstance(world.reward, RewardWeights):
        world = world.model_copy(update={"reward": RewardWeights()})
    rounds = None if robust is None else validate(RobustSettings, robust, f"{checkpoint}: notes.config.robust")
    return Teacher(policy, world, rounds if rounds is not None and rounds.share > 0 else None)
