"""``ccenv list`` and ``ccenv show``: names of everything that ccenv ships, and each item, file or folder in full."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.agents import AGENTS, make_sender
from ccenv.agents import callbacks as signals
from ccenv.base.config import data_folder, find_data, shipped_names
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.files import plain, write_atomic
from ccenv.base.foreign import is_file, is_folder, parse_json, read_bounded, read_yaml, shown
from ccenv.base.registry import Entry, Registry
from ccenv.cli.options import JsonOption, argument, choices, option, out_option
from ccenv.cli.output import print_answer, print_json, print_table, print_text
from ccenv.network.path import MODELS, Model

if TYPE_CHECKING:
    from ccenv.agents.sender import PolicySender, ShieldSender
    from ccenv.base.user.installed import Plugin
    from ccenv.network.metrics.table import Metric

_LARGEST_BYTES = 64 * 2**20  # of a file; results of large runs have some MB
_ZIP = b"PK\x03\x04"

Shown = tuple[str, str]
"""Type of a document and its text."""


def show_path(path: Path) -> Shown:
    """Return the type and the text of a file or of the folder of a run, recognised by its content.

    Raises InputError if ccenv does not know its format, or it is damaged; TraceError for a damaged trace.
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
        document_type, parts = _DOCUMENTS[form]
        return document_type, json.dumps({key: data[key] for key in parts if key in data}, indent=1, ensure_ascii=False)
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
"""Format -> type of the document, and the keys to show."""


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
"""File that identifies a folder -> function that shows it; the first match counts."""


def policy_text(sender: PolicySender | ShieldSender) -> str:
    from ccenv.agents.identity import FIRST_OBSERVATION
    from ccenv.agents.learned.weights import layer_widths
    from ccenv.agents.programs import pseudo_code
    from ccenv.agents.sender import PolicySender

    if not isinstance(sender, PolicySender):
        chooser = f"chosen by {sender.chooser}" if sender.policy is None else policy_text(sender.policy)
        return f"{pseudo_code(sender.program)}\n\n{chooser}"
    layers = " -> ".join(str(width) for width in layer_widths(sender))
    if sender.is_first_version:
        return f"{sender.name}: policy network {layers} ({sender.activation}), observation version {FIRST_OBSERVATION}"
    interface, kinds = sender.interface, ", ".join(sender.stage_kinds)
    inner = f" over {interface.inner}" if interface.inner else ""
    return (
        f"{sender.name}: policy network {layers} ({sender.activation}; {kinds}; {sender.head})\n"
        f"signals: {', '.join(interface.signals)}; history {interface.history}\n"
        f"action: {interface.action}{inner}; decides every {interface.clock.count:g} {interface.clock.every}"
    )


def _sender(path: Path) -> str:
    from ccenv.agents.learned import load_policy

    return policy_text(load_policy(path))


def _trace(path: Path) -> str:
    return json.dumps(plain(_summarize(path)), indent=1, ensure_ascii=False)


def _summarize(path: Path) -> dict[str, object]:
    from ccenv.cli.trace import summarize_trace
    from ccenv.network.trace import load_trace

    return summarize_trace(load_trace(path))


def _yaml(path: Path, content: bytes) -> Shown:
    from ccenv.benchmarks.suite.curve import validate_suite

    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: a suite or a config is a table of keys")
    document_type = "configs"
    if data.get("format") == "ccenv-suite":
        validate_suite(data, path.name)
        document_type = "suites"
    return document_type, content.decode("utf-8", "replace").rstrip()


SUITES = "ccenv.benchmarks.suites"
LIVE = "live-worst-case"  # stored attacks against this kernel's senders and exported programs, which needs root and minutes
QUIC = "quic-v1"  # of real stacks, which no cell of the engines holds
KERNEL = "kernel-v1"  # a kernel in virtual time beside the packet engine
PLAYED = {
    LIVE: "stored attacks on this machine's kernel",
    QUIC: "the senders of QUIC stacks",
    KERNEL: "the kernel's congestion controls",
}
"""What suites play that hold no cells of the engines: they take no senders, adversaries or metrics."""
_KINDS = ("train", "data", "league", "sim", "live", "synth", "verify", "theorem", "ode", "solve", "learn")
CONFIGS = {kind: f"ccenv.configs.{kind}" for kind in _KINDS}


