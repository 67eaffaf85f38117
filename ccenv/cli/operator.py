"""``ccenv board submit``, ``evaluate`` and what else the operator of a board does with its database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccenv.cli.shared import ProcessesOption, seconds_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.leaderboard.evaluate.queue import QueuedStage
    from ccenv.leaderboard.store.database import Stored
    from ccenv.leaderboard.store.home import Home

HOME = Path("runs") / "leaderboard"

BoardOption = Annotated[Path, typer.Option("--board", help="Folder of the board: database, secrets, unfinished work.")]
DatabaseOption = Annotated[
    str | None, typer.Option("--database", help="SQLAlchemy URL, if the database is not a SQLite file in that folder.")
]


def home_of(board: Path, database: str | None) -> Home:
    """Return the board that the options name."""
    from ccenv.leaderboard.store.home import Home

    return Home(board, database)


def submit(
    what: Annotated[str, typer.Argument(metavar="DIR|NAME", help="A submission folder, or a classic CCA of this package.")],
    *,
    own: Annotated[
        bool, typer.Option("--own", help="It comes with ccenv, says the operator: it may have ccenv's names and authors.")
    ] = False,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Take a submission into the board. From then on it is frozen, and its evaluation seeds are decided.

    Classic CCAs are code that was reviewed; they are taken in by name.

    Example: ccenv board submit runs/submissions/cc_qdel
    """
    from ccenv.agents import AGENTS
    from ccenv.base.errors import InputError, did_you_mean
    from ccenv.leaderboard.store.submit import submit_folder, submit_reviewed

    name = what.partition(":")[0]
    if name not in AGENTS and not Path(what).is_dir():
        raise InputError(f"{what!r} is neither a folder nor a classic CCA.{did_you_mean(name, AGENTS.names('classic'))}")
    home = home_of(board, database)
    with home.open() as store:
        if name in AGENTS and not Path(what).is_dir():
            stored = submit_reviewed(store, home, what)
        else:
            stored, _ = submit_folder(store, home, Path(what), own=own)
    entry = stored.content["card"]["name"]
    if json:
        print_json({"record": stored.number, "name": entry, "submission": stored.subject, "round": stored.content["round"]})
    else:
        print_text(f"record {stored.number}: {entry}, submission {stored.subject[:12]}, round {stored.content['round']}")
        print_text("next: ccenv board evaluate")


def evaluate(
    *,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only what was never done; otherwise also what older code did.")
    ] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Also what failed with this code.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Only this entry. Repeatable.")] = None,
    suite: Annotated[list[str] | None, typer.Option(help="Suites instead of the board's own. Repeatable.")] = None,
    budget: Annotated[float, seconds_option("--budget", "Time of the solver per sender; 0: no proofs.")] = 120.0,
    traces: Annotated[bool, typer.Option(help="Store worst traces beside their views.")] = True,
    backend: Annotated[str, typer.Option(help="local | processes | ray; the results are the same.")] = "local",
    jobs: ProcessesOption = None,
    cell_cpu: Annotated[float, seconds_option("--cell-cpu", "CPU time that a run of a suite may use.")] = 900.0,
    cell_memory: Annotated[float, typer.Option(help="GiB that a process may use.")] = 8.0,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate what was submitted: the suites with the submission's own seeds, then what a solver can prove.

    Every stage is stored when it is complete; run it again after an interruption. A stage that a submission does not come
    through, or that goes over a cap, is stored as failed with its reason, and the next one goes on; --retry tries those again.

    Example: ccenv board evaluate --backend processes
    """
    from ccenv.cli.progress import progress_bar
    from ccenv.base.errors import require_extra
    from ccenv.leaderboard.evaluate.limits import limits_of
    from ccenv.leaderboard.evaluate.plan import make_stages
    from ccenv.leaderboard.evaluate.queue import evaluate as run
    from ccenv.leaderboard.evaluate.queue import outcome, tasks_of

    limits = limits_of(cell_cpu, cell_memory)
    if budget:
        require_extra("z3", "verify")  # before suites are played for minutes
    home = home_of(board, database)
    with home.open_existing() as store:
        tasks = tasks_of(store, make_stages(suite or (), budget, traces), pending=pending, only=only or (), retry=retry)

        def title(place: int, task: QueuedStage) -> str:
            return f"[{place}/{len(tasks)}] {task.title}"

        def done(place: int, task: QueuedStage, record: Stored | None) -> None:
            if not json:
                print_text(f"{title(place, task)}: {_said(record)}")

        stored = run(
            store,
            home,
            tasks,
            backend=backend,
            workers=jobs,
            show=lambda place, task: progress_bar(title(place, task)),
            done=done,
            limits=limits,
        )
    if json:
        print_json({"stored": [outcome(record) for record in stored]})
    elif not tasks:
        print_text("nothing to do: every entry is evaluated by this code, or failed with it (--retry)")
    else:
        print_text("next: ccenv board build")


def _said(record: Stored | None) -> str:
    if record is None:
        return "another process was first"
    return f"failed: {record.content['reason']}" if record.kind == "failure" else "stored"


def round_command(
    action: Annotated[str, typer.Argument(metavar="show|close", help="Show the rounds, or close the open one.")] = "show",
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Show the rounds and their commitments, or close the open round: its secret is revealed and the next one begins.

    Example: ccenv board round close
    """
    from ccenv.base.errors import unknown_name
    from ccenv.leaderboard.store.rounds import ROUND, close_round, revealed

    if action not in ("show", "close"):
        raise unknown_name("action", action, ("show", "close"))
    home = home_of(board, database)
    with home.open_existing() as store:
        if action == "close":
            close_round(store, home)
        shown = revealed(store)
        rounds = [
            {"round": r.content["number"], "commitment": r.content["commitment"], "secret": shown.get(r.content["number"])}
            for r in store.records(ROUND)
        ]
    if json:
        print_json({"rounds": rounds})
    else:
        print_table("rounds", ["round", "SHA-256 of the secret", "secret"], [list(r.values()) for r in rounds])
