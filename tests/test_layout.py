"""The table of rooms in docs/architecture.md is what the folders and the imports are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from test_imports import LAYERS, edges, package, room_of

ROOT = Path(__file__).parents[1]
ALL, NOBODY = "all below", "nobody"
_ROW = re.compile(r"^\| `([\w./]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


class Row(NamedTuple):
    """One row of the table: a room's path in ccenv, and who may use it."""

    path: str
    holds: str
    users: str


def table(text: str) -> list[Row]:
    return [Row(*cells) for cells in _ROW.findall(text.partition("## Rooms")[2].partition("\n## ")[0])]


def page() -> list[Row]:
    return table((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


def rooms() -> set[str]:
    """Return the modules of ccenv and its folders down to the second level, as the table writes them."""
    inside = ROOT / "ccenv"
    folders = {f"{p.relative_to(inside).as_posix()}/" for p in [*inside.glob("*/"), *inside.glob("*/*/")] if p.is_dir()}
    return {p.name for p in inside.glob("*.py")} | {name for name in folders if "__pycache__" not in name}


def layer(path: str) -> str:
    """Return the name in LAYERS of the room that a path of the table lies in."""
    module = "ccenv" if path == "__init__.py" else f"ccenv.{path.removesuffix('.py').strip('/').replace('/', '.')}"
    return room_of(module)


def order_problems(rows: list[Row]) -> list[str]:
    places = [LAYERS.index(layer(row.path)) for row in rows]
    wrong = [row.path for row, before, place in zip(rows[1:], places, places[1:], strict=False) if place < before]
    seen: list[str] = []
    for row in rows:
        parent = row.path.rstrip("/").rpartition("/")[0]
        wrong += [row.path] if parent and f"{parent}/" not in seen else []
        seen.append(row.path)
    return [f"{path} stands in the wrong place" for path in wrong]


def use_problems(rows: list[Row], imports: list[tuple[str, int, str, bool]]) -> list[str]:
    """Compare the last column with the imports: who uses a room must be named, and who is named must be a room below it."""
    allowed = {row.path.strip("/").removesuffix(".py").replace("/", "."): row.users for row in rows}
    problems = []
    for row in rows:
        below = LAYERS[LAYERS.index(layer(row.path)) + 1 :]
        named = [] if row.users in {ALL, NOBODY} else row.users.split(", ")
        problems += [f"{row.path}: {user} is no room below it" for user in named if user not in below]
    for module, line, name, _ in imports:
        user = room_of(module)
        parts = name.split(".")[1:] or ["__init__"]
        used = next((".".join(parts[:length]) for length in (2, 1) if ".".join(parts[:length]) in allowed), "")
        if used and user != room_of(name) and allowed[used] != ALL and user not in allowed[used].split(", "):
            problems.append(f"{module}:{line} uses {name}; {used} may be used by {allowed[used]}")
    return problems


def test_every_room_has_its_row() -> None:
    paths = [row.path for row in page()]
    assert len(set(paths)) == len(paths)
    assert set(paths) == rooms()


def test_rows_stand_in_layers() -> None:
    assert not order_problems(page())


def test_rooms_are_used_as_the_table_says() -> None:
    problems = use_problems(page(), edges(package()))
    assert not problems, "\n".join(problems)


def test_a_row_in_the_wrong_place_is_found() -> None:
    rows = table(
        "## Rooms\n| `errors.py` | a | all below |\n| `engine/` | b | all below |\n| `engine/curve/` | c | all below |\n"
    )
    assert [row.path for row in rows] == ["errors.py", "engine/", "engine/curve/"]
    assert not order_problems(rows)
    assert order_problems(rows[::-1])
    assert order_problems([rows[0], rows[2]])


@pytest.mark.parametrize(
    ("users", "user"),
    [
        ("nobody", "ccenv.attacks.run"),
        ("synth", "ccenv.attacks.run"),
        ("network", "ccenv.proofs.claims"),
        ("lawyers", "ccenv.proofs.claims"),
    ],
)
def test_a_use_that_the_table_does_not_allow_is_found(users: str, user: str) -> None:
    rows = [Row("smt/", "proofs", ALL), Row("smt/solver/", "solvers", users)]
    assert use_problems(rows, [(user, 1, "ccenv.proofs.solver.solvers", False)])


def test_a_use_that_the_table_allows_passes() -> None:
    rows = [Row("smt/", "proofs", ALL), Row("smt/solver/", "solvers", "synth, attack")]
    users = ["ccenv.attacks.run", "ccenv.proofs.claims"]
    assert not use_problems(rows, [(user, 1, "ccenv.proofs.solver.solvers", False) for user in users])
