"""Path laws and belief rules as SMT-LIB, from docs/theorems.md and docs/engine.md. Units: C = Rm = 1; a step is one Rm.

Names: ``G_t, E_t, S_t`` tokens admitted, bytes entered, bytes delivered by sample t; ``*_before_k`` the same at sample -1 - k;
``rate_t`` bytes sent in (t-1, t]; ``late_t_m`` the newest byte delivered by t waited m steps or more; ``first_late_t_m`` the same
of the first byte delivered in (t-1, t]; ``lost_at_0``, ``loss_seen_at_0`` bytes were lost in the steps that end at samples 0, -1;
``C_L_t, C_U_t, C_L_lambda_t, q_U_t`` the bounds at sample t. Where beliefs time out, ``C_L_kept, C_U_kept`` are the last bounds
before the time-out and the bounds at the last sample those after it. Windows lie within the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

PAST = 3
"""Samples before the trace at which the path's laws held."""


def num(value: Fraction | int) -> str:
    """Return a number in SMT-LIB."""
    value = Fraction(value)
    size = f"{abs(value.numerator)}.0" if value.denominator == 1 else f"(/ {abs(value.numerator)}.0 {value.denominator}.0)"
    return f"(- {size})" if value < 0 else size


def conj(*parts: str) -> str:
    """Return a conjunction."""
    return f"(and true {' '.join(parts)})"


def disj(*parts: str) -> str:
    """Return a disjunction."""
    return f"(or false {' '.join(parts)})"


def least(a: str, b: str) -> str:
    """Return the smaller of two terms."""
    return f"(ite (<= {a} {b}) {a} {b})"


def most(a: str, b: str) -> str:
    """Return the larger of two terms."""
    return f"(ite (>= {a} {b}) {a} {b})"


