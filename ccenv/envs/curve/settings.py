"""Settings of the curve environments, whose fields are the adapters' keyword arguments; reward terms; the default adversary.

Reward terms are per environment step and dimensionless. The default adversary draws one of four types of moves per episode.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, model_validator

from ccenv.agents.callbacks import record
from ccenv.agents.interface.actions import ACTION_NUMBERS, action
from ccenv.agents.interface.interface import Clock, Interface, Weights, read_interface
from ccenv.agents.interface.rewards import REWARDS, TERM_NUMBERS, TERMS
from ccenv.agents.interface.signals import CURVE
from ccenv.agents.interface.user import OwnReward, OwnSignals, as_signals, is_own_reward, own_reward
from ccenv.agents.programs import Program, parse_program, to_data
from ccenv.agents.sender import ClassicSender, ExternalSender, Sender, ShieldSender
from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import InputError, UnexpectedArgumentError, did_you_mean, unknown_name
from ccenv.base.kernels.decorator import kernel
from ccenv.base.random import uniform
from ccenv.base.registry import load_target
from ccenv.base.renamed import today
from ccenv.engine.compiled.beliefs import BeliefSettings, belief_settings
from ccenv.envs.curve.distribution import PathDistribution
from ccenv.network.adversary import Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, ScriptedAdversary
from ccenv.network.path import Path, get_model

# Fields of the state: cumulative shares of the types, then the draws of one episode.
MIXTURE_STATE = record(
    "below_kind", "below_uniform", "below_sticky", "choice", "service", "waste", "service_half_steps", "waste_half_steps"
)


class MoveMixture(StrictModel):
    """Relative frequencies of the types of moves, one type per episode.

    Attributes:
        kind: benign: delivers everything at once and wastes every spare token.
        uniform: independent uniform moves in each step.
        sticky: uniform moves kept for two Rm on average.
        bang_bang: moves that switch between 0 and 1, with half periods of one step to four Rm.
    """

    kind: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    uniform: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    sticky: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    bang_bang: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _some(self) -> MoveMixture:
        if not self.kind + self.uniform + self.sticky + self.bang_bang > 0:
            raise ValueError("at least one share must be positive")
        return self

    def adversary(self) -> ScriptedAdversary:
        """Return the adversary that plays this mixture."""
        total = self.kind + self.uniform + self.sticky + self.bang_bang
        shares = {
            "below_kind": self.kind / total,
            "below_uniform": (self.kind + self.uniform) / total,
            "below_sticky": (self.kind + self.uniform + self.sticky) / total,
        }
        return ScriptedAdversary("mixture", MIXTURE_STATE, init, play, shares)


def init(state: Any, view: Any) -> None:
    """Draw the type of this episode's moves, the same for all flows."""
    state.choice = uniform(view.seed, view.env, 0.0, 0.0)
    state.service = uniform(view.seed, view.env, view.flow, 1.0)
    state.waste = uniform(view.seed, view.env, view.flow, 2.0)
    state.service_half_steps = 1.0 + (uniform(view.seed, view.env, view.flow, 3.0) * 4.0 * view.steps_per_rtt) // 1.0
    state.waste_half_steps = 1.0 + (uniform(view.seed, view.env, view.flow, 4.0) * 4.0 * view.steps_per_rtt) // 1.0


