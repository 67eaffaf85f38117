"""Submission folders for tests: good ones of every kind, and ways to change them."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ccenv.adversaries.learned import save_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.agents.interface.interface import N_OBSERVATION
from ccenv.base.files import write_atomic
from ccenv.base.foreign.tensors import tensor_file
from ccenv.leaderboard.submission.pack import Authorship, pack
from ccenv.network.adversary import MlpAdversary

CARD = Authorship(author="Ada Lovelace", licence="MIT", suite="quick/1")
WEIGHTS = "policy.safetensors"
LAYERS = (N_OBSERVATION, 3, 1)


def weights(**changes: np.ndarray) -> dict[str, np.ndarray]:
    generator = np.random.Generator(np.random.Philox(1))
    out = {}
    for i, (n_in, n_out) in enumerate(pairwise(LAYERS)):
        out[f"w{i}"], out[f"b{i}"] = generator.normal(size=(n_in, n_out)), np.zeros(n_out)
    return {**out, **changes}


def make_good(base: str, folder: Path) -> Path:
    if base in ("program", "scripted"):
        pack("cc_qdel" if base == "program" else "square:period_rtts=4", CARD, folder)
        return folder
    if base == "network":
        generator = np.random.Generator(np.random.Philox(2))
        w = tuple(generator.normal(size=shape) for shape in ((N_PATH + N_FLOW, 4), (4, 2)))
        (folder.parent / "trained").mkdir(parents=True)
        adversary = MlpAdversary("good_network", w, (np.zeros(4), np.zeros(2)), "tanh", 1, (0, 2))
        save_adversary(folder.parent / "trained", adversary)
        pack(str(folder.parent / "trained"), CARD, folder)
        return folder
    folder.mkdir(parents=True)
    content = tensor_file(weights() if base == "policy" else {"moves": np.full((20, 4), 0.5)})
    name = WEIGHTS if base == "policy" else "moves.safetensors"
    architecture = {"family": "mlp", "activation": "tanh", "layers": list(LAYERS), "observation_version": 1}
    document = {
        "format": "ccenv-submission", "format_version": 1, "kind": base, "name": f"good_{base}", "author": "Ada Lovelace",
        "licence": "MIT", "suite": "quick/1", "architecture": architecture if base == "policy" else None, "files": {name: ""},
    }  # fmt: skip
    (folder / "submission.json").write_text(json.dumps(document))
    payload(name, content)(folder)
    return folder


def edit(**changes: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "submission.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def replace(old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "submission.json"
        text = file.read_text()
        if old not in text:
            raise ValueError(f"{old!r} is not in the document")
        file.write_text(text.replace(old, new, 1))

    return change


def payload(name: str, content: bytes) -> Callable[[Path], None]:
    """Write a payload and its hash, so that only the payload's own rules can refuse it."""

    def change(folder: Path) -> None:
        write_atomic(folder / name, content)
        files = json.loads((folder / "submission.json").read_text())["files"]
        edit(files=files | {name: hashlib.sha256(content).hexdigest()})(folder)

    return change


def program(text: str) -> Callable[[Path], None]:
    return payload("program.json", text.encode())


def header(change: Callable[[dict[str, Any]], Any], data: bytes | None = None) -> bytes:
    content = tensor_file(weights())
    n = struct.unpack("<Q", content[:8])[0]
    table = json.loads(content[8 : 8 + n])
    changed = change(table)
    text = changed if isinstance(changed, bytes) else json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text + (content[8 + n :] if data is None else data)


def one_weight(value: float) -> bytes:
    w0 = weights()["w0"].copy()
    w0[0, 0] = value
    return tensor_file(weights(w0=w0))


def linked(folder: Path) -> None:
    target = folder.parent / "elsewhere.json"
    (folder / "program.json").rename(target)
    (folder / "program.json").symlink_to(target)


def hard_linked(folder: Path) -> None:
    os.link(folder / "program.json", folder.parent / "second-name.json")


def piped(folder: Path) -> None:
    (folder / "program.json").unlink()
    os.mkfifo(folder / "program.json")


def with_file(name: str, content: bytes = b"raise SystemExit('executed')\n") -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def many_files(folder: Path) -> None:
    for i in range(20):
        (folder / f"file{i}").touch()


def signed_badly(folder: Path) -> None:
    body = b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----\n"
    (folder / "submission.json.sig").write_bytes(body)