@dataclass(frozen=True)
class Path:
    """The path of a query."""

    model: str  # `ideal`, `cbr_delay` or `ccac`
    buffer: str | Fraction  # `infinite`, `arbitrary`, `large`, or beta in C*Rm
    samples: int  # T
    # None, or (a, b): in each step of the known past at most a*C*Rm + b*MSS was sent
    sent_before: tuple[Fraction, Fraction] | None
    delays: tuple[int, ...]  # distinguished delays of the newest byte, in steps; `first_delays`: of the first byte of a step
    first_delays: tuple[int, ...]

    @property
    def jitter(self) -> int:
        """D in steps."""
        return 0 if self.model == "ideal" else 1

    @property
    def finite(self) -> bool:
        """Whether the buffer is finite."""
        return self.buffer != "infinite"

    @property
    def look_back(self) -> int:
        """Samples before the trace at which E is named."""
        return PAST + max((0, *self.delays, *self.first_delays))

    @property
    def last(self) -> int:
        """Index of the last sample."""
        return self.samples - 1

    def at(self, curve: str, t: int) -> str:
        """Return the name of a curve at a sample, negative ones included."""
        return f"{curve}_{t}" if t >= 0 else f"{curve}_before_{-t - 1}"

    def flag(self, kind: str, t: int, m: int) -> str:
        """Return the name of a delay at a sample, negative ones included."""
        return f"{kind}_{t}_{m}" if t >= 0 else f"{kind}_before_{-t - 1}_{m}"

    def lost(self, t: int) -> str:
        """Return the term for the bytes lost in step t of the trace."""
        return f"(- (+ E_{t - 1} rate_{t}) E_{t})" if self.finite else "0.0"

    def loss_seen(self, t: int) -> str:
        """Return the formula "a loss became known by sample t", which is one of the step before."""
        if not self.finite:
            return "false"
        return "loss_seen_at_0" if t == 0 else "lost_at_0" if t == 1 else f"(> {self.lost(t - 1)} 0.0)"

    def step_used(self, x: int) -> str:
        """Return the formula "no token can have been wasted in step x": E(x) > S(x + D), or bytes were lost in it."""
        waiting = f"(> {self.at('E', x)} S_{x + self.jitter})"
        if not self.finite:
            return waiting
        lost = f"(> {self.lost(x)} 0.0)" if x > 0 else "lost_at_0" if x == 0 else "loss_seen_at_0"
        return disj(waiting, lost)

    def declarations(self) -> dict[str, str]:
        """Return the sort of each name of the path."""
        names = {"alpha": "Real"}
        if self.finite:
            names |= {"beta": "Real", "lost_at_0": "Bool", "loss_seen_at_0": "Bool"}
        for t in range(-PAST, self.samples):
            names |= {self.at(curve, t): "Real" for curve in "GS"}
            names |= {self.flag("late", t, m): "Bool" for m in self.delays}
            names |= {self.flag("first_late", t, m): "Bool" for m in self.first_delays}
        names |= {self.at("E", t): "Real" for t in range(-self.look_back, self.samples)}
        return names

    def laws(self) -> Iterator[str]:
        """Yield every law, as the body of an assertion."""
        yield "(> alpha 0.0)"
        yield f"(< alpha {num(Fraction(1, 5))})"
        yield from self._buffer()
        yield "(= S_0 0.0)"
        for t in range(-PAST, self.samples):
            yield from self._sample(t)
            if t > -PAST:
                yield from self._step(t)
        yield from self._tail()
        yield from self._sent_before()
        yield from self._delays()

    def _buffer(self) -> Iterator[str]:
        if self.buffer == "large":
            yield f"(>= beta {num(3 * (1 + self.jitter))})"
        elif self.buffer == "arbitrary":
            yield "(> beta 0.0)"
        elif isinstance(self.buffer, Fraction):
            yield f"(= beta {num(self.buffer)})"

    def _sample(self, t: int) -> Iterator[str]:
        g, e, s = (self.at(curve, t) for curve in "GES")
        yield f"(<= {s} {g})"
        yield f"(<= {s} {e})"
        before = t - self.jitter
        admitted = self.at("G", before) if before >= -PAST else f"(- {self.at('G', -PAST)} {num(self.jitter)})"
        yield f"(>= {s} {admitted})"
        if self.finite and t <= 0:
            yield f"(<= {e} (+ {g} beta))"

    def _step(self, t: int) -> Iterator[str]:
        g, e, s = (self.at(curve, t) for curve in "GES")
        g0, s0 = self.at("G", t - 1), self.at("S", t - 1)
        yield f"(<= {g} (+ {g0} 1.0))"
        yield f"(>= {g} {g0})"
        yield f"(>= {s} {s0})"
        if self.model == "ccac":
            yield f"(=> (< {g} (+ {g0} 1.0)) (<= {e} {g}))"
            return
        offered = e if t <= 0 else f"(+ {self.at('E', t - 1)} rate_{t})"
        yield f"(= {g} {least(f'(+ {g0} 1.0)', offered)})"

    def _tail(self) -> Iterator[str]:
        if self.model != "ccac":
            yield f"(<= {self.at('G', -PAST)} {self.at('E', -PAST)})"
        if self.finite:
            yield "(=> lost_at_0 (= E_0 (+ G_0 beta)))"
            yield "(=> loss_seen_at_0 (= E_before_0 (+ G_before_0 beta)))"
        for t in range(1, self.samples):
            arrived = f"(+ E_{t - 1} rate_{t})"
            yield f"(= E_{t} {least(arrived, f'(+ G_{t} beta)') if self.finite else arrived})"

    def _sent_before(self) -> Iterator[str]:
        for k in range(self.look_back):
            now, before = self.at("E", -k), self.at("E", -k - 1)
            yield f"(<= {before} {now})"
            if self.sent_before is None or k >= PAST:
                continue
            limit = f"(+ {num(self.sent_before[0])} (* {num(self.sent_before[1])} alpha))"
            yield f"(<= (- {now} {before}) {limit})"
            if self.finite and k < 2:
                yield f"(=> {('lost_at_0', 'loss_seen_at_0')[k]} (< (- {now} {before}) {limit}))"

    def _delays(self) -> Iterator[str]:
        for t in range(-PAST, self.samples):
            s, s0 = self.at("S", t), self.at("S", t - 1) if t > -PAST else ""
            for m in self.delays:
                late, behind = self.flag("late", t, m), f"(<= {s} {self.at('E', t - m)})"
                if t == -PAST:
                    yield f"(=> {late} {behind})"
                else:
                    yield f"(=> (> {s} {s0}) (= {late} {behind}))"
                    yield f"(=> (not (> {s} {s0})) (= {late} {self.flag('late', t - 1, m)}))"
            for m in self.first_delays:
                late = self.flag("first_late", t, m)
                if t > -PAST:
                    yield f"(=> (> {s} {s0}) (= {late} (< {s0} {self.at('E', t - m)})))"
                    yield f"(=> (not (> {s} {s0})) (= {late} {self.flag('first_late', t - 1, m)}))"
            for name, waits in (("late", self.delays), ("first_late", self.first_delays)):
                for short, long in pairwise(waits):
                    yield f"(=> {self.flag(name, t, long)} {self.flag(name, t, short)})"


BOUNDS = ("C_L", "C_U", "C_L_lambda", "q_U")
TIMEOUTS = {"artefact": (Fraction(2), Fraction(3, 2)), "paper": (Fraction(11, 10), Fraction(2))}
"""Name -> (r, f): beliefs time out if C_U <= r C_L, and C_U grows by f."""

MOVED = Fraction(11, 10)


def declarations(path: Path, bounds: frozenset[str], timeout: str) -> dict[str, str]:
    """Return the sort of each name of the beliefs."""
    names = {f"{bound}_{t}": "Real" for bound in bounds for t in range(path.samples)}
    if timeout != "none":
        names |= dict.fromkeys(("C_L_kept", "C_U_kept", "C_L_recomputed"), "Real")
    return names


