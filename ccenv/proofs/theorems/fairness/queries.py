"""The queries of the theorem as SMT-LIB: a lemma's negation with a certificate's numbers, as docs/fairness.md has them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ccenv.proofs.theorems.fairness.tables import LOG_DIGITS, Tables, down, log_bounds


def number(value: Fraction | int) -> str:
    """Return an exact number as SMT-LIB writes it."""
    value = Fraction(value)
    text = str(abs(value.numerator)) if value.denominator == 1 else f"(/ {abs(value.numerator)} {value.denominator})"
    return f"(- {text})" if value < 0 else text


def query(names: str, *asserted: str) -> str:
    """Return a query over real unknowns."""
    declared = [f"(declare-fun {name} () Real)" for name in names.split()]
    lines = ["(set-logic QF_NRA)", *declared, *(f"(assert {one})" for one in asserted), "(check-sat)"]
    return "\n".join(lines) + "\n"


def queries(tables: Tables) -> Iterator[tuple[str, str]]:
    """Yield lemma and text of every query."""
    yield from _ratio(tables)
    yield from _ends(tables)
    for cell in range(tables.cells):
        yield from _cell(tables, cell)


def _ratio(tables: Tables) -> Iterator[tuple[str, str]]:
    n, t = number, tables
    delta = n(t.view / t.utilisation)
    yield (
        "L1 view",
        query(
            "between served",
            f"(<= (* {n(t.utilisation)} between) served)",
            f"(<= served {n(t.view)})",
            f"(> between {delta})",
        ),
    )
    gain_slope, bound, queue = n(t.gain * t.slope), n(t.exponent), n(t.high[-1] - 1)
    potential = f"(+ apart (* {gain_slope} stored))"
    yield (
        "L2 spread",
        query(
            "apart ages stored change",
            f"(<= ages (- {n(t.jitter + t.early_by)} change))",
            "(>= stored 0)",
            f"(<= stored (* {n(t.view)} {queue}))",
            f"(>= {potential} {bound})",
            f"(> (+ (* {n(t.gain)} (- (* {n(t.slope)} ages) apart)) (* {gain_slope} change)) 0)",
        ),
    )
    yield "L2 potential", query("apart stored", "(>= stored 0)", f"(<= {potential} {bound})", f"(> apart {bound})")
    yield "L2 exponential", query("", f"(> {bound} {n(log_bounds(t.spread)[0])})")
    yield (
        "L2 ratio",
        query(
            "older newer square",
            f"(>= newer {n(t.newest)})",
            "(>= older newer)",
            f"(<= older (+ newer {delta}))",
            f"(<= (* square newer) (* {n((t.spread * t.free) ** 2)} older))",
            f"(> square {n(t.ratio**2)})",
        ),
    )
    yield "L2 bound", query("", f"(> {n(t.ratio)} {n(t.fairness)})")
    chord = down(log_bounds(t.spread)[0] / (t.spread - 1), LOG_DIGITS)
    yield "L5 entropy", query("", f"(< {n(t.entropy)} (- {n(chord)} 1 {n(log_bounds(chord)[0])}))")


def _ends(tables: Tables) -> Iterator[tuple[str, str]]:
    n, t = number, tables
    first, last = t.w[0], t.w[-1]
    yield (
        "L4 bottom",
        query(
            "",
            f"(< {n(t.offset)} (+ {n(log_bounds(first)[1])} "
            f"(* {n(t.slope)} (- (+ {n(t.late[0])} {n(t.jitter)}) 1)) {n(t.entropy)}))",
        ),
    )
    lag = t.lag(-1)
    square = (1 - t.curvature) * last**2 / t.free * (1 - 2 * lag)
    reach = f"(+ (- {n(log_bounds(last)[0])} {n(lag)}) (* {n(t.slope)} (- {n(square)} 1)))"
    yield (
        "L4 range",
        query("", f"(or (< {reach} (+ {n(t.offset)} {n(log_bounds(t.shares)[1])})) (>= {n(2 * lag)} 1) (>= {n(t.curvature)} 1))"),
    )


def _line(tables: Tables, ends: tuple[Fraction, ...], cell: int) -> str:
    """Return a table in a cell, by its values at the cell's two ends."""
    left, right = tables.w[cell : cell + 2]
    steep = (ends[1] - ends[0]) / (right - left)
    return f"(+ {number(ends[0] - steep * left)} (* {number(steep)} w))"


