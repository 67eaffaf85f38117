"""Lemmas for every K at once: what a trace with K samples per Rm shows, seen once per Rm.

Such a view obeys the laws of K = 1 but for a few, which are looser here; each looser law follows from those of any K
(docs/theorems.md has the argument). So a lemma that holds of every view that obeys them holds on every grid with this D. A lemma
that does not says nothing about any grid: it has to be asked there. Units: C = Rm = 1.
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
from ccenv.proofs.formulas.view import View, known
from ccenv.proofs.senders.program import delay_thresholds
from ccenv.proofs.solver.solvers import to_smtlib
from ccenv.proofs.solver.terms import Formula, Term, all_of, any_of, choose, implies, larger, negate, same_truth, smaller
from ccenv.proofs.theorems.language import PEAKS, PER_RTT, Comparison, Node, feature, on_trace
from ccenv.proofs.theorems.prove import Decided, Prover, written
from ccenv.proofs.theorems.queries import LemmaQuery
from ccenv.proofs.theorems.theorem import LoadedTheorem, ReadLemma

STEPS_TRIED = (1, 2, 4, 8)
"""K at which the delays that a program tells apart are compared with the form that holds for every K."""

_LOOSER = frozenset(
    law.__name__ for law in (laws.no_waste_while_queued, laws.jitter_bound, laws.delay_of_newest, laws.buffer_size)
)


@dataclass
class Sampled(View):
    """A view once per Rm of a trace with any number of samples per Rm.

    Attributes:
        jitter: D in Rm; the setting's is the next whole number.
        used: per sample t from 0 on, whether step t - D was utilised, where D is no whole number.
        C_U_before: C_U one step before the last sample.
    """

    jitter: Fraction = Fraction(0)
    used: list[Formula] | None = None
    C_U_before: Term = None

    def step_utilised(self, x: int) -> Formula:
        """Return whether the step that ended D before a sample was utilised; with whole D as with one sample per Rm."""
        return super().step_utilised(x) if self.used is None else self.used[x + self.setting.jitter_steps]

    def least_entered(self, t: Fraction) -> Term:
        """Return a lower bound on E between samples: within a Rm bytes are sent evenly and losses come last, so E is concave."""
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
    """Return whether the looser laws speak about a theorem's model, beliefs and delays."""
    needs = loaded.sender.needs(loaded.setting)
    own = loaded.setting.model == "ccac" and needs.bounds <= {"C_L", "C_U"} and "loss" not in loaded.program.inputs()
    return own and _thresholds(loaded) is not None


def setting_of(setting: Setting) -> Setting:
    """Return the setting of the views once per Rm of traces of a setting."""
    there = ceil(setting.jitter)
    past = ceil(Fraction(setting.past_steps, setting.steps_per_rtt))
    return replace(setting, samples=setting.rtts + 1, steps_per_rtt=1, past_steps=max(past, there), jitter_rtts=Fraction(there))


def _thresholds(loaded: LoadedTheorem) -> dict[int, Fraction] | None:
    """Return delay told apart with one sample per Rm -> tau, where with any K it is told apart at tau K + 1; None for others."""
    jitter = loaded.setting.jitter
    whole = ceil(jitter)
    found = {m: m - 1 - whole + jitter for m in delay_thresholds(loaded.program, whole)}
    for steps in STEPS_TRIED:
        if (jitter * steps).denominator == 1:
            there = delay_thresholds(loaded.program, int(jitter * steps), steps)
            if there != {int(tau * steps) + 1 for tau in found.values()}:
                return None
    return found


def sampled(loaded: LoadedTheorem, setting: Setting, needs: Needs) -> tuple[Sampled, list[Formula]]:
    """Return a view once per Rm in solver terms, and everything that is known of it."""
    there = setting_of(setting)
    encoding = encode(there, loaded.sender, Needs(needs.bounds, loaded.sender.needs(there).delays))
    view = _view(encoding, setting.jitter)
    return view, [formula for formula in known_of(view, loaded) if formula is not True]


