"""Pseudo-code of belief programs, in the shape of [CCmatic] Listing 2."""

from __future__ import annotations

from fractions import Fraction

from ccenv.agents.programs.program import Branch, Expression, Program, Rule

_INDENT = "    "


def pseudo_code(program: Program) -> str:
    """Print a program as pseudo-code; leaves of shields as ``rate in [lo, hi]``.

    The first line names the program, the last is line 7 of [CCmatic] Listing 1. A condition has one input alone on the left if
    its coefficient is 1 or -1 (``C_U < 2 C_L``); otherwise its negative terms move to the right-hand side.
    """
    head = f"# {program.name}" + (f" ({program.source})" if program.source else "")
    lines = [head]
    if program.probe_window_rtts != 1:
        lines.append(f"# C_L_lambda is measured over T* = {program.probe_window_rtts} Rm")
    lines += _rule_lines(program.rule, "")
    lines.append("rate = max(rate, MSS/Rm)")
    return "\n".join(lines)


def expression_text(expression: Expression) -> str:
    """Print an expression, e.g. ``2 C_L + MSS/Rm``; positive terms come first."""
    return _sum_text(expression.terms)


def _rule_lines(rule: Rule, indent: str) -> list[str]:
    if isinstance(rule, Branch):
        return [
            f"{indent}if {_condition_text(rule.condition)}:",
            *_rule_lines(rule.then, indent + _INDENT),
            f"{indent}else:",
            *_rule_lines(rule.otherwise, indent + _INDENT),
        ]
    held = "" if rule.hold_rtts == 1 else f"  # held for {rule.hold_rtts} Rm"
    if rule.most is not None:
        return [f"{indent}rate in [{_sum_text(rule.rate.terms)}, {_sum_text(rule.most.terms)}]{held}"]
    return [f"{indent}rate = {_sum_text(rule.rate.terms)}{held}"]


def _condition_text(condition: Expression | str) -> str:
    if isinstance(condition, str):
        return condition
    for sign, comparison in ((1, ">"), (-1, "<")):
        for name, coefficient in condition.terms:
            remaining = tuple((n, -sign * c) for n, c in condition.terms if n != name)
            # An input with coefficient 1 stands alone where the other side can be read as an amount.
            if coefficient == sign and (not remaining or any(c > 0 for _, c in remaining)):
                return f"{name} {comparison} {_sum_text(remaining)}"
    positive = tuple((name, c) for name, c in condition.terms if c > 0)
    negative = tuple((name, -c) for name, c in condition.terms if c < 0)
    return f"{_sum_text(positive)} > {_sum_text(negative)}" if positive else f"{_sum_text(negative)} < 0"


def _sum_text(terms: tuple[tuple[str, Fraction], ...]) -> str:
    ordered = sorted(terms, key=lambda term: term[1] < 0)
    text = ""
    for name, coefficient in ordered:
        size = abs(coefficient)
        body = name if size == 1 else f"{size} {name}"
        if not text:
            text = f"-{body}" if coefficient < 0 else body
        else:
            text += f" {'-' if coefficient < 0 else '+'} {body}"
    return text or "0"