_PLAIN_FIELDS = {
    "now_s": "time of the run",
    "dt_s": "length of a step",
    "mss_bytes": "segment size",
    "rtt_s": "propagation RTT of the flow",
    "jitter_s": "D: longest extra delay",
    "link_rate_Bps": "rate of the link",
    "buffer_bytes": "buffer of the link",
    "steps_per_rtt": "engine steps in an Rm",
    "n_flows": "flows of the path",
    "flow": "number of the flow",
    "env": "number of the environment",
    "seed": "of the random numbers",
}


@dataclass(frozen=True)
class Item:
    """One line of ``ccenv list``."""

    name: str
    kind: str
    summary: str  # one line
    tags: tuple[str, ...]  # free labels
    text: Callable[[], str]  # returns it in full


def _suites() -> list[Item]:
    others = {name: f"Plays {played} (ccenv bench run {name})." for name, played in PLAYED.items() if name != LIVE}
    return _files("suites", SUITES) + [Item(name, "suites", text, (), text.__str__) for name, text in others.items()]


def _model_text(model: Model) -> str:
    moves = [
        (model.hoards_tokens, "waste: how many spare tokens to throw away; the others are kept, for at most D"),
        (model.has_jitter, "service, per flow: how much of what may be delivered is delivered now, the rest at most D later"),
        (model.varies_rate, "rate: the link rate, between link_rate_min_Bps and link_rate_max_Bps of the path"),
        (True, "loss, per flow: how much of its loss budget is used now (paths with loss_budget > 0)"),
    ]
    lines = [
        f"{model.name} ({model.source})",
        "",
        "The network's moves in each step, numbers in [0, 1] mapped into what is legal:",
    ]
    return "\n".join([*lines, *(f"  - {text}" for has, text in moves if has)])


def _metrics() -> list[Item]:
    from ccenv.network.metrics.table import METRICS

    return [
        Item(m.name, "metrics", m.meaning, (m.unit or "1", m.direction, *m.sources), partial(_metric_text, m))
        for m in METRICS.values()
    ]


def _metric_text(metric: Metric) -> str:
    better = "neither value is better" if metric.direction == "neither" else f"{metric.direction} is better"
    parts = [f"{metric.name} ({metric.unit or 'no unit'}; {better}): {metric.meaning}"]
    functions = (("a trace", metric.of_trace), ("a packet run", metric.of_run))
    parts += [f"from {source}: {inspect.getdoc(function)}" for source, function in functions if function is not None]
    return "\n\n".join(parts)


def _registered_items(kind: str, registry: Registry, text: Callable[[Entry], str]) -> list[Item]:
    return [Item(e.name, kind, e.summary, e.tags, partial(text, e)) for e in registry]


def _agent_text(entry: Entry) -> str:
    from ccenv.agents.programs import pseudo_code
    from ccenv.agents.sender import PolicySender, ProgramSender, ShieldSender

    sender = make_sender(entry.name)
    if isinstance(sender, ProgramSender):
        first = f"{pseudo_code(sender.start)}\n\nuntil the first large loss, then\n\n" if sender.start else ""
        return first + pseudo_code(sender.program)
    if isinstance(sender, (PolicySender, ShieldSender)):
        return policy_text(sender)
    return _source_text(entry)


def _adversaries() -> list[Item]:
    from ccenv.adversaries import ADVERSARIES
    from ccenv.attacks.catalog import SEARCHES

    return [item for registry in (ADVERSARIES, SEARCHES) for item in _registered_items("adversaries", registry, _source_text)]


