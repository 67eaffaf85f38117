"""The config of a training run: a typed YAML file."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from ccenv.adversaries import make_adversary
from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.interface.user import OwnReward
from ccenv.agents.sender import PolicySender
from ccenv.attacks.boxes.game import pattern_rows
from ccenv.attacks.scenes import REPORT, scene_of, scene_set
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError
from ccenv.base.foreign import is_file, read_yaml, resolve_inside, shown
from ccenv.base.registry import load_target
from ccenv.base.renamed import today, with_keys_of_today
from ccenv.base.settings import put, read_pairs
from ccenv.engine.compiled.policies import MAX_WIDTH
from ccenv.envs.curve import network
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings, as_shield
from ccenv.envs.packet.settings import PacketSettings, read_packet_settings
from ccenv.envs.packet.task import check_interface, controlled_flows
from ccenv.training.recipes.replay import ReplaySettings
from ccenv.training.recipes.settings import Recipe
from ccenv.training.settings import (
    CurriculumStage,
    EarlyStop,
    EvaluationSettings,
    LogSettings,
    MixturePart,
    OfflineSettings,
    OffPolicySettings,
    PpoSettings,
    RobustSettings,
    SacSettings,
    Td3Settings,
    fixed_paths,
    report_scene_message,
)

CONFIGS = "ccenv.configs.train"
_LOAD_SENDER = "ccenv.agents.load:load_sender"  # looked up at run time: some policies build on others
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,47}", re.ASCII)


class TrainConfig(StrictModel):
    """A training run.

    Attributes:
        name: of the run and its policy; by default the name of the file.
        seed: of everything random: weights, exploration, minibatches, paths.
        total_steps: environment steps; rounded up to whole iterations.
        num_envs: environments.
        trains: ``"sender"``: one flow of ``ccenv/Sender-v0`` with continuous actions; ``"network"``: the moves of
            ``ccenv/Network-v0`` against fixed senders, with PPO also discrete ones.
        shared_policy: several flows learn one policy: each ``"external"`` sender is a row of the batch with its own reward
            (``ccenv.envs.curve.interface``). Steps are then decisions, one per row.
        algorithm: ``"ppo"``, ``"sac"`` or ``"td3"``.
        environment: arguments of the curve environment.
        packet: instead of it, arguments of ``ccenv/Packet-v0``. Each flow with the sender ``external`` is a row of the batch with
            its own reward; all share the policy. Without ``clock.common`` each decides at its own times (PPO only).
        mixture: several scenario distributions in place of ``packet.scenario``; their ``num_envs`` add up to that of the run.
        curriculum: other models or paths at first, in order of ``until_step``.
        replay: replays paths on which the policy has most to gain (``ccenv.training.recipes.replay``); none: new paths only.
        robust: rounds against a pool of opponents; none: only the environment's own network. Per packet the pool holds patterns
            of the ``external`` delay elements, found by corners and cem on networks drawn for each round.
        offline: learns from a data set before or instead of an environment, with ``td3``; ``packet`` has its interface.
        recipe: additions to PPO from the literature (``ccenv.training.recipes.settings``).
        warm_start: begin with the weights of this policy's action network (a name, a folder, a file: ``runs/mine-0``), which must
            see the same signals with the same layers; the critic begins anew. Empty: random weights.
        ppo, sac, td3: settings of the algorithms.
        evaluation: held-out scores.
        early_stop: on the held-out scores.
        checkpoint_every_steps: steps between checkpoints on disk; the end and Ctrl-C always write one.
        log: further logs.
    """

    name: str
    seed: int = Field(default=0, ge=0, lt=2**31)
    total_steps: int = Field(ge=1)
    num_envs: int = Field(default=128, ge=1)
    trains: Literal["sender", "network"] = "sender"
    shared_policy: bool = False
    algorithm: Literal["ppo", "sac", "td3"] = "ppo"
    environment: EnvSettings = EnvSettings()
    packet: dict[str, Any] | None = None
    mixture: tuple[MixturePart, ...] = ()
    curriculum: tuple[CurriculumStage, ...] = ()
    replay: ReplaySettings | None = None
    robust: RobustSettings | None = None
    offline: OfflineSettings | None = None
    recipe: Recipe = Recipe()
    warm_start: str = Field(default="", max_length=400)
    ppo: PpoSettings = PpoSettings()
    sac: SacSettings = SacSettings()
    td3: Td3Settings = Td3Settings()
    evaluation: EvaluationSettings = EvaluationSettings()
    early_stop: EarlyStop = EarlyStop()
    checkpoint_every_steps: int = Field(default=100_000, ge=1)
    log: LogSettings = LogSettings()

    @field_validator("packet")
    @classmethod
    def _resolve_shield(cls, packet: dict[str, Any] | None) -> dict[str, Any] | None:
        """Replace a shield's file by the shield itself, as the environments of the curve engine do."""
        if packet is None or (packet := with_keys_of_today(packet)).get("shield") is None:
            return packet
        return packet | {"shield": as_shield(packet["shield"])}

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} must be a letter, then up to 47 letters, digits, '_', '-' or '.'")
        if self.packet is not None:
            self._check_packet()
        elif self.evaluation.worlds:
            raise ValueError("evaluation.worlds are for packet environments")
        elif self.mixture:
            raise ValueError("mixture is for packet environments")
        external = self.environment.senders.count(EXTERNAL)
        if self.shared_policy and (self.trains != "sender" or external < 2):
            raise ValueError(
                f"shared_policy is for senders with two or more 'external' flows, not for a {self.trains} with {external}"
            )
        if not self.shared_policy and external != (1 if self.trains == "sender" else 0):
            count = "exactly one" if self.trains == "sender" else "no"
            hint = "; for several set shared_policy" if self.trains == "sender" and external > 1 else ""
            raise ValueError(f"environment: training a {self.trains} needs {count} 'external' sender{hint}")
        if self.environment.step_info:
            raise ValueError("environment.step_info: training reads no info of steps; leave it out")
        if self.environment.is_discrete and self.algorithm != "ppo":
            raise ValueError(f"environment: a {self.algorithm} {self.trains} needs action 'box'; PPO may have discrete actions")
        if self.trains == "network":
            self.environment.require_beliefs("environment")
        elif self.environment.is_discrete and self.environment.n_actions > MAX_WIDTH:
            raise ValueError(f"environment.n_actions is {self.environment.n_actions}; at most {MAX_WIDTH}: kernel's widest layer")
        if self.environment.is_discrete and self.trains == "network":
            moves = network.NetworkAction(self.environment, len(self.environment.senders)).names
            n_actions, most = self.environment.n_actions, MAX_WIDTH // len(moves)
            if n_actions > most:
                raise ValueError(
                    f"environment.n_actions is {n_actions}; at most {most} for {', '.join(moves)}: kernel's widest layer"
                )
        if self.robust is not None and (self.trains, self.algorithm) != ("sender", "ppo"):
            raise ValueError(f"robust training is for PPO senders, not for a {self.algorithm} {self.trains}")
        if self.robust is not None and (self.curriculum or len(self.environment.senders) != 1):
            raise ValueError("robust training needs one flow and no curriculum")
        if self.robust is not None and self.packet is None:
            self.robust.check_drawn(self.environment, self.num_envs)
        reward = self.packet_settings().own_reward if self.packet is not None else self.environment.reward
        if isinstance(reward, OwnReward) and self.algorithm == "ppo" and self.ppo.rollouts == "kernel" and not self.own_times:
            key = "environment.reward" if self.packet is None else "packet.reward"
            raise ValueError(f"{key}: rollouts in the kernel evaluate no Python; set ppo.rollouts to 'python'")
        if self.replay is not None:
            self._check_replay()
        if self.offline is not None:
            self._check_offline(self.offline)
        for path in fixed_paths(self.environment.paths):
            name = scene_of(path)
            if scene_set(name) == REPORT:
                raise ValueError(report_scene_message("environment.paths", str(name)))
        ends = [stage.until_step for stage in self.curriculum]
        if ends != sorted(set(ends)):
            raise ValueError(f"curriculum: until_step {ends} must rise from stage to stage")
        interface = self.environment.interface if self.packet is None else self.packet_settings().interface()
        if interface is not None:
            interface.require_data()
        if self.early_stop.patience and not self.evaluation.every_steps:
            raise ValueError("early_stop needs evaluations: set evaluation.every_steps")
        python = self.ppo.rollouts == "python"
        self.recipe.check(self.packet, self.algorithm, own_times=self.own_times, robust=self.robust is not None, python=python)
        self._check_logs()
        if not self.own_times and (self.ppo.reward_scale != 1.0 or self.ppo.max_critic_gradient_norm is not None):
            raise ValueError("ppo.reward_scale and ppo.max_critic_gradient_norm are for flows that decide at their own times")
        self.warm_policy()
        samples = self.num_rows * self.ppo.n_steps
        if self.algorithm == "ppo" and not self.own_times and samples % self.ppo.batch_size:
            rows = "num_envs * flows" if self.shared_policy else "num_envs"
            raise ValueError(f"{rows} * ppo.n_steps = {samples} is not a multiple of ppo.batch_size {self.ppo.batch_size}")
        return self

    def _check_packet(self) -> None:
        settings = self.packet_settings()
        check_interface(settings.interface(), settings.distribution, controlled_flows(settings.distribution))
        if self.trains != "sender" or self.environment != EnvSettings() or self.shared_policy or self.curriculum:
            raise ValueError("packet: environment, shared_policy, curriculum and trains 'network' are for the curve environments")
        if settings.shield is not None and (settings.interface().signals, settings.interface().history) != (
            SENDER_V0.signals,
            1,
        ):
            raise ValueError("packet.shield: a policy inside a shield sees beliefs; leave packet.signals and packet.history out")
        if settings.n_actions is not None and (self.algorithm != "ppo" or settings.n_actions > MAX_WIDTH):
            raise ValueError(f"packet.n_actions is {settings.n_actions}; PPO may have at most {MAX_WIDTH}, others none")
        if self.log.networks:
            raise ValueError("log.networks play in the curve environments, not per packet; leave it out")
        if self.robust is not None:
            has_boxes = len(pattern_rows(settings.distribution.largest)) > 0
            self.robust.check_packet(has_boxes=has_boxes, own_times=self.own_times)
        flows = len(controlled_flows(settings.distribution))
        if not flows and not self.mixture:
            raise ValueError("packet.scenario: no flow has the sender 'external': there is nothing to train")
        self._check_mixture()
        if self.own_times and (self.algorithm != "ppo" or settings.n_actions is not None):
            raise ValueError(
                "packet: flows that decide at their own times, mixtures and critic_signals are for PPO with actions 'box'"
            )
        for name, world in self.evaluation.worlds.items():
            found = len(controlled_flows(self.packet_settings(world).distribution))
            if not found:
                raise ValueError(f"evaluation.worlds.{name}: no flow has the sender 'external': there is nothing to evaluate")

    def _check_mixture(self) -> None:
        if self.mixture and sum(part.num_envs for part in self.mixture) != self.num_envs:
            raise ValueError(
                f"num_envs is {self.num_envs}; the parts of the mixture have {sum(p.num_envs for p in self.mixture)}"
            )
        for number, part in enumerate(self.mixture):
            settings = self.part_settings(part)
            flows = controlled_flows(settings.distribution)
            check_interface(settings.interface(), settings.distribution, flows)
            if not flows:
                raise ValueError(f"mixture.{number}.scenario: no flow has the sender 'external': there is nothing to train")

    @property
    def own_times(self) -> bool:
        """Whether flows of a network decide at their own times, or a critic sees more than they: samples are then decisions."""
        if self.packet is None:
            return False
        settings = self.packet_settings()
        several = len(controlled_flows(settings.distribution)) > 1 and not settings.clock.common
        return bool(self.mixture or settings.critic_signals or several)

    def part_settings(self, part: MixturePart) -> PacketSettings:
        """Return the arguments of the packet environment of a part of the mixture."""
        settings = self.packet_settings(part.scenario)
        return (
            settings
            if part.episode_decisions is None
            else settings.model_copy(update={"episode_decisions": part.episode_decisions})
        )

    def packet_worlds(self) -> list[PacketSettings]:
        """Return the packet environments that the run trains in: the parts of a mixture, or the one; none of the curve engine."""
        if self.packet is None:
            return []
        return [self.part_settings(part) for part in self.mixture] or [self.packet_settings()]

    def packet_settings(self, scenario: Any = None) -> PacketSettings:
        """Return the checked arguments of the packet environment; with a scenario in place of its own, if one is given."""
        arguments = self.recipe.reward() | dict(self.packet or {})
        return read_packet_settings(arguments if scenario is None else {**arguments, "scenario": scenario}, "packet")

    @property
    def num_rows(self) -> int:
        """Rows of the batch: environments, or their flows where those share a policy."""
        if self.packet is not None:
            return self.num_envs * len(controlled_flows(self.packet_settings().distribution))
        return self.num_envs * (self.environment.senders.count(EXTERNAL) if self.shared_policy else 1)

    def _check_replay(self) -> None:
        if (self.trains, self.algorithm) != ("sender", "ppo") or self.packet is not None:
            raise ValueError("replay is for PPO senders on the curve environments")
        if len(self.environment.senders) != 1 or self.curriculum or self.robust is not None:
            raise ValueError("replay needs one flow, no curriculum and no robust rounds")
        if not isinstance(self.environment.paths, PathDistribution):
            raise ValueError("replay: environment.paths must be a distribution")

    def _check_offline(self, offline: OfflineSettings) -> None:
        from ccenv.training.offline.config import load_data_config

        if self.packet is None or self.algorithm != "td3" or self.mixture or self.num_rows != self.num_envs:
            raise ValueError("offline: it is for td3 senders per packet, one controlled flow each")
        if offline.method == "bc" and offline.online_from_step:
            raise ValueError("offline.online_from_step: behaviour cloning learns no values, so it cannot go on online; use iql")
        data = load_data_config(offline.data)
        ours, theirs = self.packet_settings(), data.packet_settings()
        if ours.policy_interface() != theirs.policy_interface() or ours.weights != theirs.weights:
            raise ValueError(f"packet: signals, history, action, clock and reward must be those of the data set {data.name!r}")

    def _check_logs(self) -> None:
        """Refuse logs of evaluations that do not take place."""
        log_values = {name: getattr(self.log, name) for name in ("networks", "exploitability_flow_steps", "video")}
        enabled = [name for name, value in log_values.items() if value]
        if enabled and not self.evaluation.every_steps:
            raise ValueError(f"log.{enabled[0]} needs evaluations: set evaluation.every_steps")
        if self.trains != "sender" and {"networks", "exploitability_flow_steps"} & set(enabled):
            raise ValueError(f"log.{enabled[0]} is for senders, not for a {self.algorithm} {self.trains}")
        for name in self.log.networks:
            make_adversary(name)

    @property
    def iteration_steps(self) -> int:
        """Steps of all rows per iteration."""
        settings: PpoSettings | OffPolicySettings = getattr(self, self.algorithm)
        return (self.num_envs if self.own_times else self.num_rows) * settings.n_steps

    def warm_policy(self) -> PolicySender | None:
        """Return the policy to begin with, if there is one. Raises ValueError for one that does not fit."""
        if not self.warm_start:
            return None
        policy = load_target(_LOAD_SENDER)(self.warm_start)
        if self.algorithm != "ppo" or self.trains != "sender" or not isinstance(policy, PolicySender):
            raise ValueError(f"warm_start: {self.warm_start!r} is no policy for a PPO sender")
        sees = self.environment.interface if self.packet is None else self.packet_settings().policy_interface()
        sees = sees or SENDER_V0
        if (policy.interface.signals, policy.interface.history) != (sees.signals, sees.history):
            of_policy, of_run = (f"{', '.join(i.signals)} (history {i.history})" for i in (policy.interface, sees))
            raise ValueError(f"warm_start: {self.warm_start!r} sees {of_policy}; this run sees {of_run}")
        hidden = [weight.shape[1] for weight in policy.weights[:-1]]
        if hidden != list(self.ppo.hidden) or policy.activation != self.ppo.activation or set(policy.stage_kinds) != {"dense"}:
            wanted = f"{list(self.ppo.hidden)} with {self.ppo.activation!r}"
            raise ValueError(f"warm_start: {self.warm_start!r} has layers {hidden} with {policy.activation!r}, not {wanted}")
        return policy

    @property
    def activation(self) -> Literal["tanh", "relu"]:
        """Activation of the action network."""
        return self.ppo.activation if self.algorithm == "ppo" else "tanh"

    def environment_at(self, step: int) -> EnvSettings:
        """Return the environment of an iteration that starts at a step: a stage's, or the config's own after the last."""
        for stage in self.curriculum:
            if step < stage.until_step:
                changed = {"models": stage.models, "paths": stage.paths}
                return validate(
                    EnvSettings, {**dict(self.environment), **{k: v for k, v in changed.items() if v is not None}}, "stage"
                )
        return self.environment

    @property
    def iterations(self) -> int:
        """Number of iterations."""
        return -(-self.total_steps // self.iteration_steps)

    def to_yaml(self) -> str:
        """Return the resolved config, every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)

    def same_run(self, other: TrainConfig) -> bool:
        """Tell whether a checkpoint of the other config can go on as this one: all but length and logs must agree."""
        free = {"total_steps", "log", "checkpoint_every_steps"}
        if not self.early_stop.patience:
            free |= {"evaluation"}
        return self.model_dump(mode="json", exclude=free) == other.model_dump(mode="json", exclude=free)


def load_data(name: str, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """Return the unchecked data of a config (shipped name or YAML file) after ``extends`` and overrides, and the file's name.

    Overrides are read by :func:`ccenv.base.settings.read_pairs`. The key ``shield`` is short for ``environment.shield`` or
    ``packet.shield``; a path may be relative to the config.
    """
    file = find_data(CONFIGS, name, ".yaml", "config")
    data = _read_extended(file, ())
    data["name"] = data.get("name", file.stem)
    data = with_keys_of_today(data)
    put(data, {today(key): value for key, value in read_pairs(overrides, last_wins=True).items()})
    shield = data.pop("shield", None)
    if shield is not None:
        group = "packet" if data.get("packet") is not None else "environment"
        settings = data.setdefault(group, {})
        if not isinstance(settings, dict):
            raise InputError(f"{file}: {group} is {shown(settings)}; a mapping of keys to values is needed")
        beside = file.parent / shield if isinstance(shield, str) and shield.endswith(".json") else None
        settings["shield"] = str(beside) if beside is not None and is_file(beside) else shield
    return data, str(file)


def load_config(name: str, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read the config of a run of Stable-Baselines3; arguments as of :func:`load_data`.

    Raises:
        InputError: one line, with the nearest valid names for an unknown key.
    """
    data, source = load_data(name, overrides)
    if data.get("trains") == "network" and isinstance(data.get("environment", {}), dict):
        data["environment"] = {**network.DEFAULTS, **data.get("environment", {})}
    return validate(TrainConfig, data, source)


def as_config(given: TrainConfig | str | os.PathLike[str]) -> TrainConfig:
    """Return the config of a shipped name or a YAML file, or itself. Raises InputError for anything else."""
    if isinstance(given, TrainConfig):
        return given
    if not isinstance(given, (str, os.PathLike)):
        raise InputError(f"{shown(given)} is no training config: give a name (ccenv list configs) or a YAML file")
    return load_config(os.fspath(given))


def _read_extended(file: FilePath, seen: tuple[FilePath, ...]) -> dict[str, Any]:
    """Read a config on top of the one that it extends (a shipped name, or a path beside it); groups are merged key by key."""
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself, by way of {', '.join(f.name for f in seen)}")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: a mapping of keys to values is needed")
    base = data.pop("extends", None)
    if base is None:
        return data
    if not isinstance(base, str):
        raise InputError(f"{file}: extends: a name or path is needed, not {shown(base)}")
    beside = resolve_inside(file.parent, base, f"{file}: extends")
    below = _read_extended(beside if is_file(beside) else find_data(CONFIGS, base, ".yaml", "config"), (*seen, file.resolve()))
    below.pop("name", None)
    return _merge(below, data)


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merge(out[key], value) if both else value
    return out


def read_config(file: FilePath) -> TrainConfig:
    """Read the resolved config of a run."""
    return validate(TrainConfig, read_yaml(file), str(file))
