"""Lemmas for every K at once: traces with K samples per Rm, sampled once per Rm.

Such a view obeys the laws of K = 1 except for a few, which are looser here; each looser law follows from those of any K
(docs/theorems.md has the argument). So a lemma that holds of every such view holds on every grid with this D. A lemma that does
not is undecided on each grid. Units: C = Rm = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor

from ccenv.proofs.claims.verifier import Verdict
from ccenv.proofs.formulas import laws
from ccenv.proofs.formulas.beliefs import initial_bounds, timeouts
from ccenv.proofs.formulas.encode import Encoding, Needs, encode
from ccenv.proofs.formulas.setting import LARGE_BUFFER_RTTS, Setting
from ccenv.proofs.formulas.view import View, require_variables
from ccenv.proofs.senders.program import delay_thresholds
from ccenv.proofs.solver.solvers import to_smtlib
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, choose, implies, larger, negate, same_truth, smaller
from ccenv.proofs.theorems.compose import LemmaQuery
from ccenv.proofs.theorems.language import PEAKS, PER_RTT, Comparison, Node, feature, on_trace
from ccenv.proofs.theorems.prove import Decided, Prover, to_terms
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadLemma

STEPS_TRIED = (1, 2, 4, 8)
"""K at which the delays that a program distinguishes are compared with the form for every K."""

_LOOSER = frozenset(
    law.__name__ for law in (laws.no_waste_while_queued, laws.jitter_bound, laws.delay_of_newest, laws.buffer_size)
)


@dataclass
class Sampled(View):
    """A view once per Rm of a trace with any number of samples per Rm."""

    jitter: Fraction = Fraction(0)  # D in Rm; the setting's is the next whole number
    used: list[Formula] | None = None  # per sample t from 0 on, whether step t - D was utilised, where D is no whole number
    C_U_before: Term = None  # C_U one step before the last sample

    def step_utilised(self, x: int) -> Formula:
        """Return whether the step that ended D before a sample was utilised; for integer D as with one sample per Rm."""
        return super().step_utilised(x) if self.used is None else self.used[x + self.setting.jitter_steps]

    def least_entered(self, t: Fraction) -> Term:
        """Return a lower bound on E between samples, where E is concave: bytes are sent evenly within a Rm, losses come last."""
        k = floor(t)
        if k == t:
            return self.enqueued(k)
        return self.enqueued(k) + (t - k) * (self.enqueued(k + 1) - self.enqueued(k))

    def most_entered(self, t: Fraction) -> Term:
        """Return an upper bound on E between samples."""
        k = ceil(t)
        if k == t or k < 1:
            return self.enqueued(k)
        return smaller(self.enqueued(k), self.enqueued(k - 1) + (t - k + 1) * self.sent[k])

    def peak_queue(self, t: int) -> Term:
        """Return an upper bound on the queue at any time of (t-1, t]."""
        return larger(larger(self.queue(t - 1), self.queue(t)), 0)

    def peak_inflight(self, t: int) -> Term:
        """Return an upper bound on the bytes in flight at any time of (t-1, t]."""
        return smaller(self.enqueued(t) - self.delivered(t - 1), self.peak_queue(t) + self.jitter)


def can_be_sampled(loaded: LoadedTheorem) -> bool:
    """Return whether the looser laws cover a theorem's model, beliefs and delays."""
    needs = loaded.sender.needs(loaded.setting)
    encodable = loaded.setting.model == "ccac" and needs.bounds <= {"C_L", "C_U"} and "loss" not in loaded.program.inputs()
    return encodable and _map_thresholds(loaded) is not None


def setting_of(setting: Setting) -> Setting:
    """Return the setting of once-per-Rm views of traces of a setting."""
    jitter_rtts = ceil(setting.jitter)
    past = ceil(Fraction(setting.past_steps, setting.steps_per_rtt))
    return replace(
        setting, samples=setting.rtts + 1, steps_per_rtt=1, past_steps=max(past, jitter_rtts), jitter_rtts=Fraction(jitter_rtts)
    )


def _map_thresholds(loaded: LoadedTheorem) -> dict[int, Fraction] | None:
    """Return distinguished delay at K = 1 -> tau, where with any K delay tau K + 1 is distinguished; None for other programs."""
    jitter = loaded.setting.jitter
    jitter_rtts = ceil(jitter)
    taus = {m: m - 1 - jitter_rtts + jitter for m in delay_thresholds(loaded.program, jitter_rtts)}
    for steps in STEPS_TRIED:
        if (jitter * steps).denominator == 1:
            thresholds = delay_thresholds(loaded.program, int(jitter * steps), steps)
            if thresholds != {int(tau * steps) + 1 for tau in taus.values()}:
                return None
    return taus