def rules(path: Path, bounds: frozenset[str], timeout: str, window: int) -> Iterator[str]:
    """Yield the rules of the bounds in a query, as bodies of assertions."""
    if "C_L" in bounds:
        yield "(>= C_L_0 alpha)"
    if {"C_L", "C_U"} <= bounds:
        yield "(<= C_L_0 C_U_0)"
    if "C_L_lambda" in bounds:
        yield "(>= C_L_lambda_0 alpha)"
    if "q_U" in bounds:
        yield "(>= q_U_0 0.0)"
    for t in range(1, path.samples):
        end = t == path.last and timeout != "none"
        if "C_L" in bounds:
            name = "C_L_kept" if end else f"C_L_{t}"
            yield from _extreme(">=", name, [("true", f"C_L_{t - 1}"), *(("true", rate) for rate in lower(path, t))])
        if "C_U" in bounds:
            name = "C_U_kept" if end else f"C_U_{t}"
            yield from _extreme("<=", name, [("true", f"C_U_{t - 1}"), *upper(path, t)])
        if "C_L_lambda" in bounds:
            yield from _extreme(">=", f"C_L_lambda_{t}", [("true", f"C_L_lambda_{t - 1}"), *sent(path, t, window)])
        if "q_U" in bounds:
            seen = f"(- E_{t} S_{t})" if not path.finite else f"(+ (- E_{t} S_{t}) {path.lost(t)})"
            drained = most("0.0", f"(- (+ q_U_{t - 1} rate_{t}) C_L_lambda_{t})")
            yield f"(= q_U_{t} {least(seen, drained)})"
    if timeout != "none":
        yield from _timeout(path, *TIMEOUTS[timeout])


def lower(path: Path, t: int) -> list[str]:
    """Return the lower bound on C of each window that ends at t: delivered / (length + D)."""
    return [f"(* (- S_{t} S_{x}) {num(Fraction(1, t - x + path.jitter))})" for x in range(t)]


def upper(path: Path, t: int) -> list[tuple[str, str]]:
    """Return (whether it counts, upper bound on C) of each window longer than D that ends at t."""
    rates, d = [], path.jitter
    for x in range(t - d):
        used = conj(*(path.step_used(y) for y in range(x + 1, t - d + 1)))
        rates.append((used, f"(* (- S_{t} S_{x}) {num(Fraction(1, t - x - d))})"))
    return rates


def sent(path: Path, t: int, window: int) -> list[tuple[str, str]]:
    """Return (whether it counts, sent / (T* + D)) of each sending window of T* known at t."""
    rates = []
    for end in range(window, t + 1):
        start = end - window
        noise = (disj(path.flag("first_late", x, path.jitter + 1), path.loss_seen(x)) for x in range(start + 1, t + 1))
        calm = conj(f"(<= E_{end} S_{t})", *(f"(not {sign})" for sign in noise))
        total = " ".join(f"rate_{x}" for x in range(start + 1, end + 1))
        rates.append((calm, f"(* (+ 0.0 {total}) {num(Fraction(1, window + path.jitter))})"))
    return rates


def _extreme(sign: str, name: str, parts: list[tuple[str, str]]) -> Iterator[str]:
    for counts, part in parts:
        yield f"(=> {counts} ({sign} {name} {part}))"
    yield disj(*(conj(counts, f"(= {name} {part})") for counts, part in parts))


def _timeout(path: Path, close: Fraction, rise: Fraction) -> Iterator[str]:
    """Yield the bounds after a time-out: a bound that did not move is recomputed unless the other one moved far."""
    last = path.last
    windows = [rate for t in range(1, path.samples) for rate in lower(path, t)]
    yield from _extreme(">=", "C_L_recomputed", [("true", rate) for rate in windows])
    tight = f"(<= C_U_kept (* {num(close)} C_L_kept))"
    empty = "(< C_U_kept C_L_kept)"
    up, down = "(> C_L_kept C_L_0)", "(< C_U_kept C_U_0)"
    far_up, far_down = f"(> C_L_kept (* {num(MOVED)} C_L_0))", f"(< (* C_U_kept {num(MOVED)}) C_U_0)"
    lower_out = conj(tight, f"(not {up})", disj(conj(down, empty), f"(not {far_down})"))
    upper_out = conj(tight, f"(not {down})", disj(conj(up, empty), f"(not {far_up})"))
    yield f"(= C_L_{last} (ite {lower_out} C_L_recomputed C_L_kept))"
    grown = most(f"C_L_{last}", f"(* {num(rise)} C_U_{last - 1})")
    yield f"(= C_U_{last} (ite {upper_out} {grown} C_U_kept))"
