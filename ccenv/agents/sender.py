"""Types of senders, for both engines and the solver. ``ccenv.agents`` registers the agents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ccenv.agents.interface.interface import SENDER_V0, Interface
from ccenv.agents.programs import Program
from ccenv.base.errors import InputError, ProgramError, shown
from ccenv.base.registry import spec_text

CHOOSERS = ("policy", "lo", "hi", "middle", "random", "external")
"""Who chooses inside a shield's interval; ``external``: an environment's action."""

LARGE_LOSS_SEGMENTS = 3.0  # a loss above it is large: [CCmatic] s.5.3


@dataclass(frozen=True)
class ClassicSender:
    """A CCA in the common on_ack/on_loss/on_tick interface (``ccenv.agents.callbacks``)."""

    name: str
    state: np.dtype  # struct type made by `state_record`
    init: Callable[[Any], None]
    on_ack: Callable[[Any, Any], None]
    on_loss: Callable[[Any, Any], None]
    on_tick: Callable[[Any, Any], None]
    parameters: dict[str, float] = field(default_factory=dict)  # initial values of state fields, set before `init` runs
    source_sha256: str = ""  # hash of the file it was loaded from; empty for shipped agents
    per_packet: bool = False  # on_loss is called for each lost packet in turn, not once for all that an ACK or the RTO shows

    def __repr__(self) -> str:
        return f"ClassicSender({spec_text(self.name, self.parameters)})"


@dataclass(frozen=True)
class ProgramSender:
    """A belief program; its rate is decided once per propagation RTT."""

    name: str
    program: Program
    # program before it, until the first interval between decisions in which more than LARGE_LOSS_SEGMENTS are found lost
    # ([CCmatic] s.6.4 and App. H start cc_probe_slow_k so); None: none
    start: Program | None = None

    def __repr__(self) -> str:
        return f"ProgramSender({self.name}{f', starts as {self.start.name}' if self.start else ''})"

    def __post_init__(self) -> None:
        for program in (self.program, self.start):
            if program is not None and program.is_shield:
                raise ProgramError(
                    f"{program.name!r} is a shield: it allows intervals of rates, and somebody must choose inside them "
                    f"(shield:file=FILE,chooser=...: {', '.join(CHOOSERS)})"
                )


GATES = {"gru": 3, "lstm": 4}
"""Recurrent cells and their numbers of gates, in PyTorch's order: reset, update, new; input, forget, cell, output."""
STAGES = ("dense", *GATES)
HEADS = ("mean", "squashed", "categorical")


@dataclass(frozen=True)
class PolicySender:
    """A small network that decides from signals, evaluated in the kernels.

    Attributes:
        weights: per stage (n_in, n_out) float64, of a cell (n_in, gates * n_out).
        biases: per stage (n_out,) float64, of a cell (gates * n_out,).
        activation: ``"tanh"`` or ``"relu"``, after each dense stage but the last, which is linear.
        interface: signals, action and decision times.
        head: the last stage: ``"mean"`` (one output, clipped to [-1, 1]), ``"squashed"`` (its tanh) or ``"categorical"``
            (scores of evenly spaced values from -1 to 1; the first of the highest is taken).
        stages: ``"dense"``, ``"gru"`` or ``"lstm"`` each; empty: all dense.
        hidden_weights: of the cells in their order, (n_out, gates * n_out) float64 each, for their state.
        hidden_biases: of the cells, (gates * n_out,) float64 each.
        inner: the CCA that ``interface.inner`` names, for actions that build on one.
    """

    name: str
    weights: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    activation: str
    interface: Interface = SENDER_V0
    head: str = "mean"
    stages: tuple[str, ...] = ()
    hidden_weights: tuple[np.ndarray, ...] = ()
    hidden_biases: tuple[np.ndarray, ...] = ()
    inner: ClassicSender | None = None

    def __repr__(self) -> str:
        n_numbers = sum(array.size for array in self.arrays)
        return (
            f"PolicySender({self.name}: {len(self.interface.signals)} signals, {len(self.weights)} layers, {n_numbers} numbers)"
        )

    @property
    def stage_kinds(self) -> tuple[str, ...]:
        return self.stages or ("dense",) * len(self.weights)

    @property
    def is_first_version(self) -> bool:
        """Whether its card needs no interface, as in the first version: belief signals, dense stages, a mean."""
        return self.interface == SENDER_V0 and self.head == "mean" and set(self.stage_kinds) == {"dense"}

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return (*self.weights, *self.biases, *self.hidden_weights, *self.hidden_biases)


