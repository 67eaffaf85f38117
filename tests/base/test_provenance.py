"""The code that decides a result: another formula gives another hash, another place or another text does not."""

import ast
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from ccenv.attacks.run import attack
from ccenv.base import provenance
from ccenv.benchmarks.cells.curve import AttackCell, CurveCell
from ccenv.benchmarks.cells.live import LiveCell
from ccenv.benchmarks.cells.packet import PacketCell
from ccenv.proofs.claims.ask import verify
from ccenv.proofs.synthesis.run import solve_query
from ccenv.training.distill.run import distill
from ccenv.training.league.run import league
from ccenv.training.rllib.run import train_rllib
from ccenv.training.run import train

Change = Callable[[str, bytes], bytes | None]
real_source = provenance.module_source


@pytest.fixture
def hash_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Return the hash of an entry as if every module's text had been changed by a function."""

    def hashed(entry: Any, change: Change | None = None, added: dict[str, bytes] | None = None) -> str:
        if change is None:
            return provenance.code_hash(entry)

        def source(name: str) -> bytes | None:
            if added and name in added:
                return change("", added[name])
            text = real_source(name)
            return None if text is None else change(name, text)

        with monkeypatch.context() as patch:
            patch.setattr(provenance, "module_source", source)
            patch.setattr(provenance, "_hash_entries", provenance._hash_entries.__wrapped__)
            return provenance.code_hash(entry)

    return hashed


def unchanged(name: str, text: bytes) -> bytes:
    return text


def formula_of(module: str) -> Change:
    """Change a number or an operator of the first function or table of a module that has one."""

    def change(name: str, text: bytes) -> bytes:
        if name != module:
            return text
        tree = ast.parse(text)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)] or tree.body
        for node in (node for function in functions for node in ast.walk(function)):
            if isinstance(node, ast.BinOp):
                node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
                return ast.unparse(tree).encode()
            if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                node.value += 1
                return ast.unparse(tree).encode()
        raise AssertionError(f"{module} has no formula")

    return change


@pytest.mark.parametrize(
    ("entry", "module"),
    [
        (PacketCell, "ccenv.agents.interface.signals"),
        (PacketCell, "ccenv.network.links.table"),
        (CurveCell, "ccenv.network.laws"),
        (CurveCell, "ccenv.agents.classic.bbr.bbr1"),  # a target of a registry, composed
        (CurveCell, "ccenv.adversaries.scripted.hoard"),
        (AttackCell, "ccenv.attacks.searches.population"),
        (AttackCell, "ccenv.attacks.constructions.slow_link"),
        (LiveCell, "ccenv.live.emulator.link"),
        (attack, "ccenv.attacks.game"),
        (train, "ccenv.training.ppo.update"),
        (train, "ccenv.training.recipes.gap"),
        (train, "ccenv.training.opponents"),
        (train, "ccenv.envs.packet.kernel"),
        (train_rllib, "ccenv.training.rllib.run"),
        (league, "ccenv.training.league.games"),
        (distill, "ccenv.training.distill.imitation"),
        (solve_query, "ccenv.proofs.synthesis.search.groups"),
        (verify, "ccenv.proofs.formulas.laws"),
    ],
)
def test_another_formula_is_other_code(hash_after: Callable[..., str], entry: Any, module: str) -> None:
    assert hash_after(entry, formula_of(module)) != hash_after(entry)


@pytest.mark.parametrize(
    ("module", "function"),
    [
        ("agents.classic.copa", "on_ack"),
        ("agents.classic.reno", "on_loss"),
        ("adversaries.scripted.hoard", "play"),
        ("adversaries.scripted.one_packet", "play"),
    ],
)
def test_callbacks_of_a_module_that_is_handed_on_are_code(hash_after: Callable[..., str], module: str, function: str) -> None:
    def change(name: str, text: bytes) -> bytes:
        pattern = rb"(def " + function.encode() + rb"\([^)]*\)[^\n]*:\n)"
        return re.sub(pattern, rb"\1    print(1)\n", text) if name == f"ccenv.{module}" else text

    assert hash_after(CurveCell, change) != hash_after(CurveCell)


def told_otherwise(name: str, text: bytes) -> bytes:
    """Write some modules without comments, in another layout and with other docstrings."""
    if name not in ("ccenv.network.laws", "ccenv.agents.interface.signals", "ccenv.engine.curve.step"):
        return text
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
            one = [ast.Expr(ast.Constant("Told otherwise."))]
            node.body = one + (node.body[1:] if ast.get_docstring(node) else node.body)  # type: ignore[assignment]
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def renamed(old: str, new: str) -> Change:
    """Rename a module everywhere."""
    (room, _, file), (new_room, _, new_file) = old.rpartition("."), new.rpartition(".")
    by_name = f"from {room} import {file}\n", f"from {new_room} import {new_file} as {file}\n"

    def change(name: str, text: bytes) -> bytes | None:
        return None if name == old else text.replace(old.encode(), new.encode()).replace(by_name[0].encode(), by_name[1].encode())

    return change


def test_documentation_and_commands_are_no_code(hash_after: Callable[..., str]) -> None:
    assert hash_after(CurveCell, told_otherwise) == hash_after(CurveCell)
    assert hash_after(CurveCell, formula_of("ccenv.cli.output")) == hash_after(CurveCell)
    assert hash_after(CurveCell, formula_of("ccenv.training.ppo.update")) == hash_after(CurveCell)


@pytest.mark.parametrize(
    "module", ["agents.interface.rewards", "network.laws", "engine.packet.events", "network.metrics.measures"]
)
def test_a_move_is_no_other_code(hash_after: Callable[..., str], module: str) -> None:
    old, new = f"ccenv.{module}", "ccenv.network.elsewhere"
    text = real_source(old)
    assert text is not None and hash_after(PacketCell, renamed(old, new), {new: text}) == hash_after(PacketCell)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("ccenv.agents.interface.rewards", "ccenv.agents.interface.actions"),  # both are reached
        ("ccenv.agents.classic.common", "ccenv.agents.classic.reno"),
        ("ccenv.base.figure", "ccenv.agents.interface.actions"),  # only the second is
    ],
)
def test_a_merge_is_no_other_code(hash_after: Callable[..., str], source: str, target: str) -> None:
    text = real_source(source)
    assert text is not None

    def change(name: str, before: bytes) -> bytes | None:
        merged = before + b"\n" + text if name == target else before
        return None if name == source else merged.replace(source.encode(), target.encode())

    assert hash_after(PacketCell, change) == hash_after(PacketCell)


def test_it_is_fast_once_files_are_known(hash_after: Callable[..., str]) -> None:
    hash_after(AttackCell)
    before = time.process_time()
    hash_after(AttackCell, unchanged)
    assert time.process_time() - before < 0.7


def test_a_damaged_or_unwritable_cache_is_parsed_again(hash_after, tmp_path, monkeypatch):
    expected = hash_after(solve_query)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hash_after(solve_query, unchanged) == expected
    (file,) = (tmp_path / "ccenv").glob("statements-*.json")
    whole = file.read_bytes()
    for damaged in (b"", b"[]", whole[:-9], whole.replace(b"ccenv", b"other")):
        file.write_bytes(damaged)
        assert hash_after(solve_query, unchanged) == expected
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert hash_after(solve_query, unchanged) == expected
