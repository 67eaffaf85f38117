"""Other grids: the encoding is the engine's network with K samples per Rm and any D, and tells what of a theorem carries over."""

import json
import random
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from engine_runs import engine_runs, exact, size_of
from tables import theorems

from ccenv.cli.main import main
from ccenv.network.laws import check_trace
from ccenv.network.trace import load_trace
from ccenv.proofs.claims.properties import Property
from ccenv.proofs.claims.verifier import Query, Verifier, complete_values
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.setting import TIMEOUT_PRESETS, BeliefRules, Setting
from ccenv.proofs.formulas.view import as_trace
from ccenv.proofs.replay.exact import replay
from ccenv.proofs.senders.catalog import smt_sender
from ccenv.proofs.senders.program import delay_thresholds
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import Answer
from ccenv.proofs.solver.terms import all_of, implies
from ccenv.proofs.theorems.grid import on_grid
from ccenv.proofs.theorems.language import Comparison, Joined, Linear
from ccenv.proofs.theorems.theorem import load_theorem

z3 = pytest.importorskip("z3")


SMALL = Path(__file__).parent / "certificates" / "small.yaml"
GRIDS = [(1, "0"), (1, "2"), (2, "0"), (2, "1/2"), (2, "1"), (4, "1/2"), (4, "2")]


def setting_of(model: str, buffer: str | Fraction, rtts: int, steps: int, jitter: Fraction, rules: BeliefRules) -> Setting:
    past = max(steps, int(jitter * steps)) + 1
    samples = rtts * steps + 1
    return Setting(model, buffer, samples, beliefs=rules, past_steps=past, steps_per_rtt=steps, jitter_rtts=jitter)


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(("steps", "jitter"), [(2, "1/2"), (2, "1"), (4, "1/2"), (1, "2"), (2, "0")])
@pytest.mark.parametrize("buffer", [float("inf"), 0.5])
def test_random_engine_runs_are_models_of_the_encoding(steps, jitter, buffer) -> None:
    rows, environments, first, d = 2 * steps + 1, 40, 4 * steps, Fraction(jitter)
    engine = engine_runs("ccac", buffer, environments, first + rows - 1, seed=3, D=float(d), steps_per_rtt=steps)
    setting = setting_of("ccac", size_of(buffer), 2, steps, d, BeliefRules())
    encoding = encode(setting, AnySender(), Needs(delays=frozenset({setting.jitter_steps + 1})))
    v, past = encoding.view, setting.past_steps
    solver = z3.Solver()
    solver.add(*encoding.formulas(), v.alpha == z3.RealVal("1/8"))
    for env in range(environments):
        trace = engine.trace(env)
        origin = Fraction(trace.S[first, 0])
        solver.push()
        for name, curve in {"admitted": trace.G, "delivered": trace.S[:, 0], "enqueued": trace.E[:, 0]}.items():
            known = range(-past, setting.samples)
            solver.add(*(getattr(v, name)(t) == z3.RealVal(str(Fraction(curve[first + t]) - origin)) for t in known))
        sent = np.diff(trace.A[first : first + rows, 0])
        solver.add(*(v.rate[t + 1] == z3.RealVal(str(Fraction(x))) for t, x in enumerate(sent)))
        assert solver.check() == z3.sat, f"environment {env}"
        solver.pop()


@pytest.mark.parametrize(("steps", "jitter"), GRIDS)
def test_random_models_replay_exactly_and_obey_the_laws(steps, jitter) -> None:
    rng = random.Random(steps)
    for name in ("cc_qdel", "cc_probe_drain", "learned_nominal_u78", "cc_probe_slow"):
        sender = smt_sender(name)
        timeout = None if name == "cc_probe_slow" else TIMEOUT_PRESETS["artefact"]
        rules = BeliefRules(upper="exact", lambda_extra_steps=0, timeout=timeout)
        model = "cbr_delay" if name == "cc_probe_slow" else "ccac"
        setting = setting_of(
            model, rng.choice(["arbitrary", "infinite", Fraction(3, 2)]), 2 if steps == 4 else 3, steps, Fraction(jitter), rules
        )
        encoding = encode(setting, sender, Needs())
        v, solver = encoding.view, z3.Solver()
        solver.add(*encoding.formulas(), v.E[v.last] <= 100)
        t = rng.randrange(steps + 1, setting.samples)
        wishes = [v.queue(t) > 1, v.S[t] == v.S[t - 1], v.G[t] < v.G[t - 1] + setting.step]
        for wish in (*wishes, v.lost[t - 1] > 0) if setting.has_loss else wishes:
            solver.push()
            solver.add(wish)
            if solver.check() != z3.sat:
                solver.pop()
        assert solver.check() == z3.sat
        found = solver.model()
        values = {d.name(): exact(found[d]) for d in found.decls()}
        bounds = frozenset(bound for bound in ("C_L", "C_U", "C_L_lambda", "q_U") if getattr(v, bound) is not None)
        complete = complete_values(encoding, Answer("sat", 0.0, "z3", "", values))
        view = replay(setting, complete, bounds, sender.needs(setting).probe_window, sender.decider())
        assert check_trace(as_trace(view, name)) == [], (name, steps, jitter)


