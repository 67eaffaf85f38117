"""Reference pages, written from the code: API, commands, schemas, metrics, signals, registries."""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docstrings import to_markdown

DOCS = Path(__file__).parents[1]

# Rooms whose modules people use; kernels and what only the command line needs are left out.
API = {
    "ccenv": "The top level",
    "ccenv.network": "Paths, models, traces, laws",
    "ccenv.envs": "Environments",
    "ccenv.agents": "Senders",
    "ccenv.adversaries": "Adversaries",
    "ccenv.engine.curve.engine": "Curve engine",
    "ccenv.engine.packet.engine": "Packet engine",
    "ccenv.engine.fluid": "Fluid models",
    "ccenv.simulation": "Experiments of the packet engine",
    "ccenv.benchmarks.compare": "Comparisons",
    "ccenv.network.metrics": "Metrics",
    "ccenv.agents.programs": "Belief programs",
    "ccenv.attacks": "Attacks",
    "ccenv.proofs.claims": "Claims and proofs",
    "ccenv.proofs.solver": "Solvers",
    "ccenv.proofs.synthesis.query": "Synthesis: queries",
    "ccenv.training.distill": "Distillation",
    "ccenv.training": "Training",
    "ccenv.benchmarks.suite": "Suites",
    "ccenv.benchmarks.run": "Runs of suites",
    "ccenv.benchmarks.statistics": "Statistics",
    "ccenv.live.export": "Export to the kernel",
    "ccenv.base.foreign": "Reading of foreign files",
    "ccenv.base.files": "Stored documents",
    "ccenv.base.registry": "Registries",
    "ccenv.base.units": "Units",
    "ccenv.base.errors": "Errors",
}
_NO_PAGES = re.compile(
    r"\.(records|page|classic|synthesized|constructions|searches|senders|scripted|zoo|analysis\.\w+)(\.|$)|kernel"
)


def reference_pages() -> dict[str, str]:
    """Return file name below ``reference/`` -> Markdown."""
    pages = {f"api/{name.replace('.', '-')}.md": api_page(name, title) for name, title in API.items()}
    links = "".join(f"- [{title}](api/{name.replace('.', '-')}.md): `{name}`\n" for name, title in API.items())
    tree = "".join(f"api/{name.replace('.', '-')}\n" for name in API)
    pages["api.md"] = f"# Python API\n\nWritten from the docstrings.\n\n{links}\n```{{toctree}}\n:hidden:\n\n{tree}```\n"
    pages["cli.md"] = cli_page()
    pages["schemas.md"] = schemas_page()
    pages["metrics.md"] = metrics_page()
    pages["signals.md"] = signals_page()
    pages["registry.md"] = registry_page()
    return pages


def modules_of(name: str) -> list[str]:
    """Return a module, or a package and what is public below it."""
    module = importlib.import_module(name)
    found = [name]
    if hasattr(module, "__path__") and name != "ccenv":
        below = (info.name for info in pkgutil.walk_packages(module.__path__, f"{name}."))
        found += [other for other in below if not _NO_PAGES.search(other)]
    return found


def api_page(name: str, title: str) -> str:
    """Return the page of a room: every public name that its modules define."""
    out = [f"# {title}\n"]
    for module_name in modules_of(name):
        module = importlib.import_module(module_name)
        out.append(f"## `{module_name}`\n\n{to_markdown(module.__doc__ or '')}")
        if name == "ccenv":
            for key in sorted(key for key in module.__all__ if not key.startswith("_")):
                out += [_member(key, getattr(module, key)), f"Example: {examples(key)}\n"]
        else:
            own = ((k, v) for k, v in vars(module).items() if not k.startswith("_") and _defined_in(v, module_name))
            out += [_member(key, value) for key, value in own]
    return "\n".join(out)


def examples(name: str) -> str:
    """Return links to the pages with a Python block that uses a public name, at most three."""
    block = re.compile(rf"^```python\n(?:(?!```)[^\n]*\n)*?(?:(?!```)[^\n]*\b{name}\b)", re.MULTILINE)
    found = [page for page in sorted(DOCS.glob("*.md")) if block.search(page.read_text(encoding="utf-8"))]
    return ", ".join(f"[{page.stem}](../../{page.name})" for page in found[:3])


def _defined_in(value: Any, module_name: str) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module_name


def _member(name: str, value: Any) -> str:
    text = [f"### `{name}`\n", f"```python\n{_signature(name, value)}\n```\n", to_markdown(_documented(value))]
    if inspect.isclass(value):
        for key, method in vars(value).items():
            plain = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
            if key.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
                continue
            shown = key if isinstance(plain, property) else _signature(key, plain, "")
            text += [f"```python\n{shown}\n```\n", to_markdown(plain.__doc__ or "")]
    return "\n".join(text)


