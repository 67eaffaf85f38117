"""The record of distillations (docs/data/distillation.json): its table, and its measurement with today's code.

``python docs/tables/distillation.py`` measures every recorded program again.

``python docs/tables/distillation.py learned_fair`` distils learned_fair, which ``ccenv distill`` refuses because it sets
windows and relies on its own probes. A tree is fitted to its rates in runs of one to four of its flows, on the inputs of a belief
program. The numbers of the tree, and of a ladder that imitates nobody, are then polished for the share of the least flow, also
with a flow that starts late, and checked for starvation.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.agents.programs import Program, parse_program, pseudo_code, to_data, to_json
from ccenv.agents.sender import ProgramSender, Sender
from ccenv.base.files import Format, json_bytes, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.engine.curve.engine import CurveEngine
from ccenv.network.path import Path, make_path
from ccenv.network.trace import Trace
from ccenv.proofs.claims.fairness import program_query
from ccenv.proofs.claims.verifier import Verifier
from ccenv.proofs.senders.program import ProgramSmtSender
from ccenv.training.distill.claims import INVARIANT
from ccenv.training.distill.objective import ATTACK_SCENES, load_teacher, measure
from ccenv.training.distill.run import FORMAT as RESULT
from ccenv.training.distill.run import REPORT
from ccenv.training.distill.tree import Samples, Template, grow, ladder, polish, predict

FORMAT = Format("ccenv-distillation-record", 2, "a record of distillations")
DATA = FilePath(__file__).parents[1] / "data"
ATTACK_FLOW_STEPS = 2_000_000
SEEN_MARK = "†"
_MEASURED = ("score", "evaluation", "common", "worst", "worst_utilisation", "worst_adversary")
_RUN_KEYS = (
    "name",
    "teacher_name",
    "teacher_score",
    "teacher_weights",
    "fidelity",
    "teacher",
    "program",
    "pseudo_code",
    *_MEASURED,
)
_UNRECORDED_KEYS = (
    "file",
    "suite",
    "seconds",
    "lemmas",
    "timeouts",
)  # files of one machine; the suites are decided and recorded alone


def measure_again(
    file: FilePath | str,
    *,
    names: Sequence[str] | None = None,
    attack_flow_steps: int = ATTACK_FLOW_STEPS,
) -> None:
    """Measure every recorded program and its teacher with today's code; programs, proofs and times are kept.

    The record is written after each distillation. ``names`` selects distillations by their first programs;
    ``attack_flow_steps`` is the budget per attack scenario.

    Raises:
        InputError: if the file is no record, or a teacher is neither in the zoo nor at the path of its command.
    """
    file = FilePath(file)
    data = read_data(file)
    for run in data["runs"]:
        if names is not None and run["name"] not in names:
            continue
        teacher = load_teacher(run["command"].split()[2])
        run["teacher"] |= measure(teacher.policy, teacher, attack_flow_steps, 0)
        for entry in (run, *run["proofs"]):
            program = parse_program(json.dumps(entry["program"]))
            entry.update(measure(ProgramSender(program.name, program), teacher, attack_flow_steps, 0))
        run["teacher_score"] = run["teacher"]["score"]
        data |= {"versions": versions(), "machine": machine()}
        FORMAT.write(file, data)


def add(file: FilePath | str, folder: FilePath | str, command: str) -> None:
    """Add the result of ``ccenv distill`` in a folder to the record, replacing an earlier distillation of the same name.

    Raises:
        InputError: if the file is no record, or the folder holds no finished distillation.
    """
    result = RESULT.read(FilePath(folder) / REPORT)
    data = read_data(FilePath(file))
    entry = {"command": command} | {key: result[key] for key in _RUN_KEYS}
    entry["proofs"] = [_proof(proof) for proof in result["proofs"]]
    runs = {run["name"]: run for run in data["runs"]} | {entry["name"]: entry}
    data |= {"runs": list(runs.values()), "versions": result["versions"], "machine": result["machine"]}
    FORMAT.write(FilePath(file), data)


def read_data(file: FilePath) -> dict[str, Any]:
    """Read a record. Raises InputError for another file."""
    return FORMAT.read(file)


def results(record: dict[str, Any]) -> list[dict[str, str]]:
    """Return scores and worst cases of teachers and programs.

    ``†`` marks an attack scenario in which the sender was attacked during training or polishing.
    """
    return [_row(name, entry) for run in record["runs"] for name, entry in _senders(run)]


def _proof(proof: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded part of a proof; its suites are recorded under ``suites``."""
    recorded = {key: value for key, value in proof.items() if key not in _UNRECORDED_KEYS}
    invariant = next((lemma for lemma in proof.get("lemmas", ()) if lemma["name"] == INVARIANT), None)
    return recorded | ({} if invariant is None else {"invariant": invariant})


