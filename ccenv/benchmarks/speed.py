"""Speed of ccenv on this machine: engines, environments, start, synthesis, training (docs/benchmarks.md, Speed).

Every rate is timed alike (``rates``): a warm-up, then repetitions of a fixed amount of work; median and best are reported.
Compilation never counts; cold and warm starts are fresh processes with an empty and a filled kernel cache.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import numpy as np

from ccenv.adversaries import make_adversary
from ccenv.agents import make_sender
from ccenv.agents.interface.interface import N_OBSERVATION, OBSERVATION_VERSION
from ccenv.agents.sender import PolicySender, Sender
from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.kernels.threads import most_threads
from ccenv.base.provenance import machine, now, versions
from ccenv.engine.curve.engine import CurveEngine
from ccenv.engine.fluid.scenario import Flow, Link, Scenario
from ccenv.engine.fluid.simulate import simulate_batch
from ccenv.engine.fluid.sweep import load_sweep
from ccenv.engine.packet.engine import PacketEngine
from ccenv.engine.packet.spec import FlowSpec, LinkSpec, NetworkSpec
from ccenv.envs.curve.network import network_elements
from ccenv.network.adversary import MlpAdversary
from ccenv.network.path import MBPS_IN_BPS, make_path
from ccenv.proofs.synthesis.query.query import load_query
from ccenv.proofs.synthesis.result import result
from ccenv.proofs.synthesis.run import solve_query, start, warm_up
from ccenv.proofs.synthesis.search.cegis import cegis
from ccenv.training.config import load_config

REPETITIONS = 7
MIN_SECONDS = 0.25


def rates(name: str, work: Callable[[], object], units: float) -> dict[str, float]:
    """Return units per second under a name, the median over REPETITIONS of work, and the best under ``..._best``.

    One call of work does ``units``; the first one, a warm-up, is not timed.
    """
    work()
    calls, one_call_s = 1, _seconds(work, 1)
    calls = max(1, round(MIN_SECONDS / max(one_call_s, 1e-9)))
    speeds = [calls * units / _seconds(work, calls) for _ in range(REPETITIONS)]
    return _median_and_best(name, speeds)


def _median_and_best(name: str, speeds: Sequence[float]) -> dict[str, float]:
    return {name: round(statistics.median(speeds)), f"{name}_best": round(max(speeds))}


def _seconds(work: Callable[[], object], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        work()
    return time.perf_counter() - begin


STEPS = 8  # per call, one propagation RTT
PATH = {"link_rate_mbps": 48.0, "rtt_ms": 40.0, "jitter_ms": 40.0, "buffer_bdp": 8.0}

# name -> environments, flows, threads, adversary (None: benign, without a call per step)
CASES: dict[str, tuple[int, int, int, str | None]] = {
    "curve_64x2_k8": (64, 2, 1, None),
    "curve_64x2_k8_uniform": (64, 2, 1, "uniform"),
    "curve_64x2_k8_2cores": (64, 2, 2, None),
    "curve_4096x1_k8": (4096, 1, 1, None),
    "curve_4096x1_k8_2cores": (4096, 1, 2, None),
    "curve_64x8_k8": (64, 8, 1, None),
    "curve_64x8_k8_2cores": (64, 8, 2, None),
}


def build(n_envs: int, n_flows: int, threads: int, adversary: str | None) -> CurveEngine:
    """Build the engine that is timed: cc_qdel on CCAC with D = Rm and a buffer of 8 BDP, past its warm-up."""
    path = make_path(**PATH, n_flows=n_flows)
    senders = [make_sender("cc_qdel")] * n_flows
    player = make_adversary(adversary) if adversary else None
    engine = CurveEngine([path] * n_envs, model="ccac", senders=senders, adversary=player, steps_per_rtt=STEPS, threads=threads)
    engine.advance(100 * STEPS)
    return engine


def measure_engine() -> dict[str, float]:
    """Return ``..._flow_steps_per_s`` (median) and ``..._best`` per case, and ``bytes_per_env`` of a single-flow environment."""
    out: dict[str, float] = {}
    for name, (n_envs, n_flows, threads, adversary) in CASES.items():
        engine = build(n_envs, n_flows, threads, adversary)
        out |= rates(f"{name}_flow_steps_per_s", partial(engine.advance, STEPS), n_envs * n_flows * STEPS)
        if n_flows == 1:
            out["bytes_per_env"] = round(engine.bytes_per_env)
    return out


N_ENVS = 1024
N_ACTIONS = 16  # batches of actions, drawn beforehand


def measure_environments() -> dict[str, float]:
    """Return environment-steps per second (K = 8 engine steps each, one flow, one thread), and the same per best run."""
    import gymnasium

    from ccenv.envs.clients.sb3 import make_sb3

    generator = np.random.Generator(np.random.Philox(0))
    actions = generator.uniform(-1, 1, (N_ACTIONS, N_ENVS, 1)).astype(np.float32)
    vector = gymnasium.make_vec("ccenv/Sender-v0", num_envs=N_ENVS)
    vector.reset(seed=0)
    actions_cycle = itertools.cycle(actions)
    out = rates("vector_env_1024_steps_per_s", lambda: vector.step(next(actions_cycle)), N_ENVS)
    vector.close()
    sb3 = make_sb3("ccenv/Sender-v0", N_ENVS)
    sb3.seed(0)
    sb3.reset()
    out |= rates("sb3_env_1024_steps_per_s", lambda: sb3.step(next(actions_cycle)), N_ENVS)
    sb3.close()
    return out


DUELS = 64


def duel() -> dict[str, float]:
    """Return decisions per second (of sender and network together) of DUELS batched ``ccenv/Duel-v0``, one flow each."""
    from ccenv.envs.curve.duel import make_duels

    generator = np.random.Generator(np.random.Philox(0))
    batch = make_duels(DUELS)
    batch.reset(seed=0)
    actions = [
        {name: generator.uniform(s.low, s.high, (DUELS, *s.shape)).astype(np.float32) for name, s in batch.action_spaces.items()}
        for _ in range(N_ACTIONS)
    ]
    actions_cycle = itertools.cycle(actions)
    return rates("duel_64_steps_per_s", lambda: batch.step(next(actions_cycle)), DUELS * len(batch.agents))


def shared() -> dict[str, float]:
    """Return decisions per second of DUELS networks with two flows that share a policy, for Stable-Baselines3."""
    from ccenv.envs.clients.sb3 import make_sb3

    generator = np.random.Generator(np.random.Philox(0))
    env = make_sb3("ccenv/Sender-v0", DUELS, shared_policy=True, senders=["external", "external"])
    env.seed(0)
    env.reset()
    actions_cycle = itertools.cycle(generator.uniform(-1, 1, (N_ACTIONS, env.num_envs, 1)).astype(np.float32))
    found = rates("shared_64x2_steps_per_s", lambda: env.step(next(actions_cycle)), env.num_envs)
    env.close()
    return found


_MIX = ("bbr1", "bbr1", "bbr1", "bbr2", "bbr2", "bbr2", "reno", "reno", "cubic", "cubic")


def mixed_flows(duration_s: float) -> Scenario:
    """Return the scenario that is timed: ten mixed flows on 100 Mbit/s, 2 BDP of drop-tail buffer, step 0.05 ms."""
    flows = tuple(Flow(cca=cca, access_delay_ms=5.0 + 0.5 * i) for i, cca in enumerate(_MIX))
    link = Link(rate_mbps=100, delay_ms=10, buffer_bdp=2)
    return Scenario(
        title="ten mixed flows", links=(link,), flows=flows, params="artefact", duration_s=duration_s, measure_from_s=0.0
    )


def measure_fluid() -> dict[str, float]:
    """Time the kernels, compiled beforehand; keys below.

    - ``ode_10_mixed_flow_steps_per_s``: flow-steps per second of one thread, ten mixed flows, best of three runs. -
    ``ode_validation_sweep_s``: wall time of the full validation sweep on ``ode_threads`` threads.
    """
    scenario = mixed_flows(5.0)
    simulate_batch([mixed_flows(0.01)], threads=1)
    best = min(_seconds(lambda: simulate_batch([scenario], threads=1), 1) for _ in range(3))
    steps = len(scenario.flows) * round(scenario.duration_s / (scenario.step_ms * 1e-3))
    sweep = load_sweep("validation")
    start = time.perf_counter()
    sweep.run()
    return {
        "ode_10_mixed_flow_steps_per_s": steps / best,
        "ode_validation_sweep_s": time.perf_counter() - start,
        "ode_threads": float(most_threads()),
    }


RATE_MBPS, RTT_S, BUFFER_BDP = 1000.0, 0.04, 1.0
MIXED = ("cubic", "bbr1", "copa", "reno")
# name -> senders, simulated seconds
PACKET_CASES: dict[str, tuple[tuple[str, ...], float]] = {
    "packet_reno_1_per_s": (("reno",), 30.0),
    "packet_mixed_8_per_s": (MIXED * 2, 20.0),
    "packet_64_per_s": (MIXED * 16, 10.0),
}
PACKET_REPETITIONS = 5


def measure_packet_engine() -> dict[str, float]:
    """Return packets per second per case: the median run, and the best under ``..._best``."""
    out: dict[str, float] = {}
    for name, (specs, seconds) in PACKET_CASES.items():
        senders = [make_sender(spec) for spec in specs]
        packets_per_s(specs, senders, 0.1)
        out |= _median_and_best(name, [packets_per_s(specs, senders, seconds) for _ in range(PACKET_REPETITIONS)])
    return out


def packets_per_s(specs: tuple[str, ...], senders: list[Sender], seconds: float) -> float:
    rate_Bps = RATE_MBPS * MBPS_IN_BPS
    network = NetworkSpec(
        links=(LinkSpec(rate_Bps=rate_Bps, buffer_bytes=BUFFER_BDP * rate_Bps * RTT_S),),
        flows=tuple(FlowSpec(sender=spec, rtt_s=RTT_S) for spec in specs),
    )
    engine = PacketEngine(network, senders, duration_s=seconds)
    begin = time.perf_counter()
    engine.advance(seconds)
    took_s = time.perf_counter() - begin
    return float(engine.link("served_bytes")[0]) / network.mss_bytes / took_s


PACKET_N_ENVS, RTT_MS, PACKET_BUFFER_BDP = 64, 40.0, 1.0
PACKET_N_ACTIONS, LARGEST_ACTION = 16, 0.1
CALLS = 4  # steps per piece of work
# name -> controlled flows, link rate in Mbit/s
PACKET_ENVIRONMENT_CASES: dict[str, tuple[int, float]] = {
    "packet_env_64x1_12mbps": (1, 12.0),
    "packet_env_64x1_100mbps": (1, 100.0),
    "packet_env_64x4_48mbps": (4, 48.0),
}


def build_packet_environments(flows: int, rate_mbps: float) -> Any:
    """Return the batch that is timed, past its start."""
    from ccenv.envs.packet.sender import PacketVectorEnv

    scenario = {
        "duration_s": 1e6,
        "links": [{"rate_mbps": rate_mbps, "buffer_bdp": PACKET_BUFFER_BDP}],
        "flows": [{"sender": "external", "rtt_ms": RTT_MS} for _ in range(flows)],
    }
    env = PacketVectorEnv(
        num_envs=PACKET_N_ENVS, scenario=scenario, signals="aurora", action="rate_delta",
        clock={"every": "rtt", "common": True}, start_rate_share=(1.0 / flows, 1.0 / flows), episode_decisions=1_000_000,
    )  # fmt: skip
    env.reset(seed=0)
    return env


def measure_packet_envs() -> dict[str, float]:
    """Return flow decisions per second and per case, median and best, and the memory of a network at 100 Mbit/s."""
    generator = np.random.Generator(np.random.Philox(0))
    out: dict[str, float] = {}
    for name, (flows, rate_mbps) in PACKET_ENVIRONMENT_CASES.items():
        env = build_packet_environments(flows, rate_mbps)
        half = generator.uniform(-LARGEST_ACTION, LARGEST_ACTION, (PACKET_N_ACTIONS // 2, PACKET_N_ENVS, flows)).astype(
            np.float32
        )
        actions = itertools.cycle(np.concatenate([half, -half]))

        def work(env: Any = env, actions: Iterator[np.ndarray] = actions) -> None:
            for _ in range(CALLS):
                env.step(next(actions))

        out |= rates(f"{name}_decisions_per_s", work, CALLS * PACKET_N_ENVS * flows)
        if name == "packet_env_64x1_100mbps":
            out["packet_env_100mbps_bytes_per_env"] = round(env.unwrapped.task.core.bytes_per_env)
        env.close()
    return out


FIRST_STEP = """
import gymnasium, ccenv
env = gymnasium.make("ccenv/Sender-v0")
env.reset(seed=0)
env.step(env.action_space.sample())
"""
CURVE = """
from ccenv.benchmarks.speed import build
build(1, 1, 1, None)
"""
PACKET = """
from ccenv.agents import make_sender
from ccenv.benchmarks.speed import packets_per_s
packets_per_s(("reno",), [make_sender("reno")], 0.1)
"""
FLUID = """
from ccenv.engine.fluid.scenario import Flow, Link, Scenario
from ccenv.engine.fluid.simulate import simulate_batch
flows = tuple(Flow(cca=cca, access_delay_ms=5.0) for cca in ("bbr1", "bbr2", "reno", "cubic"))
link = Link(rate_mbps=100, delay_ms=10, buffer_bdp=2)
simulate_batch([Scenario(title="four", links=(link,), flows=flows, duration_s=0.01, measure_from_s=0.0)], threads=1)
"""
# keys of the record -> what a process with an empty and with a filled kernel cache runs
STARTS = {"start": FIRST_STEP, "curve_engine": CURVE, "packet_engine": PACKET, "fluid_engine": FLUID}
_CCENV = "from ccenv.cli.main import main; raise SystemExit(main({}))"
COMMANDS = {
    "import_ccenv": "import ccenv",
    "help": _CCENV.format(["--help"]),
    "list_agents": _CCENV.format(["list", "agents"]),
    "show_cubic": _CCENV.format(["show", "cubic"]),
    "verify_property": _CCENV.format(["verify", "property", "cc_qdel", "--property", "invariant", "--T", "7", "--fresh"]),
}
REPETITIONS_START = 5
TESTS = FilePath(".pytest_cache") / "v" / "ccenv" / "tests"


class Seconds(NamedTuple):
    """What a process took: wall and CPU seconds."""

    wall: float
    cpu: float


def measure_start() -> dict[str, float]:
    """Return wall and CPU seconds of STARTS, cold and warm, and of COMMANDS (medians), and those of the last whole test run here.

    Keys: ``cold_..._s``, ``cold_..._cpu_s``, ``warm_..._s``; ``..._s`` of each command; ``tests_cpu_s``, ``tests_wall_s`` and
    ``tests`` where the test command has passed in this folder.
    """
    out: dict[str, float] = {}
    for name, code in STARTS.items():
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            cold = _start_seconds(code, environment)
            warm = statistics.median(_start_seconds(code, environment).wall for _ in range(REPETITIONS_START))
        out |= {f"cold_{name}_s": cold.wall, f"cold_{name}_cpu_s": cold.cpu, f"warm_{name}_s": warm}
    for name, code in COMMANDS.items():
        out[f"{name}_s"] = statistics.median(_start_seconds(code, dict(os.environ)).wall for _ in range(REPETITIONS_START))
    if TESTS.is_file():
        run = json.loads(TESTS.read_text(encoding="utf-8"))
        out |= {"tests": run["tests"], "tests_cpu_s": run["cpu_s"], "tests_wall_s": run["wall_s"]}
    return {name: round(value, 3) for name, value in out.items()}


def _start_seconds(code: str, environment: dict[str, str]) -> Seconds:
    begin, before = time.perf_counter(), os.times()
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    wall_s, after = time.perf_counter() - begin, os.times()
    if run.returncode != 0:
        reason = (run.stderr.strip().splitlines() or ["no output"])[-1]
        raise CcenvError(f"a fresh process failed: {reason}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(wall_s, cpu_s)


RECORDS = FilePath("benchmarks") / "speed"


def measure(parts: Collection[str] = ()) -> dict[str, Any]:
    """Measure engine, environments, start, and some of PARTS; about two minutes without them, most of it the cold start.

    The dictionary is flat: rates in units per second (medians, best runs under ``..._best``), seconds, bytes, machine and
    versions. Raises MissingExtraError without Stable-Baselines3.
    """
    require_extra("stable_baselines3", "train")
    result: dict[str, Any] = {**measure_engine(), **measure_environments(), **measure_start()}
    for part, measured in PARTS.items():
        if part in parts:
            result |= measured()
    hardware = machine()
    result["machine"] = f"{hardware['processor']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB, {hardware['system']}"
    result["measured_at"] = now()
    return result | {f"version_{name.replace('-', '_')}": version for name, version in versions().items()}


def save_record(result: dict[str, Any]) -> FilePath:
    """Write a measurement into the checkout's benchmarks/speed and return the file.

    Raises:
        InputError: outside a checkout.
    """
    if not RECORDS.is_dir():
        raise InputError(f"no folder {RECORDS} here: records are saved from the root of a checkout")
    slug = re.sub(r"[^a-z0-9]+", "-", str(result["machine"]).partition(",")[0].lower()).strip("-")
    file = RECORDS / f"{str(result['measured_at'])[:10]}-{slug}.json"
    write_atomic(file, json_bytes(result))
    return file


QUERIES = (
    "g1_t4", "g1_t5", "g1_t11", "g2", "g3", "g4_small_buffer", "g5_infinite", "g5_small", "g5_arbitrary", "g6", "g7_large",
)  # fmt: skip
PLAIN = "g1_t5"


def measure_synthesis(queries: Sequence[str] = QUERIES, plain: str = PLAIN) -> dict[str, float]:
    """Return CPU seconds from the YAML of each query to its solutions, and the number of keys; compilation and import excluded.

    The pipeline has one worker; the query ``plain`` also runs by generator and verifier alone, for comparison. Raises CcenvError
    if a query is not answered within its limits.
    """
    warm_up()
    out: dict[str, float] = {}
    for name in queries:
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            run = start(load_query(name), FilePath(folder))
            solve_query(run)
            data = result(run)
        if not data["complete"]:
            raise CcenvError(f"query {name!r} was not answered within its limits")
        out |= {f"synth_{name}_cpu_s": round(time.process_time() - begin, 3), f"synth_{name}_keys": data["keys"]}
    begin = time.process_time()
    query = load_query(plain)
    data = cegis(query, query.limits.budget_s)
    if not data["complete"]:
        raise CcenvError(f"query {plain!r} was not answered by plain CEGIS within its limits")
    out[f"synth_plain_{plain}_cpu_s"] = round(time.process_time() - begin, 3)
    return out | {f"synth_plain_{plain}_keys": data["keys"], f"synth_plain_{plain}_iterations": data["iterations"]}


CONFIG, FAST = "quick_sender", "fast_sender"
ITERATIONS = 12
TRAINING_N_ENVS, STEPS_PER_RTT, CALL_STEPS = 128, 4, 64
WIDTHS = (16, 64)


def measure_training() -> dict[str, float]:
    """Return environment-steps per second of PPO (sampling and updates together), and flow-steps per second of the kernel.

    PPO is measured on one recipe with Stable-Baselines3's own rollouts and with those of the kernel, and on the recipe that is
    made for the kernel (FAST). The kernel plays a policy against a network policy, both with two hidden layers of 16 or 64.
    """
    out: dict[str, float] = {}
    for key, config, rollouts in (
        ("train_ppo_steps_per_s", CONFIG, "python"),
        ("train_ppo_same_recipe_kernel_rollouts_steps_per_s", CONFIG, "kernel"),
        ("train_ppo_kernel_rollouts_steps_per_s", FAST, "kernel"),
    ):
        out |= _ppo(key, config, rollouts)
    for width in WIDTHS:
        advance = partial(_engine(width).advance, CALL_STEPS)
        out |= rates(f"curve_mlp_{width}_flow_steps_per_s", advance, TRAINING_N_ENVS * CALL_STEPS)
    return out


def _ppo(name: str, config_name: str, rollouts: str) -> dict[str, float]:
    """Return median and best steps per second over the iterations of a run after its first one."""
    from ccenv.training.learner import Learner

    config = load_config(config_name, ["evaluation.every_steps=0", f"ppo.rollouts={rollouts}"])
    learner = Learner(config.model_copy(update={"total_steps": ITERATIONS * config.iteration_steps}))
    times_s = [time.perf_counter()]
    learner.run(lambda state, progress: times_s.append(time.perf_counter()) or False)  # type: ignore[func-returns-value]
    return _median_and_best(name, (config.iteration_steps / np.diff(times_s)[1:]).tolist())


def _engine(width: int) -> CurveEngine:
    rng = np.random.Generator(np.random.Philox(0))

    def layers(n_in: int, n_out: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        sizes = (n_in, width, width, n_out)
        weights = tuple(rng.normal(0, 0.3, pair) for pair in pairwise(sizes))
        return weights, tuple(np.zeros(n) for n in sizes[1:])

    sender = PolicySender("speed", *layers(N_OBSERVATION, 1), "tanh")
    network = MlpAdversary("speed", *layers(len(network_elements(1)), 2), "tanh", OBSERVATION_VERSION, (0, 2))
    path = make_path(link_rate_mbps=48, rtt_ms=40, jitter_ms=40, buffer_bdp=6)
    return CurveEngine([path] * TRAINING_N_ENVS, model="ccac", senders=[sender], adversary=network, steps_per_rtt=STEPS_PER_RTT)


PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "ode": measure_fluid,
    "packet": measure_packet_engine,
    "envs": lambda: duel() | shared() | measure_packet_envs(),
    "train": measure_training,
    "synth": measure_synthesis,
}
"""What is measured on demand."""