@dataclass(frozen=True)
class ShieldSender:
    """A chooser inside a shield: once per propagation RTT, rate = lo + u (hi - lo) with u in [0, 1] from the chooser.

    u is clipped to [0, 1] and the rate to [lo, hi] after rounding (``ccenv.agents.programs.rate_at``), so that every chooser
    stays within what was proved of the shield. Raises ProgramError for a program without intervals; InputError for an unknown
    chooser, or a policy that is missing or not needed.
    """

    name: str
    program: Program
    chooser: str  # one of CHOOSERS; `random` draws u anew at each decision, keyed by seed, environment, flow and step
    policy: PolicySender | None = None  # of the chooser `policy`; its output a in [-1, 1] is u = (a + 1) / 2

    def __repr__(self) -> str:
        return f"ShieldSender({self.name}: {self.chooser} chooses inside {self.program.name})"

    def __post_init__(self) -> None:
        if not self.program.is_shield:
            raise ProgramError(f"{self.program.name!r} is no shield: none of its leaves is an interval (rate_between)")
        if self.chooser not in CHOOSERS:
            raise InputError(f"unknown chooser {shown(self.chooser)}; allowed are {', '.join(CHOOSERS)}")
        if (self.chooser == "policy") != (self.policy is not None):
            raise InputError(f"chooser {self.chooser!r} {'needs a policy' if self.policy is None else 'takes no policy'}")
        if self.policy is not None and self.policy.interface != SENDER_V0:
            raise InputError(f"policy {self.policy.name!r}: inside a shield a policy sees the belief signals of SENDER_V0 only")


@dataclass(frozen=True)
class ExternalSender:
    """A flow whose rate comes from outside (an environment's action); ``inner``: the CCA that the action builds on, if any."""

    name: str = "external"
    inner: ClassicSender | None = None

    def __repr__(self) -> str:
        return f"ExternalSender({self.name}{f', on {self.inner.name}' if self.inner else ''})"


@dataclass(frozen=True)
class HeldSender:
    """A sender behind a proxy that delays its ACKs ([Delta] s.5.3): the RTT is longer, the one-way delay of data unchanged.

    Raises InputError for an inner sender that is itself behind a proxy or is driven from outside.
    """

    name: str
    inner: ClassicSender | ProgramSender | PolicySender | ShieldSender  # the sender that reacts to the delayed ACKs
    # `"lambda"`: the smallest RTT becomes target_s ([Delta] Algorithm 1); `"fixed"`: every ACK is held for target_s
    mode: Literal["lambda", "fixed"]
    target_s: float  # lambda, or the delay that is added
    window_s: float = math.inf  # W of Algorithm 1, for lambda

    def __repr__(self) -> str:
        return f"HeldSender({self.name}: {self.inner!r}, {self.mode} {1e3 * self.target_s:g} ms)"

    def __post_init__(self) -> None:
        driven = isinstance(self.inner, ShieldSender) and self.inner.chooser == "external"
        if driven or not isinstance(self.inner, (ClassicSender, ProgramSender, PolicySender, ShieldSender)):
            raise InputError(f"{self.inner.name!r} cannot stand behind a proxy; CCAs, belief programs and policies can")

    def rtt_s(self, propagation_s: float) -> float:
        """Return the Rm as the inner sender sees it, on a path of this propagation RTT."""
        return max(self.target_s, propagation_s) if self.mode == "lambda" else self.target_s + propagation_s


Sender = ClassicSender | ProgramSender | PolicySender | ShieldSender | ExternalSender | HeldSender


def bare(sender: Sender) -> ClassicSender | ProgramSender | PolicySender | ShieldSender | ExternalSender:
    """Return the sender without its proxy."""
    return sender.inner if isinstance(sender, HeldSender) else sender


def takes_one_flow(sender: object) -> bool:
    """Tell whether a sender uses beliefs, which assume that its flow is alone on the link."""
    if isinstance(sender, PolicySender):
        return any(signal.needs == "beliefs" for signal in sender.interface.rows)
    return isinstance(sender, (ProgramSender, ShieldSender))
