"""The shipped zoo: learned senders as weights with cards, and the belief programs distilled from them (docs/learning.md).

Each pair of files is ``policy.*`` of the run of the shipped config of that name, copied as it is; programs are those of
``ccenv distill``.

On which scenes attacks were part of the making of a sender: what its worst case there is worth.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from ccenv.agents.learned import is_policy, load_family, load_policy, policy_notes
from ccenv.agents.learned.preferences import with_preference
from ccenv.agents.programs import load_program
from ccenv.agents.sender import ContractSender, PolicySender, ProgramSender
from ccenv.base.errors import InputError
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


def policy(name: str) -> PolicySender:
    """Return a learned sender of the zoo."""
    loaded = load_policy(FOLDER / f"{name}.safetensors")
    if not isinstance(loaded, PolicySender):
        raise InputError(f"{name}: a policy inside a contract, where a policy is needed")
    return loaded


def program(name: str) -> ProgramSender:
    """Return a distilled sender of the zoo."""
    loaded = load_program(str(FOLDER / f"{name}.json"))
    return ProgramSender(loaded.name, loaded)


def inside_contract(name: str) -> ContractSender:
    """Return a learned sender of the zoo that chooses inside a contract."""
    loaded = load_policy(FOLDER / f"{name}.safetensors")
    if not isinstance(loaded, ContractSender):
        raise InputError(f"{name}: its card holds no contract")
    return replace(loaded, name=name)


def learned_contract_u80() -> ContractSender:
    """Build the policy that chooses inside a contract with 80 % utilisation proved."""
    return inside_contract("learned_contract_u80")


def learned_contract_u77_timeouts() -> ContractSender:
    """Build the policy that chooses inside a contract with 77 % utilisation proved with belief time-outs."""
    return inside_contract("learned_contract_u77_timeouts")


def learned_contract_u80_firm() -> ContractSender:
    """Build the policy inside a narrower contract, which attacks find less in."""
    return inside_contract("learned_contract_u80_firm")


def learned_robust_v2() -> ContractSender:
    """Build the policy that was trained on drawn paths under attack, inside a contract of its own."""
    return inside_contract("learned_robust_v2")


def learned_robust_v3() -> ContractSender:
    """Build the same policy in a contract with one more case: where D is known to be above Rm more is in flight."""
    return inside_contract("learned_robust_v3")


def learned_contract_u80_low_delay() -> ContractSender:
    """Build the policy that pays for delay inside the same contract."""
    return inside_contract("learned_contract_u80_low_delay")


def learned_nominal() -> PolicySender:
    """Build the sender with the best nominal score."""
    return policy("learned_nominal")


def learned_robust() -> PolicySender:
    """Build the sender that was trained against what attacked it."""
    return policy("learned_robust")


def learned_low_delay() -> PolicySender:
    """Build the sender that pays for delay."""
    return policy("learned_low_delay")


def learned_fair() -> PolicySender:
    """Build the sender that was trained in company and is told nothing."""
    return policy("learned_fair")


def aurora() -> PolicySender:
    """Build the policy that the recipe of [Aurora] gives."""
    return policy("aurora")


def orca() -> PolicySender:
    """Build the policy over CUBIC that the recipe of [Orca] gives."""
    return policy("orca")


def astraea() -> PolicySender:
    """Build the policy of several flows that the recipe of [Astraea] gives."""
    return policy("astraea")


def genet(curriculum: float = 1) -> PolicySender:
    """Build the policy that the curriculum of [Genet] gives.

    Args:
        curriculum: 1; with 0 the control, trained as long on the whole ranges.
    """
    trained = number("genet", "curriculum", curriculum, low=0, high=1, whole=True)
    return policy("genet" if trained else "genet_uniform")


def indigo() -> PolicySender:
    """Build the policy that imitates an oracle, in the manner of Indigo ([Pantheon])."""
    return policy("indigo")


def canopy() -> PolicySender:
    """Build the policy over CUBIC that was trained with a certificate, in the manner of [Canopy]."""
    return policy("canopy")


def mocc(throughput: float = 0.4, latency: float = 0.3, loss: float = 0.3) -> PolicySender:
    """Build the policy that sees a preference, in the manner of [Multi-objective], for one of them.

    Args:
        throughput: weight of the throughput; the three add up to 1.
        latency: weight of a short RTT.
        loss: weight of few losses.
    """
    given = {"throughput": throughput, "latency": latency, "loss": loss}
    weights = {name: number("mocc", name, weight, low=0, high=1) for name, weight in given.items()}
    return with_preference(load_family(FOLDER / "mocc.safetensors"), weights).plain


def learned_nominal_d4() -> ProgramSender:
    """Build the program that scores best, of depth 4."""
    return program("learned_nominal_d4")


def learned_robust_d4() -> ProgramSender:
    """Build the program distilled from the robust sender, polished for its worst case too."""
    return program("learned_robust_d4")


def learned_low_delay_d4() -> ProgramSender:
    """Build the program distilled from the sender that pays for delay, polished for that sender's own score."""
    return program("learned_low_delay_d4")


def learned_nominal_u54() -> ProgramSender:
    """Build the program with 54 % utilisation proved."""
    return program("learned_nominal_u54")


def learned_nominal_u70() -> ProgramSender:
    """Build the program with 70 % utilisation proved."""
    return program("learned_nominal_u70")


def learned_nominal_u78() -> ProgramSender:
    """Build the program with 78 % utilisation proved."""
    return program("learned_nominal_u78")


def trained_on_scenes(spec: str) -> list[str] | None:
    """Return the scenes of ``ccenv attack`` that a sender was trained or polished against; None: unknown.

    Args:
        spec: what ``ccenv.agents.make_sender`` takes.
    """
    from ccenv.agents import AGENTS

    name = spec.partition(":")[0]
    if name in AGENTS:
        policy = name if name in AGENTS.names("learned") else TEACHERS.get(name)
        return [] if policy is None else scenes_of(policy_notes(FOLDER / f"{policy}.safetensors"))
    return scenes_of(policy_notes(spec)) if is_policy(spec) else None


def scenes_of(notes: dict[str, Any]) -> list[str] | None:
    """Return the scenes that a policy's card names; None if it does not say how it was trained."""
    config = notes.get("config")
    if not isinstance(config, dict):
        return None
    robust = config.get("robust")
    if not isinstance(robust, dict) or not robust.get("share"):
        return []
    paths = robust.get("paths")
    return [str(path) for path in paths] if isinstance(paths, list) else None
