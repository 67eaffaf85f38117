"""The config of a league: a typed YAML file."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

import yaml
from pydantic import Field, model_validator

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.attacks.catalog import SEARCHES, make_search
from ccenv.base.config import StrictModel, find_data, validate
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.foreign import read_yaml
from ccenv.base.settings import put
from ccenv.envs.curve.distribution import LogRange, PathDistribution, Range
from ccenv.envs.curve.settings import RewardWeights
from ccenv.network.adversary import MlpAdversary, ScriptedAdversary
from ccenv.training.config import TrainConfig, load_config

CONFIGS = "ccenv.configs.league"
MODEL = "ccac"
LEAST_PLAYERS = 2


class ScenePaths(PathDistribution):
    """A :class:`PathDistribution` whose defaults always leave the network a choice."""

    jitter_rtts: Range = (0.5, 2.0)
    buffer_bdp: LogRange = (0.5, 8.0)
    seeded_share: float = Field(default=0.0, ge=0, le=1)


class Scenes(StrictModel):
    """The paths on which networks attack, drawn once from the league's seed.

    Attributes:
        count: paths on which senders and networks learn.
        hold_outs: further paths, on which nothing is trained or chosen.
        paths: distribution of both; every flow has a jitter of at least one step.
    """

    count: int = Field(ge=1, le=64)
    hold_outs: int = Field(ge=1, le=64)
    paths: ScenePaths = ScenePaths()

    @model_validator(mode="after")
    def _something_to_choose(self) -> Scenes:
        if not self.paths.jitter_rtts[0] > 0:
            raise ValueError(
                f"paths.jitter_rtts begins at {self.paths.jitter_rtts[0]:g}: without jitter the network has no choice"
            )
        return self


class LeagueConfig(StrictModel):
    """A league.

    Attributes:
        name: by default the name of the file.
        seed: of everything random.
        rounds: in each round both sides answer the other's mixture, and the answers join the populations.
        senders: initial population besides the policy that is trained first: names of ``ccenv.agents.make_sender``.
        networks: initial population: scripted or learned adversaries.
        training: config of ``ccenv train`` for the sender's answers: a PPO sender alone on its link.
        start_steps: environment steps of the first policy, on nominal networks.
        round_steps: environment steps of each answer; it begins as the best policy of the population.
        log_std: logarithm of the standard deviation of the actions, reset when an answer begins.
        uniform: share of the attacked environments that play the networks of the population uniformly, not by their mixture.
        share: weight of the attacked paths in the payoff, and share of the environments that are attacked in training.
        scenes: the paths.
        steps_per_rtt: K.
        warmup_rtts: Rm before the window in which an attacked path is measured; the attack runs already.
        window_rtts: Rm measured.
        nominal_paths: random paths of the training config's distribution for the rest of the payoff.
        searches: of ``ccenv attack``, the network's answers.
        search_flow_steps: of each search in each scenario; a mixture of n senders takes n times as many.
        answers: networks that join in a round: the worst in each scenario, the worst of another search, and so on.
        search_senders: number of the heaviest senders of a mixture that searches play against; all senders judge the findings.
        hold_outs: adversaries and searches that no sender is trained against, on the hold-out paths; another parameter of one
            that is trained against does not make a hold-out.
        hold_out_flow_steps: of each such search.
        interval: share of the bootstrapped exploitabilities in the interval.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,47}$")
    seed: int = Field(default=0, ge=0, lt=2**31)
    rounds: int = Field(ge=1, le=1000)
    senders: tuple[str, ...] = Field(max_length=64)
    networks: tuple[str, ...] = Field(max_length=64)
    training: TrainConfig
    start_steps: int = Field(ge=1)
    round_steps: int = Field(ge=1)
    log_std: float = Field(default=-1.5, ge=-10, le=2)
    uniform: float = Field(default=0.5, ge=0, le=1)
    share: float = Field(default=0.5, gt=0, lt=1)
    scenes: Scenes
    steps_per_rtt: int = Field(default=8, ge=1, le=64)
    warmup_rtts: int = Field(default=60, ge=1, le=1000)
    window_rtts: int = Field(default=60, ge=1, le=1000)
    nominal_paths: int = Field(default=128, ge=2, le=8192)
    searches: tuple[str, ...] = Field(min_length=1, max_length=16)
    search_flow_steps: int = Field(ge=1)
    answers: int = Field(default=2, ge=1, le=16)
    search_senders: int = Field(default=3, ge=1, le=16)
    hold_outs: tuple[str, ...] = Field(min_length=1, max_length=16)
    hold_out_flow_steps: int = Field(ge=1)
    interval: float = Field(default=0.95, gt=0.5, lt=1)

    @model_validator(mode="after")
    def _consistent(self) -> LeagueConfig:
        for what in ("senders", "networks", "searches", "hold_outs"):
            names = getattr(self, what)
            if len(set(names)) != len(names):
                raise ValueError(f"{what}: one is named twice in {', '.join(names)}")
        for what, size in (("senders", 1 + len(self.senders)), ("networks", len(self.networks))):
            if size < LEAST_PLAYERS:
                raise ValueError(
                    f"{what}: a population of one player cannot mix; at least {LEAST_PLAYERS} are needed"
                    f"{', the policy that is trained first among them' if what == 'senders' else ''}"
                )
        for name in self.senders:
            make_sender(name)
        for name in self.networks:
            if not isinstance(make_adversary(name), (MlpAdversary, ScriptedAdversary)):
                raise ValueError(f"networks: {name!r} is neither a scripted nor a learned adversary")
        self._check_training()
        self._check_searches()
        return self

    def _check_training(self) -> None:
        train = self.training
        plain = train.packet is None and train.environment.interface is None and train.environment.shield is None
        if train.trains != "sender" or train.algorithm != "ppo" or train.shared_policy or not plain:
            raise ValueError("training: a PPO sender with the belief interface on the curve environments is needed")
        if len(train.environment.senders) != 1 or train.curriculum or train.robust is not None:
            raise ValueError("training: one flow, no curriculum and no robust rounds: the league is where it is attacked")
        if not isinstance(train.environment.paths, PathDistribution):
            raise ValueError("training: environment.paths must be a distribution")
        if train.environment.reward != RewardWeights():
            raise ValueError("training: the reward must be the usual one: it is the nominal part of the payoff")
        if not 0 < self.attacked_envs < train.num_envs:
            raise ValueError(f"share {self.share:g} of training.num_envs {train.num_envs} leaves one side without environments")

    def _check_searches(self) -> None:
        for what, specs, budget in (
            ("search_flow_steps", self.searches, self.search_flow_steps),
            ("hold_out_flow_steps", self.hold_outs, self.hold_out_flow_steps),
        ):
            for spec in specs:
                search = make_search(spec, code=False)
                if search.weight and budget < self.run_steps:
                    raise ValueError(f"{what} is {budget}, too small for one evaluation: a run takes {self.run_steps}")
        for spec in self.searches:
            if spec.partition(":")[0] not in SEARCHES.names("search"):
                raise unknown_name("search", spec.partition(":")[0], SEARCHES.names("search"))
        if self.answers > len(self.searches):
            raise ValueError(f"answers is {self.answers}; there are {len(self.searches)} searches")
        trained = {spec.partition(":")[0]: spec for spec in (*self.searches, *self.networks)}
        for spec in self.hold_outs:
            trained_spec = trained.get(spec.partition(":")[0])
            if trained_spec is not None:
                raise ValueError(f"hold_outs: {spec!r}: {trained_spec!r} is trained against; a hold-out is what nobody has met")

    @property
    def run_steps(self) -> int:
        return (self.warmup_rtts + self.window_rtts) * self.steps_per_rtt

    @property
    def attacked_envs(self) -> int:
        return round(self.share * self.training.num_envs)

    @property
    def nominal_distribution(self) -> PathDistribution:
        paths = self.training.environment.paths
        return paths if isinstance(paths, PathDistribution) else PathDistribution()

    def training_config(self, seed: int, steps: int) -> TrainConfig:
        """Return the training config of an answer: the league's grid, network and length of episodes."""
        environment = self.training.environment.model_copy(
            update={
                "steps_per_rtt": self.steps_per_rtt,
                "decision_steps": None,
                "models": (MODEL,),
                "episode_rtts": self.warmup_rtts + self.window_rtts,
            }
        )
        return self.training.model_copy(update={"environment": environment, "seed": seed, "total_steps": steps})

    def to_yaml(self) -> str:
        """Return the resolved config, every default written out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False)


def load_league(name: str, overrides: dict[str, Any] | None = None) -> LeagueConfig:
    """Read the config of a league.

    Raises:
        UnknownNameError: for a name that nothing has.
        InputError: one line, with the nearest valid names for an unknown key.
    """
    file = find_data(CONFIGS, name, ".yaml", "league")
    data = read_yaml(file)
    if not isinstance(data, dict):
        raise InputError(f"{file}: a mapping of keys to values is needed")
    data = put({"name": FilePath(file).stem, **data}, overrides or {})
    if isinstance(data.get("training"), str):
        data["training"] = load_config(data["training"])
    return validate(LeagueConfig, data, str(file))
