"""The shipped zoo: learned senders as weights with cards, and the belief programs distilled from them (docs/learning.md).

Each pair of files is a copy of ``policy.*`` of the run of the shipped config of that name; programs come from ``ccenv distill``.
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
    """Build the policy inside a narrower contract, which is harder to attack."""
    return inside_contract("learned_contract_u80_firm")


def learned_robust_v2() -> ContractSender:
    """Build the policy that was trained on sampled paths under attack, inside its own contract."""
    return inside_contract("learned_robust_v2")


def learned_robust_v3() -> ContractSender:
    """Build the same policy in a contract with one more case: more data in flight when D is known to exceed Rm."""
    return inside_contract("learned_robust_v3")


def learned_contract_u80_low_delay() -> ContractSender:
    """Build the policy inside the same contract whose reward penalises delay."""
    return inside_contract("learned_contract_u80_low_delay")


def learned_nominal() -> PolicySender:
    """Build the sender with the best nominal score."""
    return policy("learned_nominal")


def learned_robust() -> PolicySender:
    """Build the sender that was trained against its attacks."""
    return policy("learned_robust")


def learned_low_delay() -> PolicySender:
    """Build the sender whose reward penalises delay."""
    return policy("learned_low_delay")


def learned_fair() -> PolicySender:
    """Build the sender that was trained against other senders, without oracle knowledge."""
    return policy("learned_fair")


def aurora() -> PolicySender:
    """Build the policy trained by the recipe of [Aurora]."""
    return policy("aurora")


def orca() -> PolicySender:
    """Build the policy over CUBIC trained by the recipe of [Orca]."""
    return policy("orca")


def astraea() -> PolicySender:
    """Build the policy of several flows trained by the recipe of [Astraea]."""
    return policy("astraea")


def genet(curriculum: float = 1) -> PolicySender:
    """Build the policy trained with the curriculum of [Genet]; ``curriculum=0``: the control, trained on the full ranges."""
    trained = number("genet", "curriculum", curriculum, low=0, high=1, whole=True)
    return policy("genet" if trained else "genet_uniform")


def indigo() -> PolicySender:
    """Build the policy that imitates an oracle, in the manner of Indigo ([Pantheon])."""
    return policy("indigo")


def canopy() -> PolicySender:
    """Build the policy over CUBIC that was trained with a certificate, in the manner of [Canopy]."""
    return policy("canopy")


def mocc(throughput: float = 0.4, latency: float = 0.3, loss: float = 0.3) -> PolicySender:
    """Build the policy of one preference, in the manner of [Multi-objective]; the three weights add up to 1."""
    preference = {"throughput": throughput, "latency": latency, "loss": loss}
    weights = {name: number("mocc", name, weight, low=0, high=1) for name, weight in preference.items()}
    return with_preference(load_family(FOLDER / "mocc.safetensors"), weights).plain


def learned_nominal_d4() -> ProgramSender:
    """Build the best-scoring program of depth 4."""
    return program("learned_nominal_d4")


def learned_robust_d4() -> ProgramSender:
    """Build the program distilled from the robust sender, also polished for its worst case."""
    return program("learned_robust_d4")


def learned_low_delay_d4() -> ProgramSender:
    """Build the program distilled from the low-delay sender, polished for that sender's score."""
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