def _documented(value: Any) -> str:
    """Return the docstring; that of a class also with its fields, where comments beside or above them say what they are."""
    text = inspect.getdoc(value) or ""
    if not inspect.isclass(value) or "Attributes:" in text or not value.__module__.startswith("ccenv"):
        return text
    try:
        lines = inspect.getsource(value).splitlines()
    except OSError:  # made at run time
        return text
    fields, above = [], ""
    for line in lines:
        field = re.match(r"    (?:    self\.)?([A-Za-z]\w*)(?:: [^#]+| = [^#]+?)(?:  # (.*))?$", line)
        if field and (above or field[2]):
            fields.append(f"    {field[1]}: {above or field[2]}.")
        above = f"{above} {line.strip(' #')}".strip() if line.startswith("    # ") else ""
    return "\n".join([text, *(["", "Attributes:", *fields] if fields else [])])


def _signature(name: str, value: Any, keyword: str | None = None) -> str:
    """Return a signature in one line, or with one parameter a line where that is too long."""
    start = ("class " if inspect.isclass(value) else "def ") if keyword is None else keyword
    if inspect.isclass(value) and issubclass(value, (enum.Enum, BaseException)):
        return f"class {name}({value.__bases__[0].__name__})"
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{start}{name}"
    if hasattr(value, "model_fields"):  # its fields are listed below
        return f"class {name}(...)"
    parameters = list(signature.parameters.values())
    back = signature.return_annotation
    tail = "" if back is inspect.Parameter.empty or inspect.isclass(value) else f" -> {back}"
    line = f"{start}{name}({', '.join(map(_plain, parameters))}){tail}"
    if len(line) <= 100:
        return line
    return f"{start}{name}(\n" + "".join(f"    {_plain(p)},\n" for p in parameters) + f"){tail}"


def _plain(parameter: inspect.Parameter) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", str(parameter)).replace("'", "")


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def _table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    return _row(*head) + _row(*("---" for _ in head)) + "".join(_row(*row) for row in rows) + "\n"


def cli_page() -> str:
    """Return every command with its arguments and options."""
    import typer

    from ccenv.cli.main import GROUPS, build_app

    out = ["# Command line\n\nEvery command has `--help` and `--json`; exit code 2 is wrong input, 1 an answer of no.\n"]

    def walk(command: Any, words: list[str], level: int) -> None:
        out.append(f"{'#' * level} `ccenv {' '.join(words)}`\n\n{_help(command.help or '')}\n")
        if getattr(command, "commands", None):
            for name, below in command.commands.items():
                walk(below, [*words, name], min(level + 1, 4))
            return
        rows: list[tuple[object, ...]] = []
        for parameter in command.params:
            shown = ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])
            is_argument = parameter.param_type_name == "argument"
            name = f"`{parameter.metavar or parameter.name.upper()}`" if is_argument else shown
            needed = "required" if parameter.required else _default(parameter.default)
            rows.append((name, needed, _escaped(getattr(parameter, "help", None) or "")))
        out.append(_table(("name", "default", "meaning"), rows))

    for group in GROUPS:
        walk(typer.main.get_command(build_app(group.name)).commands[group.name], [group.name], 2)
    return "\n".join(out)


def _help(text: str) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    examples = [p for p in paragraphs if p.startswith("Example:")]
    prose = _escaped("\n\n".join(p for p in paragraphs if not p.startswith("Example:")))
    commands = "\n".join(line.removeprefix("Example:").strip() for p in examples for line in p.splitlines())
    return prose + (f"\n\n```text\n{commands}\n```" if commands else "")


def _escaped(text: str) -> str:
    return re.sub(r"([*<_])", r"\\\1", " ".join(text.split()) if "\n\n" not in text else text)


def _default(value: object) -> str:
    return "" if value is None or value is False or callable(value) else f"`{value}`"


def _schemas() -> list[tuple[str, str, Any]]:
    """Return (title, what is written in this form, model) of every file that people write."""
    from ccenv.benchmarks.suite import curve, packet
    from ccenv.envs.curve.settings import EnvSettings
    from ccenv.leaderboard.submission.document import Document
    from ccenv.network.path import Path
    from ccenv.network.trace import TraceHeader
    from ccenv.proofs.claims import lemmas
    from ccenv.proofs.synthesis.query.query import Query
    from ccenv.simulation.scenario import Scenario
    from ccenv.training.config import TrainConfig
    from ccenv.training.rllib.run import RllibConfig

    return [
        ("Environments", "keyword arguments of `gymnasium.make`, `environment` of a training run", EnvSettings),
        ("Training runs", "`ccenv train FILE.yaml`", TrainConfig),
        ("Training runs with RLlib", "`ccenv train FILE.yaml` with `trainer: rllib`", RllibConfig),
        ("Scenarios of the packet engine", "`ccenv sim FILE.yaml`", Scenario),
        ("Suites of the curve engine", "`ccenv bench run FILE.yaml` with `engine: curve`", curve.Suite),
        ("Suites of the packet engine", "`ccenv bench run FILE.yaml` with `engine: packet`", packet.PacketSuite),
        ("Synthesis queries", "`ccenv synth FILE.yaml`", Query),
        ("Lemma suites", "`ccenv verify lemmas FILE.yaml`", lemmas.Suite),
        ("Paths", "`path` in traces and submissions", Path),
        ("Headers of traces", "`header` in a trace file", TraceHeader),
        ("Submissions", "`submission.json`", Document),
    ]


