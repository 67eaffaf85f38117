"""Speed of the fluid kernels."""

from __future__ import annotations

import time

from ccenv.engine.fluid.files import load_sweep
from ccenv.engine.fluid.scenario import Flow, Link, Scenario
from ccenv.engine.fluid.simulate import simulate_batch
from ccenv.base.kernels.threads import most_threads

_MIX = ("bbr1", "bbr1", "bbr1", "bbr2", "bbr2", "bbr2", "reno", "reno", "cubic", "cubic")


def mixed_flows(duration_s: float) -> Scenario:
    """Return the scenario that is timed: ten mixed flows on 100 Mbit/s, 2 BDP of drop-tail buffer, step 0.05 ms."""
    flows = tuple(Flow(cca=cca, access_delay_ms=5.0 + 0.5 * i) for i, cca in enumerate(_MIX))
    link = Link(rate_mbps=100, delay_ms=10, buffer_bdp=2)
    return Scenario(
        title="ten mixed flows", links=(link,), flows=flows, params="artefact", duration_s=duration_s, measure_from_s=0.0
    )


def measure() -> dict[str, float]:
    """Time the kernels, compiled beforehand.

    Returns:
        `ode_10_mixed_flow_steps_per_s`: flow-steps per second of one thread, ten mixed flows, best of three runs.
        `ode_validation_sweep_s`: wall time of the full validation sweep on all threads, s.
        `ode_threads`: how many threads that was.
    """
    scenario = mixed_flows(5.0)
    simulate_batch([mixed_flows(0.01)], threads=1)
    best = min(_seconds(scenario) for _ in range(3))
    steps = len(scenario.flows) * round(scenario.duration_s / (scenario.step_ms * 1e-3))
    sweep = load_sweep("validation")
    start = time.perf_counter()
    sweep.run()
    return {
        "ode_10_mixed_flow_steps_per_s": steps / best,
        "ode_validation_sweep_s": time.perf_counter() - start,
        "ode_threads": float(most_threads()),
    }


def _seconds(scenario: Scenario) -> float:
    start = time.perf_counter()
    simulate_batch([scenario], threads=1)
    return time.perf_counter() - start
