"""How wide a contract is: the mean of log2(hi / lo) over the beliefs that a nominal run visits."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from ccenv.engine.compiled.program import compile_program, evaluate, interval
from ccenv.envs.core import Core
from ccenv.envs.settings import EnvSettings
from ccenv.network.sender import ContractSender, ProgramSender, Sender
from ccenv.programs import INPUTS, Branch, Leaf, Program, Rule
from ccenv.training.path_sets import PathSet, path_seed

N_PATHS, WARMUP_RTTS, RTTS = 64, 60, 32


@dataclass(frozen=True)
class Visits:
    """Beliefs at the decision instants of a nominal run.

    Attributes:
        beliefs: (n, len(INPUTS)) float64, in the order of INPUTS.
        shares: of each leaf, in the order of ``Program.rules``; they add up to 1.
    """

    beliefs: np.ndarray
    shares: np.ndarray


def visits(program: Program) -> Visits:
    """Run a program, of a contract the middle of its intervals, in the common world on paths kept for such choices."""
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
    return Visits(beliefs, _shares(program, beliefs))


def width_log2(contract: Program, seen: Visits) -> float:
    """Return the mean of log2(hi / lo) over visited beliefs."""
    nodes = compile_program(contract).nodes
    ends = np.array([interval(nodes, 0, row)[:2] for row in seen.beliefs])
    return float(np.log2(ends[:, 1] / ends[:, 0]).mean())


def _beliefs(core: Core) -> np.ndarray:
    """Return the inputs of programs as they are now: (B, len(INPUTS))."""
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


def _shares(program: Program, beliefs: np.ndarray) -> np.ndarray:
    """Return how often each leaf is reached, by the same conditions over leaves that hold for as many Rm as their number says."""
    numbers = itertools.count(1)

    def numbered(rule: Rule) -> Rule:
        if isinstance(rule, Branch):
            return Branch(rule.condition, numbered(rule.then), numbered(rule.otherwise))
        return Leaf(rule.rate, next(numbers))

    nodes = compile_program(replace(program, rule=numbered(program.rule))).nodes
    reached = [int(evaluate(nodes, 0, row)[1]) - 1 for row in beliefs]
    shares: np.ndarray = np.bincount(reached, minlength=next(numbers) - 1) / len(beliefs)
    return shares
