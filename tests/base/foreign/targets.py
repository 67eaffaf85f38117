"""The readers, each with good documents to start from and a weight: about how many inputs it can take in the same time."""

import hashlib
import io
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from legal_traces import legal_trace
from record_targets import RECORD_TARGETS
from target import Read, Target, from_file, loader

from ccenv.base import foreign
from ccenv.base.foreign.tensors import TYPES, read_typed, tensor_file

CONFIGS = Path(foreign.__file__).parents[2] / "configs"
SUITES = CONFIGS.parent / "benchmarks" / "suites"


def files(*patterns: Path, largest: int = 12_000) -> Callable[[], list[bytes]]:
    def read() -> list[bytes]:
        found = [file.read_bytes() for pattern in patterns for file in sorted(pattern.parent.glob(pattern.name))]
        return [content for content in found if len(content) <= largest]

    return read


def texts(*lines: str) -> Callable[[], list[bytes]]:
    return lambda: [line.encode() for line in lines]


def from_text(load: str | Callable[[str], object]) -> Read:
    return lambda content, folder: loader(load)(content.decode("utf-8", "surrogateescape"))


_trace = from_file("ccenv.network.trace:load_trace", "t.npz")
_suite = from_file("ccenv.benchmarks.suite.curve:load_suite", "s.yaml", as_text=True)
_scenario = from_file("ccenv.simulation.scenario:load_scenario", "s.yaml", as_text=True)
_query = from_file("ccenv.proofs.synthesis.query.query:load_query", "q.yaml", as_text=True)
_relu = from_file("ccenv.proofs.senders.relu:load_relu", "p.relu.json")
_manifest = from_file("ccenv.benchmarks.store:read_manifest", "manifest.json", of_folder=True)
_run_record = from_file("ccenv.training.run:read_record", "run.json", of_folder=True)
_sender = from_text("ccenv.agents:make_sender")
_adversary = from_text("ccenv.adversaries:make_adversary")


def _lines(file: Path) -> object:
    return list(foreign.read_lines(file, max_bytes=1 << 20, max_line_bytes=1 << 16))


def _trace_file() -> list[bytes]:
    out = []
    for model, flows in (("ideal", 1), ("ccac", 2)):
        with tempfile.TemporaryDirectory() as scratch:
            legal_trace(model, 3, n_flows=flows, n_steps=12).save(Path(scratch) / "t.npz")
            out.append((Path(scratch) / "t.npz").read_bytes())
    return out


def _trace_header(content: bytes, folder: Path) -> object:
    """Put a header into an otherwise good trace."""
    import zipfile

    from ccenv.network.trace import load_trace

    # The arrays have as many flows as the header that was changed had, so that the seeds themselves are read.
    good = foreign.read_archive(_GOOD_TRACE[content.count(b"rtt_s") > 1], "good", 1 << 20)

    with zipfile.ZipFile(folder / "t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in good.items():
            archive.writestr(name, data if name != "header.npy" else _npy(np.frombuffer(content, np.uint8)))
    return load_trace(folder / "t.npz")


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=(1, 0))
    return out.getvalue()


_GOOD_TRACE = _trace_file()


def _headers() -> list[bytes]:
    return [
        foreign.read_arrays(content, "good", {"header": "|u1"}, 1 << 20, other="<f8")["header"].tobytes()
        for content in _GOOD_TRACE
    ]


def _program(content: bytes, folder: Path) -> object:
    from ccenv.agents.programs import parse_program, pseudo_code, to_json

    program = parse_program(content)
    return pseudo_code(program), to_json(program)


TENSORS = {"w0": np.ones((2, 3)), "b0": np.zeros(3)}


def _pair(load: str, stem: str, card_first: bool) -> Read:
    """Mutate the card, or the weights with a card that fits their hash."""

    def read(content: bytes, folder: Path) -> object:
        source = CONFIGS.parent / ("agents" if stem == "policy" else "adversaries") / "learned"
        card_file, weights_file = sorted(source.rglob("*.json"))[0], sorted(source.rglob("*.safetensors"))[0]
        if card_first:
            (folder / f"{stem}.json").write_bytes(content)
            shutil.copy(card_file.with_suffix(".safetensors"), folder / f"{stem}.safetensors")
        else:
            card = json.loads(weights_file.with_suffix(".json").read_bytes()) | {"sha256": hashlib.sha256(content).hexdigest()}
            (folder / f"{stem}.json").write_text(json.dumps(card))
            (folder / f"{stem}.safetensors").write_bytes(content)
        if stem == "policy":
            from ccenv.agents.learned import load_policy, policy_notes

            return load_policy(folder), policy_notes(folder)
        from ccenv.adversaries.learned import load_adversary

        return load_adversary(folder)

    return read


def _learned(room: str, ending: str) -> Callable[[], list[bytes]]:
    return lambda: [sorted((CONFIGS.parent / room / "learned").rglob(f"*{ending}"))[0].read_bytes()]


def _lemmas(file: Path) -> object:
    from ccenv.proofs.claims.lemmas import load_suite

    for program in (CONFIGS / "verify").glob("*.json"):  # a suite's sender lies beside it
        shutil.copy(program, file.parent)
    return load_suite(str(file))


