"""Plain references of the fluid senders' other forms: the published code, and one reaction to loss per round.

Each function takes the reference and one sender of it, changes the sender's state by a step and returns the sending rate.
"""

import math
import random
from typing import Any


def start_as_code(senders: list[Any], par: Any, shares: list[bool], phases: list[bool]) -> None:
    """Set the published simulator's initial state; senders in order of agent number."""
    numbers = random.Random(1)
    drawn = [numbers.random() for _ in range(2 * len(senders))][len(senders) :]
    first = senders[0].d
    for f, own, given, u in zip(senders, shares, phases, drawn, strict=True):
        f.v_code = f.x_btl * f.d
        f.w_max, f.s = par.cubic_start_w_max * f.w, 0.0
        f.windows = [f.w]
        if not own:
            f.x_btl *= f.d / first
            f.x_max *= f.d / first
        f.x_old = f.x_kept = f.x_max
        if f.cca == "bbr2" and not given:
            f.t_pbw = par.start_phase_rtts * f.d + par.start_phase_spread_s * u
            f.m_crs = True
            f.w_lo = f.v_code


def cubic_code(ref: Any, f: Any) -> float:
    """CUBIC: 1 ms relaxation while p > 1e-6, two seconds ahead, w_max from two RTTs ago."""
    par, part = ref.par, 1.0 - math.exp(-ref.h / ref.par.code_time_constant_s)
    back = round(par.cubic_lag_rtts * round(f.d / ref.h))
    old = f.windows[max(len(f.windows) - back, 0)]
    if f.p >= par.cubic_loss_floor:
        f.w_max += part * (old - f.w_max)
        f.s -= part * f.s
    f.s += ref.h
    packets = f.w_max / ref.mss
    offset = f.s + par.cubic_offset_s - (packets * par.cubic_b / par.cubic_c) ** (1 / 3)
    f.w = max(par.cubic_c * offset**3 + packets, 1.0) * ref.mss
    f.windows.append(f.w)
    return float(f.w / f.tau)


def bbr2_code(ref: Any, f: Any) -> float:
    """BBRv2: volume of its own, drains of ten RTTs at most, w_hi by packets per ms, at least 1.15 BDP."""
    par, h, mss = ref.par, ref.h, ref.mss
    part = 1.0 - math.exp(-h / par.code_time_constant_s)
    bdp, cruise = f.x_btl * f.tau_min, f.m_crs
    window = min(par.window_gain * math.ceil(bdp / mss) * mss, f.w_lo, (0.85 if cruise else 1.0) * f.w_hi)
    drained = min(bdp, 0.85 * f.w_hi)
    if f.m_prt:
        f.v_code += part * (bdp / 2 - f.v_code)
    elif cruise:
        f.v_code += part * (drained - f.v_code)
    else:
        f.v_code = max(0.0, f.v_code + (f.x - f.x_dlv) * h)
    late, bad, prt = f.t_pbw >= f.tau_min, f.p_signal >= par.loss_threshold, f.m_prt
    ref.observe_rate(f)
    if f.m_dwn:
        if not prt:
            f.x_btl = max(f.x_max, f.x_old)
        if f.v_code <= drained or f.t_pbw >= par.down_limit_rtts * f.tau_min:
            f.m_dwn, f.m_crs, f.x_kept = False, True, f.x_max
    elif not cruise and late and (f.v_code >= 1.2475 * bdp or bad):
        f.m_dwn = True
    gain = 0.75 if f.m_dwn else 1.25 if late and not f.m_crs else 1.0
    x = f.v_code / f.tau if prt else min(window / f.tau, f.x_btl * gain)
    floor = par.hi_floor_bdp * f.x_btl * f.tau_min
    if cruise:
        if bad:
            f.w_lo *= 1.0 - par.lo_decrease / f.d * h
        f.w_hi = max(f.w_hi, floor)
    else:
        up = ref.soft(par.pulse_sharpness * (f.v_code - f.w_hi) / mss) * 2 ** (f.t_pbw / f.tau_min) if late else 0.0
        down = par.hi_decrease / f.d * f.w_hi if bad else 0.0
        f.w_hi = max(f.w_hi + h * (up * mss / par.hi_growth_interval_s - down), floor)
        f.w_lo = f.w_hi
    ref.observe_rtt(f)
    f.t_pbw += h
    if f.t_pbw >= min(par.period_rtts * f.tau_min, f.period):
        f.t_pbw, f.m_crs, f.x_old = 0.0, False, f.x_kept
    return float(x)


def _reacts(ref: Any, f: Any) -> bool:
    f.quiet -= ref.h
    if f.quiet > 0:
        return False
    f.lost += f.x_lost / ref.mss * ref.h
    if f.lost < ref.par.reaction_packets:
        return False
    f.lost, f.quiet = 0.0, ref.par.reaction_rtts * f.tau_seen
    return True


def reno_rounds(ref: Any, f: Any) -> float:
    """Reno: half the window, once per round."""
    x = f.w / f.tau
    f.w += f.x_dlv * ref.mss / f.w * ref.h
    if _reacts(ref, f):
        f.w = max(f.w * (1.0 - ref.par.reno_decrease), ref.mss)
    return float(x)


def cubic_rounds(ref: Any, f: Any) -> float:
    """CUBIC of RFC 9438: fast convergence, plateau at K, Reno's window as a floor; ``s`` is the time since the plateau."""
    par, mss = ref.par, ref.mss
    x, beta = f.w / f.tau, 1.0 - par.cubic_b
    if _reacts(ref, f):
        f.w_max = f.w * (1.0 + beta) / 2 if f.w < f.w_max else f.w
        f.w = f.w_est = max(beta * f.w, mss)
        f.s = -((max(f.w_max - f.w, 0.0) / mss / par.cubic_c) ** (1 / 3))
    f.w_est += 3 * (1 - beta) / (1 + beta) * f.x_dlv * mss / f.w * ref.h
    f.s += ref.h
    f.w = max(f.w_max + par.cubic_c * f.s**3 * mss, f.w_est, mss)
    return float(x)


def bbr1_rounds(ref: Any, f: Any) -> float:
    """BBRv1: sends what is delivered for some RTTs after a reaction."""
    x = ref.bbr1(f)
    if _reacts(ref, f):
        f.conserve = ref.par.conserve_rtts * f.tau_seen
    f.conserve -= ref.h
    return float(min(x, f.x_dlv) if f.conserve > 0 and not f.m_prt else x)


def bbr2_rounds(ref: Any, f: Any) -> float:
    """BBRv2: the whole decrease of w_lo or w_hi at once, once per round."""
    x = ref.bbr2(f)
    f.quiet -= ref.h
    if f.p >= ref.par.loss_threshold and f.quiet <= 0:
        f.quiet = ref.par.reaction_rtts * f.tau_seen
        if f.m_crs:
            f.w_lo *= 1.0 - ref.par.lo_decrease
        else:
            f.w_hi *= 1.0 - ref.par.hi_decrease
    return float(x)
