"""The setting of a query: network model, buffer, trace length, belief rules. Units: C = Rm = 1, and D = 1 or 0 (ideal)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from ccenv.base.errors import InputError, unknown_name

MODELS = ("ideal", "cbr_delay", "ccac")
BUFFERS = ("infinite", "small", "large", "arbitrary")
LOSS_DETECTIONS = ("oracle", "dupacks")
LARGEST_ALPHA = Fraction(1, 5)
"""MSS < C*Rm/5: a segment is below a fifth of the BDP. Only ratios matter, so alpha spans link rates."""

SMALL_BUFFER = Fraction(1, 2)
"""beta = C*D/2 ([CCmatic] s.6.1)."""

LARGE_BUFFER_RTTS = Fraction(3)
"""beta >= 3*C*(Rm + D) ([CCmatic] s.6.1)."""

LONGEST_TRACE = 40
"""In samples one Rm apart."""

MOST_STEPS_PER_RTT = 8
LONGEST_PAST = 64


@dataclass(frozen=True)
class TimeoutRule:
    """When beliefs are recomputed at the last sample, and how far C_U may rise ([CCmatic] s.5.1.2).

    A bound times out only if it did not move inside the trace, and the other bound did not move by more than ``moved_factor``
    unless the beliefs are empty.
    """

    close_factor: Fraction  # beliefs are tight if C_U <= close_factor * C_L
    rise_factor: Fraction  # C_U becomes at most rise_factor * C_U at a time-out
    moved_factor: Fraction = Fraction(11, 10)  # a bound that moved by more than this factor protects the other one


TIMEOUT_PRESETS: dict[str, TimeoutRule] = {
    "paper": TimeoutRule(Fraction(11, 10), Fraction(2)),
    "artefact": TimeoutRule(Fraction(2), Fraction(3, 2)),
}
"""``paper``: the examples of s.5.1.2. ``artefact``: the constants of the published code, which lemma F.2 survives."""


@dataclass(frozen=True, kw_only=True)
class BeliefRules:
    """Choices where sources differ.

    Attributes:
        upper: windows of C_U: ``paper``, every step shows qdel_L > 0 or a loss (s.5.1.1); ``exact``, no token can have been
            wasted in the window (E(x) > S(x+D) or a loss at x), which is tighter and also sound for window-based senders.
        lambda_extra_steps: 1: C_L_lambda = sent/(T*+D+1), what K = 1 sampling can measure when delays are read off the grid
            with one step of slack; 0: sent/(T*+D) as in (6.2), with one step less of slack in the delay threshold.
        lambda_delay: when a late first byte invalidates a window of C_L_lambda: ``kept``, also in later steps until another byte
            arrives; ``seen``, only in the step that delivers it (the published code). Both are true bounds on C; ``seen`` counts
            more windows.
        timeout: belief time-out at the last sample, or None.
        tighter: C_L and C_U also use bytes sent and lost (docs/engine.md, Tighter rules).
    """

    upper: Literal["paper", "exact"] = "paper"
    lambda_extra_steps: int = 1
    lambda_delay: Literal["kept", "seen"] = "kept"
    timeout: TimeoutRule | None = None
    tighter: bool = False

    def __post_init__(self) -> None:
        if self.tighter and (self.upper != "exact" or self.timeout is not None):
            raise InputError("the tighter belief rules are encoded with the exact windows of C_U and without time-outs")


@dataclass(frozen=True)
class Setting:
    """One encoding of a network.

    Attributes:
        model: ``ideal``, ``cbr_delay`` or ``ccac``.
        buffer: ``infinite``, ``small`` (C*D/2), ``large`` (any beta >= 3C(Rm+D)), ``arbitrary`` (any beta > 0), or beta in
            units of C*Rm.
        samples: T, number of sample points one Rm apart; sample 0 is chosen by the solver. With settle_steps that many more.
        delay_rule: ``sound``: delays of bytes sent before the trace are those of some legal past; ``artefact``: the published
            rules (every delay, up to T steps, grows by at most one step per step and is at most beta/C + D), which exclude
            legal traces.
        sent_before_at_most: None, or (a, b): in each known step before the trace the sender sent at most a*C*Rm + b*MSS.
        broken: names of laws that are left out, for mutation tests only.
        loss_detection: ``oracle``: a loss is known one Rm later; ``dupacks``: window-based senders find it by duplicate ACKs or
            a retransmission time-out (:mod:`ccenv.proofs.senders.window`). Beliefs use the oracle's losses in both cases.
        past_steps: steps before the trace in which the network obeyed its laws, sample by sample; 0: sample 0 is any state that
            the laws of one sample allow, and the sender obeyed ``sent_before_at_most`` as far back as delays look.
        settle_steps: steps at the start of the trace that utilisation does not count; the sender already obeys its rule in them,
            so that the bytes in flight when counting starts are its own.
        past_start: state at the first known sample: ``any`` that the laws of one sample allow, or ``empty``, nothing sent before.
        steps_per_rtt: K, samples per Rm. The network acts in every step; the sender decides every K steps, from sample 0 on.
        jitter_rtts: D in Rm, a whole number of steps; None: Rm, and 0 on ``ideal``.
    """

    model: str = "ccac"
    buffer: str | Fraction = "infinite"
    samples: int = 7
    delay_rule: Literal["sound", "artefact"] = "sound"
    sent_before_at_most: tuple[Fraction, Fraction] | None = None
    beliefs: BeliefRules = field(default_factory=BeliefRules)
    broken: frozenset[str] = frozenset()
    loss_detection: Literal["oracle", "dupacks"] = "oracle"
    past_steps: int = 0
    settle_steps: int = 0
    past_start: Literal["any", "empty"] = "any"
    steps_per_rtt: int = 1
    jitter_rtts: Fraction | None = None

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise unknown_name("model for verification", self.model, MODELS)
        if isinstance(self.buffer, str) and self.buffer not in BUFFERS:
            raise unknown_name("buffer", self.buffer, BUFFERS)
        if isinstance(self.buffer, Fraction) and self.buffer <= 0:
            raise InputError(f"buffer is {self.buffer} C*Rm; it must be above 0")
        if self.loss_detection not in LOSS_DETECTIONS:
            raise unknown_name("loss detection", self.loss_detection, LOSS_DETECTIONS)
        if not 3 <= self.samples <= LONGEST_TRACE * self.steps_per_rtt:
            raise InputError(f"T is {self.samples}; it must be 3 to {LONGEST_TRACE} samples")
        self._check_grid()
        if not 0 <= self.settle_steps <= self.samples - 3:
            raise InputError(f"settle_steps is {self.settle_steps}; it must be 0 to T - 3 = {self.samples - 3}")
        if not 0 <= self.past_steps <= LONGEST_PAST:
            raise InputError(f"past_steps is {self.past_steps}; it must be 0 to {LONGEST_PAST}")
        if self.past_steps and self.delay_rule == "artefact":
            raise InputError("the published delay rule says nothing about a past; past_steps must be 0")
        if self.past_start == "empty" and not self.past_steps:
            raise InputError("past_start 'empty' needs past_steps of 1 or more")

    def _check_grid(self) -> None:
        if not 1 <= self.steps_per_rtt <= MOST_STEPS_PER_RTT:
            raise InputError(f"steps_per_rtt is {self.steps_per_rtt}; it must be 1 to {MOST_STEPS_PER_RTT}")
        if self.plain_grid:
            return
        if (self.samples - 1) % self.steps_per_rtt:
            raise InputError(f"{self.samples} samples are no whole Rm of {self.steps_per_rtt} steps")
        if self.jitter_rtts is not None and (self.jitter_rtts < 0 or (self.jitter_rtts * self.steps_per_rtt).denominator != 1):
            raise InputError(f"D is {self.jitter_rtts} Rm; it must be a whole number of steps, each 1/{self.steps_per_rtt} Rm")
        if self.delay_rule == "artefact" or self.loss_detection != "oracle" or self.past_steps < self.jitter_steps:
            raise InputError("other grids are encoded with the sound delay rule, the oracle's losses, and a past of D or more")

    @property
    def plain_grid(self) -> bool:
        """Whether there is one sample per Rm, and D is that of the model."""
        return self.steps_per_rtt == 1 and self.jitter_rtts is None

    @property
    def jitter_steps(self) -> int:
        """D in steps; by default D = Rm, and 0 on the ideal model."""
        if self.jitter_rtts is not None:
            return int(self.jitter_rtts * self.steps_per_rtt)
        return 0 if self.model == "ideal" else self.steps_per_rtt

    @property
    def jitter(self) -> Fraction:
        """D in Rm."""
        return Fraction(self.jitter_steps, self.steps_per_rtt)

    @property
    def step(self) -> Fraction:
        """Length of a step in Rm, which is also the bytes that the link admits in it."""
        return Fraction(1, self.steps_per_rtt)

    @property
    def rtts(self) -> int:
        """Length of the trace in whole Rm."""
        return (self.samples - 1) // self.steps_per_rtt

    @property
    def losses_before(self) -> range:
        """Steps before the trace, counted back from sample 0, of which it matters whether bytes were lost."""
        return range(max(self.steps_per_rtt, self.jitter_steps) + 1)

    @property
    def delays_flows_apart(self) -> bool:
        """Whether each of several flows has a delay element of its own; on CCAC tokens are the link's, and so is the delay."""
        return self.model != "ccac"

    @property
    def has_loss(self) -> bool:
        """Whether the buffer is finite."""
        return self.buffer != "infinite"

    @property
    def times(self) -> range:
        """Sample indices of the known past and the trace: -past_steps to T - 1."""
        return range(-self.past_steps, self.samples)

    def without_timeout(self) -> Setting:
        """Return the same setting with bounds that only tighten."""
        return replace(self, beliefs=replace(self.beliefs, timeout=None))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        data: dict[str, Any] = _plain(asdict(self))
        data["broken"] = sorted(self.broken)
        return data


