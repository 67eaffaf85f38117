"""What is installed is what the tree holds: wheel, declared dependencies, pinned constraints, links at the root."""

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LINKS = ("agents", "adversaries", "benchmarks", "configs", "leaderboard")
EXTRAS = ("train", "data", "attack", "wandb", "rllib", "duel", "verify", "quic", "bench", "board", "dev")


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def pins(name: str = "constraints.txt") -> dict[str, str]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Build from a copy, so that no build folder is left in or read from the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "ccenv", source / "ccenv", ignore=shutil.ignore_patterns("__pycache__"))
    out = tmp_path_factory.mktemp("wheel")
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"  # what pip wheel calls
    done = subprocess.run([sys.executable, "-c", code, out], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.glob("ccenv-*.whl")
    return zipfile.ZipFile(file)


def test_the_wheel_holds_every_file_of_the_package_licence_command_and_readme_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tree = {
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "ccenv").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and not file.name.startswith(".")
    }
    assert any(name.endswith(".yaml") for name in tree)
    packed = {name for name in wheel.namelist() if name.startswith("ccenv/")}
    assert not tree - packed, f"not in the wheel (package_data in setup.cfg): {sorted(tree - packed)}"
    assert not packed - tree, f"in the wheel only: {sorted(packed - tree)}"
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ccenv"}
    files = {name.partition(".dist-info/")[2]: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in files
    assert "ccenv = ccenv.cli.main:main" in wheel.read(files["entry_points.txt"]).decode()
    assert "Description-Content-Type: text/markdown" in wheel.read(files["METADATA"]).decode()


@cache
def imported_distributions() -> dict[str, str]:
    """Map each distribution that the library imports to one file that does."""
    providers = metadata.packages_distributions()
    found: dict[str, str] = {}
    for file in sorted((ROOT / "ccenv").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            for top in {module.split(".")[0] for module in modules} - sys.stdlib_module_names - {"ccenv"} - absent():
                where = f"{file.relative_to(ROOT).as_posix()}:{node.lineno}"
                assert top in providers, f"{where} imports {top}, which no installed distribution provides"
                found.setdefault(canonicalize_name(providers[top][0]), where)
    return found


def requirements(*extras: str) -> list[Requirement]:
    """Read what setup.cfg asks for: the core and some extras."""
    config = setup()
    text = config["options"]["install_requires"] + "".join(config["options.extras_require"][extra] for extra in extras)
    asked = [Requirement(line) for line in text.split("\n") if line.strip()]
    return [one for one in asked if one.marker is None or one.marker.evaluate()]


@cache
def absent() -> set[str]:
    installed = {canonicalize_name(name) for names in metadata.packages_distributions().values() for name in names}
    return {canonicalize_name(one.name) for one in requirements("quic")} - installed


def test_every_import_is_a_declared_dependency_and_each_of_them_justified() -> None:
    declared = {canonicalize_name(requirement.name) for requirement in requirements(*EXTRAS[:-1])}
    undeclared = {name: where for name, where in imported_distributions().items() if name not in declared}
    assert not undeclared, f"imported but not in setup.cfg: {undeclared}"
    table = (
        (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8").partition("## Dependencies")[2].partition("## ")[0].lower()
    )
    missing = [r.name for r in requirements(*EXTRAS) if r.name.lower() not in table]
    assert not missing, f"not in the table of docs/decisions.md: {missing}"


def test_every_declared_dependency_is_used() -> None:
    source = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "ccenv").rglob("*.py"))
    imported = imported_distributions()
    # Second solvers run as programs, by the name of their package.
    unused = [
        r.name
        for r in requirements(*EXTRAS[:-1])
        if canonicalize_name(r.name) not in {*imported, *absent()} and f'"{r.name}"' not in source
    ]
    assert not unused, f"in setup.cfg but not used: {unused}"


def test_the_extra_all_names_the_others() -> None:
    (line,) = setup()["options.extras_require"]["all"].split()
    assert Requirement(line).extras == set(EXTRAS) - {"dev"}
    assert set(setup()["options.extras_require"]) == {*EXTRAS, "all", "docs"}


def needed(*extras: str) -> set[str]:
    """Follow the installed distributions down from setup.cfg to everything that ccenv with these extras pulls in."""
    seen: set[tuple[str, str]] = set()
    queue = [(canonicalize_name(r.name), extra) for r in requirements(*extras) for extra in ("", *r.extras)]
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for text in metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                queue += [(canonicalize_name(requirement.name), below) for below in ("", *requirement.extras)]
    return {name for name, _ in seen}


def test_constraints_pin_exactly_what_is_needed() -> None:
    pinned = {canonicalize_name(name) for name in pins()}
    if absent():
        pytest.skip(f"not installed: {', '.join(absent())}")
    wanted = needed(*EXTRAS)
    assert not wanted - pinned, f"not pinned in constraints.txt: {sorted(wanted - pinned)}"
    assert not pinned - wanted, f"pinned in constraints.txt, but nothing needs it: {sorted(pinned - wanted)}"


def test_constraints_of_the_documentation_pin_what_they_add() -> None:
    """The test command does not install the extra docs; where it is installed, the list must be exact."""
    core, pinned = ({canonicalize_name(n) for n in pins(file)} for file in ("constraints.txt", "constraints-docs.txt"))
    asked = {canonicalize_name(requirement.name) for requirement in requirements("docs")}
    core_asks = {canonicalize_name(requirement.name) for requirement in requirements()}
    assert asked - core_asks <= pinned
    assert not core & pinned, f"pinned twice: {sorted(core & pinned)}"
    try:
        wanted = needed("docs") - needed(*EXTRAS)
    except metadata.PackageNotFoundError as error:
        pytest.skip(f"the extra docs is not installed: {error}")
    assert wanted == pinned


@pytest.mark.parametrize(
    ("lock", "constraints"), [("requirements.lock", "constraints.txt"), ("requirements-docs.lock", "constraints-docs.txt")]
)
def test_the_lock_has_a_hash_for_every_pin_but_torch(lock: str, constraints: str) -> None:
    locked: dict[str, list[str]] = {}
    for line in (ROOT / lock).read_text(encoding="utf-8").splitlines():
        if pin := re.fullmatch(r"([A-Za-z0-9_.-]+==[0-9][0-9A-Za-z.]*) \\", line):
            locked[pin[1]] = hashes = []
        elif not line.startswith("#"):
            found = re.fullmatch(r" +--hash=sha256:([0-9a-f]{64})(?: \\)?", line)
            assert found, line
            hashes.append(found[1])
    assert all(locked.values())
    pinned = {f"{canonicalize_name(name)}=={version}" for name, version in pins(constraints).items() if name != "torch"}
    assert {f"{canonicalize_name(pin.split('==')[0])}=={pin.split('==')[1]}" for pin in locked} == pinned


@pytest.mark.parametrize("name", LINKS)
def test_root_links_are_relative_and_lead_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink() and not link.readlink().is_absolute() and link.resolve() == ROOT / "ccenv" / name
