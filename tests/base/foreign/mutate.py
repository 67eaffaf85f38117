# ruff: noqa: E501 -- tables of hostile pieces
"""Hostile variants of good documents: changed bytes, changed trees, and both; the same number gives the same variant."""

import copy
import json
import random
from functools import cache
from typing import Any

import yaml

WORDS = (
    *(b"[", b"]", b"{", b"}", b'"', b":", b",", b"\n", b"\r", b"\x00", b"\xff\xfe", b"&a ", b"*a", b"<<: ", b"!!int ", b"!!python/object:os.system "),
    *(b"1e999", b"-1e-999", b"NaN", b"-Infinity", b".inf", b".nan", b"0x_", b"0o7_", b"1:30:99", b"2024-13-45", b"2024-02-30 25:61:61"),
    *(b"9" * 400, b"9" * 5_000, b"0." + b"3" * 400, b"[" * 300, b'{"a":' * 300, b"- " * 300, b"\\UFFFFFFFF", b"\\ud800", b"%YAML 9.9\n", b"--- ", b"..."),
    *(b"../../x", b"/etc/passwd", b"C:\\x", b"null", b"true", b"~", b"? ", b"| \n", b"> \n", b"# ", b"PK\x05\x06", b"\x80\x04\x95", b"_", b"-", b"=", b"/"),
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 1.0, 0.5, -0.0, 1e-320, 1e-300, 5e-9, 1e9, 1e17, 1e300, 1.7e308, -1.7e308, 2**31, 2**53, 2**63, 2**64, 10**30, 10**39),
    *("", " ", "inf", "-inf", "nan", "NaN", "1e400", "0", "1/0", "1/3", "3/2", "-7", "9" * 400, "1e5", "x" * 5_000, "\x00", "a\nb", "\u202e", "\ud800", "é"),
    *("..", "../../x", "/etc/passwd", "x/../y", "CON", "reno", "ccac", "copa:default_delta=0.1", "lambda_proxy:inner=reno", "C_L", "all", "true"),
    *([], {}, [[]], [{}], {"": None}, {"x": 1}, [1, 2, 3], ["a", "b"], [None] * 50, {"if": 1}, {"rate": {}}, {"all": []}, {"not": {}}, {"low": 1, "high": 0}),
)  # fmt: skip


@cache
def tree_of(document: bytes) -> Any:
    """Return a document as a tree, or None if it is none."""
    try:
        return yaml.safe_load(document) if not document.startswith((b"{", b"[")) else json.loads(document)
    except (ValueError, yaml.YAMLError):
        return None


def text_of(tree: Any, like: bytes) -> bytes:
    """Return a tree as text: JSON where the original was, YAML otherwise, JSON too if YAML cannot write it."""
    if not like.startswith((b"{", b"[")):
        try:
            return yaml.safe_dump(tree, sort_keys=False).encode("utf-8", "surrogatepass")
        except yaml.YAMLError:
            pass
    return json.dumps(tree).encode()


def changed_tree(tree: Any, rng: random.Random) -> Any:
    """Return a tree with one to three places changed."""
    root = [copy.deepcopy(tree)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(root))
        owner, key = rng.choice(places)
        kind = rng.randrange(8)
        if kind <= 3:
            owner[key] = copy.deepcopy(rng.choice(VALUES))
        elif kind == 4:
            other, at = rng.choice(places)
            owner[key] = copy.deepcopy(other[at])
        elif kind == 5 and owner is not root:
            del owner[key]
        elif kind == 6 and isinstance(owner, dict):
            owner[str(rng.choice((key, rng.choice(VALUES))))[:5_000] + rng.choice(("", "x"))] = owner.pop(key)
        elif isinstance(owner[key], list):
            owner[key] = owner[key] * rng.choice((0, 2, 40))
        elif isinstance(owner[key], (int, float)) and not isinstance(owner[key], bool):
            owner[key] = _scaled(owner[key], rng)
        else:
            owner[key] = [owner[key]]
    return root[0]


def _scaled(value: float, rng: random.Random) -> float:
    changes = (lambda v: -v, lambda v: v * 1e6, lambda v: v * 1e-6, lambda v: v + 1, float, int, lambda v: v * 1e290)
    try:
        return rng.choice(changes)(value)
    except OverflowError:
        return value


def _places(tree: Any) -> Any:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], (dict, list)):
            yield from _places(tree[key])


def changed_bytes(content: bytes, others: list[bytes], rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 64))]
        elif kind == 3:
            data[at:at] = rng.choice(WORDS)
        elif kind == 4:
            data[at : at + rng.choice((1, 4, 8))] = rng.choice(WORDS)
        elif kind == 5:
            data[at:at] = data[at : at + rng.choice((1, 8, 64, 512))]
        elif kind == 6:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + rng.choice((4, 32, 256))]
        else:
            del data[at:]
    return bytes(data)


def variant(seeds: list[bytes], rng: random.Random) -> bytes:
    """Return a hostile variant of one of several good documents."""
    seed = rng.choice(seeds)
    tree = tree_of(seed) if rng.random() < 0.7 else None
    if not isinstance(tree, (dict, list)):
        return changed_bytes(seed, seeds, rng)
    text = text_of(changed_tree(tree, rng), seed)
    return changed_bytes(text, seeds, rng) if rng.random() < 0.15 else text
