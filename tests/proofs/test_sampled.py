"""Lemmas for every K: random legal traces of fine grids, seen once per Rm, obey the looser laws; these are no laws of K = 1."""

import random
from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction

import pytest

from ccenv.proofs.formulas import laws
from ccenv.proofs.formulas.beliefs import lower_window_rates, timeouts
from ccenv.proofs.formulas.view import View
from ccenv.proofs.senders.program import delay_thresholds, rule_rate
from ccenv.proofs.theorems.grid import on_grid
from ccenv.proofs.theorems.language import on_trace, parse
from ccenv.proofs.theorems.sampled import Sampled, can_be_sampled, list_known_formulas, on_samples, setting_of
from ccenv.proofs.theorems.theorem import LoadedTheorem, load_theorem

pytest.importorskip("z3")

PROGRAMS = ("cc_qdel", "cc_probe_qdel", "learned_nominal_u78", "learned_shield_u77_timeouts")
GRIDS = ((2, "0"), (2, "1/2"), (2, "1"), (2, "2"), (4, "1/2"), (4, "1"), (4, "2"), (8, "1"), (2, "3/2"))
FAR = 8  # Rm before the trace of which E is known
LIST = ("G", "E", "S", "sent", "lost", "rate", "loss_seen", "late", "first_late", "C_L", "C_U")


def part(rng: random.Random) -> Fraction:
    """Return a number in [0, 1], often one of its ends."""
    return Fraction(rng.choice([0, 0, 0, 8, 8, 8, 1, 2, 4, 6, 7]), 8)


class Run:
    """A random run of a theorem's program on its grid, one step after the other; the network is legal, and lazy or eager."""

    def __init__(self, loaded: LoadedTheorem, rng: random.Random) -> None:
        self.loaded, self.rng, self.setting = loaded, rng, loaded.setting
        d, past = self.setting.jitter_steps, self.setting.past_steps
        self.alpha = Fraction(rng.randint(1, 12), 64)
        beta = 3 * (1 + self.setting.jitter) + rng.randint(0, 2) if self.setting.buffer == "large" else None
        self.beta = Fraction(rng.choice([1, 4, 16, 64, 400]), 64) if beta is None else beta
        self.stages = sorted(delay_thresholds(loaded.program, d, self.setting.steps_per_rtt))
        full = rng.random() < 0.5
        self.G, self.E, self.S = [Fraction(0)], [self.beta if full else part(rng) * min(self.beta, Fraction(2))], [Fraction(0)]
        self.lost, self.late = [False], [dict.fromkeys(self.stages, False)]
        a, b = loaded.sender.largest_rate()
        for k in range(past):
            if k % self.setting.steps_per_rtt == 0:
                rate = self.alpha + part(rng) * (a + b * self.alpha - self.alpha)
            self.step(rate)
        self.view = self.start(rate)
        while len(self.view.G) < self.setting.samples:
            self.decide_and_step()

    def step(self, rate: Fraction) -> None:
        """The network's step: tokens, drop-tail, service, and the delay of the newest byte."""
        rng, width, j, d = self.rng, self.setting.step, len(self.G), self.setting.jitter_steps
        arrived, admitted = self.E[-1] + rate * width, self.G[-1] + width
        stock = self.alpha * self.setting.jitter  # what surely comes within D
        if arrived <= admitted and (arrived + stock < admitted or rng.random() < 0.8):
            admitted = max(self.G[-1], min(admitted, arrived + part(rng) * stock))
        self.G.append(admitted)
        self.E.append(min(arrived, admitted + self.beta))
        self.lost.append(arrived > self.E[-1])
        due = self.G[j - d] if j >= d else self.G[0] - self.setting.jitter
        low, high = max(self.S[-1], due), min(admitted, self.E[-1])
        self.S.append(low + part(rng) * (high - low))
        served = self.S[-1] > self.S[-2]
        entered = [self.E[j - m] if j >= m else self.E[0] for m in self.stages]
        self.late.append({m: self.S[-1] <= e if served else self.late[-1][m] for m, e in zip(self.stages, entered, strict=True)})

    def start(self, rate: Fraction) -> View:
        """Show the past, and the first sample of the trace, from S = 0 on."""
        origin, rng, k = self.S[-1], self.rng, self.setting.steps_per_rtt
        self.G, self.E, self.S = ([value - origin for value in curve] for curve in (self.G, self.E, self.S))
        values = {field.name: None for field in fields(View)} | {name: [] for name in LIST}
        values |= {"setting": self.setting, "alpha": self.alpha, "beta": self.beta, "extra": {}, "flows": [], "lost_before": {}}
        view = View(**values)
        view.G_before, view.S_before = self.G[-2::-1], self.S[-2::-1]
        view.E_before = self.E[-2::-1] + [self.E[0]] * (FAR * k)
        view.late_before = self.late[-2::-1]
        view.first_late_before = [{} for _ in self.late[:-1]]
        past = self.lost[::-1]
        view.lost_at_0, view.lost_before = past[0], {j: past[j] for j in self.setting.losses_before}
        view.loss_seen = [past[k]] + [False] * self.setting.samples
        view.sent, view.lost = [None], [None]
        view.C_L = [self.alpha + part(rng) * (1 - self.alpha)]
        view.C_U = [1 + 2 * part(rng) * part(rng)]
        self.show(view, rate)
        return view

    def show(self, view: View, rate: Fraction) -> None:
        for curve in "GES":
            getattr(view, curve).append(getattr(self, curve)[-1])
        view.late.append(self.late[-1])
        view.first_late.append({})
        view.rate.append(rate)

    def decide_and_step(self) -> None:
        """The program decides once per Rm; then the network's step, and what C_L and C_U learn from all windows."""
        view, t = self.view, len(self.view.G)
        rate = view.rate[-1]
        if (t - 1) % self.setting.steps_per_rtt == 0:
            ends = (0, 1) if self.loaded.program.is_shield else (0, 0)
            low, high = (max(rule_rate(self.loaded.program.rule, view, t - 1, end), self.alpha) for end in ends)
            rate = low + part(self.rng) * (high - low)
        self.step(rate)
        self.show(view, rate)
        view.sent.append(rate * self.setting.step)
        view.lost.append(view.E[t - 1] + view.sent[t] - view.E[t])
        lower, upper = max(view.C_L[-1], *self.lower_rates(t)), min(view.C_U[-1], *self.upper_rates(t), Fraction(99))
        if t == self.setting.samples - 1:
            lower, upper = self.time_out(lower, upper)
        view.C_L.append(lower)
        view.C_U.append(upper)

    def lower_rates(self, t: int) -> list[Fraction]:
        return [rate for _, rate in lower_window_rates(self.view, t)]

    def upper_rates(self, t: int) -> Iterator[Fraction]:
        d, k = self.setting.jitter_steps, self.setting.steps_per_rtt
        for start in range(t - d - 1, -1, -1):
            if not self.view.step_utilised(start + 1):
                return
            yield (self.view.S[t] - self.view.S[start]) * Fraction(k, t - start - d)

    def time_out(self, lower: Fraction, upper: Fraction) -> tuple[Fraction, Fraction]:
        view, rule = self.view, self.setting.beliefs.timeout
        again = max(rate for t in range(1, len(view.G)) for rate in self.lower_rates(t))
        view.extra |= {"C_L_kept": [lower], "C_U_kept": [upper], "C_L_recomputed": [again]}
        lower_out, upper_out = timeouts(rule, view.C_L[0], view.C_U[0], lower, upper)
        after = again if lower_out else lower
        return after, max(after, rule.rise_factor * view.C_U[-1]) if upper_out else upper


