"""``ccenv doctor``: what works on this machine, what is missing, and how to fix it; ``--warm`` compiles the large kernels."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Annotated

import typer
from packaging.requirements import Requirement

from ccenv.base.errors import CcenvError
from ccenv.base.kernels.cache import cache_folder
from ccenv.base.registry import load_target
from ccenv.base.workers import Workers
from ccenv.cli.options import JsonOption
from ccenv.cli.output import print_json, print_table, print_text

OK, MISSING, BROKEN = "ok", "missing", "broken"
EXIT_BROKEN = 1


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: str  # `"ok"`, `"missing"` (optional, ccenv works without) or `"broken"`
    found: str  # version, path or value found
    advice: str = ""  # how to fix it; empty if nothing is wrong


def command(
    warm: Annotated[bool, typer.Option("--warm", help="First compile the large kernels, side by side.")] = False,
    json: JsonOption = False,
) -> int:
    """Tell what works on this machine: Python, dependencies, extras, kernel cache, solver. Exit code 1 if ccenv cannot work.

    Example: ccenv doctor --json
    """
    compiled = list(_compile_kernels()) if warm else []
    checks = [*all_checks(), *compiled]
    broken = [check for check in checks if check.status == BROKEN]
    if json:
        print_json({"ok": not broken, "checks": checks})
    else:
        print_table("doctor", ["check", "status", "found", "advice"], [(c.name, c.status, c.found, c.advice) for c in checks])
        missing = sum(check.status == MISSING for check in checks)
        print_text(f"{len(broken)} broken, {missing} optional missing" if broken or missing else "all is well")
    return EXIT_BROKEN if broken else 0


def all_checks() -> Iterator[Check]:
    """Make all checks, in the order of the report."""
    yield _check_python()
    yield Check("platform", OK, f"{platform.platform()} ({platform.machine()})")
    yield Check("cores", OK, str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    yield _check_memory()
    yield from _check_packages()
    yield _check_kernel_cache()
    yield _check_solver()
    yield from _check_live()


def _check_python() -> Check:
    supported = sys.version_info >= (3, 11)
    return Check(
        "python", OK if supported else BROKEN, platform.python_version(), "" if supported else "ccenv needs Python 3.11 or newer"
    )


def _check_memory() -> Check:
    try:
        gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (AttributeError, ValueError, OSError):
        return Check("memory", OK, "unknown on this system")
    return Check("memory", OK, f"{gib:.1f} GiB", "" if gib >= 2 else "training wants 2 GiB")


def _check_packages() -> Iterator[Check]:
    """Compare installed versions with ccenv's metadata: each core dependency, then each extra as a whole."""
    try:
        about = metadata.metadata("ccenv")
        requirements = [Requirement(text) for text in metadata.requires("ccenv") or []]
    except metadata.PackageNotFoundError:
        yield Check("ccenv", BROKEN, "not installed", "pip install -e . in the checkout")
        return
    yield Check("ccenv", OK, about["Version"])
    core = [r for r in requirements if r.marker is None or r.marker.evaluate({"extra": ""})]
    for requirement in core:
        version, wrong = _check_version(requirement)
        yield Check(requirement.name, BROKEN if wrong else OK, version, f"pip install '{requirement}'" if wrong else "")
    for extra in about.get_all("Provides-Extra") or []:
        extra_requirements = [
            r for r in requirements if r not in core and r.name != "ccenv" and r.marker and r.marker.evaluate({"extra": extra})
        ]
        if not extra_requirements:
            continue
        state = [(r.name, *_check_version(r)) for r in extra_requirements]
        wrong = any(bad for _, _, bad in state)
        versions = ", ".join(f"{name} {version}" for name, version, _ in state)
        yield Check(f"extra [{extra}]", MISSING if wrong else OK, versions, f"pip install 'ccenv[{extra}]'" if wrong else "")