SETTINGS = ("sound", "artefact", "history")
HISTORY_STEPS = 3
"""Known steps before the trace in ``sound`` and ``history``: more do not change the bounds of cc_qdel."""


def named_setting(name: str, base: Setting, largest_rate: tuple[Fraction, Fraction] | None = None) -> Setting:
    """Apply one of the three named treatments of the past to a setting.

    ``sound``: in each of the last steps before the trace the network obeyed its laws; ``artefact``: the published delay rule;
    ``history``: sound, and in each of those steps the sender obeyed its largest rate (a, b): at most a*C + b*MSS/Rm while its
    beliefs are consistent (cc_qdel: (2, 0)). Raises InputError for ``history`` without such a rate.
    """
    if name not in SETTINGS:
        raise unknown_name("setting", name, SETTINGS)
    if name == "history":
        if largest_rate is None:
            raise InputError("setting 'history' needs a sender whose rate is bounded by C_L and MSS/Rm alone; use 'sound'")
        return replace(base, delay_rule="sound", sent_before_at_most=largest_rate, past_steps=HISTORY_STEPS)
    if name == "artefact":
        return replace(base, delay_rule="artefact", sent_before_at_most=None, past_steps=0)
    return replace(base, delay_rule="sound", sent_before_at_most=None, past_steps=HISTORY_STEPS)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Fraction) else value