def once_per_rtt(v: View, loaded: LoadedTheorem) -> Sampled:
    """Return what a trace shows once per Rm."""
    k, there = v.setting.steps_per_rtt, setting_of(v.setting)
    values = {field.name: getattr(v, field.name) for field in fields(View)} | {"setting": there}
    for name in ("G", "E", "S", "rate", "C_L", "C_U"):
        values[name] = getattr(v, name)[::k]
    for name in ("G_before", "E_before", "S_before"):
        values[name] = getattr(v, name)[k - 1 :: k]
    own = sorted(delay_thresholds(loaded.program, there.jitter_steps))
    names = dict(zip(sorted(delay_thresholds(loaded.program, v.setting.jitter_steps, k)), own, strict=True))
    for name, start in (("late", 0), ("late_before", k - 1)):
        values[name] = [{names[m]: flag for m, flag in flags.items()} for flags in getattr(v, name)[start::k]]
    values["first_late"], values["first_late_before"] = v.first_late[::k], v.first_late_before[k - 1 :: k]
    values["sent"] = [None, *(sum(v.sent[t + 1 : t + k + 1]) for t in range(0, v.last, k))]
    values["lost"] = [None, *(sum(v.lost[t + 1 : t + k + 1]) for t in range(0, v.last, k))]
    values["lost_before"] = {j: v.lost_before.get(j * k, False) for j in there.losses_before if j > 1}
    values["loss_seen"] = [v.lost_in_past(k)] + [False] * there.samples
    jitter, d = v.setting.jitter, v.setting.jitter_steps
    used = None if jitter.denominator == 1 else [v.step_utilised(t - d) for t in range(0, v.last + 1, k)]
    return Sampled(**values, jitter=jitter, used=used, C_U_before=v.C_U[-2])


def holds(formulas) -> bool:
    return all(formula is True for formula in formulas)


def runs(name: str, steps: int, jitter: str, count: int, seed: str = "") -> Iterator[tuple[LoadedTheorem, View]]:
    loaded = on_grid(load_theorem(name), steps, Fraction(jitter))
    assert can_be_sampled(loaded)
    rng = random.Random(f"{seed or name} {steps} {jitter}")
    for _ in range(count):
        yield loaded, Run(loaded, rng).view


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("steps", "jitter"), GRIDS)
def test_legal_traces_seen_once_per_rtt_obey_the_looser_laws(name, steps, jitter) -> None:
    for loaded, trace in runs(name, steps, jitter, 3):
        assert holds(formula for _, formula in laws.network(trace))  # legal on its own grid, in exact numbers
        seen = once_per_rtt(trace, loaded)
        known = list(list_known_formulas(seen, loaded))
        assert len(known) > 300 and holds(known)
        for peak, values in (("peak_inflight", trace.inflight), ("peak_queue", trace.queue)):
            most = max(values(t) for t in range(1, trace.setting.samples))
            if most > 0:
                below = parse(f"{peak} < {most}", "a test", {}, {})
                assert on_trace(below, trace) is False
                assert on_samples(below, seen) is False  # the bounds between samples hide no peak


@pytest.mark.parametrize("law", [laws.no_waste_while_queued, laws.delay_of_newest])
def test_the_laws_of_one_sample_per_rtt_do_not_hold_of_what_is_seen(law) -> None:
    seen = [once_per_rtt(trace, loaded) for loaded, trace in runs("learned_shield_u77_timeouts", 4, "1", 12, "1")]
    assert not all(holds(law(view)) for view in seen)


def test_programs_that_need_other_laws_are_asked_on_each_grid() -> None:
    assert not can_be_sampled(on_grid(load_theorem("cc_probe_slow"), 2, Fraction(1)))  # C_L_lambda, on CBR-delay
