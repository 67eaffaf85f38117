"""``ccenv attack AGENT --scenario``: the jitter boxes of a packet scenario attack a sender."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccenv.cli.output import print_json, print_table, print_text
from ccenv.base.document import Format, hash_of, plain
from ccenv.base.units import steps_or_seconds

if TYPE_CHECKING:
    from ccenv.attacks.boxes.run import BoxFinding

RESULT = "attack.json"
FORMAT = Format("ccenv-packet-attack", 1, "the result of an attack per packet", older="--fresh starts anew")
RUNS = Path("runs") / "attack"
EXIT_ILLEGAL = 1


def attack_packets(
    agent: str,
    scenario: str,
    given: Mapping[str, tuple[Any, Any]],
    *,
    adversaries: Sequence[str] | None,
    budget: str | None,
    seed: int,
    warmup_rtts: int,
    window_rtts: int,
    goal: str,
    out: Path | None,
    fresh: bool,
    json: bool,
) -> int:
    """Search the patterns of a scenario's boxes, check and store the traces; return the exit code.

    Args:
        agent: the sender.
        scenario: name or file.
        given: options of the curve engine by name, what they are and what they are by default.
        adversaries: searches of the boxes, scripted ones; None: all searches.
        budget: as typed; None: the usual one.
        seed: of searches and draws.
        warmup_rtts: before the measured window.
        window_rtts: measured.
        goal: what the boxes aim at.
        out: folder of result and traces; None: runs/attack/SENDER-SCENARIO-SEED.
        fresh: discard what is there; without it an interrupted attack goes on.
        json: print JSON.
    """
    from ccenv.agents.load import load_sender
    from ccenv.attacks.run import DEFAULT_BUDGET
    from ccenv.cli.progress import progress_bar
    from ccenv.base.errors import InputError
    from ccenv.base.files import is_empty, locked
    from ccenv.agents.identity import sender_hash
    from ccenv.base.provenance import code_hash
    from ccenv.attacks.boxes.run import attack_boxes, drawn_by
    from ccenv.simulation.boxes.goals import UTILISATION
    from ccenv.attacks.boxes.searches import SEARCHES
    from ccenv.simulation.ranges import load_distribution

    for option, (value, default) in given.items():
        if value != default:
            raise InputError(f"--scenario says what the network is and how it is played: leave out {option}")
    steps, seconds = (DEFAULT_BUDGET, None) if budget is None else steps_or_seconds("--budget", budget)
    if seconds is not None or steps is None:
        raise InputError(f"--budget {budget}: with --scenario it is counted in steps, such as 1Msteps")
    for name, value, low in (("--warmup-rtts", warmup_rtts, 0), ("--window-rtts", window_rtts, 1), ("--seed", seed, 0)):
        if not low <= value <= 1_000_000:
            raise InputError(f"{name} is {value}; it must be from {low} to 1000000")
    sender = load_sender(agent)
    aim = "" if goal == UTILISATION else f"-{goal}"
    out = RUNS / f"{sender.name}-{Path(scenario).stem}-{seed}{aim}" if out is None else out
    existed = out.exists()
    if existed and not (out.is_dir() and (is_empty(out) or (out / RESULT).is_file())):
        raise InputError(f"{out} holds something that is not an attack: give another --out")
    distribution = load_distribution(scenario)
    settings: dict[str, Any] = {"adversaries": list(adversaries or SEARCHES), "budget_flow_steps": steps, "seed": seed}
    settings |= {"warmup_rtts": warmup_rtts, "window_rtts": window_rtts, "goal": goal}
    played = drawn_by(distribution, seed).model_dump(mode="json")
    key = hash_of({**settings, "scenario": played, "sender": sender_hash(sender), "code": code_hash(attack_boxes)})
    with locked(out, "attack"):
        if fresh and (out / RESULT).is_file():
            for old in [*out.glob("*.npz"), out / RESULT]:
                old.unlink(missing_ok=True)
        entries, known = _read(out / RESULT, key) if (out / RESULT).is_file() else ({}, {})

        def keep(finding: BoxFinding) -> None:
            file = f"{len(entries)}-{''.join(c if c.isalnum() else '_' for c in finding.adversary)[:40]}.npz"
            finding.trace.save(out / file)
            entries[finding.adversary] = plain(finding.to_dict()) | {"trace": file}
            FORMAT.write(out / RESULT, {"key": key, "by_adversary": entries})

        try:
            with progress_bar(f"attack {sender.name}") as show:
                result = attack_boxes(sender, distribution, **settings, report=show, finished=keep, known=known)
        except InputError:
            if not existed and is_empty(out):
                shutil.rmtree(out)
            raise
        data = plain(result.to_dict()) | {"by_adversary": entries, "budget_flow_steps": steps}
        data["trace"] = entries[result.worst.adversary]["trace"]
        FORMAT.write(out / RESULT, {"key": key, **data})
    if json:
        print_json(data | {"trace": str(out / data["trace"])})
    else:
        found = result.by_adversary.items()
        rows = [[name, one.worst_utilisation, one.legal, one.flow_steps, one.seconds] for name, one in found]
        title = f"{result.sender} on {result.scenario.name}, per packet: worst utilisation {result.worst.worst_utilisation:.4f}"
        print_table(f"{title}, by {result.worst.adversary}", ["adversary", "utilisation", "legal", "flow-steps", "seconds"], rows)
        print_text(f"wrote {out}; boxes that let everything go: {result.kind_utilisation:.4f}")
    broken = [finding for finding in result.by_adversary.values() if not finding.legal]
    if broken:
        print(f"ccenv: not legal: {broken[0].adversary}: {broken[0].violations[0]}", file=sys.stderr)
    return EXIT_ILLEGAL if broken else 0


def _read(file: Path, key: str) -> tuple[dict[str, Any], dict[str, BoxFinding]]:
    """Return what an attack with the same key has finished: entries of the file, and findings. Raises InputError."""
    from ccenv.base.config import validate
    from ccenv.base.errors import CcenvError, InputError
    from ccenv.base.foreign import resolve_inside
    from ccenv.network.trace import load_trace
    from ccenv.attacks.boxes.run import BoxFinding, StoredBoxFinding

    data = FORMAT.read(file)
    if data.get("key") != key:
        raise InputError(f"{file.parent} holds an attack with other settings or another version: --fresh starts anew")
    entries, findings = data.get("by_adversary"), {}
    if not isinstance(entries, dict):
        raise InputError(f"{file}: not the result of an attack; --fresh starts anew")
    for name, entry in entries.items():
        try:
            stored = validate(StoredBoxFinding, entry, f"{file}: {name}")
            trace = load_trace(resolve_inside(file.parent, stored.trace, f"{file}: trace"))
        except CcenvError as error:
            raise InputError(f"{error}; --fresh starts anew") from None
        findings[name] = BoxFinding(adversary=name, **stored.model_dump(exclude={"trace"}), trace=trace)
    return entries, findings