def schemas_page() -> str:
    """Return the keys of each form."""
    said = (
        "Unknown keys are refused with the nearest valid name. Times are in seconds, sizes in bytes, unless a key says otherwise."
    )
    out = [f"# Schemas\n\n{said}\n"]
    for title, used, model in _schemas():
        seen: set[type] = set()
        out.append(f"## {title}\n\nUsed by: {used}. Model: `{model.__module__}.{model.__name__}`.\n")
        _keys(model, out, seen)
    return "\n".join(out)


def _keys(model: Any, out: list[str], seen: set[type]) -> None:
    seen.add(model)
    meanings = _attributes(model)
    rows: list[tuple[object, ...]] = []
    below: list[Any] = []
    for name, field in model.model_fields.items():
        text = (
            re.sub(r"Annotated\[(\w+), \w+\(\)\]", r"\1", re.sub(r"(\w+\.)+", "", str(field.annotation)))
            if "[" in str(field.annotation)
            else getattr(field.annotation, "__name__", field.annotation)
        )
        default = (
            "required" if field.is_required() else "made from its parts" if field.default_factory else f"`{field.default!r}`"
        )
        rows.append(
            (f"`{name}`", f"`{text}`", default if len(default) < 80 else "see the model", _escaped(meanings.get(name, "")))
        )
        below += [part for part in _models(field.annotation) if part not in seen]
    out.append(_table(("key", "type", "default", "meaning"), rows))
    for part in dict.fromkeys(below):
        if part not in seen:
            out.append(f"### `{part.__name__}`\n")
            _keys(part, out, seen)


def _models(annotation: Any) -> list[Any]:
    from typing import Annotated, get_args, get_origin

    if get_origin(annotation) is Annotated:  # an object that Python code gives: no document holds it
        return []
    if hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _attributes(model: Any) -> dict[str, str]:
    """Return name -> meaning from the Attributes of a docstring, those of its bases included."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        for line in to_markdown(base.__doc__ or "").splitlines():
            if entry := re.match(r"- `([^`]+)`: (.*)", line):
                found |= {name.strip(): entry[2].replace("\\", "") for name in entry[1].split(",")}
    return found


def metrics_page() -> str:
    """Return the table of metrics with each one's function and source."""
    from ccenv.network.metrics.table import METRICS

    out = ["# Metrics\n\nWritten from `ccenv.network.metrics.table`; `ccenv list metrics` prints the same.\n"]
    out.append(
        _table(
            ("name", "unit", "better", "meaning"),
            [(f"[`{m.name}`](#{m.name})", m.unit, m.direction, _escaped(m.meaning)) for m in METRICS.values()],
        )
    )
    for metric in METRICS.values():
        out.append(f"({metric.name})=\n## `{metric.name}`\n\n{metric.label}.\n")
        functions: dict[Callable[..., Any], str] = {}
        for where in ("of_trace", "of_run"):
            function = getattr(metric, where, None)
            if callable(function):
                functions.setdefault(function, where)
        for function in functions:
            out.append(f"`{function.__module__}.{function.__qualname__}`:\n\n{to_markdown(function.__doc__ or '')}")
    return "\n".join(out)


def signals_page() -> str:
    """Return the records that senders and adversaries see, and the observations of the environments."""
    from ccenv.agents import callbacks as signals
    from ccenv.envs.curve.network import NetworkEnv
    from ccenv.envs.curve.sender import SenderEnv

    source = inspect.getsource(signals)
    out = [f"# Signals and observations\n\n{to_markdown(signals.__doc__ or '')}"]
    titles = {
        "STATE_HEADER": "What every sender has",
        "ACK": "`ack`: bytes were acknowledged",
        "LOSS": "`loss`: bytes were found lost",
        "TICK": "`tick`: time passed",
        "VIEW": "`view`: what an adversary sees",
        "MOVE": "`move`: what an adversary decides",
    }
    for name, title in titles.items():
        value = getattr(signals, name)
        fields = value if isinstance(value, tuple) else value.names
        body = source.partition(f"\n{name} = ")[2].partition("\n)")[0]
        notes = dict(re.findall(r'^    "(\w+)",(?:  # (.*))?$', body, re.MULTILINE))
        out.append(f"## {title}\n\n" + _table(("field", "meaning"), [(f"`{f}`", _escaped(notes.get(f, ""))) for f in fields]))
    for env, title in ((SenderEnv, "ccenv/Sender-v0"), (NetworkEnv, "ccenv/Network-v0")):
        out.append(f"## Environment {title}\n\n{to_markdown(env.__doc__ or '')}")
    return "\n".join(out)


def registry_page() -> str:
    """Return what ccenv ships, by name."""
    from ccenv.cli.catalog import KINDS

    out = ["# What ccenv ships\n\n`ccenv list KIND` prints these tables, `ccenv show NAME` more about one name.\n"]
    for kind, items in KINDS.items():
        rows = [(f"`{item.name}`", ", ".join(item.tags), _escaped(item.summary)) for item in items()]
        out.append(f"## {kind}\n\n" + _table(("name", "tags", "what"), rows))
    return "\n".join(out)
