"""Find the widest shield around a program that keeps given constants within a time budget; folder, answers and result file.

Shields are compared by their width: the mean of log2(hi / lo) over the beliefs that a nominal run visits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

import numpy as np

from ccenv.agents.programs import INPUTS, Leaf, Program, pseudo_code, to_data, to_json
from ccenv.agents.sender import ProgramSender, Sender, ShieldSender
from ccenv.base.files import Format, plain, write_atomic
from ccenv.base.provenance import machine, versions
from ccenv.base.workers import Workers
from ccenv.engine.compiled.program import compile_program, evaluate, interval
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.settings import EnvSettings
from ccenv.training.distill.claims import suite_text
from ccenv.training.path_sets import PathSet, path_seed
from ccenv.training.shields.answers import AnswerStore
from ccenv.training.shields.boxes import (
    OFFSET_LEVELS,
    SCALE_LEVELS,
    Levels,
    Side,
    by_side,
    directions,
    move_end,
    number_leaves,
    widen_program,
)
from ccenv.training.shields.search import Search, Widening

N_PATHS, WARMUP_RTTS, RTTS = 64, 60, 32
LEAST_SHARE = 0.002
"""Share of the visits below which a leaf is not widened, because its width does not show in the mean."""


@dataclass(frozen=True)
class Visits:
    """Beliefs at the decision instants of a nominal run."""

    beliefs: np.ndarray  # (n, len(INPUTS)) float64, in the order of INPUTS
    leaves: np.ndarray  # (n,) number of the leaf that each of them reaches, in the order of `Program.rules`
    shares: np.ndarray  # of each leaf; they add up to 1


def visits(program: Program) -> Visits:
    """Run a program, or the middle of a shield's intervals, in the common world on the paths of ``PathSet.POLISH``."""
    sender: Sender = ShieldSender(program.name, program, "middle") if program.is_shield else ProgramSender(program.name, program)
    world = EnvSettings(models=("cbr_delay", "ccac"), steps_per_rtt=4, episode_rtts=WARMUP_RTTS + RTTS)
    adversary = world.build_adversary()
    core = Core(N_PATHS, world, senders=[sender], adversary=adversary, groups=np.ones((1, 1), np.bool_))
    core.reset(seed=path_seed(PathSet.POLISH, 0))
    rows = []
    for rtt in range(WARMUP_RTTS + RTTS):
        core.advance()
        if rtt >= WARMUP_RTTS:
            rows.append(_beliefs(core))
    beliefs = np.concatenate(rows)
    leaves = _leaves(program, beliefs)
    n = sum(isinstance(rule, Leaf) for rule in program.rules())
    return Visits(beliefs, leaves, np.bincount(leaves, minlength=n) / len(beliefs))


def width_log2(shield: Program, visited: Visits) -> float:
    """Return the mean of log2(hi / lo) over visited beliefs."""
    nodes = compile_program(shield).nodes
    ends = np.array([interval(nodes, 0, row)[:2] for row in visited.beliefs])
    return float(np.log2(ends[:, 1] / ends[:, 0]).mean())


def gains(program: Program, visited: Visits) -> dict[Side, np.ndarray]:
    """Return what each side adds to the width at each level, (scales, offsets) per side; the width is the sum over sides.

    Sides of leaves that are hardly ever visited (LEAST_SHARE) add 0.
    """
    table = {side: np.zeros((SCALE_LEVELS + 1, OFFSET_LEVELS + 1)) for side in by_side(program, (0,) * len(directions(program)))}
    leaves = [rule for rule in program.rules() if isinstance(rule, Leaf)]
    for (leaf, end), gain in table.items():
        if visited.shares[leaf] < LEAST_SHARE:
            continue
        rows = visited.beliefs[visited.leaves == leaf]
        for scale, offset in np.ndindex(gain.shape):
            rate = move_end(leaves[leaf].ends[min(end, len(leaves[leaf].ends) - 1)], scale, offset, end)
            nodes = compile_program(Program(program.name, Leaf(rate))).nodes
            logs = sum(np.log2(interval(nodes, 0, row)[end]) for row in rows)
            gain[scale, offset] = (1 if end else -1) * float(logs) / len(visited.beliefs)
    return table