def _ode(file: Path) -> object:
    from ccenv.engine.fluid.sweep import load_scenario, load_sweep

    text = file.read_bytes()
    return load_sweep(str(file)) if b"kind: sweep" in text else load_scenario(str(file))


def _train(file: Path) -> object:
    from ccenv.base.config import validate
    from ccenv.training.config import load_config, load_data
    from ccenv.training.rllib.run import RllibConfig

    data, where = load_data(str(file))
    return validate(RllibConfig, data, where) if data.get("trainer") == "rllib" else load_config(str(file))


def _override(text: str) -> object:
    from ccenv.training.config import load_config

    return load_config("quick_sender", [text])


def _path(content: bytes, folder: Path) -> object:
    from ccenv.network.path import Path as NetworkPath
    from ccenv.network.path import make_grid

    path = NetworkPath.from_dict(foreign.parse_json(content, "path"))
    return make_grid(path, 8), path.to_dict()


def _made_path(content: bytes, folder: Path) -> object:
    from ccenv.network.path import make_grid, make_path

    values = foreign.parse_json(content, "values")
    names = ("link_rate_mbps", "rtt_ms", "jitter_ms", "buffer_bdp", "mss_bytes")
    numbers = [v for v in values if foreign.is_finite(v)] if isinstance(values, list) else []
    return make_grid(make_path(**({"link_rate_mbps": 12.0} | dict(zip(names, numbers, strict=False)))), 8)


def _checkpoint_card(content: bytes, folder: Path) -> object:
    from ccenv.training.checkpoint import STATE, read_checkpoint

    (folder / "iteration-3.safetensors").write_bytes(tensor_file(TENSORS))
    (folder / STATE).write_bytes(content)
    return read_checkpoint(folder)


def _checkpoint_seed() -> list[bytes]:
    from ccenv.training.checkpoint import FORMAT, OBSERVATION_VERSION

    card = {**FORMAT.head, "observation_version": OBSERVATION_VERSION, "iteration": 3, "seconds": 1.5}
    card |= {"cpu_seconds": 2.5, "marks": {"best": 0.5}, "tensors": "iteration-3.safetensors"}
    return [json.dumps(card | {"sha256": hashlib.sha256(tensor_file(TENSORS)).hexdigest()}).encode()]


def _attack(content: bytes, folder: Path) -> object:
    from ccenv.attacks.store import FORMAT, read_findings

    file = folder / "attack.json"
    file.write_bytes(content)
    (folder / "kind.npz").write_bytes(_GOOD_TRACE[0])
    return read_findings(FORMAT.read(file), file)


def _attack_seed() -> list[bytes]:
    entry = {"trace": "kind.npz", "spec": "kind", "worst_utilisation": 0.5, "legal": True, "violations": [], "flow_steps": 100}
    entry |= {"seconds": 1.0, "preconditions": {}, "details": {}}
    return [
        json.dumps({"format": "ccenv-attack", "version": 1, "key": "key", "findings": {"kind": entry}, "result": {}}).encode()
    ]


def _cells(content: bytes, folder: Path) -> object:
    from ccenv.benchmarks.store import parse_cells

    return parse_cells(content, folder / "cells.jsonl")


def _formula(content: bytes, folder: Path) -> object:
    from ccenv.proofs.claims.properties import (
        collect_bounds,
        collect_names,
        compile_formula,
        describe_formula,
        split_cases,
        split_conjuncts,
    )

    data = foreign.parse_yaml(content, "formula")
    numbers, states = _suite_words()
    compile_formula(data, "formula", numbers, states)
    return [
        collect_bounds(data, states),
        describe_formula(data, numbers, states),
        split_cases(data, states),
        collect_names(data),
        split_conjuncts(data, states),
    ]


def _name(content: bytes, folder: Path) -> object:
    place = foreign.resolve_inside(folder, content.decode("utf-8", "surrogateescape"))
    if not place.resolve().is_relative_to(folder.resolve()):
        raise AssertionError(f"{place} is not in {folder}")
    return place


_CELL = {"key": "0" * 32, "scenario": "deep", "agent": "reno", "adversary": "kind", "seed": 1, "metrics": {"utilisation": 0.9}}
_MANIFEST = {
    "format": "ccenv-bench",
    "format_version": 1,
    "complete": True,
    "agents": [{"label": "reno"}],
    "suite": {"name": "x"},
}
_FLOWS = [{"rtt_s": 0.04, "jitter_s": 0.01, "loss_budget": 0.1, "workload": {"kind": "bulk"}}]
_PATH = {"link_rate_Bps": 1.5e6, "buffer_bytes": 1.2e5, "flows": _FLOWS, "rate_changes": [{"time_s": 1, "link_rate_Bps": 2e6}]}
_RELU = {
    "format": "ccenv-relu",
    "version": 1,
    "name": "p",
    "inputs": ["C_L", "C_U"],
    "layers": [[["1/2", 1], [0, "0.25"]], [[1, 1]]],
}
_LINES = b'{"format":"x"}\n{"record":{"number":1}}\n{"file":"0","text":"abc"}\n'