def known_of(v: Sampled, loaded: LoadedTheorem) -> Iterator[Formula]:
    """Yield what is known of a view once per Rm: the laws of K = 1 that hold of it, the looser ones, beliefs and the program."""
    yield from (formula for name, formula in laws.network(v) if name not in _LOOSER)
    for looser in (_buffer, _tokens, _jitter, initial_bounds, _used, _lower, _upper, _timeout):
        yield from looser(v)
    yield from _delays(v, loaded)
    yield from loaded.sender.sends(v)


def on_samples(node: Node, v: Sampled) -> Formula:
    """Return a formula's truth on a view; a comparison with a peak must hold of the bounds on it between samples."""
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
    """Decide a query of a lemma for every K: ``verified``, or ``unknown`` if no K is proved so."""
    view, formulas = sampled(loaded, asked.query.setting, asked.query.claim.needs)
    premise = written(asked.query.claim.premise(view))
    wrong = written(negate(on_samples(lemma.conclusions[asked.part - 1], view)))
    name = f"{asked.query.name}, every K"
    text = to_smtlib([*formulas, *premise, *wrong])
    answer = prover.ask(text, "z3", name)
    twin = to_smtlib([*formulas, *premise])
    twin_answer = prover.ask(twin, "z3", f"{name}, satisfiable twin") if answer.status == "unsat" else None
    proved = twin_answer is not None and twin_answer.status == "sat"
    reason = "" if proved else f"not proved for every K: {answer.reason or answer.status}"
    verdict: Verdict = "verified" if proved else "unknown"
    return Decided(asked.lemma, asked.part, verdict, text, answer, twin, twin_answer, reason, every_k=proved)


def _view(encoding: Encoding, jitter: Fraction) -> Sampled:
    plain = encoding.view
    values = {field.name: getattr(plain, field.name) for field in fields(View)}
    used = None
    if jitter.denominator != 1:
        used = [encoding.variables.boolean(f"used_{t}") for t in range(plain.setting.samples)]
    return Sampled(**values, jitter=jitter, used=used, C_U_before=encoding.variables.real("C_U_before"))


def _buffer(v: Sampled) -> Iterator[Formula]:
    """The buffer of the setting; what is large depends on D."""
    if v.setting.buffer == "large" and v.beta is not None:
        yield v.beta >= LARGE_BUFFER_RTTS * (1 + v.jitter)
    else:
        yield from laws.buffer_size(v)


def _tokens(v: Sampled) -> Iterator[Formula]:
    """Where tokens were wasted in (t-1, t], the queue was empty then: G(t) >= E(t-1) + min(1, sent); a loss means sent > 1."""
    known_losses = v.setting.losses_before if v.setting.has_loss else ()
    for t in v.setting.times[1:]:
        sent: Term = smaller(1, v.sent[t] if t > 0 else v.enqueued(t) - v.enqueued(t - 1))
        if -t in known_losses:
            sent = choose(v.lost_in_past(-t), 1, sent)
        wasted = v.admitted(t) < v.admitted(t - 1) + 1
        yield implies(wasted, v.admitted(t) >= v.enqueued(t - 1) + sent)


def _jitter(v: Sampled) -> Iterator[Formula]:
    """S(t) >= G(t - D), which is at least G at the sample before and at least what D leaves of G at the sample after."""
    first = v.setting.times[0]
    for t in v.setting.times:
        before, after = t - ceil(v.jitter), t - floor(v.jitter)
        yield v.delivered(t) >= (v.admitted(before) if before >= first else v.admitted(first) - v.jitter)
        if before != after and after >= first:
            yield v.delivered(t) >= v.admitted(after) - (v.jitter - floor(v.jitter))


