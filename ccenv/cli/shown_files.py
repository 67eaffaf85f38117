"""What ``ccenv show`` says of a file or folder: it is recognised by what it holds, not by its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccenv.base.errors import InputError
from ccenv.base.foreign import parse_json, read_bounded, shown

if TYPE_CHECKING:
    from ccenv.agents.sender import ContractSender, PolicySender

_LARGEST_BYTES = 64 * 2**20  # of a file that is read whole; results of large runs have some MB
_ZIP = b"PK\x03\x04"

Shown = tuple[str, str]
"""Kind and text."""


def show_path(path: Path) -> Shown:
    """Return what a file or the folder of a run is, and its text.

    Raises:
        InputError: if it is nothing that ccenv writes or reads, or damaged.
        TraceError: for a damaged trace.
    """
    if path.is_dir():
        for name, show in _FOLDERS.items():
            if (path / name).is_file():
                return show(path / name)
        raise InputError(f"{path}: not the folder of a run; none of {', '.join(_FOLDERS)} is in it")
    content = read_bounded(path, _LARGEST_BYTES)
    if content.startswith(_ZIP):
        return "trace", _trace(path)
    if path.suffix == ".safetensors":
        return "agent", _sender(path)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, content)
    return _json(path)


def _json(path: Path) -> Shown:
    data = parse_json(read_bounded(path, _LARGEST_BYTES), str(path))
    form = data.get("format") if isinstance(data, dict) else None
    if form == "ccenv-program":
        from ccenv.agents.programs import load_program, pseudo_code

        return "program", pseudo_code(load_program(path))
    if form == "ccenv-policy":
        return "agent", _sender(path)
    if isinstance(form, str) and form in _DOCUMENTS:
        kind, parts = _DOCUMENTS[form]
        return kind, json.dumps({key: data[key] for key in parts if key in data}, indent=1, ensure_ascii=False)
    raise InputError(
        f"{path}: format {shown(form)} cannot be shown; it can be {', '.join(['ccenv-program', 'ccenv-policy', *_DOCUMENTS])}"
    )


_DOCUMENTS = {
    "ccenv-bench": (
        "benchmark run",
        ("complete", "n_cells", "n_missing", "suite_sha256", "code_sha256", "finished_at", "summary"),
    ),
    "ccenv-run": (
        "training run",
        ("name", "seed", "status", "steps", "seconds", "evaluation", "best_score", "best_select_score", "best_steps",
         "best_evaluation", "stopped_early", "error", "versions", "machine", "started", "written", "config"),
    ),
    "ccenv-attack": ("attack", ("result", "findings")),
    "ccenv-submission": ("submission", ("kind", "name", "author", "licence", "suite", "summary", "url", "architecture")),
}  # fmt: skip
"""Format -> kind, and what of the document says what came of it."""


def _synthesis(file: Path) -> Shown:
    counts: dict[str, int] = {}
    head: dict[str, Any] = {}
    for number, line in enumerate(read_bounded(file, _LARGEST_BYTES).split(b"\n")[:-1], start=1):
        data = parse_json(line, f"{file}, line {number}")
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            raise InputError(f"{file}, line {number}: not a line of a synthesis")
        head = head or data
        counts[data["kind"]] = counts.get(data["kind"], 0) + 1
    programs = sorted(program.name for program in (file.parent / "solutions").glob("*.json"))
    return "synthesis", json.dumps({"run": head, "lines": counts, "solutions": programs}, indent=1, ensure_ascii=False)


_FOLDERS: dict[str, Callable[[Path], Shown]] = {
    "manifest.json": _json,
    "run.json": _json,
    "attack.json": _json,
    "journal.jsonl": _synthesis,
    "policy.json": _json,
    "submission.json": _json,
}
"""File that a folder is known by -> how it is shown; the first one counts."""


def policy_text(sender: PolicySender | ContractSender) -> str:
    """Describe a policy: its network, what it sees and sets, and the contract that it chooses inside."""
    from ccenv.agents.identity import FIRST_OBSERVATION
    from ccenv.agents.learned.weights import layer_widths
    from ccenv.agents.sender import PolicySender
    from ccenv.agents.programs import pseudo_code

    if not isinstance(sender, PolicySender):
        who = f"chosen by {sender.chooser}" if sender.policy is None else policy_text(sender.policy)
        return f"{pseudo_code(sender.program)}\n\n{who}"
    layers = " -> ".join(str(width) for width in layer_widths(sender))
    if sender.is_first_version:
        return f"{sender.name}: policy network {layers} ({sender.activation}), observation version {FIRST_OBSERVATION}"
    sees, kinds = sender.interface, ", ".join(sender.stage_kinds)
    inner = f" over {sees.inner}" if sees.inner else ""
    return (
        f"{sender.name}: policy network {layers} ({sender.activation}; {kinds}; {sender.head})\n"
        f"signals: {', '.join(sees.signals)}; history {sees.history}\n"
        f"action: {sees.action}{inner}; decides every {sees.clock.count:g} {sees.clock.every}"
    )


def _sender(path: Path) -> str:
    from ccenv.agents.learned import load_policy

    return policy_text(load_policy(path))


def _trace(path: Path) -> str:
    from ccenv.cli.output import to_plain
    from ccenv.cli.trace import summary_of
    from ccenv.network.trace import load_trace

    return json.dumps(to_plain(summary_of(load_trace(path))), indent=1, ensure_ascii=False)


def _yaml(path: Path, content: bytes) -> Shown:
    from ccenv.benchmarks.suite.curve import suite_of
    from ccenv.base.foreign import read_yaml

    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a suite or a config is a table of keys")
    kind = "configs"
    if data.get("format") == "ccenv-suite":
        suite_of(data, path.name)
        kind = "suites"
    return kind, content.decode("utf-8", "replace").rstrip()