@cache
def _suite_words() -> tuple[dict[str, Fraction], dict[str, object]]:
    """Return the names of numbers and states that any shipped suite has."""
    import yaml

    suites = [yaml.safe_load(file.read_text()) for file in sorted((CONFIGS / "verify").glob("*.yaml"))]
    numbers = {name: Fraction(1, 2) for suite in suites for name in suite.get("constants", {})}
    states = {name: formula for suite in suites for name, formula in suite.get("states", {}).items()}
    return numbers | {"x": Fraction(1, 2)}, {"fine": {"all": ["C_L_true", "C_U_true"]}} | states


def _formulas() -> list[bytes]:
    import yaml

    out = [b"C_L_true", b"{C_L_at_least: 27/40}", b"{not: {all: [fine, {queue_at_most: x}]}}"]
    for file in sorted((CONFIGS / "verify").glob("*.yaml")):
        for lemma in yaml.safe_load(file.read_text())["lemmas"]:
            out += [yaml.safe_dump(formula).encode() for formula in (lemma["if"], *lemma["then"])]
    return out


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "json", lambda c, _: foreign.parse_json(c, "x"), texts(json.dumps(_MANIFEST), json.dumps(_PATH), '["a", 1e-5]'), 6
        ),
        Target(
            "stranger_json",
            lambda c, _: foreign.parse_json(c, "x", foreign.STRANGER),
            texts(json.dumps(_PATH), json.dumps(_RELU)),
            6,
        ),
        Target("yaml", lambda c, _: foreign.parse_yaml(c, "x"), files(SUITES / "quick.yaml", CONFIGS / "sim" / "*.yaml"), 1),
        Target("lines", from_file(_lines, "x.jsonl"), lambda: [_LINES], 4),
        Target("xz_lines", from_file(_lines, "x.jsonl.xz"), lambda: [lzma.compress(_LINES), lzma.compress(_LINES * 500)], 4),
        Target("trace", _trace, lambda: _GOOD_TRACE, 4),
        Target("trace_header", _trace_header, _headers, 1),
        Target("tensors", lambda c, _: read_typed(c, "x", TYPES), lambda: [tensor_file(TENSORS)], 6),
        Target("policy_card", _pair("", "policy", True), _learned("agents", ".json"), 1),
        Target("policy_weights", _pair("", "policy", False), _learned("agents", ".safetensors"), 1),
        Target("adversary_card", _pair("", "adversary", True), _learned("adversaries", ".json"), 1),
        Target("adversary_weights", _pair("", "adversary", False), _learned("adversaries", ".safetensors"), 1),
        Target(
            "program",
            _program,
            files(
                CONFIGS.parent / "agents" / "synthesized" / "*.json", CONFIGS / "verify" / "*.json", CONFIGS / "train" / "*.json"
            ),
            4,
        ),
        Target("suite", _suite, files(SUITES / "*.yaml", largest=2_500), 0.6),
        Target("scenario", _scenario, files(CONFIGS / "sim" / "*.yaml"), 1),
        Target("query", _query, files(CONFIGS / "synth" / "*.yaml", largest=3_000), 0.6),
        Target("lemmas", from_file(_lemmas, "l.yaml"), files(CONFIGS / "verify" / "*.yaml", largest=5_000), 0.4),
        Target("formula", _formula, _formulas, 3),
        Target("ode", from_file(_ode, "o.yaml"), files(CONFIGS / "ode" / "*.yaml", largest=2_000), 0.6),
        Target("train", from_file(_train, "t.yaml"), files(CONFIGS / "train" / "*.yaml", largest=2_000), 0.6),
        Target("override", from_text(_override), texts("seed=3", "environment.steps_per_rtt=8", "ppo.learning_rate=1e-4"), 0.4),
        Target("checkpoint", _checkpoint_card, _checkpoint_seed, 2),
        Target("sender_spec", _sender, texts("copa:default_delta=0.1", "constant:rate_mbps=10", "cc_probe_slow:k=2", "vegas"), 4),
        Target("adversary_spec", _adversary, texts("square:period_rtts=4,duty=0.25", "kind", "one_packet"), 4),
        Target("relu", _relu, texts(json.dumps(_RELU)), 3),
        Target("path", _path, texts(json.dumps(_PATH)), 4),
        Target("made_path", _made_path, texts("[12, 40, 10, 2, 1500]", "[1e3, 0.5]"), 4),
        Target("attack", _attack, _attack_seed, 1),
        Target("cells", _cells, texts(json.dumps(_CELL) + "\n" + json.dumps(_CELL) + "\n", json.dumps(_CELL)), 4),
        Target("manifest", _manifest, texts(json.dumps(_MANIFEST)), 3),
        Target("run_record", _run_record, texts('{"format": "ccenv-run", "version": 2, "steps": 3}'), 3),
        Target("name", _name, texts("entries/reno.html", "traces/a-b_c.npz", "x"), 6),
        *RECORD_TARGETS,
    )
}
