"""The adversary gap: the worst utilisation that searches find in proof timing, against the bound that the solver proves.

Both are about the same windows (``ccenv.attacks.windows``) of the same model, K = 1. A gap of zero means that bound and search
are both exact; a found value below the proved one would reveal a bug of encoder or engine.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ccenv.agents.sender import ProgramSender, Sender
from ccenv.attacks.catalog import PANEL
from ccenv.attacks.cold_start import ENDS_RTTS, ColdStart, Questions, Window, converged_window, still_window, worst_cold_start
from ccenv.attacks.game import Scene
from ccenv.attacks.run import DEFAULT_RTTS, AttackResult, attack
from ccenv.attacks.windows import ANY_WINDOW, NO_WINDOW, Claim, Premise, always, converged, probed, samples_of, still
from ccenv.base.errors import unknown_name
from ccenv.base.registry import number
from ccenv.network.laws import check_trace
from ccenv.network.path import Path, make_path
from ccenv.network.trace import load_trace

if TYPE_CHECKING:
    from ccenv.proofs.claims.verifier import Query
    from ccenv.proofs.formulas.encode import SmtSender
    from ccenv.proofs.formulas.setting import Setting
    from ccenv.proofs.solver.terms import Formula

BUFFERS_BDP = {"large": 6.0, "small": 0.5, "infinite": math.inf}  # of the proofs, with D = Rm
# 20 segments per Rm: proofs hold for more than 5, and additive senders converge in the warm-up.
LINK_RATE_MBPS, RTT_MS = 6.0, 40.0
ROUND_OFF = 1e-6
COLD_LIMIT_S = 30.0  # each query is one of several per row
COLD_START, FREE_START = "solver, cold start", "solver, free start"
ONLY_ON_CBR_DELAY = frozenset({"C_L_lambda", "q_U"})  # beliefs that hold without stocks of tokens only

PARTS = 100  # of a row, for progress


@dataclass(frozen=True)
class _Lemma:
    """A lemma about a steady state: lemma set, name, and the premise from its constants, also as a formula."""

    suite: str
    name: str
    premise: Callable[[Mapping[str, Fraction]], Premise]
    encoded: Callable[[Mapping[str, Fraction]], Callable[[Window], Formula]] | None = None


LEMMAS = {
    "cc_qdel": _Lemma(
        "cc_qdel",
        "F.7 utilisation",
        lambda c: converged(float(c["C_L_low"]), float(c["C_U_high"]), float(c["queue_high"])),
        lambda c: converged_window(c["C_L_low"], c["C_U_high"], c["queue_high"]),
    ),
    "cc_probe_slow": _Lemma(
        "cc_probe_slow_paper", "S.6 utilisation", lambda c: probed(float(c["lambda_low"]), float(c["q_U_high"]))
    ),
}


@dataclass(frozen=True)
class GapRow:
    """One comparison of a sender on a model and buffer."""

    sender: str
    model: str
    buffer: str
    samples: int  # T
    windows: str  # the windows that count, in words
    bound: float | None  # utilisation that the solver proves, or None: no encoding, or nothing proved
    # the worst legal run of such a window in the engine, from any start: the lowest of `searched`, `cold_start` and `free_start`;
    # None: no window met the premise in any run
    found: float | None
    ratio: float | None  # found over bound; 1 means that bound and counterexample are both exact
    method: str | None  # its origin: an adversary's name, `solver, cold start` or `solver, free start`
    # the panel's worst in those windows, from a cold start, by `adversary`. Windows of envelope entries count from the first step
    # on, those of lemmas and of other senders after the warm-up
    searched: float | None
    adversary: str
    # the worst of those windows in a run of the solver from a cold start, measured in the engine; None: none, or not asked
    cold_start: float | None
    cold_ratio: float | None  # the lower of searched and cold_start over bound
    # utilisation that the solver proves of those windows in every run from a cold start on this path, at any time; None: not
    # asked, or nothing proved
    cold_bound: float | None
    cold_bound_ratio: float | None  # the lower of searched and cold_start over cold_bound
    # by the solver no run uses less in a window that ends at one of `cold_ends_rtts` (in Rm); None: not asked
    cold_none_below: float | None
    cold_ends_rtts: tuple[int, ...]
    refuted: float | None  # utilisation just above the bound, for which the solver has a counterexample, or None
    # utilisation of that counterexample in the engine, from the solver's state with the sender deciding; None if there is none,
    # or the engine does not reproduce it
    free_start: float | None
    found_in_any_window: float  # the worst of all windows, whatever the premise
    holds: bool | None  # found is not below bound, and no finding from a cold start is below cold_bound
    legal: bool  # the independent checker accepts all traces, including the counterexample's
    flow_steps: int
    seconds: float  # of proof and searches

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Bound:
    """A proved bound, the counterexample just beyond it, and whether its windows count from the first step on."""

    claim: Claim
    proved: float | None = None
    refuted: float | None = None
    replayed: float | None = None
    legal: bool = True
    from_cold: bool = False


def adversary_gap(
    senders: Sequence[str],
    *,
    buffer: str = "large",
    samples: int = 7,
    adversaries: Sequence[str] = PANEL,
    budget_flow_steps: int = 20_000_000,
    seed: int = 0,
    time_limit_s: float = 120.0,
    cold_ends_rtts: Sequence[int] = ENDS_RTTS,
    report: Callable[[int, int], None] | None = None,
) -> list[GapRow]:
    """Compare found and proved utilisation of several senders.

    Belief programs have an envelope entry on the strongest model that their beliefs allow, and the steady state of their lemma
    set if there is one. Other senders have no encoding: the worst window of T = 10 samples, without a bound. Raises
    UnknownNameError for an unknown buffer or sender; InputError for a T, time limit or budget out of range.

    Args:
        senders: specs for ``ccenv.agents.make_sender``.
        buffer: large (6 BDP, D = Rm), small (CD/2) or infinite.
        samples: T of the envelope entries.
        adversaries: of the attacks.
        budget_flow_steps: per row.
        seed: of searches and solver.
        time_limit_s: per solver call; of the cold-start queries at most COLD_LIMIT_S.
        cold_ends_rtts: ends of the solver's windows from a cold start, in round trips; none: no bound of such runs either.
        report: receives the number of finished and of all senders, in hundredths.
    """
    from ccenv.agents import make_sender
    from ccenv.proofs.formulas.setting import Setting

    if buffer not in BUFFERS_BDP:
        raise unknown_name("buffer", buffer, BUFFERS_BDP)
    Setting("ccac", buffer, samples)  # refuses a T out of range, also where no row needs it
    number("gap", "time_limit_s", time_limit_s, above=0)
    path = gap_path(buffer)
    named_senders = [(spec, make_sender(spec)) for spec in senders]
    rows = []
    for done, (spec, sender) in enumerate(named_senders):
        model = _choose_model(sender)
        for prove in _list_bounds(spec, sender, model, buffer, samples, seed, time_limit_s):
            begin = time.perf_counter()
            bound = prove()
            result = attack(
                sender,
                path=path,
                model=model,
                adversaries=adversaries,
                budget_flow_steps=budget_flow_steps,
                seed=seed,
                timing="smt",
                warmup_rtts=0 if bound.from_cold else DEFAULT_RTTS,
                window_rtts=2 * DEFAULT_RTTS if bound.from_cold else DEFAULT_RTTS,
                claim=bound.claim,
                report=None if report is None else partial(_report_progress, report, done, len(named_senders)),
            )
            cold = None
            if cold_ends_rtts and bound.claim.encoded is not None and bound.proved is not None:
                questions = Questions(result.scene, bound.claim.encoded, spec, buffer, min(time_limit_s, COLD_LIMIT_S), seed)
                most = Fraction(min(result.worst_utilisation, 1.0)).limit_denominator(1024)
                cold = worst_cold_start(questions, Fraction(bound.proved).limit_denominator(1024), most, cold_ends_rtts)
            rows.append(_build_row(result, buffer, bound, cold, time.perf_counter() - begin))
        if report is not None:
            report(PARTS * (done + 1), PARTS * len(named_senders))
    return rows


def _report_progress(report: Callable[[int, int], None], done: int, total: int, spent: int, allowed: int) -> None:
    report(PARTS * done + PARTS * spent // max(allowed, 1), PARTS * total)


def gap_path(buffer: str) -> Path:
    """Return the path of the comparison: no attack scenario of ``ccenv attack``, so no training has used it."""
    return make_path(link_rate_mbps=LINK_RATE_MBPS, rtt_ms=RTT_MS, jitter_ms=RTT_MS, buffer_bdp=BUFFERS_BDP[buffer])


def _choose_model(sender: Sender) -> str:
    if isinstance(sender, ProgramSender):
        from ccenv.proofs.formulas.setting import Setting
        from ccenv.proofs.senders.program import ProgramSmtSender

        if ProgramSmtSender(sender.program).needs(Setting()).bounds & ONLY_ON_CBR_DELAY:
            return "cbr_delay"
    return "ccac"


def _list_bounds(
    spec: str, sender: Sender, model: str, buffer: str, samples: int, seed: int, time_limit_s: float
) -> list[Callable[[], _Bound]]:
    if not isinstance(sender, ProgramSender) or sender.start is not None:
        return [lambda: _Bound(ANY_WINDOW)]
    claims = [lambda: _bisect_envelope(spec, model, buffer, samples, seed, time_limit_s)]
    if spec in LEMMAS and buffer == "large":
        claims.append(lambda: _bisect_steady(LEMMAS[spec], seed, time_limit_s))
    return claims


def _bisect_envelope(spec: str, model: str, buffer: str, samples: int, seed: int, time_limit_s: float) -> _Bound:
    """Bisect the utilisation of still windows, with C_U and C_L_lambda as the engine computes them."""
    from ccenv.proofs.claims.claims import BELIEF_BOUNDS
    from ccenv.proofs.claims.envelope import METRICS
    from ccenv.proofs.claims.lemma_run import bisect
    from ccenv.proofs.claims.report import write_counterexample
    from ccenv.proofs.claims.verifier import Verdict, Verifier
    from ccenv.proofs.formulas.setting import BeliefRules, Setting, named_setting
    from ccenv.proofs.senders.catalog import smt_sender
    from ccenv.proofs.solver.solvers import Store

    sender = smt_sender(spec)
    largest = sender.largest_rate()
    base = Setting(model, buffer, samples, beliefs=BeliefRules(upper="exact", lambda_extra_steps=0))
    setting = named_setting("sound" if largest is None else "history", base, largest)
    metric = METRICS["utilisation"]
    verifier = Verifier(time_limit_s, seed, None, Store(), True)

    with tempfile.TemporaryDirectory() as folder:

        def decide(value: Fraction) -> tuple[Verdict, Any]:
            query = _still_query(value, setting, sender)
            result = verifier.decide(query)
            if result.verdict != "refuted":
                return result.verdict, None
            trace, replay = write_counterexample(query, result, FilePath(folder), metric.name)
            return result.verdict, {"trace": trace, "replay": replay}

        bracket = bisect(decide, metric.best, metric.low, metric.high, metric.precision)
        needed = BELIEF_BOUNDS | sender.needs(setting).bounds
        encoded = None if needed & ONLY_ON_CBR_DELAY else still_window(needed)  # their time-outs are not encoded
        claim = Claim(samples, still(needed), f"T = {samples}, beliefs true and still, no progress", encoded=encoded)
        replayed, legal = _measure_replay(bracket.evidence.get(str(bracket.refuted)))
    return _Bound(claim, _to_float(bracket.proved), _to_float(bracket.refuted), replayed, legal, from_cold=True)


def _still_query(value: Fraction, setting: Setting, sender: SmtSender) -> Query:
    """Return the query for this utilisation of a trace on which no belief moves, nor rate, bytes in flight or queue rise."""
    from ccenv.proofs.claims import properties
    from ccenv.proofs.claims.claims import BELIEF_BOUNDS, starts_consistent
    from ccenv.proofs.claims.verifier import Query
    from ccenv.proofs.formulas.encode import Needs
    from ccenv.proofs.solver.terms import any_of

    window = sender.needs(setting).probe_window
    claim = properties.Property(
        "utilisation",
        f"utilisation: {float(value)} fraction of C where no belief moves and nothing rises",
        lambda v: any_of([properties.utilisation(v, value), properties.rises(v)]),
        Needs(BELIEF_BOUNDS) | sender.needs(setting),
        lambda v: starts_consistent(v, window),
    )
    return Query("utilisation", setting, sender, claim, "constant")


def _bisect_steady(lemma: _Lemma, seed: int, time_limit_s: float) -> _Bound:
    """Bisect the steady utilisation of a lemma set."""
    from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemma
    from ccenv.proofs.claims.lemmas import constants_of, load_suite

    suite = load_suite(lemma.suite).suite
    with tempfile.TemporaryDirectory() as folder:
        limits: dict[str, Any] = {"time_limit_s": time_limit_s, "seed": seed, "folder": folder}
        run = LemmaRun(lemma.suite, suite.default_setting, suite.default_T, True, **limits)
        outcome = run_lemma(run, lemma.name).to_dict()
        bisection = outcome.get("bisection", {})
        replayed, legal = _measure_replay(bisection.get("refuted_by"))
    constants = constants_of(suite, suite.default_setting, suite.default_T)
    encoded = None if lemma.encoded is None else lemma.encoded(constants)
    text = f"T = {suite.default_T}, steady state of lemma {lemma.name}"
    claim = Claim(suite.default_T, lemma.premise(constants), text, encoded=encoded)
    proved = outcome["bound"] if outcome["verdict"] == "verified" else None
    return _Bound(claim, proved, bisection.get("refuted"), replayed, legal)


def _measure_replay(evidence: Mapping[str, Any] | None) -> tuple[float | None, bool]:
    """Return the utilisation of a counterexample in the engine, None if it is not reproduced, and whether it is legal."""
    if evidence is None:
        return None, True
    trace = load_trace(evidence["trace"])
    legal = not check_trace(trace)
    if evidence["replay"]["engine"] != "reproduced":
        return None, legal
    steps = trace.n_steps - trace.start_row - trace.grid.jitter_steps[0]
    counted_bytes = trace.header.path.link_rate_Bps * trace.header.dt_s * steps
    return float((trace.S[-1] - trace.S[trace.start_row]).sum()) / counted_bytes, legal


def _to_float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _build_row(result: AttackResult[Scene], buffer: str, bound: _Bound, cold: ColdStart | None, seconds: float) -> GapRow:
    proved = bound.proved
    searched = None if result.worst_utilisation >= NO_WINDOW else result.worst_utilisation
    cold_start = cold.utilisation if cold is not None else None
    methods = {result.worst_adversary: searched, COLD_START: cold_start, FREE_START: bound.replayed}
    reached = {name: value for name, value in methods.items() if value is not None}
    method = min(reached, key=lambda name: reached[name], default=None)
    lowest = None if method is None else reached[method]
    worst_cold = min((value for name, value in reached.items() if name != FREE_START), default=None)
    cold_bound = None if cold is None else cold.bound
    comparisons = [(lowest, proved), (worst_cold, cold_bound)]
    holds = all(value >= least - ROUND_OFF for value, least in comparisons if value is not None and least is not None)
    return GapRow(
        sender=result.sender,
        model=result.scene.model,
        buffer=buffer,
        samples=bound.claim.samples,
        windows=bound.claim.text,
        bound=proved,
        found=lowest,
        ratio=_divide(lowest, proved),
        method=method,
        searched=searched,
        adversary=result.worst_adversary,
        cold_start=cold_start,
        cold_ratio=_divide(worst_cold, proved),
        cold_bound=cold_bound,
        cold_bound_ratio=_divide(worst_cold, cold_bound),
        cold_none_below=None if cold is None else cold.none_below,
        cold_ends_rtts=() if cold is None else cold.ends_rtts,
        refuted=bound.refuted,
        free_start=bound.replayed,
        found_in_any_window=min(_measure_any_window(result, name) for name in result.by_adversary),
        holds=None if proved is None or lowest is None else holds,
        legal=result.legal and bound.legal and (cold is None or cold.legal),
        flow_steps=sum(finding.flow_steps for finding in result.by_adversary.values()),
        seconds=round(seconds, 1),
    )


def _divide(found: float | None, bound: float | None) -> float | None:
    return None if found is None or not bound else found / bound


def _measure_any_window(result: AttackResult[Scene], name: str) -> float:
    claim = Claim(result.scene.claim.samples, always, "")
    trace = result.by_adversary[name].trace
    return float(claim.worst(samples_of(trace, DEFAULT_RTTS))[0])
