"""The suite ``live-worst-case``: stored attacks against senders of the kernel and exported programs; control runs."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.errors import unknown_name
from ccenv.base.files import Format, hash_value
from ccenv.base.provenance import code_hash, machine, now, versions
from ccenv.live.attacks import moves_against, play_attack
from ccenv.live.scenario import KERNEL, LiveScenario, read_live_scenario

SUITE, VERSION = "live-worst-case", 1
SENDERS = (f"{KERNEL}reno", f"{KERNEL}cubic", f"{KERNEL}bbr", "cc_probe_drain", "cc_qdel", "learned_robust_d4")
FORMAT = Format("ccenv-live-record", 1, "a record of live runs", older="ccenv bench run live-worst-case runs it again")
_ROW_KEYS = (
    "sender", "found_against", "found_by", "model", "link_rate_mbps", "rtt_ms", "jitter_ms", "buffer_bdp", "calm", "live",
    "simulated", "valid", "why_not_valid", "release_error_us",
    "tries",
)  # fmt: skip


def run_suite(
    senders: Sequence[str] = SENDERS,
    *,
    play: Callable[..., dict[str, Any]] = play_attack,
    told: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Play the shipped attacks one after the other and return the record; ``told`` is called with each sender before its runs.

    Raises UnknownNameError for a sender that the suite does not have.
    """
    rows = []
    for sender in senders:
        if sender not in SENDERS:
            raise unknown_name("sender of the suite", sender, SENDERS)
        if told is not None:
            told(sender)
        file = moves_against(sender)
        data = play(sender, file)
        rows.append({**{name: data[name] for name in _ROW_KEYS}, "moves_sha256": _hash(file)})
    return {
        "suite": SUITE,
        "suite_version": VERSION,
        "suite_sha256": hash_value({sender: _hash(moves_against(sender)) for sender in SENDERS}),
        "made": now(),
        "machine": machine(),
        "kernel": platform.release(),
        "versions": versions(),
        "code_sha256": code_hash(play_attack),
        "rows": rows,
    }


def _hash(file: FilePath) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def shipped_record() -> dict[str, Any]:
    """Return the shipped record. Raises InputError if it is damaged."""
    return FORMAT.read(FilePath(str(resources.files("ccenv.live").joinpath("records", f"{SUITE}.json"))))


def control_scenarios(scenario: LiveScenario) -> list[tuple[str, LiveScenario]]:
    """Return the control runs of a scenario by name: without jitter, and for two flows with swapped senders."""
    data = scenario.model_dump()
    out = [
        ("without jitter", _change_scenario(data, model="cbr_delay", flows=[{**flow, "jitter": {}} for flow in data["flows"]]))
    ]
    if len(scenario.flows) == 2:
        first, second = data["flows"]
        keys = ("name", "sender")
        swapped = [{**first, **{key: second[key] for key in keys}}, {**second, **{key: first[key] for key in keys}}]
        out.append(("roles swapped", _change_scenario(data, flows=swapped)))
    return out


def _change_scenario(data: dict[str, Any], **new: Any) -> LiveScenario:
    return read_live_scenario({**data, **new}, data["name"])
