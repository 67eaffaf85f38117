"""The shipped zoo: learned senders as weights with cards, and the belief programs distilled from them (docs/learning.md).

Each pair of files is a copy of ``policy.*`` of the run of the shipped config of that name; programs come from ``ccenv distill``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.learned import is_policy, load_family, load_policy, policy_notes
from ccenv.agents.learned.preferences import with_preference
from ccenv.agents.programs import load_program
from ccenv.agents.sender import PolicySender, ProgramSender, ShieldSender
from ccenv.base.registry import number

FOLDER = FilePath(__file__).parent

TEACHERS = {
    "learned_nominal_d4": "learned_nominal",
    "learned_robust_d4": "learned_robust",
    "learned_low_delay_d4": "learned_low_delay",
    "learned_nominal_u54": "learned_nominal",
    "learned_nominal_u70": "learned_nominal",
    "learned_nominal_u78": "learned_nominal",
}
"""Program -> the policy that it was distilled from."""


def build(name: str) -> PolicySender | ShieldSender | ProgramSender:
    weights = FOLDER / f"{name}.safetensors"
    if not weights.is_file():
        program = load_program(str(FOLDER / f"{name}.json"))
        return ProgramSender(program.name, program)
    loaded = load_policy(weights)
    return replace(loaded, name=name) if isinstance(loaded, ShieldSender) else loaded


def __getattr__(name: str) -> Callable[[], PolicySender | ShieldSender | ProgramSender]:
    """Return what builds the sender of this name: the targets of ``ccenv.agents.AGENTS`` without parameters."""
    if not (FOLDER / f"{name}.json").is_file():
        raise AttributeError(f"the zoo has no {name!r}")
    return partial(build, name)


def genet(curriculum: float = 1) -> Any:
    """Build the policy trained with the curriculum of [Genet]; ``curriculum=0``: the control, trained on the full ranges."""
    trained = number("genet", "curriculum", curriculum, low=0, high=1, whole=True)
    return build("genet" if trained else "genet_uniform")


def learned_everywhere(seed: float = 0) -> Any:
    """Build the policy for networks of every kind that training with this seed, 0 to 2, left."""
    trained = int(number("learned_everywhere", "seed", seed, low=0, high=2, whole=True))
    return build(f"learned_everywhere_{trained}" if trained else "learned_everywhere")


def mocc(throughput: float = 0.4, latency: float = 0.3, loss: float = 0.3) -> PolicySender:
    """Build the policy of one preference, in the manner of [Multi-objective]; the three weights add up to 1."""
    preference = {"throughput": throughput, "latency": latency, "loss": loss}
    weights = {name: number("mocc", name, weight, low=0, high=1) for name, weight in preference.items()}
    return with_preference(load_family(FOLDER / "mocc.safetensors"), weights).plain


def trained_on_scenes(spec: str) -> list[str] | None:
    """Return the attack scenarios that a sender (a spec for ``make_sender``) was trained or polished against; None: unknown."""
    from ccenv.agents import AGENTS

    name = spec.partition(":")[0]
    if name in AGENTS:
        policy = name if name in AGENTS.names("learned") else TEACHERS.get(name)
        return [] if policy is None else read_scenes(policy_notes(FOLDER / f"{policy}.safetensors"))
    return read_scenes(policy_notes(spec)) if is_policy(spec) else None


def read_scenes(notes: dict[str, Any]) -> list[str] | None:
    """Return the attack scenarios in the notes of a card; None if they do not describe the training."""
    config = notes.get("config")
    if not isinstance(config, dict):
        return None
    robust = config.get("robust")
    if not isinstance(robust, dict) or not robust.get("share"):
        return []
    paths = robust.get("paths")
    return [str(path) for path in paths] if isinstance(paths, list) else None
