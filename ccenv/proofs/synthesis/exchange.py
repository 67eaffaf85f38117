"""Conversion between solver counterexamples (rational views) and the simulator's traces (exact integers)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ccenv.agents.programs import Program
from ccenv.proofs.formulas.setting import Setting
from ccenv.proofs.formulas.view import View, require_variables
from ccenv.proofs.replay.exact import replay
from ccenv.proofs.senders.program import program_decider
from ccenv.proofs.synthesis.prove import BOUNDS
from ccenv.proofs.synthesis.query.classes import LARGEST, MOST_SAMPLES, PAST, TRACE, windows_code


def trace_of_view(view: View) -> np.ndarray | None:
    """Return a counterexample as moves for every candidate, or None if its numbers are too large for integers.

    Service and tokens are stored as positions, clamped to the legal range of each candidate; delays that the rule leaves open as
    preferences. Beliefs are held if the counterexample held them.
    """
    setting = view.setting
    numbers = [view.alpha, view.E[0], view.C_L[0], view.C_U[0], *view.G, *view.S, *view.E_before]  # type: ignore[index]
    numbers += [view.beta] if view.beta is not None else []
    numbers += [view.C_L_lambda[0], view.q_U[0]] if view.C_L_lambda is not None and view.q_U is not None else []
    # Windows are 1 to T samples long, and rates are halves.
    scale = math.lcm(*(Fraction(x).denominator for x in numbers)) * 2 * math.lcm(*range(1, setting.samples + 1))
    largest = max(abs(Fraction(x)) for x in [*numbers, *view.E]) * scale
    if largest > LARGEST or setting.samples > MOST_SAMPLES:
        return None

    def units(x: Fraction) -> int:
        return int(Fraction(x) * scale)

    out = np.zeros((), dtype=TRACE)
    n = setting.samples
    out["samples"], out["jitter"], out["link"] = n, setting.jitter_steps, scale
    out["exact_waste"] = setting.model != "ccac"
    out["past_known"] = setting.delay_rule == "sound"
    out["alpha"], out["beta"] = units(view.alpha), -1 if view.beta is None else units(view.beta)
    out["G"], out["E"] = units(view.G[0]), units(view.E[0])
    out["C_L"], out["C_U"] = units(view.C_L[0]), units(view.C_U[0])  # type: ignore[index]
    out["lost"], out["seen"] = bool(view.lost_at_0), bool(view.loss_seen[0])
    if view.C_L_lambda is not None and view.q_U is not None:
        slack = setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1
        out["probes"], out["C_L_lambda"], out["q_U"] = 1, units(view.C_L_lambda[0]), units(view.q_U[0])
        out["late_kept"] = setting.beliefs.lambda_delay == "kept"
        out["first_late"] = bool(view.first_late[0][slack])
    out["windows"] = windows_code(setting.beliefs)
    is_held = _is_held(view)
    out["hold"] = is_held
    past = [units(x) for x in view.E_before]
    limit = setting.sent_before_at_most
    # Older bytes came all at once, or as fast as the query allows.
    most = None if limit is None else math.floor((limit[0] + limit[1] * view.alpha) * scale)
    while len(past) < PAST:
        past.append(min([-LARGEST, *past]) if most is None else past[-1] - most)
    out["E_before"] = past[:PAST]
    out["waste"][:], out["serve"][:] = -1, -1
    out["G_at"][:n] = [units(x) for x in view.G]
    out["S_at"][:n] = [units(x) for x in view.S]
    delays = [max([m for m, flag in flags.items() if flag], default=0) for flags in view.late]
    out["delay"] = delays[0]
    out["delay_at"][:n] = delays
    return out[()]


def _is_held(view: View) -> bool:
    """Return whether no bound moved, apart from a time-out at the last sample."""
    lower, upper = require_variables(view.C_L, "C_L"), require_variables(view.C_U, "C_U")
    still = all(x == lower[0] for x in lower[:-1]) and all(x == upper[0] for x in upper[:-1])
    if view.setting.beliefs.timeout is None:
        return still and lower[-1] == lower[0] and upper[-1] == upper[0]
    return still and lower[-1] <= lower[0] and upper[-1] >= upper[0]


def view_of_trace(trace: np.ndarray, setting: Setting, program: Program, curves: np.ndarray) -> View:
    """Replay a simulated trace in exact rational numbers with ``ccenv.proofs.replay.exact``, which checks every law.

    ``curves`` (CURVES, MOST_SAMPLES) are those of ``simulate`` for the program. Raises ReplayError if simulator and replayer
    disagree.
    """
    n, link = setting.samples, int(trace["link"])
    G, E, S, delays, _, _, lower, upper, first_late, _, probed, queue, _ = curves

    def part(x: Any) -> Fraction:
        return Fraction(int(x), link)

    values: dict[str, Fraction | bool] = {"alpha": part(trace["alpha"]), "rate_0": part(trace["alpha"])}
    if setting.has_loss:
        values["beta"] = part(trace["beta"])
        values["lost_at_0"] = bool(trace["lost"])
        values["loss_seen_at_0"] = bool(trace["seen"])
    values |= {f"G_{t}": part(G[t]) for t in range(n)} | {f"S_{t}": part(S[t]) for t in range(n)}
    values |= {f"E_{t}": part(E[t]) for t in range(n)}
    values |= {f"C_L_{t}": part(lower[t]) for t in range(n)} | {f"C_U_{t}": part(upper[t]) for t in range(n)}
    bounds = BOUNDS
    if trace["probes"]:
        bounds |= {"C_L_lambda", "q_U"}
        values |= {f"C_L_lambda_{t}": part(probed[t]) for t in range(n)} | {f"q_U_{t}": part(queue[t]) for t in range(n)}
        m = setting.jitter_steps + setting.beliefs.lambda_extra_steps + 1
        values |= {f"first_late_{t}_{m}": bool(first_late[t]) for t in range(n)}
    longest = n if setting.delay_rule == "artefact" else PAST - (setting.sent_before_at_most is not None)
    told_apart = range(1, longest + 1)
    values |= {f"late_{t}_{m}": bool(delays[t] >= m) for t in range(n) for m in told_apart}
    if setting.delay_rule == "sound":
        values |= {f"E_before_{k}": part(trace["E_before"][k]) for k in range(PAST)}
    else:
        values |= {f"E_before_{k}": part(trace["E_before"][min(k, PAST - 1)]) for k in range(max(longest, PAST))}
    return replay(setting, values, frozenset(bounds), 1, program_decider(program))
