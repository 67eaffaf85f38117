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


def cc_probe_slow(k: int = 1, alpha_mss: int = 1) -> ProgramSender:
    """Build CCA4, or its generalisation cc_probe_slow_k: constant loss on CBR-delay ([CCmatic] s.6.2.1).

    The probe sends C_L_lambda * (T* + D) + alpha over T* = k*Rm with D = Rm, that is at the rate
    (k+1)/k * C_L_lambda + alpha/(k*Rm), held for k intervals. At k = 1 this is Listing 2's 2 C_L_lambda + MSS/Rm.

    Args:
        k: T* in units of Rm, 1 to MAX_HOLD_RTTS.
        alpha_mss: alpha in segments, 1 to 100; a probe loses at most 2 alpha.

    Deviation: it starts with its own additive ramp, as Listing 2 does; ``cc_probe_slow_k`` starts as the paper's packet runs.
    """
    probe_rtts = int(number("cc_probe_slow", "k", k, low=1, high=MAX_HOLD_RTTS, whole=True))
    alpha = Fraction(int(number("cc_probe_slow", "alpha_mss", alpha_mss, low=1, high=100, whole=True)))
    program = shipped_program("cc_probe_slow")
    if probe_rtts == 1 and alpha == 1:
        return ProgramSender("cc_probe_slow", program)
    rule = Branch(
        Expression((("q_U", Fraction(1)), ("MSS", -alpha))),
        Leaf(Expression((("C_L_lambda", Fraction(1)), ("q_U/Rm", Fraction(-1))))),
        Leaf(Expression((("C_L_lambda", Fraction(probe_rtts + 1, probe_rtts)), ("MSS/Rm", alpha / probe_rtts))), probe_rtts),
    )
    name = f"cc_probe_slow_k{probe_rtts}" + ("" if alpha == 1 else f"_alpha{alpha}")
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