def _senders(run: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield f"{run['teacher_name']} (teacher)", run["teacher"]
    yield run["name"], run
    for proof in run["proofs"]:
        yield proof["name"], proof


def _row(name: str, entry: dict[str, Any]) -> dict[str, str]:
    scores, worst = entry["evaluation"], entry["worst"]
    row = {"sender": name} | {key: f"{scores[key]:.3f}" for key in ("score", "utilisation")}
    row |= {"queue (BDP)": f"{scores['queue_bdp']:.2f}", "loss": f"{scores['loss']:.3f}"}
    for scene in ATTACK_SCENES:
        case = worst.get(scene)
        row[f"worst, {scene}"] = "" if case is None else f"{case['utilisation']:.3f}{SEEN_MARK if case['seen'] else ''}"
    proved = f"{entry['utilisation']:.2f}, {entry['verdict']}" if "verdict" in entry else ""
    return row | {"F.7: u": proved}


TEACHER, DEPTH = "learned_fair", 3
IMITATION, LADDER = "learned_fair_d3", "company_d3"
RECORD = "learned-fair-distilled.json"
STEPS_PER_RTT = 8
RUNS, RUN_RTTS, SKIPPED_RTTS = 96, 200, 10
NETWORKS = ("kind", "uniform", "batch")
REPORT_RUNS, REPORT_RTTS = 24, 400
JUDGED_PATHS, JUDGED_RTTS, GENERATIONS = 12, 120, 14
POLISH_SEED, REPORT_SEED = 5, 77_001
QUEUE_WEIGHT, LOSS_WEIGHT = 0.1, 1.0
TIE_BDP = 1e-9
LARGEST_RATE = 8.0  # of a leaf, in C_L
SAMPLES, RATIO, LIMIT_S = 6, Fraction(10), 120.0


def draw_path(draw: np.random.Generator, flows: int) -> Path:
    """Draw a path of 10 to 300 segments per Rm, with Rm of 20 to 80 ms, D up to Rm/2 and a buffer of .5 to 4 BDP."""
    rtt_ms = float(round(draw.uniform(20, 80) / 8) * 8)
    segments = float(np.exp(draw.uniform(np.log(10), np.log(300))))
    jitter_ms = rtt_ms / STEPS_PER_RTT * int(draw.integers(0, STEPS_PER_RTT // 2 + 1))
    rate = segments * 1500 * 8e-3 / rtt_ms
    buffer_bdp = float(draw.uniform(0.5, 4))
    return make_path(link_rate_mbps=rate, rtt_ms=rtt_ms, jitter_ms=jitter_ms, buffer_bdp=buffer_bdp, n_flows=flows)


def delay_last_flow(path: Path, rtts: float) -> Path:
    """Return a path whose last flow starts after ``rtts`` Rm."""
    last = path.flows[-1].model_copy(update={"start_s": rtts * path.flows[0].rtt_s})
    return path.model_copy(update={"flows": (*path.flows[:-1], last)})


def run_flows(sender: Sender, path: Path, network: str, rtts: int, seed: int) -> Trace:
    """Run a sender as every flow of a path on CBR-delay; return the trace."""
    adversary = make_adversary(network)
    senders = [sender] * path.n_flows
    engine = CurveEngine(
        [path], model="cbr_delay", senders=senders, adversary=adversary, steps_per_rtt=STEPS_PER_RTT, seed=seed, record=True
    )
    engine.advance(rtts * STEPS_PER_RTT)
    return engine.trace(0)


def make_samples(trace: Trace) -> Samples:
    """Return the inputs of a belief program at each Rm of every flow, and the rate that the flow then sent, in C_L."""
    K, path = STEPS_PER_RTT, trace.header.path
    rows = np.arange(SKIPPED_RTTS * K, trace.n_steps - K, K)
    rtt_s, jitter_steps = path.flows[0].rtt_s, trace.grid.jitter_steps[0]
    lower, upper = trace.beliefs["C_L"][rows], trace.beliefs["C_U"][rows]
    ratio = np.minimum(upper / lower, 64.0)
    acked = rows - K  # events up to here are known from ACKs
    lost = (trace.L[acked] - trace.L[acked - K]) > 0
    judged = acked - jitter_steps
    waiting = (trace.A - trace.L)[judged] > trace.S[acked] + TIE_BDP * path.bdp_bytes
    lossy = trace.L[judged] > trace.L[judged - 1]
    columns = (ratio, trace.beliefs["qdel_L"][rows] / rtt_s, path.mss_bytes / rtt_s / lower, waiting | lossy, lost)
    features = np.stack([np.asarray(column, float).ravel() for column in columns], axis=1)
    rate = ((trace.A[rows + K] - trace.A[rows]) / rtt_s / lower).ravel()
    return Samples(features, np.clip(rate, features[:, 2], LARGEST_RATE))


def imitate_fair(seed: int = 0) -> tuple[Template, np.ndarray, float]:
    """Return tree and numbers, and the mean of |rate / teacher's rate - 1| on held-out runs."""
    teacher, draw = make_sender(TEACHER), np.random.default_rng(seed)
    runs = []
    for number in range(RUNS):
        flows = int(draw.integers(1, 5))
        trace = run_flows(teacher, draw_path(draw, flows), NETWORKS[number % len(NETWORKS)], RUN_RTTS, number)
        runs.append(make_samples(trace))
    held_out = runs[-RUNS // 6 :]
    fitted = [np.concatenate([getattr(run, name) for run in runs[: -RUNS // 6]]) for name in ("features", "rate")]
    template, numbers = grow(Samples(*fitted), DEPTH)
    features, rates = (np.concatenate([getattr(run, name) for run in held_out]) for name in ("features", "rate"))
    return template, numbers, float(np.mean(np.abs(predict(template, numbers, features) / rates - 1)))


def judge(programs: Sequence[Program], seed: int = POLISH_SEED) -> np.ndarray:
    """Return for each program the mean share of its least flow among flows of the same program, less queue and losses."""
    values = np.zeros(len(programs))
    for number, program in enumerate(programs):
        sender, draw, scores = ProgramSender(program.name, program), np.random.default_rng(seed), []
        for flows in (1, 2, 4):
            paths = [draw_path(draw, flows) for _ in range(JUDGED_PATHS)]
            if flows > 1:
                paths = [delay_last_flow(path, JUDGED_RTTS / 3) if odd % 2 else path for odd, path in enumerate(paths)]
            adversary = make_adversary(NETWORKS[flows % len(NETWORKS)])
            engine = CurveEngine(
                paths, model="cbr_delay", senders=[sender] * flows, adversary=adversary, steps_per_rtt=STEPS_PER_RTT, seed=seed
            )
            engine.advance(JUDGED_RTTS * 2 // 3 * STEPS_PER_RTT)
            before = engine.totals()
            engine.advance(JUDGED_RTTS // 3 * STEPS_PER_RTT)
            after = engine.totals()
            change = {name: after[name] - before[name] for name in ("A", "S", "L")}
            bdp = engine.env("link_rate_Bps") * engine.flow("rtt_s")[:, 0]
            least = change["S"].min(axis=1) * flows / (bdp * (JUDGED_RTTS // 3))
            lost = change["L"].sum(axis=1) / np.maximum(change["A"].sum(axis=1), 1.0)
            scores.append(np.mean(least - QUEUE_WEIGHT * engine.queue_bytes / bdp - LOSS_WEIGHT * lost))
        values[number] = np.mean(scores)
    return values


def polish_programs() -> tuple[dict[str, Program], float]:
    """Return the polished programs by name, and the error of the imitation before polishing."""
    template, numbers, error = imitate_fair()
    starts = {
        IMITATION: (template, numbers, f"imitated from {TEACHER} in company, polished"),
        LADDER: (*ladder(DEPTH), "polished in company"),
    }
    best = {
        name: polish(shape, start, judge, name=name, source=source, generations=GENERATIONS).program
        for name, (shape, start, source) in starts.items()
    }
    return best, error


def measure_fairness(sender: Sender) -> dict[str, float]:
    """Return intra-CCA means over the same paths for every sender: utilisation, Jain's index, queue, least share, late share."""
    measures: dict[str, list[float]] = {}
    draw = np.random.default_rng(REPORT_SEED)
    for number in range(REPORT_RUNS):
        network = NETWORKS[number % len(NETWORKS)]
        for flows in (1, 2, 4):
            path = draw_path(draw, flows)
            for joins_late in (False, True) if flows == 2 else (False,):
                shared = delay_last_flow(path, REPORT_RTTS / 2) if joins_late else path
                trace = run_flows(sender, shared, network, REPORT_RTTS, number)
                rows = trace.n_steps // 4 * 3
                delivered = trace.S[-1] - trace.S[rows]
                capacity = path.link_rate_Bps * trace.header.dt_s * (trace.n_steps - rows)
                if joins_late:
                    measures.setdefault("share_of_a_late_one", []).append(float(delivered[-1] / capacity * flows))
                    continue
                measures.setdefault(f"utilisation_{flows}", []).append(float(delivered.sum() / capacity))
                measures.setdefault(f"queue_bdp_{flows}", []).append(float(trace.queue_bytes[rows:].mean() / path.bdp_bytes))
                if flows > 1:
                    jain = float(delivered.sum() ** 2 / (flows * (delivered**2).sum()))
                    measures.setdefault(f"jain_{flows}", []).append(jain)
                    measures.setdefault(f"least_share_{flows}", []).append(float(delivered.min() / capacity * flows))
    return {name: round(float(np.mean(values)), 3) for name, values in measures.items()}


def decide_starvation(program: Program, flows: int) -> dict[str, Any]:
    """Decide whether flows of a program can starve one of them."""
    query = program_query(ProgramSmtSender(program), RATIO, SAMPLES, flows, "ccac")
    return {"verdict": Verifier(LIMIT_S).decide(query).verdict, "ratio": float(RATIO), "T": SAMPLES}


def distil_fair(folder: FilePath) -> None:
    """Write the record and the programs of learned_fair."""
    programs, error = polish_programs()
    data: dict[str, Any] = {
        "teacher": TEACHER,
        "error": round(error, 3),
        "in_company": {TEACHER: measure_fairness(make_sender(TEACHER))},
        "programs": {},
        "machine": machine(),
        "versions": versions(),
    }
    for name, program in programs.items():
        verdicts = {str(flows): decide_starvation(program, flows) for flows in (2, 3)}
        data["programs"][name] = {"program": to_data(program), "pseudo_code": pseudo_code(program), "fairness": verdicts}
        data["in_company"][name] = measure_fairness(ProgramSender(name, program))
        write_atomic(folder / f"{name}.json", to_json(program).encode())
    write_atomic(folder / RECORD, json_bytes(data))


if __name__ == "__main__":
    if sys.argv[1:] == [TEACHER]:
        distil_fair(DATA)
    else:
        measure_again(DATA / "distillation.json")