def _cell(tables: Tables, k: int) -> Iterator[tuple[str, str]]:
    n, t = number, tables
    left, right = t.w[k], t.w[k + 1]
    inside = (f"(>= w {n(left)})", f"(<= w {n(right)})")
    low, high, late, latest = (_line(t, table[k : k + 2], k) for table in (t.low, t.high, t.late, t.latest))
    early, earliest = (_line(t, t.seen(table, k), k) for table in (t.early, t.earliest))
    age = f"(+ age {n(t.early_by)})" if t.early_by > 0 else "age"
    jitter, slope = n(t.jitter), n(t.slope)
    up, down_ = t.up[k], t.down[k]
    ease, press = t.steep(t.high, k) * right * t.gain * t.fall[k], t.steep(t.low, k) * right * t.gain * t.rise[k]
    broken = [
        f"(>= {n(left)} {n(right)})", f"(< {n(t.low[k])} 1)", f"(< {n(t.low[k + 1])} {n(t.low[k])})",
        f"(< {n(t.high[k])} {n(t.low[k])})", f"(< {n(t.high[k + 1])} {n(t.high[k])})",
        f"(< {n(t.high[k + 1])} {n(t.low[k + 1])})",
        f"(<= {n(t.earliest[k])} 0)", f"(<= {n(t.earliest[k + 1])} 0)", f"(<= {n(t.rise[k])} 0)", f"(<= {n(t.fall[k])} 0)",
        f"(> {n(up)} (/ 1 4))", f"(> {n(down_)} (/ 1 4))", f"(>= {n(ease)} 1)",
    ]  # fmt: skip
    if k > 0:
        broken.append(f"(< (* {n(left)} (- 1 {n(2 * up)})) {n(t.w[k - 1])})")
    if k < t.cells - 1:
        broken.append(f"(> (* {n(right)} {n(1 + 2 * down_ + 4 * down_**2)}) {n(t.w[k + 2])})")
    yield f"L3 tables {k}", query("", f"(or {' '.join(broken)})")
    yield (
        f"L3 peak {k}",
        query(
            "w age load",
            *inside,
            "(>= age 1)",
            f"(<= (* age {n((1 - ease) ** 2 / t.free)}) (* w w))",
            f"(or (= load 1) (and (>= load 1) (<= (* load load {earliest}) (* w w {n((1 + down_ + down_**2) ** 2 * t.free)}))))",
            f"(>= (* {age} load) {high})",
        ),
    )
    fastest = n((1 + up + up**2) ** 2 * t.free)
    if t.low[k + 1] > 1:
        yield (
            f"L3 trough {k}",
            query(
                "w age load",
                *inside,
                "(> load 0)",
                "(<= load 1)",
                f"(>= (* age {n((1 + press) ** 2 * t.free)}) (* w w))",
                f"(or (= load 1) (>= (* load load (+ {latest} {jitter}) {fastest}) (* w w)))",
                f"(<= (- (* age load) {jitter}) {low})",
            ),
        )
    least = f" {n(1 / t.free)}" if t.free > 1 else ""
    yield (
        f"L3 load {k}",
        query(
            "w load",
            *inside,
            "(> load 0)",
            f"(>= (* load load (+ {late} {jitter})) (* w w{least}))",
            f"(< load {n(t.utilisation)})",
        ),
    )
    lag = f"(* {n(2 * t.gain * t.slope / t.free)} w w (- {high} 1))"
    square = f"(* {n((1 - t.curvature) / t.free)} w w (- 1 (* 2 {lag})))"
    yield (
        f"L4 drift {k}",
        query(
            "w",
            *inside,
            f"(or (> (+ (* {slope} (- (+ {late} {jitter}) {early})) {n(t.entropy)}) {n(t.rise[k])}) "
            f"(> (+ (* {slope} (- (+ {late} {jitter}) {square})) {n(t.entropy)} {lag}) {n(t.fall[k])}) "
            f"(> (* {n(4 * t.gain * t.fall[k])} (- {high} 1)) (* {n(t.curvature)} (- 1 (* 2 {lag})))))",
        ),
    )
    far = f"(> {n(t.rise[k] + t.exponent)} {n(t.start)})", f"(> {n(t.fall[k] + t.exponent)} {n(t.relief)})"
    yield f"L6 start {k}", query("", f"(or {' '.join(far)})")
