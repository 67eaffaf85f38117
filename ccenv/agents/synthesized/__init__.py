"""The synthesised CCAs of [CCmatic] Listing 2 as belief programs: one JSON file each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from importlib import resources

from ccenv.agents.programs import Branch, Expression, Leaf, Program, parse_program
from ccenv.agents.programs.reader import MAX_HOLD_RTTS
from ccenv.agents.sender import ProgramSender
from ccenv.base.errors import InputError, shown
from ccenv.base.registry import number


def shipped_program(name: str) -> Program:
    """Read a program of this package. Raises ProgramError if its file is damaged."""
    text = resources.files(__name__).joinpath(f"{name}.json").read_bytes()
    return parse_program(text, f"{name}.json")


def build(name: str) -> ProgramSender:
    return ProgramSender(name, shipped_program(name))


def __getattr__(name: str) -> Callable[[], ProgramSender]:
    """Return what builds a program without parameters: the targets of ``ccenv.agents.AGENTS``."""
    if not resources.files(__name__).joinpath(f"{name}.json").is_file():
        raise AttributeError(f"no program {name!r} is shipped")
    return partial(build, name)


STEPS = 10  # of a staircase that stands for f: from MSS/Rm to 4**STEPS times as much
LINEAR_SHARE = Fraction(1, 4)  # of C_L_lambda Rm, which f=linear allows on top of alpha
_STAIRS: dict[str, Callable[[int], int]] = {"log": lambda j: j + 1, "sqrt": lambda j: 2**j}
ALLOWANCES = ("const", *_STAIRS, "linear")


def _probe_rule(probe_rtts: int, alpha: Fraction, share: Fraction = Fraction(0)) -> Branch:
    """Drain what may be queued beyond f = alpha MSS + share C_L_lambda Rm, else probe with it for so many RTTs."""
    return Branch(
        _sum(("q_U/Rm", Fraction(1)), ("MSS/Rm", -alpha), ("C_L_lambda", -share)),
        Leaf(Expression((("C_L_lambda", Fraction(1)), ("q_U/Rm", Fraction(-1))))),
        Leaf(_sum(("C_L_lambda", (probe_rtts + 1 + share) / probe_rtts), ("MSS/Rm", alpha / probe_rtts)), probe_rtts),
    )


def _sum(*terms: tuple[str, Fraction]) -> Expression:
    return Expression(tuple(term for term in terms if term[1] != 0))


def _allowance_rule(f: str, probe_rtts: int, alpha: Fraction) -> Branch:
    """Return the rule for a loss allowance that is not constant; log and sqrt are staircases of log4 and of the square root."""
    if f == "linear":
        return _probe_rule(probe_rtts, alpha, LINEAR_SHARE)
    rule = _probe_rule(probe_rtts, alpha * _STAIRS[f](0))
    for j in range(1, STEPS + 1):
        above = Expression((("C_L_lambda", Fraction(1)), ("MSS/Rm", Fraction(-(4**j)))))
        rule = Branch(above, _probe_rule(probe_rtts, alpha * _STAIRS[f](j)), rule)
    return rule


def cc_probe_slow(k: int = 1, alpha_mss: int = 1, f: str = "const") -> ProgramSender:
    """Build CCA4, or its generalisation cc_probe_slow_k: constant loss on CBR-delay ([CCmatic] s.6.2.1).

    The probe sends C_L_lambda * (T* + D) + alpha over T* = k*Rm with D = Rm, that is at the rate
    (k+1)/k * C_L_lambda + alpha/(k*Rm), held for k intervals. At k = 1 this is Listing 2's 2 C_L_lambda + MSS/Rm.

    Args:
        k: T* in units of Rm, 1 to MAX_HOLD_RTTS.
        alpha_mss: alpha in segments, 1 to 100; a probe loses at most 2 alpha.
        f: the loss allowance in place of alpha (s.6.2.1, App. H): ``const`` alpha, ``log`` alpha (1 + log4 x), ``sqrt`` alpha
            sqrt(x), both rounded down at powers of four, with x = C_L_lambda Rm/MSS, or ``linear`` alpha + x/4.

    Deviation: it starts with its own additive ramp, as Listing 2 does; ``cc_probe_slow_k`` starts as the paper's packet runs.
    """
    probe_rtts = int(number("cc_probe_slow", "k", k, low=1, high=MAX_HOLD_RTTS, whole=True))
    alpha = Fraction(int(number("cc_probe_slow", "alpha_mss", alpha_mss, low=1, high=100, whole=True)))
    if f not in ALLOWANCES:
        raise InputError(f"cc_probe_slow: f is {shown(f)}; allowed are {', '.join(ALLOWANCES)}")
    program = shipped_program("cc_probe_slow")
    if probe_rtts == 1 and alpha == 1 and f == "const":
        return ProgramSender("cc_probe_slow", program)
    rule = Branch(
        Expression((("q_U", Fraction(1)), ("MSS", -alpha))),
        Leaf(Expression((("C_L_lambda", Fraction(1)), ("q_U/Rm", Fraction(-1))))),
        Leaf(Expression((("C_L_lambda", Fraction(probe_rtts + 1, probe_rtts)), ("MSS/Rm", alpha / probe_rtts))), probe_rtts),
    )
    if f != "const":
        rule = _allowance_rule(f, probe_rtts, alpha)
    name = f"cc_probe_slow_k{probe_rtts}" + ("" if alpha == 1 else f"_alpha{alpha}") + ("" if f == "const" else f"_{f}")
    program = replace(program, name=name, rule=rule, source="[CCmatic] s.6.2.1, cc_probe_slow_k", probe_window_rtts=probe_rtts)
    return ProgramSender(name, program)


def cc_probe_slow_k(k: int = 1, alpha_mss: int = 5) -> ProgramSender:
    """Build cc_probe_slow_k as [CCmatic] s.6.4 and App. H run it: cc_qdel until the first large loss, alpha = 5 segments.

    Args:
        k: T* in units of Rm, 1 to MAX_HOLD_RTTS; the paper does not say which its runs had.
        alpha_mss: alpha in segments, 1 to 100; a probe loses at most 2 alpha.
    """
    slow = cc_probe_slow(k, alpha_mss)
    return ProgramSender("cc_probe_slow_k", slow.program, start=shipped_program("cc_qdel"))