def _beliefs(core: Core) -> np.ndarray:
    """Return the current inputs of programs, (B, len(INPUTS))."""
    rtt_s, mss = core.flow("rtt_s")[:, 0], core.env("mss_bytes")
    q_U = core.flow("q_U_bytes")[:, 0]
    values = {
        **{name: core.flow(f"{name}_Bps")[:, 0] for name in ("C_L", "C_U", "C_L_lambda", "rate")},
        **{name: core.flow(f"{name}_s")[:, 0] for name in ("qdel_L", "qdel_U")},
        "MSS/Rm": mss / rtt_s,
        "MSS": mss,
        "Rm": rtt_s,
        "q_U": q_U,
        "q_U/Rm": q_U / rtt_s,
        "utilised": core.flow("utilised")[:, 0].astype(np.float64),
        "loss": (core.flow("lost_last_interval_bytes")[:, 0] > 0).astype(np.float64),
    }
    return np.stack([values[name] for name in INPUTS], axis=1)


def _leaves(program: Program, beliefs: np.ndarray) -> np.ndarray:
    nodes = compile_program(number_leaves(program)).nodes
    return np.array([int(evaluate(nodes, 0, row)[1]) - 1 for row in beliefs])


RESULT = Format("ccenv-contract", 1, "the result of a widening", older="--fresh makes it again", indent=2)
_QUESTION_KEYS = ("utilisation", "lemmas", "settle", "samples", "seed", "timeouts")


@dataclass(frozen=True)
class Widened:
    """Result of a widening."""

    verified: bool  # each query was proved for the shield or for one around it, so every lemma holds
    shield: Program  # the widest shield proved; the program itself if nothing wider was
    width_log2: float  # mean of log2(hi / lo) over the beliefs of a nominal run
    # upper bound on the width of shields of these levels around this one: the wider ones are ruled out by counterexamples, or the
    # solver gave up on them
    width_at_most: float
    levels: Levels
    seconds: float
    asked: int  # queries that the solver answered, in all calls together, in `solver_seconds`
    solver_seconds: float
    finished: bool  # no direction adds LEAST_GAIN, and every query was proved for this very shield
    reason: str = ""  # why nothing is verified


def widen(
    task: Widening,
    folder: FilePath,
    *,
    jobs: int = 1,
    backend: str = "processes",
    fresh: bool = False,
    report: Callable[[str], None] | None = None,
) -> Widened:
    """Find the widest shield around a program whose lemmas hold, or resume an earlier call.

    ``answers.jsonl`` in the folder keeps every answer; ``ccenv verify lemmas`` decides ``shield.json`` and ``lemmas.yaml``
    again. The search is described in :mod:`ccenv.training.shields.search`; ``report`` gets one line per step of it.

    Raises:
        InputError: for a folder with answers about another question.
        CcenvError: if another process works in the folder.
    """
    begin = time.monotonic()
    question = {n: v for n, v in asdict(task).items() if n in _QUESTION_KEYS and v is not None}
    if task.inside is not None:
        question["inside"] = to_data(task.inside)
    with AnswerStore(folder, task.program, question, task.queries, fresh) as answers, Workers(jobs, backend) as workers:
        visited = visits(task.program)
        search = Search(task, answers, gains(task.program, visited), workers, report)
        outcome = search.run(begin + task.budget_s)
        name = f"{task.program.name}_shield"[:64]
        shield = task.program if not outcome.verified else widen_program(task.program, outcome.levels, name)
        result = Widened(
            outcome.verified,
            shield,
            width_log2(shield, visited),
            outcome.at_most,
            outcome.levels,
            time.monotonic() - begin,
            answers.answers,
            sum(answers.seconds.values()),
            outcome.finished,
            outcome.reason,
        )
        _write(folder, task, result, [round(float(share), 4) for share in visited.shares])
    return result


def _write(folder: FilePath, task: Widening, result: Widened, shares: list[float]) -> None:
    data = {
        "program": to_data(task.program),
        "shield": to_data(result.shield),
        "pseudo_code": pseudo_code(result.shield),
        "inside": None if task.inside is None else to_data(task.inside),
        "utilisation": task.utilisation,
        "settle": task.settle,
        "T": task.samples,
        "timeouts": task.rule_of_timeouts,
        "verified": result.verified,
        "width_log2": result.width_log2,
        "width_at_most": result.width_at_most,
        "finished": result.finished,
        "asked": result.asked,
        "solver_seconds": result.solver_seconds,
        "seconds": result.seconds,
        "reason": result.reason,
        "visits": shares,
        "directions": {direction.name: level for direction, level in zip(directions(task.program), result.levels, strict=True)},
        "machine": machine(),
        "versions": versions(),
    }
    if result.verified:
        write_atomic(folder / "shield.json", to_json(result.shield).encode())
        write_atomic(folder / "lemmas.yaml", suite_text(task.suite(result.shield.name, "shield.json")).encode())
    RESULT.write(folder / "result.json", plain(data))
