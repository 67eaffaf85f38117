"""C_L_lambda's two readings of a late byte: both true bounds, and what the difference does to G6."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from ccenv.agents.programs import Program, parse_program
from ccenv.base.errors import InputError
from ccenv.proofs.formulas import beliefs
from ccenv.proofs.formulas.encode import Needs, encode
from ccenv.proofs.formulas.setting import BeliefRules, Setting
from ccenv.proofs.formulas.view import View
from ccenv.proofs.replay.exact import ReplayError
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.proofs.senders.rate_based import AnySender
from ccenv.proofs.solver.solvers import solve, to_smtlib
from ccenv.proofs.solver.terms import all_of, any_of
from ccenv.proofs.synthesis.exchange import view_of_trace
from ccenv.proofs.synthesis.prove import Task, claims, collect_values, decide
from ccenv.proofs.synthesis.query.classes import MOST_SAMPLES, class_rows
from ccenv.proofs.synthesis.query.query import Query, load_query
from ccenv.proofs.synthesis.search.cegis import make_candidate
from ccenv.proofs.synthesis.search.kernel import CURVES, ILLEGAL, simulate
from ccenv.proofs.synthesis.search.search import Simulator, repertoire

Reading = Literal["kept", "seen"]


def _misled(reading: Reading, *, whole: bool) -> str:
    """Ask for a window that counts and says more than C, or more than buffer line (6.3) allows, whatever is sent."""
    setting = Setting("cbr_delay", "arbitrary", 6, "sound", beliefs=BeliefRules(lambda_delay=reading))
    encoding = encode(setting, AnySender(), Needs(frozenset({"C_L_lambda"})))
    v = encoding.view
    wrong = []
    for t in range(1, setting.samples):
        for counts, rate in beliefs.sent_window_rates(v, t, 1):
            shown = counts if whole else any_of([counts, v.first_late[t][3]])
            wrong.append(all_of([shown, any_of([rate > 1, 1 + v.beta < 3 * rate])]))
    return solve(to_smtlib([*encoding.formulas(), any_of(wrong)]), "z3", 60).status


@pytest.mark.parametrize("reading", ["kept", "seen"])
def test_no_sending_window_misleads_any_sender(reading: Reading) -> None:
    assert _misled(reading, whole=True) == "unsat"
    assert _misled(reading, whole=False) == "sat"  # a window that ends late does mislead: the question is not empty


def _halving() -> Program:
    """Drain at C_L_lambda/2, one of the four keys that only ``seen`` proves."""
    probe = {"C_L_lambda": 3, "MSS/Rm": 1}
    rule = {"if": {"q_U/Rm": 1, "MSS/Rm": -1}, "then": {"rate": {"C_L_lambda": "1/2"}}, "else": {"rate": probe}}
    return parse_program({"format": "ccenv-program", "version": 1, "name": "halving", "rule": rule})


def test_a_delay_that_lasts_while_nothing_arrives_refutes_draining_at_half_the_bound() -> None:
    query = load_query("g6_kept")
    found = decide(Task(query.setting(), query.goals(), _halving(), 60))
    assert (found.status, found.claim) == ("refuted", "utilisation")
    v = found.view
    assert v is not None
    assert v.C_L_lambda is not None
    seen = replace(v, setting=load_query("g6").setting())
    assert all(not counts or rate <= v.C_L_lambda[0] for t in range(1, 7) for counts, rate in beliefs.sent_window_rates(v, t, 1))
    # Read the other way, the same trace moves the bound.
    assert any(counts and rate > v.C_L_lambda[0] for t in range(1, 7) for counts, rate in beliefs.sent_window_rates(seen, t, 1))


@pytest.mark.slow
def test_a_delay_that_arriving_bytes_show_does_not() -> None:
    query = load_query("g6")
    assert query.beliefs.lambda_delay == "seen"
    task = Task(query.setting(), query.goals(), _halving(), 120)
    assert len(claims(task)) == 5
    assert decide(task).status == "proved"


def test_an_unknown_reading_is_refused(tmp_path: Path) -> None:
    shipped = files("ccenv.configs.synth").joinpath("g6.yaml").read_text(encoding="utf-8")
    file = tmp_path / "guess.yaml"
    file.write_text(shipped.replace("lambda_delay: seen", "lambda_delay: guessed"), encoding="utf-8")
    with pytest.raises(InputError, match=r"beliefs\.lambda_delay"):
        load_query(str(file))


def test_simulator_replayer_and_encoding_agree_where_the_readings_differ() -> None:
    """Random traces of G6 on which C_L_lambda moves under one reading only; the other one's numbers are refused."""
    queries = {reading: load_query(name) for reading, name in (("kept", "g6_kept"), ("seen", "g6"))}
    space = queries["seen"].space()
    rows = class_rows(space)[:60_000:1499]
    simulator = Simulator(queries["seen"].setting(), queries["seen"].goals(), space, rows)
    differ = 0
    for trace in repertoire(simulator.setting, 300, np.random.default_rng(2), 1.0, True):
        for row in rows:
            runs = {reading: _simulated(simulator, trace, row, reading == "kept") for reading in queries}
            if ILLEGAL in (said for said, _ in runs.values()) or (runs["kept"][1][10] == runs["seen"][1][10]).all():
                continue
            differ += 1
            program = space.program(make_candidate(row, 2), "p")
            for reading, query in queries.items():
                view = view_of_trace(trace, query.setting(), program, runs[reading][1])
                if differ % 8 == 0:
                    assert _is_in_the_encoding(query, program, view)
                with pytest.raises(ReplayError, match="the solver"):
                    view_of_trace(trace, query.setting(), program, runs["kept" if reading == "seen" else "seen"][1])
    assert differ >= 20


def _simulated(simulator: Simulator, trace: np.ndarray, row: np.ndarray, kept: bool) -> tuple[int, np.ndarray]:
    curves = np.zeros((CURVES, MOST_SAMPLES), np.int64)
    trace["late_kept"] = kept
    return simulate(trace, simulator.goal(trace), 2, row, simulator.conditions, simulator.rates, curves), curves


def _is_in_the_encoding(query: Query, program: Program, view: View) -> bool:
    """Fix every number of an exact trace, moving bounds included, and ask the solver."""
    encoding = encode(query.setting(), ProgramSmtSender(program), Needs(frozenset({"C_L_lambda", "q_U"})))
    values = collect_values(view)
    assert view.C_L_lambda is not None
    values |= {f"C_L_lambda_{t}": Fraction(x) for t, x in enumerate(view.C_L_lambda)}
    known = encoding.variables.all
    fixed = [known[name] == (x if isinstance(x, bool) else str(x)) for name, x in values.items() if name in known]
    return solve(to_smtlib([*encoding.formulas(), *fixed]), "z3", 60).status == "sat"