def _source_text(entry: Entry) -> str:
    return inspect.getsource(importlib.import_module(entry.target.partition(":")[0])).rstrip()


def _envs() -> list[Item]:
    from ccenv.envs import ENVIRONMENTS

    return _registered_items("envs", ENVIRONMENTS, lambda entry: inspect.getdoc(ENVIRONMENTS.load(entry.name)) or entry.summary)


def _files(kind: str, package: str, prefix: str = "") -> list[Item]:
    items = []
    for file in sorted(data_folder(package).glob("*.yaml")):
        first = file.read_bytes().partition(b"\n")[0].decode("utf-8")
        summary = first.removeprefix("#").strip() if first.startswith("#") else ""
        items.append(Item(prefix + file.stem, kind, summary, (), partial(_file_text, file)))
    return items


def _file_text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip()


def _paths() -> list[Item]:
    from ccenv.attacks.scenes import PATHS, attack_path, scene_set

    paths = {name: attack_path(name) for name in PATHS}
    return [
        Item(name, "paths", repr(path), (scene_set(name) or "",), partial(json.dumps, plain(path.to_dict()), indent=1))
        for name, path in paths.items()
    ]


def _traces() -> list[Item]:
    from ccenv.network.links import load_trace, shipped_traces

    items = []
    for name, file in shipped_traces().items():
        summary = load_trace(name).summary()
        description = (
            f"{summary['length_s']:.4g} s, {summary['mean_mbps']:.3g} Mbit/s, longest outage {summary['longest_outage_s']:.3g} s"
        )
        items.append(Item(name, "traces", description, (str(summary["kind"]),), partial(_file_text, file)))
    return items


def _signals() -> list[Item]:
    """Return the signals: elements of the observation, and fields of the records of CCAs and adversaries."""
    from ccenv.agents.interface.interface import OBSERVATION
    from ccenv.agents.interface.signals import SIGNALS
    from ccenv.agents.learned.observation import ELEMENTS

    items = []
    for index, (name, e) in enumerate(zip(ELEMENTS, OBSERVATION, strict=True)):
        head = f"{name}: element {index} of the observation of ccenv/Sender-v0"
        text = f"{head}\n{e.name}; unit {e.unit}, from {e.low:g} to {e.high:g}"
        items.append(Item(name, "signals", f"{e.name}, {e.low:g} to {e.high:g}", ("observation", e.unit), text.__str__))
    listed = {item.name for item in items}
    items += [
        Item(s.name, "signals", f"{s.formula}, {s.low:g} to {s.high:g}", ("policy", s.unit), partial(repr, s))
        for s in SIGNALS
        if s.name not in listed
    ]
    for record in ("ACK", "LOSS", "TICK", "VIEW", "MOVE"):
        owner = "adversary" if record in ("VIEW", "MOVE") else "sender"
        items += [
            Item(f"{record.lower()}.{field}", "signals", meaning, (owner, _find_unit(field)), _signals_text)
            for field, meaning in _read_meanings(record).items()
        ]
    return items


def _read_meanings(record: str) -> dict[str, str]:
    """Return the meanings of a record's fields: their comments, or those of the same field of an earlier record."""
    lines = re.findall(r'"(\w+)",(?:  # (.+))?$', _signals_text(), re.MULTILINE)
    meanings = _PLAIN_FIELDS | {name: comment for name, comment in reversed(lines) if comment}
    block = re.search(rf"^{record} = record\((.*?)(?:^\)|(?<=\")\))$", _signals_text(), re.MULTILINE | re.DOTALL)
    of_record = dict(re.findall(r'"(\w+)",  # (.+)$', block[1], re.MULTILINE)) if block else {}
    return {
        field: of_record.get(field) or meanings.get(field, field.replace("_", " ")) for field in getattr(signals, record).names
    }


def _find_unit(field: str) -> str:
    units = {"_Bps": "bytes/s", "_bytes": "bytes", "_s": "s"}
    return next((unit for end, unit in units.items() if field.endswith(end)), "1")


