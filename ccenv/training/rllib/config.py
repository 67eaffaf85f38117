"""The config of a run of RLlib; reading it needs neither RLlib nor torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from ccenv.base.config import StrictModel
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings, read_settings
from ccenv.envs.packet.settings import PacketSettings, read_packet_settings
from ccenv.envs.packet.task import controlled_flows
from ccenv.training.settings import check_widths


class RllibConfig(StrictModel):
    """A run of RLlib's PPO.

    Attributes:
        trainer: ``"rllib"``, which distinguishes these configs.
        name: of the run and its policies; by default the name of the file.
        seed: of everything random.
        plays: ``"sender"``: PPO on ``ccenv/Sender-v0``; ``"duel"``: sender and network learn against each other;
            ``"flows"``: all ``"external"`` flows learn one policy, each as a separate agent; ``"packet"`` and
            ``"packet_flows"``: as ``"sender"`` and ``"flows"``, on ``ccenv/Packet-v0``.
        iterations: of RLlib.
        environment: arguments of the environment.
        num_envs: environments per runner; RLlib batches the policies of a duel, not its environments.
        num_env_runners: processes that play; 0: the learner's own.
        num_cpus: that a local Ray may use.
        address: of a Ray cluster, or ``"auto"``; None: start Ray on this machine.
        train_batch_size: steps per iteration.
        minibatch_size: samples per gradient step.
        num_epochs: passes over the samples.
        learning_rate: of Adam.
        gamma: discount per environment step.
        gae_lambda: of the generalised advantage estimate.
        hidden: widths of the tanh layers.
        n_paths: of the final evaluation of the sender.
    """

    trainer: Literal["rllib"]
    name: str = Field(min_length=1, max_length=48)
    seed: int = Field(default=0, ge=0, lt=2**31)
    plays: Literal["sender", "duel", "flows", "packet", "packet_flows"] = "sender"
    iterations: int = Field(ge=1)
    environment: dict[str, Any] = Field(default_factory=dict)
    num_envs: int = Field(default=64, ge=1)
    num_env_runners: int = Field(default=0, ge=0)
    num_cpus: int = Field(default=2, ge=1)
    address: str | None = None
    train_batch_size: int = Field(default=4096, ge=2)
    minibatch_size: int = Field(default=1024, ge=2)
    num_epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    hidden: tuple[int, ...] = Field(default=(32, 32), min_length=1, max_length=5)
    n_paths: int = Field(default=1024, ge=1)

    @model_validator(mode="after")
    def _playable(self) -> RllibConfig:
        check_widths(self.hidden)
        if self.is_packet:
            self._check_packet()
            return self
        settings = self.settings()
        external = settings.senders.count(EXTERNAL)
        if (external < 2 if self.plays == "flows" else external != 1) or settings.is_discrete:
            senders = "two or more 'external' senders" if self.plays == "flows" else "exactly one 'external' sender"
            raise ValueError(f"environment: {senders} and a continuous action are needed")
        if self.plays == "duel" and (len(settings.models) != 1 or len(settings.senders) != 1):
            raise ValueError("environment: a duel needs one model and one flow")
        return self

    def _check_packet(self) -> None:
        settings = self.packet_settings()
        flows = len(controlled_flows(settings.distribution))
        if settings.n_actions is not None:
            raise ValueError("environment.n_actions: RLlib's runs have continuous actions; leave it out")
        if (flows < 2) if self.plays == "packet_flows" else (flows != 1):
            senders = "two or more 'external' senders" if self.plays == "packet_flows" else "exactly one 'external' sender"
            raise ValueError(f"environment.scenario: {senders} are needed (got {flows})")
        if flows > 1 and not settings.clock.common:
            raise ValueError("environment.clock: flows that share a policy must decide at once; set common: true")

    @property
    def is_packet(self) -> bool:
        """Whether the environment is a packet environment."""
        return self.plays in {"packet", "packet_flows"}

    def packet_settings(self) -> PacketSettings:
        """Return the checked arguments of the packet environment."""
        return read_packet_settings(self.environment, "environment")

    def settings(self) -> EnvSettings:
        """Return the checked arguments of the environment."""
        return read_settings(self.environment, "environment")
