"""What all environments can be told, in one typed model; the keyword arguments of every adapter are its fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from ccenv.config import StrictModel, validate
from ccenv.engine.compiled.beliefs import BeliefSettings, belief_settings
from ccenv.envs.distribution import PathDistribution
from ccenv.envs.mixture import MoveMixture
from ccenv.envs.reward import RewardWeights
from ccenv.errors import InputError
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.model import get_model
from ccenv.network.path import Path
from ccenv.network.sender import ContractSender, ExternalSender, Sender
from ccenv.programs import Program, parse_program, to_data
from ccenv.registry import load_target

EXTERNAL = "external"
# Where names are looked up at run time; the core itself imports neither agents nor adversaries.
_MAKE_SENDER = "ccenv.agents.files:load_sender"
_LOAD_CONTRACT = "ccenv.agents.contract:load_contract"
_MAKE_ADVERSARY = "ccenv.adversaries:make_adversary"


def _as_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return validate(Path if "flows" in value else PathDistribution, value, "paths")
    if isinstance(value, list):
        return tuple(validate(Path, item, "paths") if isinstance(item, dict) else item for item in value)
    return value


def _model_name(name: str) -> str:
    return get_model(name).name


def _as_adversary(value: Any) -> Any:
    if isinstance(value, dict):
        return validate(MoveMixture, value, "adversary")
    if not isinstance(value, (str, MoveMixture, ScriptedAdversary, ExternalAdversary, RecordedAdversary, MlpAdversary)):
        raise ValueError("neither a name, a mixture of moves nor an adversary")
    return value


def _is_sender(value: Any) -> Any:
    if not isinstance(value, (str, *get_args(Sender))):
        raise ValueError("neither a name nor a sender")
    return value


def _as_contract(value: Any) -> Any:
    """Return the document of a contract, which a resolved config then holds; a name or a path is looked up."""
    if value is None:
        return None
    if isinstance(value, str):
        program = load_target(_LOAD_CONTRACT)(value)
    elif isinstance(value, (Program, dict)):
        program = value if isinstance(value, Program) else parse_program(value, "contract")
    else:
        raise ValueError("neither a name, a file nor a contract")
    from ccenv.smt.senders.intervals import require_intervals  # only contracts need the solver

    ContractSender("contract", program, EXTERNAL)  # refuses a program without intervals
    require_intervals(program)
    return to_data(program)


class EnvSettings(StrictModel):
    """Settings of the environments.

    Attributes:
        paths: a ``PathDistribution`` (or the dictionary of one), a ``Path``, or a list of paths.
        models: network models; the environments of a batch are divided among them in this order, a single one takes the first.
        senders: one per flow: ``"external"`` for a flow that the agent controls, else a name for ``ccenv.agents.make_sender``
            or a sender object.
        adversary: a ``MoveMixture`` (or its dictionary), a name for ``ccenv.adversaries.make_adversary`` or an adversary object.
        reward: weights of the terms of the reward.
        action: ``"box"`` or ``"discrete"``.
        contract: None, or a contract (a file, the name of an agent that runs inside one, a ``Program`` or its document): an
            action a of an external flow is then the position u = (a + 1) / 2 in the interval of rates that the contract allows.
        n_actions: number of discrete values of each action, evenly spaced over the box.
        steps_per_rtt: K, engine steps per smallest Rm.
        decision_steps: engine steps per environment step; None: K, one decision per smallest Rm.
        episode_rtts: length of an episode in smallest Rm.
        staggered: let the first episode of each environment end at a random time, so that a batch does not reset all at once.
        loss_detection: ``"acks"`` or ``"oracle"`` (``CurveEngine``).
        beliefs: preset of the belief time-outs, ``"artefact"``, ``"paper"`` or ``"no_timeout"``.
        threads: threads for large batches; results do not depend on it.
    """

    paths: Annotated[PathDistribution | Path | tuple[Path, ...], BeforeValidator(_as_paths)] = PathDistribution()
    models: tuple[Annotated[str, AfterValidator(_model_name)], ...] = Field(default=("ccac",), min_length=1)
    senders: tuple[Annotated[Any, AfterValidator(_is_sender)], ...] = Field(default=(EXTERNAL,), min_length=1)
    adversary: Annotated[Any, AfterValidator(_as_adversary)] = MoveMixture()
    reward: RewardWeights = RewardWeights()
    action: Literal["box", "discrete"] = "box"
    contract: Annotated[Any, BeforeValidator(_as_contract)] = None
    n_actions: int = Field(default=13, ge=2, le=1001)
    steps_per_rtt: int = Field(default=8, ge=1, le=1024)
    decision_steps: int | None = Field(default=None, ge=1)
    episode_rtts: int = Field(default=64, ge=2)
    staggered: bool = False
    loss_detection: Literal["acks", "oracle"] = "acks"
    beliefs: str = "artefact"
    threads: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _somebody_chooses(self) -> EnvSettings:
        if self.contract is not None and EXTERNAL not in self.senders:
            raise ValueError("contract is given, but senders names no 'external' flow that could choose inside it")
        return self

    def contract_program(self) -> Program | None:
        """Return the contract of the external flows; None where their actions are rates."""
        return None if self.contract is None else parse_program(self.contract, "contract")

    def build_senders(self) -> list[Sender]:
        """Return the sender of each flow; names are looked up among the agents."""
        contract = self.contract_program()
        external = ExternalSender() if contract is None else ContractSender(contract.name, contract, EXTERNAL)
        return [external if sender == EXTERNAL else _build_sender(sender) for sender in self.senders]

    def external_flows(self) -> list[int]:
        """Return the indices of the flows that an agent controls."""
        return [flow for flow, sender in enumerate(self.senders) if sender == EXTERNAL]

    def build_adversary(self) -> Adversary:
        """Return the network's player; a name is looked up among the adversaries."""
        if isinstance(self.adversary, MoveMixture):
            return self.adversary.adversary()
        if self.adversary == EXTERNAL:
            return ExternalAdversary()
        named = isinstance(self.adversary, str)
        player: Adversary = load_target(_MAKE_ADVERSARY)(self.adversary) if named else self.adversary
        return player

    def belief_settings(self) -> BeliefSettings:
        """Return the preset's settings."""
        return belief_settings(self.beliefs)


def read_settings(given: dict[str, Any], where: str, defaults: dict[str, Any] | None = None) -> EnvSettings:
    """Check keyword arguments of an environment.

    Args:
        given: what the user passed.
        where: name of the environment, for messages.
        defaults: this environment's own defaults.

    Raises:
        InputError: one line, with the nearest valid names for an unknown argument.
    """
    given = dict(given)
    max_episode_steps = given.pop("max_episode_steps", None)
    settings = validate(EnvSettings, {**(defaults or {}), **given}, where)
    if max_episode_steps is None:
        return settings
    if "episode_rtts" in given:
        raise InputError(f"{where}: give either episode_rtts or max_episode_steps, not both")
    steps = settings.decision_steps or settings.steps_per_rtt
    if max_episode_steps * steps % settings.steps_per_rtt:
        raise InputError(f"{where}: max_episode_steps {max_episode_steps} is not a whole number of Rm")
    return settings.model_copy(update={"episode_rtts": max_episode_steps * steps // settings.steps_per_rtt})


def _build_sender(sender: str | Sender) -> Sender:
    return load_target(_MAKE_SENDER)(sender) if isinstance(sender, str) else sender
