"""Random legal traces of shields: the exact replayer and the curve engine tell the same story, and refuse the same lies.

The solver gives sample 0 and the past; from there on moves of the network and choices of the sender are drawn, in exact numbers.
"""

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from ccenv.agents import make_sender
from ccenv.agents.programs import interval
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, complete_values
from ccenv.proofs.formulas.encode import BOUNDS, Needs
from ccenv.proofs.formulas.setting import Setting, named_setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.closed_loop import run_in_engine
from ccenv.proofs.replay.exact import Decision, ReplayError, Run, advance, arrive, observe, replay, update_beliefs
from ccenv.proofs.senders.program import ProgramSmtSender, program_inputs
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import all_of

PROGRAM = make_sender("learned_shield_u80").program
SENDER = ProgramSmtSender(PROGRAM)
BELIEFS = frozenset({"C_L", "C_U"})
STARTS = ("any", "empty")
SAMPLES = 12


@lru_cache
def start(which: str, inflight: int) -> tuple[Setting, dict, frozenset]:
    """Return a setting, a solver's model of it, and its beliefs: nothing sent before, or bytes in flight at sample 0."""
    setting = named_setting("history", Setting("ccac", "large", SAMPLES), SENDER.largest_rate()).without_timeout()
    setting = replace(setting, past_start=which)
    claim = Property("any", "any", lambda v: False, Needs(BELIEFS), lambda v: all_of([v.C_L[0] <= 1, v.C_U[0] >= 1]))
    encoding = Query("any", setting, SENDER, claim).encoding()
    v = encoding.view
    extra = [v.C_L[0] <= 1, v.C_U[0] >= 1, v.inflight(0) >= inflight]
    answer = solve(to_smtlib([*encoding.formulas(), *extra]), time_limit_s=60)
    assert answer.status == "sat"
    bounds = frozenset(name for name in BOUNDS if getattr(v, name) is not None)
    return setting, complete_values(encoding, answer), bounds


def part(rng: np.random.Generator, ends: float = 0.4) -> Fraction:
    """Return a number in [0, 1], often one of its ends."""
    return Fraction(int(rng.random() < 0.5)) if rng.random() < ends else Fraction(int(rng.integers(0, 33)), 32)


def drawn(setting: Setting, values: dict, bounds: frozenset, seed: int, silent: bool) -> dict:
    """Draw moves and choices; with silence the link delivers as late as it may, most of the time."""
    rng = np.random.default_rng(seed)
    values = {name: value for name, value in values.items() if not name.startswith(("rate_", "G_", "S_"))} | {
        name: value for name, value in values.items() if name.startswith(("G_before", "S_before")) or name.endswith("_0")
    }
    run = Run(setting, values, bounds)

    def step(run: Run, t: int, state: dict) -> Decision:
        lo, hi, _ = interval(PROGRAM, program_inputs(run, t - 1))
        rate = lo + part(rng) * (hi - lo)
        return Decision(rate, rate, {})

    for t in range(1, setting.samples):
        advance(run, t, step, {})
        wanted, before = run.E[t - 1] + run.sent[t], run.G[t - 1]
        spare = min(run.alpha, before + 1 - wanted)  # tokens that no byte wants: as many as the next step is sure to send
        run.G[t] = (
            before + 1 if spare < 0 else max(before, wanted) + part(rng) * max(Fraction(0), spare - max(0, before - wanted))
        )
        arrive(run, t)
        least, most = max(run.S[t - 1], run.G[t - 1]), min(run.G[t], run.E[t])
        assert least <= most
        run.S[t] = least + (0 if silent and rng.random() < 0.9 else part(rng)) * (most - least)
        observe(run, t)
        update_beliefs(run, t, 1)
    for t in range(1, setting.samples):
        values |= {f"G_{t}": run.G[t], f"S_{t}": run.S[t], f"E_{t}": run.E[t], f"rate_{t}": run.rate[t]}
        values |= {f"{name}_{t}": run.beliefs[name][t] for name in run.beliefs}
        values |= {f"late_{t}_{m}": flag for m, flag in run.late[t].items()}
        values |= {f"first_late_{t}_{m}": flag for m, flag in run.first_late[t].items()}
    return values


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("which", STARTS)
def test_replayer_and_engine_agree_on_random_choices(which, silent):
    inflight = 0 if which == "empty" else 2
    setting, model, bounds = start(which, inflight)
    decide, ends = SENDER.decider(), set()
    for seed in range(25):
        values = drawn(setting, model, bounds, seed, silent)
        view = replay(setting, values, bounds, 1, decide)  # checks every law, and that each choice is inside
        told = run_in_engine(as_trace(view, SENDER.name), view, values, SENDER, 1)
        assert told["engine"] == "reproduced", (seed, told)
        assert "decided each step" in told["engine_sender"]
        for t in range(1, setting.samples):
            lo, hi, _ = interval(PROGRAM, _inputs(view, t - 1))
            ends |= (
                {"lo"} if view.rate[t] == lo < hi else {"hi"} if view.rate[t] == hi > lo else {"between"} if lo < hi else set()
            )
    assert ends == {"lo", "hi", "between"}


def _inputs(view, t):
    delay = max([m for m, late in view.late[t].items() if late], default=0)
    used = view.step_utilised(t - 1)
    beliefs = {"C_L": view.C_L[t], "C_U": view.C_U[t], "MSS/Rm": view.alpha, "loss": view.loss_seen[t]}
    return {**beliefs, "qdel_L": Fraction(max(0, delay - 1)), "utilised": used}


def test_a_choice_outside_by_a_hair_is_refused_wherever_it_is():
    setting, model, bounds = start("any", 2)
    values, decide = drawn(setting, model, bounds, 3, False), SENDER.decider()
    view = replay(setting, values, bounds, 1, decide)
    hair = Fraction(1, 10**12)
    for t in range(1, setting.samples):
        lo, hi, _ = interval(PROGRAM, _inputs(view, t - 1))
        for wrong in (lo - hair, hi + hair):
            with pytest.raises(ReplayError, match="rate within"):
                replay(setting, values | {f"rate_{t}": wrong}, bounds, 1, decide)
