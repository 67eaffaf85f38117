"""The ``ccenv`` command: a table of command groups, each imported only when it is invoked, and the error discipline."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any

import typer

from ccenv.base.errors import CcenvError, CcenvWarning, InputError, UnknownNameError, did_you_mean, one_line
from ccenv.base.interrupts import interrupted, watch
from ccenv.base.provenance import VERSION
from ccenv.base.renamed import today
from ccenv.cli import COMMAND_LINE

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Group:
    """One line of the table of commands."""

    name: str
    module: str
    help: str  # one line for `ccenv --help`; the command's own help is its docstring
    # of the module: a Typer application with sub-commands (`app`), or the function of a single command
    attribute: str = "command"


# One line per command, in the order of ``ccenv --help``. To add one, write ccenv/cli/NAME.py and add its line.
GROUPS: tuple[Group, ...] = (
    Group("demo", "ccenv.cli.demo", "The main job end to end: train, attack, bench, verify, leaderboard page."),
    Group(
        "list",
        "ccenv.cli.catalog",
        "List what there is: agents, adversaries, metrics, suites, signals, plugins ...",
        "list_command",
    ),
    Group("show", "ccenv.cli.catalog", "Show one of them: pseudo-code, source, moves or YAML.", "show_command"),
    Group("train", "ccenv.cli.train", "Train a sender by a config."),
    Group("data", "ccenv.cli.data", "Data sets of transitions, for learning without an environment.", "app"),
    Group("distill", "ccenv.cli.train", "Distil a learned policy into a belief program, and prove it.", "run_distill"),
    Group("attack", "ccenv.cli.attack", "Look for the network that hurts a sender most."),
    Group("league", "ccenv.cli.train", "Populations of senders and networks that answer each other in rounds.", "run_league"),
    Group("gap", "ccenv.cli.attack", "Worst case found against the bound proved, in proof timing.", "run_gap"),
    Group("trace", "ccenv.cli.trace", "Check trace files; run a solver's in the curve engine.", "app"),
    Group("bench", "ccenv.cli.bench", "Run benchmark suites and measure speed.", "app"),
    Group("board", "ccenv.cli.board", "Submissions, their evaluation, and the leaderboard.", "app"),
    Group("verify", "ccenv.cli.verify", "Prove properties of a sender on a network, or find traces that break them.", "app"),
    Group("certificate", "ccenv.cli.theorem", "Check certificates of theorems, without the prover.", "app"),
    Group("shield", "ccenv.cli.shield", "How wide a program's intervals may be while its proofs hold.", "app"),
    Group("synth", "ccenv.cli.synth", "Find all belief programs that provably meet a query, or that there are none."),
    Group("solve", "ccenv.cli.solve", "Solve a game of sender and network on an integer grid exactly."),
    Group("export", "ccenv.cli.live", "Write a belief program as C for the congestion controls of a kernel."),
    Group(
        "live", "ccenv.cli.live", "Run kernels' and exported senders of the real TCP stack through an emulated network.", "app"
    ),
    Group("quic", "ccenv.cli.quic", "Run senders of QUIC stacks in virtual time under legal networks.", "app"),
    Group("sim", "ccenv.cli.compare", "Run an experiment packet by packet.", "run_sim"),
    Group("links", "ccenv.cli.trace", "Traces of links of varying rate: import, check, make.", "links_app"),
    Group("compare", "ccenv.cli.compare", "Run several senders on one network, or on kinds of networks: a table and a figure."),
    Group("report", "ccenv.cli.compare", "Evaluate a sender along RFC 9743: one page that opens offline.", "run_report"),
    Group("new", "ccenv.cli.new", "Write a starting file: sender, program, shield, lemmas, theorem, suite ..."),
    Group("ode", "ccenv.cli.fluid", "BBR fluid models: simulate, sweep, equilibria, stability.", "app"),
    Group("doctor", "ccenv.cli.doctor", "Tell what works on this machine and what is missing."),
)

_ABOUT = """Environment, benchmark and proving ground for Internet congestion control.

Example: ccenv list agents
"""


def build_app(invoked: str | None) -> typer.Typer:
    """Build the application with the invoked group, if any, imported; the others have only a name and a line of help."""
    app = typer.Typer(
        name="ccenv",
        help=_ABOUT,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for group in GROUPS:
        if group.name != invoked:
            app.command(group.name, help=group.help)(_require_command)
            continue
        target = getattr(importlib.import_module(group.module), group.attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=group.name, no_args_is_help=True)
        else:
            app.command(group.name, no_args_is_help=False)(target)
    return app


@cache
def _commands(invoked: str | None) -> Any:
    """Return the application's commands; to make them takes half as long as a short command."""
    return typer.main.get_command(build_app(invoked))


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"ccenv {VERSION}")
        raise typer.Exit