def play(state: Any, view: Any, move: Any) -> None:
    """Choose the moves of one flow for one step."""
    move.loss = 0.0
    if state.choice < state.below_kind:
        move.service = 1.0
        move.waste = 1.0
        move.rate = 1.0
        return
    counter = 5.0 + 3.0 * view.step
    if state.choice < state.below_uniform:
        move.service = uniform(view.seed, view.env, view.flow, counter)
        move.waste = uniform(view.seed, view.env, view.flow, counter + 1.0)
    elif state.choice < state.below_sticky:
        if uniform(view.seed, view.env, view.flow, counter + 2.0) * 2.0 * view.steps_per_rtt < 1.0:
            state.service = uniform(view.seed, view.env, view.flow, counter)
            state.waste = uniform(view.seed, view.env, view.flow, counter + 1.0)
        move.service = state.service
        move.waste = state.waste
    else:
        move.service = (view.step // state.service_half_steps) % 2.0
        move.waste = (view.step // state.waste_half_steps) % 2.0
    move.rate = move.service


REWARD_TERMS = ("utilisation", "queue", "loss", "delay", "jain")
_UTILISATION, _QUEUE, _LOSS, _DELAY, _JAIN = range(len(REWARD_TERMS))
_N_TERMS = len(REWARD_TERMS)


class RewardWeights(StrictModel):
    """Weight of each term of a reward.

    Attributes:
        utilisation: bytes delivered in the step / bytes that the link could carry in it.
        queue: bytes waiting at the bottleneck at the end of the step / (C*Rm).
        loss: bytes lost in the step / bytes that the link could carry in it; for steps of one Rm that is loss / (C*Rm).
        delay: mean queueing and jitter delay of the bytes acknowledged in the step / Rm.
        jain: Jain's fairness index of the bytes delivered of all flows of the path in the step; 1 for a single flow.
    """

    utilisation: float = Field(default=1.0, allow_inf_nan=False)
    queue: float = Field(default=-0.1, allow_inf_nan=False)
    loss: float = Field(default=-1.0, allow_inf_nan=False)
    delay: float = Field(default=0.0, allow_inf_nan=False)
    jain: float = Field(default=0.0, allow_inf_nan=False)

    def vector(self) -> np.ndarray:
        """Return the weights in the order of TERMS."""
        return np.array([getattr(self, name) for name in REWARD_TERMS])


@kernel
def fill_terms(counts, b, capacity_bytes, queue, rtt_s, groups, out):  # type: ignore[no-untyped-def]
    """Write the terms of environment b to out, (G, len(TERMS)); arguments as of ``interval_terms``, two of them scalar."""
    n_flows = rtt_s.shape[1]
    total = 0.0
    squares = 0.0
    for i in range(n_flows):
        total += counts[0, b, i]
        squares += counts[0, b, i] ** 2
    jain = total * total / (n_flows * squares) if squares > 0.0 else 1.0
    for g in range(groups.shape[0]):
        served = 0.0
        lost = 0.0
        acked = 0.0
        delay = 0.0
        for i in range(n_flows):
            if groups[g, i]:
                served += counts[0, b, i]
                lost += counts[1, b, i]
                acked += counts[2, b, i]
                delay += counts[3, b, i] / rtt_s[b, i]
        out[g, _UTILISATION] = served / capacity_bytes
        out[g, _QUEUE] = queue
        out[g, _LOSS] = lost / capacity_bytes
        out[g, _DELAY] = delay / acked if acked > 0.0 else 0.0
        out[g, _JAIN] = jain


@kernel
def interval_terms(counts, capacity_bytes, queue, rtt_s, groups):  # type: ignore[no-untyped-def]
    """Compute the terms of one step.

    Args:
        counts: (4, B, N) bytes delivered, lost, acknowledged in the step, and bytes times their delay in seconds.
        capacity_bytes: (B,) bytes that the link could carry in the step.
        queue: (B,) bytes waiting at the end of the step / (C*Rm).
        rtt_s: (B, N) Rm.
        groups: (G, N) bool, the flows of each row of terms; Jain's index is of all flows.

    Returns:
        (B, G, len(TERMS)) terms.
    """
    out = np.empty((rtt_s.shape[0], groups.shape[0], _N_TERMS))
    for b in range(rtt_s.shape[0]):
        fill_terms(counts, b, capacity_bytes[b], queue[b], rtt_s, groups, out[b])
    return out


@kernel
def weigh(terms, weights):  # type: ignore[no-untyped-def]
    """Return the weighted sums (n,) of terms (n, len(TERMS)), in a fixed order of additions."""
    out = np.zeros(len(terms))
    for b in range(len(terms)):
        for term in range(len(weights)):
            out[b] += weights[term] * terms[b, term]
    return out


EXTERNAL = "external"
BOX, DISCRETE = "box", "discrete"
"""The default actions of these environments: ``rate_log2`` of the table, continuous or discrete."""
# Looked up at run time; the core itself imports neither agents nor adversaries.
_MAKE_SENDER = "ccenv.agents.load:load_sender"
_LOAD_SHIELD = "ccenv.agents.wrapped:load_shield"
_MAKE_ADVERSARY = "ccenv.adversaries.load:load_adversary"


def _as_paths(value: Any) -> Any:
    if isinstance(value, dict):
        return validate(Path if "flows" in value else PathDistribution, value, "paths")
    if isinstance(value, list):
        return tuple(validate(Path, item, "paths") if isinstance(item, dict) else item for item in value)
    return value


def _check_model(name: str) -> str:
    return get_model(name).name


class TableReward(StrictModel):
    """A reward of the table's terms (``ccenv.agents.interface.rewards``).

    Attributes:
        weights: by name of the term.
    """

    weights: Weights = Field(min_length=1)

    @model_validator(mode="after")
    def _finite(self) -> TableReward:
        for name, weight in self.weights.items():
            if not np.isfinite(weight):
                raise ValueError(f"the weight of {name!r} is {weight}; it must be finite")
        return self

    def vector(self) -> np.ndarray:
        """Return the weights in the order of the table."""
        return np.array([self.weights.get(row.name, 0.0) for row in TERMS])


def _as_reward(value: Any) -> Any:
    """Read a reward: the name of a set, weights (of these environments' own terms or of the table's), or user code."""
    if is_own_reward(value):
        return own_reward(value)
    if isinstance(value, str):
        if value not in REWARDS:
            raise ValueError(str(unknown_name("reward", value, REWARDS)))
        return TableReward(weights=REWARDS[value])
    if not isinstance(value, dict):
        return value
    if set(value) == {"weights"}:  # as it is stored
        return validate(TableReward, value, "reward")
    names = {*RewardWeights.model_fields, *TERM_NUMBERS}
    for name in value:
        if name not in names:
            raise ValueError(str(unknown_name("reward term", str(name), names)))
    if set(value) <= set(RewardWeights.model_fields):
        return validate(RewardWeights, value, "reward")
    return validate(TableReward, {"weights": value}, "reward")


def _check_action(name: str) -> str:
    if name not in (BOX, DISCRETE) and name not in ACTION_NUMBERS:
        raise ValueError(str(unknown_name("action", name, (BOX, DISCRETE, *ACTION_NUMBERS))))
    return name


def _as_adversary(value: Any) -> Any:
    if isinstance(value, dict):
        return validate(MoveMixture, value, "adversary")
    if not isinstance(value, (str, MoveMixture, ScriptedAdversary, ExternalAdversary, RecordedAdversary, MlpAdversary)):
        raise ValueError("neither a name, a mixture of moves nor an adversary")
    return value


def _check_sender(value: Any) -> Any:
    if not isinstance(value, (str, *get_args(Sender))):
        raise ValueError("neither a name nor a sender")
    return value


def as_shield(value: Any) -> Any:
    """Return the document of a shield, as stored in a resolved config; a name or a path is looked up."""
    if value is None:
        return None
    if isinstance(value, str):
        program = load_target(_LOAD_SHIELD)(value)
    elif isinstance(value, (Program, dict)):
        program = value if isinstance(value, Program) else parse_program(value, "shield")
    else:
        raise ValueError("neither a name, a file nor a shield")
    from ccenv.proofs.senders.intervals import require_intervals  # only shields need the solver

    ShieldSender("shield", program, EXTERNAL)  # refuses a program without intervals
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
        reward: weights of ``RewardWeights``; or the name of a set or weights of the table's terms
            (``ccenv.agents.interface.rewards``), computed for each controlled flow and averaged over those of a row. Weights
            whose names all occur in ``RewardWeights`` are of its terms. Or a user-defined reward, slow: a function of
            ``ccenv.agents.interface.user.StepTerms``, or a Python file (``FILE.py``, ``FILE.py:NAME``).
        signals: observation of a controlled flow: names of the table (``ccenv.agents.interface.signals``), or the name of a set;
            None: beliefs. A list may also include user-defined functions of its signals, or Python files (``FILE.py``,
            ``FILE.py:NAME``; ``ccenv.agents.interface.user``).
        history: observed intervals, the newest last; None: that of the set, else 1.
        action: ``"box"`` or ``"discrete"``, or the name of an action of the table (``ccenv.agents.interface.actions``).
        action_parameters: of an action of the table.
        inner: the inner CCA, for actions of the table that build on one.
        discrete: an action of the table has ``n_actions`` values.
        shield: None, or a shield (a file, the name of an agent that runs inside one, a ``Program`` or its document): an
            action a of an external flow is then the position u = (a + 1) / 2 in the shield's interval of rates.
        n_actions: number of discrete values of each action, evenly spaced over the box.
        steps_per_rtt: K, engine steps per smallest Rm.
        decision_steps: engine steps per environment step; None: K, one decision per smallest Rm.
        episode_rtts: length of an episode in smallest Rm.
        staggered: end the first episode of each environment at a random time, so that a batch does not reset all at once.
        loss_detection: ``"acks"`` or ``"oracle"`` (``CurveEngine``).
        beliefs: preset of the beliefs: time-outs as in ``"artefact"``, ``"paper"`` or ``"no_timeout"``; ``"untold"``: as
            ``artefact``, but senders estimate Rm and D; ``"tighter"``: as ``artefact`` with more rules (docs/engine.md).
        threads: for large batches; results do not depend on it.
        step_info: put the reward terms (``step_utilisation``, ...) and ``time_s``, the path's time, into the info of every step.
    """

    paths: Annotated[PathDistribution | Path | tuple[Path, ...], BeforeValidator(_as_paths)] = PathDistribution()
    models: tuple[Annotated[str, AfterValidator(_check_model)], ...] = Field(default=("ccac",), min_length=1)
    senders: tuple[Annotated[Any, AfterValidator(_check_sender)], ...] = Field(default=(EXTERNAL,), min_length=1)
    adversary: Annotated[Any, AfterValidator(_as_adversary)] = MoveMixture()
    reward: Annotated[RewardWeights | TableReward | OwnReward, BeforeValidator(_as_reward)] = RewardWeights()
    signals: Annotated[str | tuple[str | InstanceOf[OwnSignals], ...] | None, BeforeValidator(as_signals)] = None
    history: int | None = None
    action: Annotated[str, AfterValidator(_check_action)] = BOX
    action_parameters: dict[str, float] = Field(default_factory=dict)
    inner: str = ""
    discrete: bool = False
    shield: Annotated[Any, BeforeValidator(as_shield)] = None
    n_actions: int = Field(default=13, ge=2, le=1001)
    steps_per_rtt: int = Field(default=8, ge=1, le=1024)
    decision_steps: int | None = Field(default=None, ge=1)
    episode_rtts: int = Field(default=64, ge=2)
    staggered: bool = False
    loss_detection: Literal["acks", "oracle"] = "acks"
    beliefs: str = "artefact"
    threads: int = Field(default=1, ge=1)
    step_info: bool = False

    @model_validator(mode="after")
    def _check_interface(self) -> EnvSettings:
        """Check signals and action; settings of the table's interface need one."""
        sees = self.interface
        if sees is None:
            extra = {"action_parameters": self.action_parameters, "inner": self.inner, "discrete": self.discrete}
            for name, value in extra.items():
                if value:
                    raise ValueError(f"{name} is given, but signals and action are those of the belief interface: name them")
            return self
        for row in sees.rows:
            if CURVE not in row.engines:
                raise ValueError(f"signals: {row.name!r} is not known on the curve engine")
            if row.needs == "truth":
                raise ValueError(f"signals: {row.name!r} is for critics: no sender can measure it")
        if action(sees.action).needs == "shield":
            raise ValueError(f"action {sees.action!r} needs a shield, which these environments do not have")
        return self

    @property
    def interface(self) -> Interface | None:
        """Interface of the controlled flows by the tables; None: the belief interface of ``ccenv/Sender-v0``."""
        has_default_fields = self.signals is None and self.history is None and self.action in (BOX, DISCRETE)
        if has_default_fields and isinstance(self.reward, RewardWeights):
            return None
        steps = (self.decision_steps or self.steps_per_rtt) / self.steps_per_rtt
        data: dict[str, Any] = {"signals": "beliefs" if self.signals is None else self.signals, "inner": self.inner}
        data |= {"action": "rate_log2" if self.action in (BOX, DISCRETE) else self.action, "parameters": self.action_parameters}
        data |= {} if self.history is None else {"history": self.history}
        return read_interface(data | {"clock": Clock(every="rtt", count=steps)}, "signals and action")

    def require_beliefs(self, where: str) -> None:
        """Raise InputError for signals, action or reward of the tables in an environment that has none."""
        if self.interface is not None:
            raise InputError(f"{where}: signals, actions and rewards of the tables are for the senders of ccenv/Sender-v0")

    @property
    def is_discrete(self) -> bool:
        """Tell whether actions are discrete."""
        return self.discrete or self.action == DISCRETE

    @model_validator(mode="after")
    def _somebody_chooses(self) -> EnvSettings:
        if self.shield is not None and self.interface is not None:
            raise ValueError("shield: inside one, signals, action and reward are those of the belief interface; leave them out")
        if self.shield is not None and EXTERNAL not in self.senders:
            raise ValueError("shield is given, but senders names no 'external' flow that could choose inside it")
        return self

    def shield_program(self) -> Program | None:
        """Return the shield of the external flows; None if their actions are rates."""
        return None if self.shield is None else parse_program(self.shield, "shield")

    def build_senders(self) -> list[Sender]:
        """Return the sender of each flow; names are looked up among the agents."""
        shield = self.shield_program()
        inner = _build_sender(self.inner) if self.inner else None
        if inner is not None and not isinstance(inner, ClassicSender):
            raise InputError(f"inner {self.inner!r} is no classic CCA")
        external = ExternalSender(inner=inner) if shield is None else ShieldSender(shield.name, shield, EXTERNAL)
        return [external if sender == EXTERNAL else _build_sender(sender) for sender in self.senders]

    def external_flows(self) -> list[int]:
        """Return the indices of the flows that an agent controls."""
        return [flow for flow, sender in enumerate(self.senders) if sender == EXTERNAL]

    def build_adversary(self) -> Adversary:
        """Return the adversary; a name is looked up in the registry."""
        if isinstance(self.adversary, MoveMixture):
            return self.adversary.adversary()
        if self.adversary == EXTERNAL:
            return ExternalAdversary()
        named = isinstance(self.adversary, str)
        adversary: Adversary = load_target(_MAKE_ADVERSARY)(self.adversary) if named else self.adversary
        return adversary

    def belief_settings(self) -> BeliefSettings:
        """Return the preset's settings."""
        return belief_settings(self.beliefs)


def require_arguments(model: type[StrictModel], arguments: dict[str, Any], where: str) -> None:
    """Raise UnexpectedArgumentError for a keyword argument that is neither a field of the settings nor ``max_episode_steps``."""
    valid = [*model.model_fields, "max_episode_steps"]
    for name in arguments:
        if today(name) not in valid:
            raise UnexpectedArgumentError(f"{where}: got an unexpected keyword argument {name!r}.{did_you_mean(name, valid)}")


def read_settings(arguments: dict[str, Any], where: str, defaults: dict[str, Any] | None = None) -> EnvSettings:
    """Check the keyword arguments of the environment ``where``, whose ``defaults`` differ from those of the fields.

    Raises:
        UnexpectedArgumentError: for an unknown argument, with the nearest valid names; it is an InputError and a TypeError.
        InputError: one line, for a value that is not allowed.
    """
    require_arguments(EnvSettings, arguments, where)
    arguments = dict(arguments)
    max_episode_steps = arguments.pop("max_episode_steps", None)
    settings = validate(EnvSettings, {**(defaults or {}), **arguments}, where)
    if max_episode_steps is None:
        return settings
    if "episode_rtts" in arguments:
        raise InputError(f"{where}: give either episode_rtts or max_episode_steps, not both")
    if type(max_episode_steps) is not int or max_episode_steps < 2:
        raise InputError(f"{where}: max_episode_steps is {max_episode_steps!r}; a whole number of at least 2 is needed")
    steps = settings.decision_steps or settings.steps_per_rtt
    if max_episode_steps * steps % settings.steps_per_rtt:
        raise InputError(f"{where}: max_episode_steps {max_episode_steps} is not a whole number of Rm")
    return settings.model_copy(update={"episode_rtts": max_episode_steps * steps // settings.steps_per_rtt})


def _build_sender(sender: str | Sender) -> Sender:
    return load_target(_MAKE_SENDER)(sender) if isinstance(sender, str) else sender
