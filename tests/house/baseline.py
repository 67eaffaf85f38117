"""What a move of files must not change, written to one file: run it before and after, the difference must be empty.

    python tests/house/baseline.py before.json     # then, after the moves, after.json; diff before.json after.json

It looks names up wherever they live, so that it runs on both sides of a move. About a minute once kernels are compiled.
"""

import hashlib
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import typer

import ccenv

MODELS = ("ideal", "cbr_delay", "ccac", "strong")
SENDERS = ("reno", "cubic", "copa", "bbr1", "bbr3", "vivace", "cc_qdel", "cc_probe_drain", "learned_nominal", "learned_fair")
ADVERSARIES = ("square", "hoard", "one_packet", "uniform")

SCENARIO = """name: baseline
duration_s: 5
links:
  - {{name: bottleneck, rate_mbps: 12, buffer_bdp: 1}}
flows:
  - {{name: first, sender: {sender}, rtt_ms: 40}}
  - {{name: second, sender: reno, rtt_ms: 40}}
"""


def all_modules() -> Iterator[Any]:
    """Import every module of the package."""
    for module in pkgutil.walk_packages(ccenv.__path__, "ccenv."):
        if not module.name.endswith(("__main__", ".worker")) and not {"templates", "adapters"} & set(module.name.split(".")):
            yield importlib.import_module(module.name)


def digest(*arrays: Any) -> str:
    """Return a hash of arrays bit for bit."""
    out = hashlib.sha256()
    for values in arrays:
        array = np.ascontiguousarray(values)
        out.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return out.hexdigest()[:16]


class Names:
    """Public names of the package, wherever they are defined."""

    def __init__(self) -> None:
        self.modules = list(all_modules())

    def __getattr__(self, name: str) -> Any:
        for module in self.modules:
            value = getattr(module, name, None)
            if value is not None:
                return value
        raise AttributeError(f"no module of ccenv defines {name}")

    def formats(self) -> list[str]:
        """Return name and version of every stored format."""
        values = [value for module in self.modules for value in vars(module).values() if type(value).__name__ == "Format"]
        return sorted({f"{value.name}/{value.version}" for value in values})


def commands() -> dict[str, list[str]]:
    """Return the options of every command."""
    from ccenv.cli.main import GROUPS, build_app

    options: dict[str, list[str]] = {}

    def walk(command: Any, path: str) -> None:
        options[path] = sorted(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts))
        for name, below in getattr(command, "commands", {}).items():
            walk(below, f"{path} {name}")

    for group in GROUPS:
        walk(typer.main.get_command(build_app(group.name)).commands[group.name], group.name)  # type: ignore[attr-defined]
    return options


def curve_runs(names: Names) -> Iterator[tuple[str, str]]:
    """Play senders on models and yield hashes of their curves and beliefs."""
    path = ccenv.make_path(link_rate_mbps=24, rtt_ms=40, jitter_ms=40, buffer_bdp=2)
    for number, sender in enumerate(SENDERS[:-1]):  # the last one goes by signals of the packet engine
        for model in MODELS:
            adversary = ccenv.make_adversary(ADVERSARIES[number % len(ADVERSARIES)] if model != "ideal" else "slowest")
            engine = ccenv.CurveEngine(
                [path], model=model, senders=[ccenv.make_sender(sender)], adversary=adversary, record=True, seed=number
            )
            engine.advance(60 * engine.steps_per_rtt)
            trace = engine.trace(0)
            yield (
                f"{sender} {model}",
                digest(trace.A, trace.L, trace.S, trace.G, *(trace.beliefs[k] for k in sorted(trace.beliefs))),
            )


def packet_runs() -> Iterator[tuple[str, str]]:
    """Play senders per packet and yield hashes of what each flow got."""
    for sender in SENDERS:
        text = SCENARIO.format(sender=sender)
        with TemporaryDirectory() as folder:
            file = Path(folder) / "baseline.yaml"
            file.write_text(text, encoding="utf-8")
            result = ccenv.simulate(str(file))
        yield sender, digest(*(result.flow_log[name] for name in sorted(result.flow_log.dtype.names)))


def baseline() -> dict[str, Any]:
    """Compute everything that is compared."""
    names = Names()
    senders = {name: names.sender_hash(ccenv.make_sender(name)) for name in names.AGENTS.names() if name != "contract"}
    adversaries = {name: names.adversary_hash(ccenv.make_adversary(name)) for name in names.ADVERSARIES.names()}
    return {
        "face": sorted(ccenv.__all__),
        "environments": sorted(key for key in gym.registry if str(key).startswith("ccenv/")),
        "formats": names.formats(),
        "senders": senders,
        "adversaries": adversaries,
        "commands": commands(),
        "curve": dict(curve_runs(names)),
        "packet": dict(packet_runs()),
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(baseline(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
