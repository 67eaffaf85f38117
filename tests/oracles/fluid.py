"""A slow, plain reference of the fluid kernels: Python floats, full histories, one equation a line.

Written from the equations and not from the kernels: whole-run lists instead of rings, the FIFO look-up by bisection.
It uses the same explicit step, so that both agree to rounding until a threshold amplifies a last digit.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import partial

from ccenv.base.errors import InputError
from ccenv.engine.fluid.parameters import Parameters
from ccenv.engine.fluid.scenario import Flow, Scenario
from oracles.fluid_forms import bbr1_rounds, bbr2_code, bbr2_rounds, cubic_code, cubic_rounds, reno_rounds, start_as_code


def _sigmoid(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-z)) if z > -700.0 else 0.0


@dataclass
class _Sender:
    """A flow's state in the paper's letters, bytes and seconds."""

    cca: str
    hops: list[int]
    delays: list[int]
    back: int
    d: float
    phi: int
    period: float
    x_btl: float = 0.0
    x_max: float = 0.0
    x_old: float = 0.0
    tau_min: float = 0.0
    t_pbw: float = 0.0
    t_prt: float = 0.0
    m_prt: bool = False
    m_dwn: bool = False
    m_crs: bool = False
    w_hi: float = 0.0
    w_lo: float = 0.0
    w: float = 0.0
    s: float = 0.0
    w_max: float = 0.0
    tau: float = 0.0
    tau_seen: float = 0.0
    x_dlv: float = 0.0
    p: float = 0.0
    x_lost: float = 0.0
    v: float = 0.0
    settled: float = 0.0
    p_signal: float = 0.0
    x: float = 0.0
    v_code: float = 0.0
    x_kept: float = 0.0
    w_est: float = 0.0
    lost: float = 0.0
    quiet: float = 0.0
    conserve: float = 0.0
    windows: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=lambda: [0.0])
    entered: list[list[float]] = field(default_factory=list)
    left: list[list[float]] = field(default_factory=list)


class Reference:
    """The fluid model of one scenario, step by step.

    Attributes:
        rates: per step, the sending rate of each flow in bytes/s.
        queues: per step, the queue of each link in bytes.
        losses: per step, the loss fraction at each link.
    """

    def __init__(self, scenario: Scenario) -> None:
        """Set the initial state of a scenario."""
        self.sc = scenario
        self.par: Parameters = scenario.constants
        self.h = scenario.step_ms * 1e-3
        self.mss = float(scenario.mss_bytes)
        self.rates: list[list[float]] = []
        self.queues: list[list[float]] = []
        self.losses: list[list[float]] = [[0.0] * len(scenario.links)]
        self.signals: list[list[float]] = [[0.0] * len(scenario.links)]
        self.accepted = [[0.0] for _ in scenario.links]
        self.departed = [0.0 for _ in scenario.links]
        self.heads = [[0.0] for _ in scenario.links]
        self.average = [0.0 for _ in scenario.links]
        self.senders = [self._sender(flow, agent) for flow, agent in zip(scenario.flows, scenario.agents, strict=True)]
        self.laws = {"bbr1": self.bbr1, "bbr2": self.bbr2, "reno": self._reno, "cubic": self._cubic}
        if self.par.form == "code":
            self._start_as_code()
            self.laws |= {"bbr2": partial(bbr2_code, self), "cubic": partial(cubic_code, self)}
        elif self.par.form == "rounds":
            rounds = {"bbr1": bbr1_rounds, "bbr2": bbr2_rounds, "reno": reno_rounds, "cubic": cubic_rounds}
            self.laws = {name: partial(law, self) for name, law in rounds.items()}

    def _start_as_code(self) -> None:
        order = sorted(range(len(self.senders)), key=lambda i: self.sc.agents[i])
        starts = [self.sc.flows[i].start for i in order]
        own = [start.x_btl_share is not None for start in starts]
        start_as_code([self.senders[i] for i in order], self.par, own, [start.period_time_s is not None for start in starts])

    def _sender(self, flow: Flow, agent: int) -> _Sender:
        sc, par, start = self.sc, self.par, flow.start
        path = sc.path_links(flow)
        one_way = [flow.access_delay_ms * 1e-3] + [sc.links[k].delay_s for k in path]
        steps = [max(1, round(delay / self.h)) for delay in one_way]
        back = max(1, round(sum(one_way) / self.h))
        d = (sum(steps) + back) * self.h
        users = {k: sum(k in sc.path_links(other) for other in sc.flows) for k in path}
        tight = sc.links[min(path, key=lambda k: sc.links[k].capacity_Bps / users[k])]
        fair = 1.0 / users[sc.links.index(tight)]
        x = (start.x_btl_share if start.x_btl_share is not None else fair) * tight.capacity_Bps
        late = max(tight.buffer_bdp - par.hi_start_knee_bdp, 0.0)
        hi = start.inflight_hi_bdp if start.inflight_hi_bdp is not None else par.hi_start * (1.0 + par.hi_start_slope * late)
        w = max(start.cwnd_bdp * x * d, self.mss)
        number = agent - 1 if par.form == "code" else agent
        plateau = (w / self.mss * par.cubic_b / par.cubic_c) ** (1 / 3)
        return _Sender(
            cca=flow.cca, hops=path, delays=steps[:-1], back=steps[-1] + back, d=d, phi=number % 6,
            period=par.period_base_s + par.period_spread_s * number / len(sc.flows),
            x_btl=x, x_max=x if start.x_max_share is None else start.x_max_share * tight.capacity_Bps,
            tau_min=d if start.tau_min_ms is None else start.tau_min_ms * 1e-3,
            t_pbw=start.period_time_s or 0.0,
            t_prt=self._first(flow.cca) if start.probe_rtt_timer_s is None else start.probe_rtt_timer_s,
            w_hi=hi * x * d, w_lo=hi * x * d, w=w, w_max=w,
            s=plateau if par.form == "print" else 0.0, w_est=w, tau=d, tau_seen=d,
            entered=[[0.0] for _ in path], left=[[0.0] for _ in path],
        )  # fmt: skip

    def _first(self, cca: str) -> float:
        first = self._interval(cca)
        return min(first, self.par.bbr2_probe_rtt_first_s) if cca == "bbr2" else first

    def _interval(self, cca: str) -> float:
        return self.par.bbr2_probe_rtt_interval_s if cca == "bbr2" else self.par.probe_rtt_interval_s

    def run(self, steps: int) -> None:
        """Advance by a number of steps. Raises InputError unless steps >= 1."""
        if steps < 1:
            raise InputError(f"steps must be at least 1 (got {steps})")
        first = len(self.rates) + 1
        for n in range(first, first + steps):
            self._step(n)

    def _step(self, n: int) -> None:
        arriving = [[self._arriving(f, j, n) for j in range(len(f.hops))] for f in self.senders]
        total = [0.0] * len(self.sc.links)
        for f, per_hop in zip(self.senders, arriving, strict=True):
            for k, volume in zip(f.hops, per_hop, strict=True):
                total[k] += volume
        served = [self._serve(k, total[k], n) for k in range(len(total))]
        self.losses.append([loss for loss, _ in served])
        self.signals.append([signal for _, signal in served])
        queues = [acc[n] - dep for acc, dep in zip(self.accepted, self.departed, strict=True)]
        self.queues.append(queues)
        now = []
        for f, per_hop in zip(self.senders, arriving, strict=True):
            f.tau = f.d + sum(queues[k] / self.sc.links[k].capacity_Bps for k in f.hops)
            for j, k in enumerate(f.hops):
                f.entered[j].append(f.entered[j][-1] + per_hop[j] * (1.0 - self.losses[n][k]))
                f.left[j].append(_at(f.entered[j], self.heads[k][n]))
            self._listen(f, n)
            x = f.x = self.laws[f.cca](f)
            f.sent.append(f.sent[-1] + x * self.h)
            now.append(x)
        self.rates.append(now)

    def _arriving(self, f: _Sender, j: int, n: int) -> float:
        source = f.sent if j == 0 else f.left[j - 1]
        then = n - f.delays[j]
        return source[then] - source[then - 1] if then >= 1 else 0.0

    def _serve(self, k: int, volume: float, n: int) -> tuple[float, float]:
        link, par = self.sc.links[k], self.par
        capacity, buffer = link.capacity_Bps, link.buffer_bytes(self.mss)
        early = 0.0
        q, y, served = self.accepted[k][-1] - self.departed[k], volume / self.h, link.capacity_Bps * self.h
        if link.discipline == "red":
            red = link.red
            gain = 1.0 - math.exp(-self.h / red.averaging_s) if red.averaging_s else 1.0
            self.average[k] += gain * (q - self.average[k])
            share = self.average[k] / buffer
            p = 0.0 if share <= red.q0 else red.p1 * (share - red.q0) / (red.q1 - red.q0) if share <= red.q1 else 1.0
        else:
            sharp = _sigmoid(par.sharpness * (y - capacity) * 1e-3 / self.mss)
            early = sharp * (1.0 - capacity / y) * (q / buffer) ** par.loss_exponent if y > capacity else 0.0
            p = 0.0 if par.form == "code" else early
        kept = min(volume * (1.0 - p), buffer - q + served)
        self.accepted[k].append(self.accepted[k][-1] + kept)
        if q + kept > served:
            self.departed[k] += served
        else:
            self.departed[k] = self.accepted[k][-1]
        head = bisect_right(self.accepted[k], self.departed[k]) - 1
        low = self.accepted[k][head]
        part = (self.departed[k] - low) / (self.accepted[k][head + 1] - low) if head < n else 0.0
        self.heads[k].append(head + part)
        loss = 1.0 - kept / volume if volume > 0 else 0.0
        return loss, max(loss, early) if par.form == "code" else loss

    def _listen(self, f: _Sender, n: int) -> None:
        f.v = f.sent[-1] - f.settled
        seen = n - f.back
        if seen < 1:
            return
        f.x_dlv = (f.left[-1][seen] - f.left[-1][seen - 1]) / self.h
        at, survived, spared = float(seen), 1.0, 1.0
        for k, delay in zip(reversed(f.hops), reversed(f.delays), strict=True):
            at = _at(self.heads[k], at)
            survived *= 1.0 - self.losses[math.ceil(at)][k]
            spared *= 1.0 - self.signals[math.ceil(at)][k]
            at -= delay
            if at < 0:
                return
        f.settled = _at(f.sent, at)
        f.p, f.p_signal = 1.0 - survived, 1.0 - spared
        then = math.ceil(at)
        f.x_lost = f.p * (f.sent[then] - f.sent[then - 1]) / self.h if f.p > 0 else 0.0
        f.tau_seen = (n - at) * self.h

    def _relax(self, time_constant_s: float) -> float:
        return 1.0 - math.exp(-self.h / time_constant_s)

    def _gamma(self, v: float, sharpness: float) -> float:
        return v * _sigmoid(sharpness * v)

    def soft(self, z: float) -> float:
        return _sigmoid(z)

    def observe_rate(self, f: _Sender) -> None:
        """Eq. 19."""
        par, k_t, k_x = self.par, self.par.sharpness * 1e3, self.par.sharpness * 1e-3 / self.mss
        if not f.m_prt:
            up = self._relax(par.x_max_growth_time_constant_s) * self._gamma(f.x_dlv - f.x_max, k_x)
            down = self._relax(par.x_max_reset_time_constant_s) * _sigmoid(k_t * (par.reset_window_s - f.t_pbw)) * f.x_max
            f.x_max += up - down

    def observe_rtt(self, f: _Sender) -> None:
        """Eqs. 9-14."""
        par, k_t = self.par, self.par.sharpness * 1e3
        lower_by = f.tau_min - f.tau_seen
        if lower_by > par.rtt_tolerance_s:
            f.t_prt = par.probe_rtt_duration_s if f.m_prt else self._interval(f.cca)
        f.tau_min -= self._relax(par.tau_min_time_constant_s) * self._gamma(lower_by, k_t)
        f.t_prt -= self.h
        if f.t_prt <= 0:
            f.m_prt = not f.m_prt
            f.t_prt += par.probe_rtt_duration_s if f.m_prt else self._interval(f.cca)

    def _two_bdp(self, f: _Sender) -> float:
        return self.par.window_gain * math.ceil(f.x_btl * f.tau_min / self.mss) * self.mss

    def bbr1(self, f: _Sender) -> float:
        """Eqs. 21-24."""
        par, k = self.par, self.par.pulse_sharpness * 1e3

        def pulse(phase: int) -> float:
            return _sigmoid(k * (f.t_pbw - phase * f.tau_min)) * _sigmoid(k * ((phase + 1) * f.tau_min - f.t_pbw))

        x_pcg = f.x_btl * (1 + pulse(f.phi) / 4 - pulse(f.phi + 1) / 4) * (1 - par.pacing_margin)
        x = 4 * self.mss / f.tau if f.m_prt else min(self._two_bdp(f) / f.tau, x_pcg)
        period = 8 * f.tau_min
        closing = _sigmoid(par.sharpness * 1e3 * (f.t_pbw - period + par.update_window_s))
        f.x_btl += self._relax(par.x_btl_time_constant_s) * closing * (f.x_max - f.x_btl)
        self.observe_rate(f)
        self.observe_rtt(f)
        f.t_pbw += self.h
        if f.t_pbw >= period:
            f.t_pbw -= period
        return x

    def bbr2(self, f: _Sender) -> float:
        """Eqs. 25-33; with one reaction per round without the decreases."""
        par, h = self.par, self.h
        bdp = f.x_btl * f.tau_min
        late = _sigmoid(par.sharpness * 1e3 * (f.t_pbw - f.tau_min))
        x_pcg = (1 - par.pacing_margin) * f.x_btl * (0.75 if f.m_dwn else 1.0 if f.m_crs else 1.0 + late / 4)
        bound = (0.85 if f.m_dwn or f.m_crs else 1.0) * f.w_hi
        window = min(self._two_bdp(f), bound)
        limit = min(window, f.w_lo) if f.m_crs else window
        x = bdp / 2 / f.tau if f.m_prt else min(limit / f.tau, x_pcg)
        excess = 0.0 if par.form == "rounds" else _sigmoid(par.sharpness * (f.p - par.loss_threshold))
        if f.m_crs:
            f.w_lo -= excess * par.lo_decrease / f.tau_min * f.w_lo * h
        else:
            f.w_lo += self._relax(par.w_lo_time_constant_s) * (window - f.w_lo)
            if not f.m_dwn and f.w_hi <= window:
                limiting = _sigmoid(par.sharpness * 1e-3 / self.mss * (x_pcg - f.w_hi / f.tau))
                f.w_hi += late * limiting * 2 ** (f.t_pbw / f.tau_min) * self.mss / f.tau_min * h
            f.w_hi -= excess * par.hi_decrease / f.tau_min * f.w_hi * h
        if f.m_dwn:
            f.x_btl += self._relax(par.x_btl_time_constant_s) * (max(f.x_max, f.x_old) - f.x_btl)
        self.observe_rate(f)
        self.observe_rtt(f)
        if f.m_dwn:
            f.m_crs = f.v <= min(bdp, 0.85 * f.w_hi) + self.mss / par.sharpness
            f.m_dwn = not f.m_crs
        elif not f.m_crs and f.t_pbw >= f.tau_min:
            f.m_dwn = f.v >= 1.25 * bdp or f.p >= par.loss_threshold
        f.t_pbw += h
        period = min(par.period_rtts * f.tau_min, f.period)
        if f.t_pbw >= period:
            f.t_pbw -= period
            f.x_old = f.x_max
            f.m_crs = f.m_dwn = False
        return x

    def _reno(self, f: _Sender) -> float:
        x = f.w / f.tau
        packets_lost = f.x_lost / self.mss * self.h
        f.w = max(f.w * math.exp(-self.par.reno_decrease * packets_lost) + f.x_dlv * self.mss / f.w * self.h, self.mss)
        return x

    def _cubic(self, f: _Sender) -> float:
        packets = f.w_max / self.mss
        offset = f.s - (packets * self.par.cubic_b / self.par.cubic_c) ** (1 / 3)
        f.w = max(self.par.cubic_c * offset**3 + packets, 1.0) * self.mss
        kept = math.exp(-f.x_lost / self.mss * self.h)
        f.w_max = f.w + (f.w_max - f.w) * kept
        f.s = f.s * kept + self.h
        return f.w / f.tau


def _at(curve: list[float], step: float) -> float:
    whole = math.floor(step)
    part = step - whole
    return curve[whole] if part == 0 else curve[whole] + part * (curve[whole + 1] - curve[whole])
