"""The named claims of ``ccenv verify``, each one or more queries ([CCmatic] s.5.2, s.6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial

from ccenv.base.errors import InputError, unknown_name
from ccenv.proofs.claims import endless, properties
from ccenv.proofs.claims.properties import Objectives, Property
from ccenv.proofs.claims.verifier import Query
from ccenv.proofs.formulas import beliefs
from ccenv.proofs.formulas.encode import Needs, SmtSender
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.terms import Formula, all_of, any_of, implies

BELIEF_BOUNDS = frozenset({"C_L", "C_U"})


@dataclass(frozen=True)
class Thresholds:
    """The numbers of a claim: ``at_least`` for utilisation, a fraction of the link; ``objectives`` for the invariant.

    ``at_most`` is in C*(Rm+D) for inflight and queue, in MSS per Rm for loss.
    """

    at_least: Fraction | None = None
    at_most: Fraction | None = None
    objectives: Objectives = field(default_factory=Objectives)


def starts_consistent(v: View, window: int = 1) -> Formula:
    """The beliefs at sample 0 are true bounds."""
    return all_of([properties.consistent(v, 0), properties.buffer_line(v, 0, window)])


def no_window_misleads(v: View) -> Formula:
    """No window inside the trace gives a wrong bound on C: consistent beliefs stay consistent without a time-out."""
    parts: list[Formula] = []
    for t in range(1, v.setting.samples):
        parts += [implies(counts, rate <= 1) for counts, rate in beliefs.lower_window_rates(v, t)]
        parts += [implies(counts, rate >= 1) for counts, rate in beliefs.upper_window_rates(v, t)]
    return all_of(parts)


def invariant(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """Build the consistent branch of invariant (5.3), as in the queries of Table 2.

    Beliefs that start consistent end consistent; and they shrink, or every objective is met or excused by progress. Without
    time-outs bounds only tighten, so "they do not shrink" means "they are constant": the second part needs one scalar per bound.
    """
    if setting.beliefs.timeout is not None:
        raise InputError("the invariant is encoded without belief time-outs; leave the time-out rule out")
    objectives = thresholds.objectives
    needs = sender.needs(setting)
    window = needs.probe_window
    queries = []
    if needs.bounds - BELIEF_BOUNDS:
        text = "consistent C_L_lambda and q_U stay consistent"
        stays = Property(
            "beliefs stay consistent",
            text,
            lambda v: properties.consistent(v, v.last),
            needs,
            lambda v: starts_consistent(v, window),
        )
        queries.append(Query("sent beliefs stay consistent", setting, sender, stays))
    if objectives.no_large_loss_when_probing and setting.has_loss:
        probing = Property(
            "no large loss when probing",
            "consistent beliefs and a rising rate: no large loss",
            objectives.transient,
            needs,
            lambda v: starts_consistent(v, window),
        )
        queries.append(Query("no large loss when probing", setting, sender, probing))
    progress = Property(
        "objectives or progress",
        "on traces where no bound moves, each objective is met or progress is made",
        objectives.met_or_progress,
        Needs(BELIEF_BOUNDS) | needs,
        lambda v: starts_consistent(v, window),
    )
    queries.append(Query("objectives or progress", setting, sender, progress, "constant"))
    sound = soundness_query(replace(setting, sent_before_at_most=None, past_steps=0))  # any past: a claim about the network alone
    return [sound, *(_mark_step(query, objectives.met_in_cycle) for query in queries)]


def soundness_query(setting: Setting) -> Query:
    """Return the query about any sender: every window inside a trace bounds C correctly."""
    needs = Needs(delays=frozenset({setting.jitter_steps + 1}))
    claim = Property("no window misleads", "C_L and C_U of every window are true bounds", no_window_misleads, needs)
    return Query("beliefs stay consistent", setting, AnySender(), claim)


def full_invariant(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """Build the invariant with moving beliefs, for comparison with the static reduction; slower."""
    objectives = thresholds.objectives
    window = sender.needs(setting).probe_window

    def holds(v: View) -> Formula:
        steady = any_of([properties.beliefs_shrink(v), objectives.met_or_progress(v)])
        return all_of([properties.consistent(v, v.last), steady, objectives.transient(v)])

    claim = Property("invariant", "(5.3), consistent branch", holds, Needs(BELIEF_BOUNDS), lambda v: starts_consistent(v, window))
    return [_mark_step(Query("invariant", setting, sender, claim), objectives.met_in_cycle)]


def _mark_step(query: Query, repeated: Callable[[View], Formula]) -> Query:
    """Mark a query as a step of an argument: a violating trace breaks the claim only if it can repeat."""
    return replace(query, claim=replace(query.claim, repeated=repeated))


def utilisation(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """In the long run f*C of the link is used, if no belief times out."""
    f = _require_number(thresholds.at_least, "utilisation", "--at-least")
    return [Query("utilisation", setting, sender, endless.utilisation(setting, sender, f))]


LEAST_EFFICIENCY = Fraction(1, 100)
"""f of "silly" senders ([Starvation] s.4.2)."""


def f_efficient(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """Again and again the bytes delivered since the start reach f*C*t ([Starvation] definition 4), here on any path of the model.

    Verified as the utilisation in the long run, which implies it; refuted by a trace that repeats for ever with less.
    """
    f = LEAST_EFFICIENCY if thresholds.at_least is None else thresholds.at_least
    claim = endless.utilisation(setting, sender, f)
    return [Query("f-efficient", setting, sender, replace(claim, text=f"{float(f):.4g}-efficient: {claim.text}"))]


def utilisation_with_timeouts(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """The same where C_L and C_U time out at the end of each trace by their rule."""
    f = _require_number(thresholds.at_least, "utilisation_with_timeouts", "--at-least")
    timed = endless.endless_setting(setting, sender, timeouts=True)
    timed = replace(timed, beliefs=replace(setting.beliefs, timeout=timed.beliefs.timeout))
    return [Query("utilisation with timeouts", timed, sender, endless.utilisation(timed, sender, f))]


def utilisation_or_rise(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """S(T-1) - S(0) >= f*C*(T-1-D), or rate or window are higher at the end, or beliefs shrink: of one trace only.

    The claim of CCAC with the excuse of (5.3). Any rise excuses, so it guarantees nothing for an unbounded run.
    """
    f = _require_number(thresholds.at_least, "utilisation_or_rise", "--at-least")

    def holds(v: View) -> Formula:
        series = v.cwnd if v.cwnd is not None else v.rate
        ramps = series[v.last] > series[properties.FIRST]
        return any_of([properties.utilisation(v, f), ramps, properties.beliefs_shrink(v)])

    (query,) = _single_query(
        "utilisation or rise", f"at least {f} of the link is used, or the sender ramps up", setting, sender, holds
    )
    return [_mark_step(query, lambda v: properties.used_in_cycle(v, f))]


def _stays_below(
    name: str,
    promise: Callable[[Setting, SmtSender, Fraction], Property],
    setting: Setting,
    sender: SmtSender,
    thresholds: Thresholds,
) -> list[Query]:
    """The queue (E - G) or the bytes in flight (A - L - S) are at most x*C*(Rm+D) for ever, from a path at rest."""
    x = _require_number(thresholds.at_most, name, "--at-most")
    return [Query(name, setting, sender, promise(setting, sender, x))]


_LOSSES: Mapping[str, tuple[str, Callable[[View, Fraction], Formula]]] = {
    "loss": ("no step loses more than {x} MSS", properties.loss_per_step),
    "loss_events": ("at most {x} steps lose bytes", properties.lossy_steps),
    "loss_amount": ("at most {x} C*Rm are lost", properties.loss_amount),
}
"""Claim about the losses of a trace -> its text and formula for a number x."""


def _limit_losses(name: str, setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    x = _require_number(thresholds.at_most, name, "--at-most")
    text, holds = _LOSSES[name]
    return _single_query(name.replace("_", " "), text.format(x=x), setting, sender, lambda v: holds(v, x))


def rtt(setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """The RTT stays below Rm + x*Rm for ever, x a whole number of steps, from a path at rest."""
    x = _require_number(thresholds.at_most, "rtt", "--at-most")
    if x.denominator != 1 or x < 1:
        raise InputError(f"property 'rtt' counts whole steps of Rm: --at-most is {x}, it must be 1, 2, ...")
    return [Query("rtt", setting, sender, endless.waits_below(setting, sender, int(x)))]


def _single_query(name: str, text: str, setting: Setting, sender: SmtSender, holds: Callable[[View], Formula]) -> list[Query]:
    needs = sender.needs(setting)
    text = f"from any start with true beliefs, {text}"
    claim = Property(name, text, holds, needs, lambda v: starts_consistent(v, needs.probe_window))
    return [_mark_step(Query(name, setting, sender, claim), holds)]


def _require_number(value: Fraction | None, claim: str, option: str) -> Fraction:
    if value is None:
        raise InputError(f"property {claim!r} needs a number: {option} X")
    return value


CLAIMS: Mapping[str, Callable[[Setting, SmtSender, Thresholds], list[Query]]] = {
    "invariant": invariant,
    "full_invariant": full_invariant,
    "utilisation": utilisation,
    "f-efficient": f_efficient,
    "utilisation_with_timeouts": utilisation_with_timeouts,
    "utilisation_or_rise": utilisation_or_rise,
    "inflight": partial(_stays_below, "inflight", endless.inflight),
    "queue": partial(_stays_below, "queue", endless.queue),
    "rtt": rtt,
    **{name: partial(_limit_losses, name) for name in _LOSSES},
}


EXCUSED = frozenset({"invariant", "full_invariant", "utilisation_or_rise"})
"""Claims about one trace that any progress excuses, so that they are no bounds of a run."""

SAMPLES = {"utilisation": endless.SAMPLES, "utilisation_with_timeouts": 11, "f-efficient": 10}
"""Default T; with time-outs 10 Rm, the engine's period; for f-efficient a cycle of BBR's eight gains fits."""

DEFAULT_SAMPLES = 7


def build_claim(name: str, setting: Setting, sender: SmtSender, thresholds: Thresholds) -> list[Query]:
    """Return the queries of a named claim; it is verified if all of them are.

    Raises UnknownNameError for an unknown claim; InputError for a missing threshold, or one that the claim does not take.
    """
    if name not in CLAIMS:
        raise unknown_name("property", name, CLAIMS)
    taken = "--at-least" if name.startswith(("utilisation", "f-")) else "" if name.endswith("invariant") else "--at-most"
    for option, value in (("--at-least", thresholds.at_least), ("--at-most", thresholds.at_most)):
        if value is not None and option != taken:
            raise InputError(f"property {name!r} does not take {option}")
    return CLAIMS[name](setting, sender, thresholds)