def _signals_text() -> str:
    return inspect.getsource(signals).rstrip()


def _networks() -> list[Item]:
    from ccenv.benchmarks.compare.which import SUITE, networks

    file = find_data(SUITES, SUITE, ".yaml", "suite")
    return [Item(name, "networks", summary, (), partial(_file_text, file)) for name, summary in networks().items()]


def _plugins() -> list[Item]:
    return [
        Item(plugin.name, "plugins", plugin.problem or plugin.target, (plugin.kind, plugin.package), partial(str, plugin.target))
        for plugin in all_plugins()
    ]


def all_plugins() -> list[Plugin]:
    """Return the plugins of installed packages, each with its problem, if any; one that fails does not stop the others."""
    from ccenv.adversaries.load import USER_ADVERSARIES
    from ccenv.agents.interface.user import USER_SIGNALS
    from ccenv.agents.load import USER_SENDERS
    from ccenv.base.user import installed
    from ccenv.benchmarks.run.runner import as_suite
    from ccenv.network.metrics.user import USER_METRICS

    kinds: dict[str, tuple[list[str], Callable[[str], Any]]] = {
        kind.name: (list(kind.taken()), kind.load) for kind in (USER_SENDERS, USER_ADVERSARIES, USER_METRICS, USER_SIGNALS)
    }
    kinds["suite"] = shipped_names(SUITES, ".yaml"), as_suite
    return [installed.check(plugin, build) for kind, (taken, build) in kinds.items() for plugin in installed.plugins(kind, taken)]


def plugin_table() -> None:
    rows = [(plugin.name, plugin.kind, plugin.package, plugin.target, plugin.problem or "usable") for plugin in all_plugins()]
    print_table("plugins of installed packages (docs/own-code.md)", ["name", "kind", "package", "target", "state"], rows)


KINDS: dict[str, Callable[[], list[Item]]] = {
    "envs": _envs,
    "models": lambda: [Item(m.name, "models", m.source, (), partial(_model_text, m)) for m in MODELS.values()],
    "agents": partial(_registered_items, "agents", AGENTS, _agent_text),
    "adversaries": _adversaries,
    "metrics": _metrics,
    "suites": _suites,
    "configs": lambda: [item for kind, package in CONFIGS.items() for item in _files("configs", package, f"{kind}/")],
    "scenarios": partial(_files, "scenarios", CONFIGS["sim"]),
    "paths": _paths,
    "traces": _traces,
    "signals": _signals,
    "networks": _networks,
    "plugins": _plugins,
}
_ALSO_LISTED = ("scenarios", "networks", "plugins")  # also in another kind, or shown by a separate command


_OTHER_WORDS = {"senders": "agents", "ccas": "agents", "environments": "envs", "attacks": "adversaries", "benchmarks": "suites"}


def _items(kind: str) -> list[Item]:
    kind = _OTHER_WORDS.get(kind, kind)
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    return KINDS[kind]()


def _all_names(incomplete: str) -> list[str]:
    return [item.name for kind in KINDS if kind not in _ALSO_LISTED for item in _items(kind) if item.name.startswith(incomplete)]


def list_command(
    kind: Annotated[str, argument("KIND", " | ".join(KINDS), choices(*KINDS))],
    tag: Annotated[str | None, typer.Option(help="Only those with this tag.")] = None,
    json: JsonOption = False,
) -> None:
    """List one kind of items; their names are for other commands.

    Example: ccenv list agents
    """
    items = _items(kind)
    if tag is not None:
        if tag not in (tags := sorted({tag for item in items for tag in item.tags})):
            raise unknown_name(f"tag of {kind}", tag, tags)
        items = [item for item in items if tag in item.tags]
    if json:
        print_json([{"name": item.name, "summary": item.summary, "tags": item.tags} for item in items])
    else:
        print_table(kind, ["name", "summary", "tags"], [(item.name, item.summary, " ".join(item.tags)) for item in items])


