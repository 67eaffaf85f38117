"""The shipped learned adversaries: weights with cards, ``adversary.*`` of the runs of the shipped configs of these names."""

from __future__ import annotations

from pathlib import Path as FilePath

from ccenv.adversaries.learned import load_adversary
from ccenv.network.adversary import MlpAdversary

FOLDER = FilePath(__file__).parent / "zoo"


def network_drain() -> MlpAdversary:
    """Build the network that learned against cc_probe_drain."""
    return load_adversary(FOLDER / "network_drain.safetensors")


def network_nominal() -> MlpAdversary:
    """Build the network that learned against learned_nominal."""
    return load_adversary(FOLDER / "network_nominal.safetensors")
