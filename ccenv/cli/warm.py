"""``ccenv doctor --warm``: the large kernels compiled now, side by side, instead of at their first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from ccenv.base.errors import CcenvError
from ccenv.base.workers import Workers


def _step(name: str) -> None:
    import gymnasium

    env = gymnasium.make(name)
    env.reset(seed=0)
    env.step(env.action_space.sample())


def _packet() -> None:
    _step("ccenv/Packet-v0")


def _curve() -> None:
    _step("ccenv/Sender-v0")


def _rollouts() -> None:
    from ccenv.training.config import load_config
    from ccenv.training.learner import Learner

    config = load_config("fast_sender", ["evaluation.every_steps=0"])
    Learner(config.model_copy(update={"total_steps": config.iteration_steps})).run(lambda state, progress: False)


def _emulator() -> None:
    from ccenv.live.run import warm_up

    warm_up()


def _fluid() -> None:
    from ccenv.benchmarks.speed_fluid import mixed_flows
    from ccenv.engine.fluid.simulate import simulate, simulate_batch

    simulate_batch([mixed_flows(0.01)], threads=1)
    simulate(mixed_flows(0.01))


def _synthesis() -> None:
    from ccenv.proofs.synthesis.run import warm_up

    warm_up()


# The longest first; what needs an extra that is missing is left out.
PARTS: dict[str, Callable[[], None]] = {
    "packet engine": _packet,
    "curve engine": _curve,
    "emulator": _emulator,
    "rollouts": _rollouts,
    "fluid engine": _fluid,
    "synthesis": _synthesis,
}


def _warm(part: str) -> str:
    try:
        PARTS[part]()
    except CcenvError as error:
        return str(error)
    return ""


def warm_all() -> Iterator[tuple[str, str]]:
    """Compile in as many processes as there are cores; yield each part and why it was left out, if it was."""
    with Workers(min(len(os.sched_getaffinity(0)), len(PARTS))) as workers:
        yield from zip(PARTS, workers.map(_warm, PARTS), strict=True)