def _delays(v: Sampled, loaded: LoadedTheorem) -> Iterator[Formula]:
    """The newest byte came at some time in (t-1, t]: late only if S(t) <= E(t - tau), not late only if S(t) > E(t - 1 - tau)."""
    found = _thresholds(loaded) or {}
    first = v.setting.times[0]
    for t in v.setting.times:
        flags = v.newest_late(t)
        for m, flag in flags.items():
            late = implies(flag, _late(v, t, t - found[m]))
            if t == first:
                yield late
                continue
            served = v.delivered(t) > v.delivered(t - 1)
            yield implies(served, all_of([late, any_of([flag, v.delivered(t) > v.least_entered(t - 1 - found[m])])]))
            yield implies(negate(served), same_truth(flag, v.newest_late(t - 1)[m]))
        for short, long in pairwise(sorted(flags)):
            yield implies(flags[long], flags[short])


def _late(v: Sampled, t: int, at: Fraction) -> Formula:
    """S(t) <= E(at - 1/K), which is below E(at) in the trace: there the sender sends in every step."""
    served, entered = v.delivered(t), v.most_entered(at)
    return served <= entered if at <= 0 else served < entered


def _used(v: Sampled) -> Iterator[Formula]:
    """Where D is no whole number: E(t-D) > S(t), or bytes were lost in that step."""
    for t, flag in enumerate(v.used or ()):
        yield any_of([flag, v.least_entered(t - v.jitter) <= v.S[t]])
        step = t - floor(v.jitter)  # t - D lies in this Rm
        if step > 0:
            yield any_of([negate(flag), v.most_entered(t - v.jitter) > v.S[t], v.lost[step] > 0])


def _kept(v: Sampled, name: str, t: int) -> Term:
    if t == v.last and v.setting.beliefs.timeout is not None:
        return v.extra[f"{name}_kept"][0]
    return known(getattr(v, name), name)[t]


def _windows(v: Sampled, t: int) -> list[Term]:
    return [(v.S[t] - v.S[start]) * (1 / (t - start + v.jitter)) for start in range(t)]


def _lower(v: Sampled) -> Iterator[Formula]:
    """C_L never falls, knows the windows of whole Rm, and no window says more than C."""
    if v.C_L is None:
        return
    for t in range(1, v.setting.samples):
        now = _kept(v, "C_L", t)
        yield now >= v.C_L[t - 1]
        yield now <= larger(v.C_L[t - 1], 1)
        yield from (now >= rate for rate in _windows(v, t))


def _upper(v: Sampled) -> Iterator[Formula]:
    """C_U never rises, no window says less than C, and a window of whole Rm counts that was utilised throughout for sure."""
    if v.C_U is None:
        return
    for t in range(1, v.setting.samples):
        now = _kept(v, "C_U", t)
        yield now <= v.C_U[t - 1]
        yield now >= smaller(v.C_U[t - 1], 1)
        for start in range(t):
            if t - start > v.jitter:
                last = t - floor(v.jitter)
                waits = [v.enqueued(x - 1) > v.S[min(x + ceil(v.jitter), t)] for x in range(start + 1, last + 1)]
                yield implies(all_of(waits), now * (t - start - v.jitter) <= v.S[t] - v.S[start])


def _timeout(v: Sampled) -> Iterator[Formula]:
    """The time-out's rule on such bounds; the windows that it computes C_L from anew lie between those of whole Rm and C."""
    rule = v.setting.beliefs.timeout
    if rule is None or v.C_L is None or v.C_U is None:
        return
    kept, fallen, again = (v.extra[name][0] for name in ("C_L_kept", "C_U_kept", "C_L_recomputed"))
    yield again <= smaller(kept, 1)
    for t in range(1, v.setting.samples):
        yield from (again >= rate for rate in _windows(v, t))
    lower_times_out, upper_times_out = timeouts(rule, v.C_L[0], v.C_U[0], kept, fallen)
    yield v.C_L[v.last] == choose(lower_times_out, again, kept)
    yield v.C_U_before >= fallen
    yield v.C_U_before <= v.C_U[v.last - 1]
    yield v.C_U[v.last] == choose(upper_times_out, larger(v.C_L[v.last], rule.rise_factor * v.C_U_before), fallen)