def sampled(loaded: LoadedTheorem, setting: Setting, needs: Needs) -> tuple[Sampled, list[Formula]]:
    """Return a view once per Rm in solver terms, and all known formulas about it."""
    there = setting_of(setting)
    encoding = encode(there, loaded.sender, Needs(needs.bounds, loaded.sender.needs(there).delays))
    view = _sample_view(encoding, setting.jitter)
    return view, [formula for formula in list_known_formulas(view, loaded) if formula is not True]


def list_known_formulas(v: Sampled, loaded: LoadedTheorem) -> Iterator[Formula]:
    """Yield the known formulas about a view once per Rm: the laws of K = 1 that it obeys, the looser ones, beliefs, program."""
    yield from (formula for name, formula in laws.network(v) if name not in _LOOSER)
    for looser in (_buffer, _tokens, _jitter, initial_bounds, _step_use, _lower_bound, _upper_bound, _timeout):
        yield from looser(v)
    yield from _delays(v, loaded)
    yield from loaded.sender.sends(v)


def on_samples(node: Node, v: Sampled) -> Formula:
    """Return a formula on a view; a comparison with a peak must hold of the bounds on it between samples."""
    if not isinstance(node, Comparison):
        parts = [on_samples(part, v) for part in node.parts]
        return all_of(parts) if node.how == "all" else any_of(parts) if node.how == "any" else negate(parts[0])
    read = {name for name, _ in node.left.terms} & set(PEAKS)
    if not read or read <= PER_RTT:
        return on_trace(node, v)

    def at(t: int) -> Formula:
        bounds = {"peak_queue": v.peak_queue, "peak_inflight": v.peak_inflight}
        value = node.left.value(lambda name: bounds[name](t) if name in bounds else feature(v, name, t))
        return value < 0 if node.strict else value <= 0

    return all_of(at(t) for t in range(1, v.setting.samples))


def prove(loaded: LoadedTheorem, lemma: ReadLemma, asked: LemmaQuery, prover: Prover) -> Decided:
    """Decide a query of a lemma for every K at once: ``verified`` or ``unknown``."""
    view, formulas = sampled(loaded, asked.query.setting, asked.query.claim.needs)
    premise = to_terms(asked.query.claim.premise(view))
    denied = to_terms(negate(on_samples(lemma.conclusions[asked.part - 1], view)))
    name = f"{asked.query.name}, every K"
    text = to_smtlib([*formulas, *premise, *denied])
    answer = prover.ask(text, "z3", name)
    twin = to_smtlib([*formulas, *premise])
    twin_answer = prover.ask(twin, "z3", f"{name}, satisfiable twin") if answer.status == "unsat" else None
    proved = twin_answer is not None and twin_answer.status == "sat"
    reason = "" if proved else f"not proved for every K: {answer.reason or answer.status}"
    verdict: Verdict = "verified" if proved else "unknown"
    return Decided(asked.lemma, asked.part, verdict, text, answer, twin, twin_answer, reason, every_k=proved)


def _sample_view(encoding: Encoding, jitter: Fraction) -> Sampled:
    plain = encoding.view
    values = {field.name: getattr(plain, field.name) for field in fields(View)}
    used = None
    if jitter.denominator != 1:
        used = [encoding.variables.boolean(f"used_{t}") for t in range(plain.setting.samples)]
    return Sampled(**values, jitter=jitter, used=used, C_U_before=encoding.variables.real("C_U_before"))


def _buffer(v: Sampled) -> Iterator[Formula]:
    """The buffer of the setting; ``large`` depends on D."""
    if v.setting.buffer == "large" and v.beta is not None:
        yield v.beta >= LARGE_BUFFER_RTTS * (1 + v.jitter)
    else:
        yield from laws.buffer_size(v)


def _tokens(v: Sampled) -> Iterator[Formula]:
    """Where tokens were wasted in (t-1, t], the queue was empty then: G(t) >= E(t-1) + min(1, sent); a loss means sent > 1."""
    known_loss_steps = v.setting.losses_before if v.setting.has_loss else ()
    for t in v.setting.times[1:]:
        sent: Term = smaller(1, v.sent[t] if t > 0 else v.enqueued(t) - v.enqueued(t - 1))
        if -t in known_loss_steps:
            sent = choose(v.lost_in_past(-t), 1, sent)
        wasted = v.admitted(t) < v.admitted(t - 1) + 1
        yield implies(wasted, v.admitted(t) >= v.enqueued(t - 1) + sent)