def show_command(
    context: typer.Context,
    name: Annotated[str, argument("NAME|FILE", "A name from ccenv list, a file, or the folder of a run.", _all_names)],
    command: Annotated[
        list[str] | None, argument("[COMMAND]", "After the word settings: whose options and settings to show.")
    ] = None,
    kind: Annotated[str | None, option("Look in one kind only: " + " | ".join(KINDS), choices(*KINDS))] = None,
    out: Annotated[Path | None, out_option("Draw it, a trace or the interval of a shield: .png or .svg.", "FILE")] = None,
    json: JsonOption = False,
) -> None:
    """Show one thing: pseudo-code of a program, source of a CCA or adversary, moves of a model, YAML of a config, page of an env.

    A file or folder is shown by what it holds: a program, policy, trace, suite, config, or the results of a run.

    Example: ccenv show cc_probe_drain

    ccenv show runs/bench/quick

    ccenv show run.npz -o run.png; ccenv show settings verify property
    """
    if name == "settings":
        _show_settings(" ".join(command or ()), context.obj, json)
        return
    if out is not None:
        _draw(name, out, json)
        return
    if command:
        raise InputError(f"give one name; got {name} {' '.join(command)}")
    kinds = [kind] if kind else [each for each in KINDS if each not in _ALSO_LISTED]
    candidates = [item for each in kinds for item in _items(each)]
    # A config is also found without its folder, unless the short name is something else's full name.
    matches = [item for item in candidates if item.name == name] or [
        item for item in candidates if item.kind == "configs" and item.name.partition("/")[2] == name
    ]
    if not matches and kind is None and (is_file(name) or is_folder(name)):
        kind, text = show_path(Path(name))
        print_answer({"name": name, "kind": kind, "text": text} | (_summarize(Path(name)) if kind == "trace" else {}), text, json)
        return
    if not matches and kind is None and len(Path(name).parts) > 1:
        raise InputError(f"{name}: there is no such file, and no name {name!r} in ccenv list")
    if not matches:
        raise unknown_name("name", name, {item.name for item in candidates})
    if len(matches) > 1:
        listed = " and ".join(f"{item.name} ({item.kind})" for item in matches)
        raise InputError(f"{name!r} is the name of {listed}: give the full name or --kind")
    item = matches[0]
    about = {"name": item.name, "kind": item.kind, "summary": item.summary, "tags": item.tags}
    print_answer({**about, "text": item.text()}, item.text(), json)


def _draw(name: str, out: Path, json: bool) -> None:
    """Draw the curves, queue, rates and beliefs of a trace, or the interval of a shield or program over C_U / C_L."""
    from ccenv.base.figure import require_picture
    from ccenv.network.figure import plot_trace

    if is_file(name) and read_bounded(Path(name), _LARGEST_BYTES).startswith(_ZIP):
        from ccenv.network.trace import load_trace

        plot_trace(load_trace(Path(name)), out)
    else:
        from ccenv.proofs.senders.catalog import program_of
        from ccenv.training.shields.report import interval_picture

        write_atomic(out, interval_picture(program_of(name), require_picture(out).suffix))
    print_answer({"file": name, "picture": str(out)}, f"wrote {out}", json)


def _show_settings(command: str, find_command: Callable[[str], Any], json: bool) -> None:
    """Print the options and settings of a command, or which commands have settings.

    ``find_command`` is that of ccenv.cli.main, which knows all commands.
    """
    from ccenv.cli.settings import SOURCES, rows

    if not command:
        print_json(list(SOURCES)) if json else print_text("\n".join(f"ccenv show settings {one}" for one in SOURCES))
        return
    table = [asdict(row) for row in rows(command, find_command(command))]
    if json:
        print_json({"command": command, "settings": table})
    else:
        print_table(f"ccenv {command}", list(table[0]), [[str(cell) for cell in row.values()] for row in table])
