"""The width of a contract: the mean of log2(hi / lo) over the beliefs that a nominal run visits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ccenv.agents.programs import INPUTS, Leaf, Program
from ccenv.agents.sender import ContractSender, ProgramSender, Sender
from ccenv.engine.compiled.program import compile_program, evaluate, interval
from ccenv.envs.curve.core import Core
from ccenv.envs.curve.settings import EnvSettings
from ccenv.training.contracts.boxes import OFFSET_LEVELS, SCALE_LEVELS, Side, by_side, directions, move_end, number_leaves
from ccenv.training.path_sets import PathSet, path_seed

N_PATHS, WARMUP_RTTS, RTTS = 64, 60, 32
LEAST_SHARE = 0.002
"""Share of the visits below which a leaf is not widened, because its width does not show in the mean."""


@dataclass(frozen=True)
class Visits:
    """Beliefs at the decision instants of a nominal run.

    Attributes:
        beliefs: (n, len(INPUTS)) float64, in the order of INPUTS.
        leaves: (n,) number of the leaf that each of them reaches, in the order of ``Program.rules``.
        shares: of each leaf; they add up to 1.
    """

    beliefs: np.ndarray
    leaves: np.ndarray
    shares: np.ndarray


def visits(program: Program) -> Visits:
    """Run a program, or the middle of a contract's intervals, in the common world on the paths of ``PathSet.POLISH``."""
    sender: Sender = (
        ContractSender(program.name, program, "middle") if program.is_contract else ProgramSender(program.name, program)
    )
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


def width_log2(contract: Program, visited: Visits) -> float:
    """Return the mean of log2(hi / lo) over visited beliefs."""
    nodes = compile_program(contract).nodes
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