def _show_plugins(value: bool) -> None:
    if value:
        from ccenv.cli.catalog import plugin_table

        plugin_table()
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    plugins: Annotated[
        bool,
        typer.Option("--plugins", callback=_show_plugins, is_eager=True, help="List the plugins of installed packages and exit."),
    ] = False,
) -> None:
    """Hold the options of ``ccenv`` itself."""


def _require_command() -> None:
    """Placeholder of a group that was not invoked."""
    raise CcenvError("give the command first: ccenv COMMAND [OPTIONS]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; by default those of the process, which SIGINT and SIGTERM then end within a second.

    Returns:
        Exit code: 0, 1 if a check fails, 2 for an error (one line on stderr), 130 after Ctrl-C, 143 after SIGTERM.
    """
    command_line = list(sys.argv[1:] if arguments is None else arguments)
    watcher = watch() if arguments is None else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", CcenvWarning)
            warnings.showwarning = partial(_show_warning, warnings.showwarning, set())
            code = _run_to_exit_code(command_line)
    except Exception:
        if watcher is None or watcher.signal is None:
            raise
        code = EXIT_INTERRUPTED  # interrupted code may fail in any way
    if watcher is not None and watcher.signal is not None:
        watcher.end()
    if code == EXIT_INTERRUPTED:
        print("ccenv: interrupted; run the same command again: what can be resumed, resumes", file=sys.stderr)
    return code


def _show_warning(
    show_other: Callable[..., None], seen: set[str], message: Warning | str, category: type[Warning], *location: Any
) -> None:
    """Print a warning of ccenv as one line, once; pass others on."""
    if not issubclass(category, CcenvWarning):
        show_other(message, category, *location)
    elif str(message) not in seen:
        seen.add(str(message))
        print("ccenv: warning: " + one_line(str(message)), file=sys.stderr)


def _run_to_exit_code(arguments: list[str]) -> int:
    """Run the command line and turn exceptions into an exit code, with one line for an error."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except CcenvError as error:
        return _fail(str(error))
    except typer.TyperException as error:  # wrong usage
        from ccenv.cli.settings import usage_message

        return _fail(usage_message(error))
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except OSError as error:
        return _fail(_describe_system_error(error))
    except SyntaxError as error:  # a module of the package, as somebody is changing it
        return _fail(f"{error.filename}:{error.lineno}: {error.msg}")


def _describe_system_error(error: OSError) -> str:
    """Return the message for a system error, such as a full or read-only disk or a missing right."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {reason}"
    return f"the system refused to read or write ({reason}): is the disk full, is it read-only?"


def list_commands() -> dict[str, Any]:
    """Return all commands by their full names, hidden ones left out."""
    out: dict[str, Any] = {}
    for group in GROUPS:
        out |= dict(_list_leaves(group.name, _commands(group.name).commands[group.name]))
    return out


def _list_leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
    for word, below in (inner or {}).items():
        if not below.hidden:
            yield from _list_leaves(f"{name} {word}", below)


def find_command(name: str) -> Any:
    """Return a command by its full name. Raises UnknownNameError if there is none; InputError for a group; names its commands."""
    first, *words = name.split() or [""]
    names = [group.name for group in GROUPS]
    if first not in names:
        raise UnknownNameError(f"unknown command {first!r}.{did_you_mean(first, names)}")
    command = _commands(first).commands[first]
    for word in words:
        inner = getattr(command, "commands", {})
        if word not in inner:
            raise UnknownNameError(f"unknown command {name!r}.{did_you_mean(word, inner)}")
        command = inner[word]
    if getattr(command, "commands", None):
        raise InputError(f"{name}: give one of its commands: {', '.join(f'{name} {word}' for word in command.commands)}")
    return command


def _run(arguments: list[str]) -> int:
    typed = _completed_words() if "_CCENV_COMPLETE" in os.environ else arguments
    typed[:1] = map(today, typed[:1])
    invoked = next((argument for argument in typed if not argument.startswith("-")), None)
    names = [group.name for group in GROUPS]
    if invoked is not None and invoked not in names and typed is arguments:
        from ccenv.cli.settings import former_command

        raise CcenvError(former_command(invoked) or f"unknown command {invoked!r}.{did_you_mean(invoked, names)}")
    result = _commands(invoked)(arguments, prog_name="ccenv", standalone_mode=False, obj=find_command)
    return result if isinstance(result, int) else 0


def _completed_words() -> list[str]:
    """Return the words of the line that a shell completes; bash has its own variable for it."""
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return line.split()[1:]


def _fail(message: str) -> int:
    if message and not interrupted():  # empty if Typer has printed the help
        print("ccenv: error: " + one_line(" ".join(message.split())), file=sys.stderr)
    return EXIT_ERROR


COMMAND_LINE |= {"groups": GROUPS, "build_app": build_app}

if __name__ == "__main__":
    sys.exit(main())