def _jitter(v: Sampled) -> Iterator[Formula]:
    """S(t) >= G(t - D): at least G at the sample before, and at least G at the sample after less the fraction of D."""
    first = v.setting.times[0]
    for t in v.setting.times:
        before, after = t - ceil(v.jitter), t - floor(v.jitter)
        yield v.delivered(t) >= (v.admitted(before) if before >= first else v.admitted(first) - v.jitter)
        if before != after and after >= first:
            yield v.delivered(t) >= v.admitted(after) - (v.jitter - floor(v.jitter))


def _delays(v: Sampled, loaded: LoadedTheorem) -> Iterator[Formula]:
    """The newest byte arrived in (t-1, t]: late only if S(t) <= E(t - tau), not late only if S(t) > E(t - 1 - tau)."""
    taus = _map_thresholds(loaded) or {}
    first = v.setting.times[0]
    for t in v.setting.times:
        flags = v.newest_late(t)
        for m, flag in flags.items():
            late = implies(flag, _entered_after(v, t, t - taus[m]))
            if t == first:
                yield late
                continue
            served = v.delivered(t) > v.delivered(t - 1)
            yield implies(served, all_of([late, any_of([flag, v.delivered(t) > v.least_entered(t - 1 - taus[m])])]))
            yield implies(negate(served), same_truth(flag, v.newest_late(t - 1)[m]))
        for short, long in pairwise(sorted(flags)):
            yield implies(flags[long], flags[short])


def _entered_after(v: Sampled, t: int, at: Fraction) -> Formula:
    """S(t) <= E(at - 1/K), which is below E(at) in the trace, where the sender sends in every step."""
    served, entered = v.delivered(t), v.most_entered(at)
    return served <= entered if at <= 0 else served < entered


def _step_use(v: Sampled) -> Iterator[Formula]:
    """For non-integer D: E(t-D) > S(t), or bytes were lost in that step."""
    for t, flag in enumerate(v.used or ()):
        yield any_of([flag, v.least_entered(t - v.jitter) <= v.S[t]])
        step = t - floor(v.jitter)  # t - D lies in this Rm
        if step > 0:
            yield any_of([negate(flag), v.most_entered(t - v.jitter) > v.S[t], v.lost[step] > 0])


def _before_timeout(v: Sampled, name: str, t: int) -> Term:
    if t == v.last and v.setting.beliefs.timeout is not None:
        return v.extra[f"{name}_kept"][0]
    return require_variables(getattr(v, name), name)[t]


def _windows(v: Sampled, t: int) -> list[Term]:
    return [(v.S[t] - v.S[start]) * (1 / (t - start + v.jitter)) for start in range(t)]


def _lower_bound(v: Sampled) -> Iterator[Formula]:
    """C_L never falls, counts the windows of whole Rm, and no window exceeds C."""
    if v.C_L is None:
        return
    for t in range(1, v.setting.samples):
        now = _before_timeout(v, "C_L", t)
        yield now >= v.C_L[t - 1]
        yield now <= larger(v.C_L[t - 1], 1)
        yield from (now >= rate for rate in _windows(v, t))


def _upper_bound(v: Sampled) -> Iterator[Formula]:
    """C_U never rises, no window is below C, and a window of whole Rm counts if it was surely utilised throughout."""
    if v.C_U is None:
        return
    for t in range(1, v.setting.samples):
        now = _before_timeout(v, "C_U", t)
        yield now <= v.C_U[t - 1]
        yield now >= smaller(v.C_U[t - 1], 1)
        for start in range(t):
            if t - start > v.jitter:
                last = t - floor(v.jitter)
                waits = [v.enqueued(x - 1) > v.S[min(x + ceil(v.jitter), t)] for x in range(start + 1, last + 1)]
                yield implies(all_of(waits), now * (t - start - v.jitter) <= v.S[t] - v.S[start])


def _timeout(v: Sampled) -> Iterator[Formula]:
    """The time-out rule on such bounds; the windows of the recomputed C_L lie between those of whole Rm and C."""
    rule = v.setting.beliefs.timeout
    if rule is None or v.C_L is None or v.C_U is None:
        return
    risen, fallen, recomputed = (v.extra[name][0] for name in ("C_L_kept", "C_U_kept", "C_L_recomputed"))
    yield recomputed <= smaller(risen, 1)
    for t in range(1, v.setting.samples):
        yield from (recomputed >= rate for rate in _windows(v, t))
    lower_times_out, upper_times_out = timeouts(rule, v.C_L[0], v.C_U[0], risen, fallen)
    yield v.C_L[v.last] == choose(lower_times_out, recomputed, risen)
    yield v.C_U_before >= fallen
    yield v.C_U_before <= v.C_U[v.last - 1]
    yield v.C_U[v.last] == choose(upper_times_out, larger(v.C_L[v.last], rule.rise_factor * v.C_U_before), fallen)
