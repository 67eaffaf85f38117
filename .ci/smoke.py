"""Try an installed wheel: every command's help page, and the quick commands for real. Run in an empty folder."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import typer

import ccenv
from ccenv.cli.main import GROUPS, build_app
from ccenv.cli.main import main as ccenv_main

CCENV = str(Path(sys.executable).with_name("ccenv"))
KINDS = ("envs", "models", "agents", "adversaries", "suites", "configs")
TIMEOUT_S = 120


def run(*arguments: str, code: int = 0) -> str:
    """Run one command as a user would; any other exit code than the expected one ends the smoke test."""
    done = subprocess.run([CCENV, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != code:
        sys.exit(f"ccenv {' '.join(arguments)}: exit code {done.returncode} instead of {code}\n{done.stdout}{done.stderr}")
    print("ok  ccenv", *arguments)
    return done.stdout


def help_page(names: list[str]) -> None:
    """Ask for a command's help page: in this process, because starting one for each takes a minute."""
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        code = ccenv_main([*names, "--help"])
    if code != 0 or "Usage" not in page.getvalue():
        sys.exit(f"ccenv {' '.join(names)} --help: exit code {code}, no help page")
    print("ok  ccenv", *names, "--help")


def commands() -> list[list[str]]:
    """List every command and sub-command."""
    found: list[list[str]] = []
    for group in GROUPS:
        walk(typer.main.get_command(build_app(group.name)).commands[group.name], [group.name], found)
    return found


def walk(command: object, names: list[str], found: list[list[str]]) -> None:
    """Add a command and those below it."""
    found.append(names)
    for name, below in getattr(command, "commands", {}).items():
        walk(below, [*names, name], found)


def main() -> None:
    """Run the smoke test."""
    if list(Path.cwd().iterdir()):
        sys.exit("run the smoke test in an empty folder")
    if "site-packages" not in ccenv.__file__:
        sys.exit(f"ccenv is imported from {ccenv.__file__}, not from the installed wheel")
    run("--help")
    run("--version")
    for names in commands():
        help_page(names)
    if not json.loads(run("doctor", "--json"))["ok"]:
        sys.exit("ccenv doctor finds something broken")
    for kind in KINDS:
        items = json.loads(run("list", kind, "--json"))
        if not items:
            sys.exit(f"the wheel ships no {kind}")
        for item in items[:1]:
            run("show", item["name"], "--kind", kind)
    if "C_L" not in run("show", "cc_qdel"):
        sys.exit("ccenv show cc_qdel prints no program")
    run("show", "cc_qdle", code=2)
    verdict = json.loads(run("verify", "property", "cc_qdel", "--model", "ccac", "--T", "7", "--json"))
    if verdict["verdict"] != "verified":
        sys.exit(f"ccenv verify property cc_qdel: {verdict}")
    run("train", "quick_sender", code=2)  # the extra [train] is not installed here


if __name__ == "__main__":
    main()
