"""The belief rules, written out as SMT-LIB from docs/theorems.md and docs/beliefs.md. Units: C = Rm = 1.

``C_L_t, C_U_t, C_L_lambda_t, q_U_t`` are the bounds at sample t; where beliefs time out, those at the last sample are what the
time-out leaves, and ``C_L_kept, C_U_kept`` what it finds. Windows lie within the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ccenv.proofs.certificates.laws import Path, conj, disj, least, most, num

BOUNDS = ("C_L", "C_U", "C_L_lambda", "q_U")
TIMEOUTS = {"artefact": (Fraction(2), Fraction(3, 2)), "paper": (Fraction(11, 10), Fraction(2))}
"""Name -> (r, f): beliefs time out if C_U <= r C_L, and C_U grows by f."""

MOVED = Fraction(11, 10)


def declarations(path: Path, bounds: frozenset[str], timeout: str) -> dict[str, str]:
    """Return the names of the beliefs with their sorts."""
    names = {f"{bound}_{t}": "Real" for bound in bounds for t in range(path.samples)}
    if timeout != "none":
        names |= dict.fromkeys(("C_L_kept", "C_U_kept", "C_L_recomputed"), "Real")
    return names


def rules(path: Path, bounds: frozenset[str], timeout: str, window: int) -> Iterator[str]:
    """Yield the rules of the bounds that a query holds, as bodies of assertions."""
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
    """Return what each window that ends at t says of C from below: delivered / (length + D)."""
    return [f"(* (- S_{t} S_{x}) {num(Fraction(1, t - x + path.jitter))})" for x in range(t)]


def upper(path: Path, t: int) -> list[tuple[str, str]]:
    """Return for each window longer than D that ends at t whether it counts, and what it says of C from above."""
    found, d = [], path.jitter
    for x in range(t - d):
        used = conj(*(path.step_used(y) for y in range(x + 1, t - d + 1)))
        found.append((used, f"(* (- S_{t} S_{x}) {num(Fraction(1, t - x - d))})"))
    return found


def sent(path: Path, t: int, window: int) -> list[tuple[str, str]]:
    """Return for each sending window of T* known at t whether it counts, and sent / (T* + D)."""
    found = []
    for end in range(window, t + 1):
        start = end - window
        noise = (disj(path.flag("first_late", x, path.jitter + 1), path.loss_seen(x)) for x in range(start + 1, t + 1))
        calm = conj(f"(<= E_{end} S_{t})", *(f"(not {sign})" for sign in noise))
        total = " ".join(f"rate_{x}" for x in range(start + 1, end + 1))
        found.append((calm, f"(* (+ 0.0 {total}) {num(Fraction(1, window + path.jitter))})"))
    return found


def _extreme(sign: str, name: str, parts: list[tuple[str, str]]) -> Iterator[str]:
    for counts, part in parts:
        yield f"(=> {counts} ({sign} {name} {part}))"
    yield disj(*(conj(counts, f"(= {name} {part})") for counts, part in parts))


def _timeout(path: Path, close: Fraction, rise: Fraction) -> Iterator[str]:
    """Yield what a time-out leaves: a bound that did not move is recomputed, unless the other one is large news."""
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