def _check_version(requirement: Requirement) -> tuple[str, bool]:
    """Return the installed version of a requirement, and whether it is missing or wrong."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return "-", True
    return version, not requirement.specifier.contains(version, prereleases=True)


def _check_kernel_cache() -> Check:
    """Check the folder of compiled kernels, without which every start compiles again."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check("kernel cache", BROKEN, f"{folder}: {error.strerror}", "set NUMBA_CACHE_DIR to a folder that you can write")
    mib = sum(file.stat().st_size for file in folder.glob("*/*")) / 2**20
    return Check("kernel cache", OK, f"{folder}: {mib:.0f} MiB")


def _check_solver() -> Check:
    """Ask the solver a query with a known answer."""
    try:
        import z3
    except ImportError:
        return Check("solver z3", MISSING, "-", "pip install 'ccenv[verify]'")
    x = z3.Real("x")
    solver = z3.Solver()
    solver.add(x > 0, 2 * x < 0)
    answer = str(solver.check())
    description = f"{z3.get_version_string()}: 0 < x and 2x < 0 is {answer}"
    return (
        Check("solver z3", OK, description)
        if answer == "unsat"
        else Check("solver z3", BROKEN, description, "reinstall z3-solver")
    )


def _check_live() -> Iterator[Check]:
    """Check the requirements of live runs, in real and in virtual time, and of loading exported programs."""
    from ccenv.live import live_needs
    from ccenv.live.virtual.run import virtual_needs

    for need in [*live_needs(bpf=True), *virtual_needs()]:
        yield Check(need.name, OK if need.ok else MISSING, need.found, need.advice)


def _step(name: str) -> None:
    import gymnasium

    env = gymnasium.make(name)
    env.reset(seed=0)
    env.step(env.action_space.sample())


def _warm_rollouts() -> None:
    from ccenv.training.config import load_config
    from ccenv.training.learner import Learner

    config = load_config("fast_sender", ["evaluation.every_steps=0"])
    Learner(config.model_copy(update={"total_steps": config.iteration_steps})).run(lambda state, progress: False)

    from ccenv.envs.clients.sb3 import make_sb3
    from ccenv.training.ppo.ppo import KernelPPO

    measured = {"signals": "aurora", "action": "rate_delta", "reward": "aurora"}
    for environment, settings in (("ccenv/Sender-v0", measured), ("ccenv/Packet-v0", {})):
        KernelPPO(make_sb3(environment, 2, **settings), n_steps=2, batch_size=4).learn(4)  # type: ignore[arg-type]


def _warm_fluid() -> None:
    from ccenv.benchmarks.speed import mixed_flows
    from ccenv.engine.fluid.simulate import simulate, simulate_batch

    simulate_batch([mixed_flows(0.01)], threads=1)
    simulate(mixed_flows(0.01))


def _call(target: str) -> None:
    load_target(target)()


# The longest first; parts that need a missing extra are skipped.
PARTS: dict[str, Callable[[], None]] = {
    "packet engine": partial(_step, "ccenv/Packet-v0"),
    "curve engine": partial(_step, "ccenv/Sender-v0"),
    "emulator": partial(_call, "ccenv.live.run:warm_up"),
    "rollouts": _warm_rollouts,
    "fluid engine": _warm_fluid,
    "synthesis": partial(_call, "ccenv.proofs.synthesis.run:warm_up"),
}


def _warm_part(part: str) -> str:
    try:
        PARTS[part]()
    except CcenvError as error:
        return str(error)
    return ""


def _compile_kernels() -> Iterator[Check]:
    """Compile on all cores; tell of each part the reason why it was skipped, if any."""
    with Workers(min(len(os.sched_getaffinity(0)), len(PARTS))) as workers:
        for part, reason in zip(PARTS, workers.map(_warm_part, PARTS), strict=True):
            yield Check(f"kernels: {part}", MISSING if reason else OK, reason or "compiled")
