"""Network adversaries: scripted, recorded, learned. One registry, one file per adversary."""

from __future__ import annotations

from ccenv.base.registry import Registry, build
from ccenv.network.adversary import Adversary

ADVERSARIES = Registry("adversary")

ADVERSARIES.add(
    "benign",
    "ccenv.adversaries.scripted.benign:adversary",
    tags=("scripted",),
    summary="delivers at once: every model behaves as the ideal link",
    aliases=("kind",),
)
for _name, _file, _summary in (
    ("slowest", "slowest", "holds every byte as long as the law allows (parameters waste, rate, loss)"),
    ("uniform", "uniform", "independent uniform moves in every step"),
    ("batch", "batch", "random ACK aggregation of [CCmatic] App. H"),
    ("periodic", "periodic", "delivers at multiples of an interval (parameter interval_ms, default D)"),
    ("square", "square", "alternates full and slowest service (parameters period_rtts, duty, ...)"),
    ("hoard", "hoard", "keeps tokens and releases bursts, for ccac (parameters period_rtts, hold)"),
    ("one_packet", "one_packet", "one early delivery, then constant extra delay (parameters at_ms, every_ms, flow)"),
):
    ADVERSARIES.add(_name, f"ccenv.adversaries.scripted.{_file}:adversary", tags=("scripted",), summary=_summary)

for _name, _summary in (
    ("network_drain", "policy by PPO against cc_probe_drain on ccac, one flow"),
    ("network_nominal", "policy by PPO against learned_nominal on ccac, one flow"),
):
    ADVERSARIES.add(_name, f"ccenv.adversaries.learned:{_name}", tags=("learned",), summary=_summary)


def make_adversary(spec: str) -> Adversary:
    """Build an adversary.

    Raises UnknownNameError if neither an adversary nor a file has this name; InputError if a parameter is unknown or out of
    range, or a file is damaged.

    Args:
        spec: a registered name with optional parameters, e.g. ``"square:period_rtts=4,duty=0.25"``, or the files of a learned
            adversary (``.safetensors``, or the folder of the pair).
    """
    if spec.partition(":")[0] not in ADVERSARIES:
        from ccenv.adversaries.learned import is_adversary, load_adversary

        if is_adversary(spec):
            return load_adversary(spec)
    adversary: Adversary = build(ADVERSARIES, spec)
    return adversary
