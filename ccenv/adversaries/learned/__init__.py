"""Learned adversaries on disk: adversary.safetensors and adversary.json (``ccenv.agents.learned.weights``), and the shipped ones.

Shipped adversaries are copies of ``adversary.*`` of the runs of the shipped configs of these names.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

from pydantic import Field

from ccenv.agents.learned.weights import MAX_CARD_BYTES, Card, LearnedKind
from ccenv.base.files import Format
from ccenv.base.foreign import JsonRules, is_file, is_folder
from ccenv.network.adversary import MlpAdversary


class AdversaryCard(Card):
    """The card of a policy over the observation of ``ccenv/Network-v0``; the engine checks whether it fits a path."""

    observation_version: int = Field(ge=1, strict=True)  # of the observation that it reads
    columns: tuple[int, ...] = Field(min_length=1, max_length=130)  # the moves that it makes (`MlpAdversary`)
    decision_steps: int = Field(ge=0, strict=True)  # engine steps for which moves are kept; 0: one smallest Rm
    episode_rtts: int = Field(ge=1, strict=True)  # length of the training episodes
    levels: int = Field(default=0, ge=0, strict=True)  # values of each move; 0: continuous moves


def _describe(adversary: MlpAdversary, layers: list[int]) -> dict[str, Any]:
    about = {name: getattr(adversary, name) for name in ("name", "activation", "observation_version")}
    fields = ("columns", "decision_steps", "episode_rtts", "levels")
    return {**about, "layers": layers, **{name: getattr(adversary, name) for name in fields}}


NETWORKS = LearnedKind(
    "adversary",
    Format("ccenv-adversary", 1, "the card of an adversary", rules=JsonRules(max_bytes=MAX_CARD_BYTES), indent=2),
    AdversaryCard,
    _describe,
)


def save_adversary(path: FilePath | str, adversary: MlpAdversary, notes: dict[str, Any] | None = None) -> None:
    """Write an adversary as a pair of files in float64, to a folder or the path of the pair.

    Raises InputError if the adversary could not be read back or the notes are not JSON.
    """
    NETWORKS.save(path, adversary, notes)


def load_adversary(path: FilePath | str) -> MlpAdversary:
    """Read an adversary from a folder or a pair of files. Raises InputError if a file is missing, damaged or foreign."""
    card, network = NETWORKS.load(path)
    return MlpAdversary(
        card.name,
        network.weights,
        network.biases,
        card.activation,
        card.observation_version,
        card.columns,
        card.decision_steps,
        card.episode_rtts,
        card.levels,
    )


def is_adversary(path: FilePath | str) -> bool:
    """Tell whether a path names an adversary's pair of files or a folder that holds one."""
    file = FilePath(path)
    return file.suffix == ".safetensors" or (is_folder(file) and is_file(NETWORKS.files(file)[1]))


FOLDER = FilePath(__file__).parent / "zoo"


def network_drain() -> MlpAdversary:
    return load_adversary(FOLDER / "network_drain.safetensors")


def network_nominal() -> MlpAdversary:
    return load_adversary(FOLDER / "network_nominal.safetensors")
