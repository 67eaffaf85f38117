"""The suite ``live-worst-case``: stored attacks against the senders of this machine's kernel and the programs; its records."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path as FilePath
from typing import Any

from ccenv.base.document import Format, hash_of
from ccenv.base.errors import InputError, unknown_name
from ccenv.live.attacks import moves_against, play_attack
from ccenv.live.scenario import KERNEL
from ccenv.base.pages import Place, markdown
from ccenv.base.provenance import code_hash, machine, now, versions

SUITE, VERSION = "live-worst-case", 1
SENDERS = (f"{KERNEL}reno", f"{KERNEL}cubic", f"{KERNEL}bbr", "cc_probe_drain", "cc_qdel", "learned_robust_d4")
FORMAT = Format("ccenv-live-record", 1, "a record of live runs", older="ccenv live suite runs it again")
PLACE = Place("<!-- records of live-worst-case -->")
_KEPT = (
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
    """Play the shipped attacks, one after the other, and return the record.

    Args:
        senders: a part of SENDERS.
        play: plays one; ``ccenv.live.attacks.play_attack``.
        told: called with each sender before its runs.

    Raises:
        UnknownNameError: for a sender that the suite does not have.
    """
    rows = []
    for sender in senders:
        if sender not in SENDERS:
            raise unknown_name("sender of the suite", sender, SENDERS)
        if told is not None:
            told(sender)
        file = moves_against(sender)
        data = play(sender, file)
        rows.append({**{name: data[name] for name in _KEPT}, "moves_sha256": _hash(file)})
    return {
        "suite": SUITE,
        "suite_version": VERSION,
        "suite_sha256": hash_of({sender: _hash(moves_against(sender)) for sender in SENDERS}),
        "made": now(),
        "machine": machine(),
        "kernel": platform.release(),
        "versions": versions(),
        "code_sha256": code_hash(play_attack),
        "rows": rows,
    }


def _hash(file: FilePath) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()


def shipped_record() -> dict[str, Any]:
    """Return the record that ccenv ships. Raises InputError if it is damaged."""
    return FORMAT.read(FilePath(str(resources.files("ccenv.live").joinpath("records", f"{SUITE}.json"))))


def table(record: dict[str, Any]) -> str:
    """Return the table of a record for a page.

    Raises:
        InputError: if it is no record of this suite.
    """
    if record.get("suite") != SUITE or not isinstance(record.get("rows"), list):
        raise InputError(f"a record of {record.get('suite')!r}; it must be of {SUITE!r}")
    columns = ("calm", "live", "simulated")
    titles = ("without jitter", "under the attack", "simulated")
    rows = []
    for row in record["rows"]:
        path = (
            f"{row['link_rate_mbps']:g} Mbit/s, {row['rtt_ms']:g} ms, buffer {row['buffer_bdp']:g} BDP, D {row['jitter_ms']:g} ms"
        )
        shares = {title: f"{row[key]:.2f}" for title, key in zip(titles, columns, strict=True)}
        rows.append({"sender": row["sender"], "path": path, **shares, "valid": "yes" if row["valid"] else "no"})
    return markdown(rows)