@pytest.mark.parametrize(("steps", "jitter"), [(2, "0"), (2, "1/2"), (2, "1"), (1, "2")])
def test_true_beliefs_stay_true_whatever_is_sent(steps, jitter) -> None:
    setting = setting_of("ccac", "arbitrary", 3, steps, Fraction(jitter), BeliefRules(upper="exact"))
    needs = Needs(frozenset({"C_L", "C_U"}))

    def stays(v):
        return implies(all_of([v.C_L[0] <= 1, v.C_U[0] >= 1]), all_of([v.C_L[v.last] <= 1, v.C_U[v.last] >= 1]))

    assert Verifier(60).decide(Query("true", setting, AnySender(), Property("true", "", stays, needs))).verdict == "verified"

    def tighter(v):
        return implies(all_of([v.C_L[0] <= 1, v.C_U[0] >= 1]), v.C_L[v.last] <= Fraction(3, 4))

    found = Verifier(60).decide(Query("tighter", setting, AnySender(), Property("tighter", "", tighter, needs)))
    assert found.verdict == "refuted" and found.view is not None  # the windows do reach C


def test_delays_are_told_apart_in_steps() -> None:
    program = smt_sender("cc_probe_qdel").program  # qdel_L > Rm
    assert delay_thresholds(program, 1) == {3} and delay_thresholds(program, 4, 4) == {9}
    assert delay_thresholds(smt_sender("cc_qdel").program, 1, 2) == {2}


def test_bounds_of_bytes_grow_with_the_jitter_and_others_stay() -> None:
    loaded = load_theorem(str(SMALL))
    assert on_grid(loaded, 1, Fraction(1)) is loaded
    there = on_grid(loaded, 2, Fraction(2))
    assert (there.setting.samples, there.setting.rtts, there.setting.jitter_steps) == (13, 6, 4)
    (most,) = [lemma.conclusions[1] for lemma in there.lemmas if lemma.name == "rests"]
    assert most == Comparison(Linear((("peak_inflight", Fraction(1)),), Fraction(-30)), False)  # 20 C (Rm + D) / 2
    (climbs,) = [lemma.conclusions[0] for lemma in there.lemmas if lemma.name == "climbs"]
    assert isinstance(climbs, Joined) and climbs == next(x.conclusions[0] for x in loaded.lemmas if x.name == "climbs")
    (rank,) = [claim.ranks[0] for claim in there.claims if claim.name == "inflight_bdp"]
    assert (rank.step, rank.until) == (Fraction(3, 4), 9)


def test_the_command_says_for_each_claim_what_became_of_it(capsys) -> None:
    code = main(["verify", "theorem", str(SMALL), "-s", "cells=1:0,1:2", "--time-limit", "30", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert [(cell["steps_per_rtt"], cell["jitter_rtts"]) for cell in data["cells"]] == [(1, 0.0), (1, 2.0)]
    claims = [claim for cell in data["cells"] for claim in cell["claims"].values()]
    assert {claim["verdict"] for claim in claims} <= {"carries over", "counterexample", "unknown"}
    assert code == {"carries over": 0, "counterexample": 1, "unknown": 3}[data["verdict"]]
    wide = data["cells"][1]["claims"]["utilisation"]
    assert wide["verdict"] == "counterexample" and wide["lacks"]  # D = 2 Rm: C_L grows too slowly
    for lack in wide["lacks"]:
        trace = load_trace(Path(lack["trace"]))
        (flow,) = trace.header.path.flows
        assert check_trace(trace) == [] and flow.jitter_s == pytest.approx(2 * flow.rtt_s)


@pytest.mark.parametrize(("f", "every_k"), [("3/10", True), ("99/100", False)])
def test_a_claim_carries_over_to_every_k_with_some_constants_and_not_with_others(f, every_k, capsys) -> None:
    main(["verify", "theorem", str(SMALL), "-s", "cells=2:1", "--time-limit", "30", "--set", f"f={f}", "--json"])
    data = json.loads(capsys.readouterr().out)
    claim = data["cells"][0]["claims"]["utilisation"]
    assert data["constants"]["f"] == f and claim["bound"] == float(Fraction(f))
    assert claim["every_k"] is every_k and (claim["verdict"] == "carries over") is every_k


def test_the_record_keeps_cells_and_takes_newer_ones() -> None:
    lack = {"lemma": "pays", "verdict": "unknown", "trace": "x"}
    claims = {"utilisation": {"bound": 0.5, "verdict": "unknown", "every_k": False, "lacks": [lack]}}
    cell = {"steps_per_rtt": 2, "jitter_rtts": 0.5, "claims": claims, "lemmas": [], "seconds": 1.0}
    report = {"theorem": "cc_qdel", "sender": "a", "time_limit_s": 5.0, "cells": [cell], "constants": {"f": "3/4"}}
    first = theorems.merge_grids({}, [report])
    (kept,) = first["theorems"][0]["cells"]
    assert theorems.describe_claims({2: kept}) == "utilisation: K = 2 unknown (pays), K = 4 not asked"
    assert "trace" not in kept["claims"]["utilisation"]["lacks"][0]
    better = {"utilisation": {"bound": 0.5, "verdict": "carries over", "every_k": True, "lacks": []}}
    other = {**cell, "steps_per_rtt": 4, "claims": better}
    second = theorems.merge_grids(first, [{**report, "cells": [other]}])
    assert theorems.describe_claims({c["steps_per_rtt"]: c for c in second["theorems"][0]["cells"]}) == "every K: all"
    third = theorems.merge_grids(second, [{**report, "cells": [other], "constants": {"f": "1/2"}}])
    assert third["theorems"] == second["theorems"]
    assert third["other_constants"][0]["command"] == "ccenv verify theorem cc_qdel -s cells=4:1/2 --set f=1/2 --json"
    assert list(theorems.constants(third)[0].values()) == ["a", "0.5 Rm", "0.5", "not claimed", "not claimed", "f = 1/2"]
