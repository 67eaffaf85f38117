"""``ccenv board``: pack, check, submit and evaluate submissions; audit, export and publish the leaderboard."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from ccenv.base.errors import InputError, did_you_mean, require_extra, unknown_name
from ccenv.base.foreign import read_json
from ccenv.cli.options import JsonOption, ProcessesOption, SettingsOption, argument, option, out_option, seconds_option, settings
from ccenv.cli.output import print_answer, print_json, print_table, print_text, progress_bar

if TYPE_CHECKING:
    from ccenv.leaderboard.evaluate.queue import QueuedStage
    from ccenv.leaderboard.store.database import Stored
    from ccenv.leaderboard.store.home import Home
    from ccenv.leaderboard.submission.reader import Submission

HOME = Path("runs") / "leaderboard"
_FOLDER: ContextVar[Path] = ContextVar("folder of the board", default=HOME)


class _Board(TyperGroup):
    """The commands of a board; ``--board`` may also stand after a command's name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``--board FOLDER`` before the command."""
        for place, word in enumerate(args):
            if word == "--":
                break
            if word == "--board" or word.startswith("--board="):
                end = place + 1 + (word == "--board")
                return super().parse_args(ctx, [*args[place:end], *args[:place], *args[end:]])
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Board, help="Submissions, their evaluation and the leaderboard (docs/board.md).\n\nExample: ccenv board build"
)


@app.callback()
def group(
    context: typer.Context,
    board: Annotated[
        Path | None, typer.Option("--board", help=f"Folder of the board, {HOME} by default; it may hold a board.yaml.")
    ] = None,
) -> None:
    """Keep the folder of the board for the command."""
    if board is not None and context.invoked_subcommand in ("pack", "check", "score", "serve", "add"):
        raise InputError(f"ccenv board {context.invoked_subcommand} takes no --board: it needs no board")
    _FOLDER.set(board or HOME)


def open_home() -> Home:
    from ccenv.leaderboard.store.home import home_of

    return home_of(_FOLDER.get())


def submit(
    what: Annotated[str, argument("DIR|NAME", "A submission folder, or a classic CCA of this package.")],
    *,
    own: Annotated[
        bool, typer.Option("--own", help="It comes with ccenv, says the operator: it may have ccenv's names and authors.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Add a submission to the board. From then on it is frozen, and its evaluation seeds are fixed.

    Classic CCAs are reviewed code; they are submitted by name.

    Example: ccenv board submit runs/submissions/cc_qdel
    """
    from ccenv.agents import AGENTS
    from ccenv.leaderboard.store.submit import submit_folder, submit_reviewed

    name = what.partition(":")[0]
    if name not in AGENTS and not Path(what).is_dir():
        raise InputError(f"{what!r} is neither a folder nor a classic CCA.{did_you_mean(name, AGENTS.names('classic'))}")
    home = open_home()
    with home.open() as store:
        if name in AGENTS and not Path(what).is_dir():
            stored = submit_reviewed(store, home, what)
        else:
            stored, _ = submit_folder(store, home, Path(what), own=own)
    entry, number = stored.content["card"]["name"], stored.content["round"]
    text = f"record {stored.number}: {entry}, submission {stored.subject[:12]}, round {number}\nnext: ccenv board evaluate"
    print_answer({"record": stored.number, "name": entry, "submission": stored.subject, "round": number}, text, json)


def evaluate(
    *,
    only: Annotated[list[str] | None, typer.Option(help="Only this entry. Repeatable.")] = None,
    suite: Annotated[list[str] | None, typer.Option(help="Suites instead of the board's own. Repeatable.")] = None,
    budget: Annotated[float, seconds_option("--budget", "Time of the solver per sender; 0: no proofs.")] = 120.0,
    jobs: ProcessesOption = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate submissions: the suites with the submission's own seeds, then the bounds that a solver can prove.

    Every stage is stored when it is complete; run it again after an interruption. A stage that fails or exceeds a cap is stored
    as failed with its reason, and the next one begins; -s retry=true tries failed stages again.

    Example: ccenv board evaluate -s backend=processes -s pending=true
    """
    from ccenv.leaderboard.evaluate.queue import describe_outcome, list_tasks, make_limits
    from ccenv.leaderboard.evaluate.queue import evaluate as run
    from ccenv.leaderboard.evaluate.score import make_stages

    held = settings("board evaluate", set_)
    limits = make_limits(held["cell_cpu_s"], held["cell_memory"])
    if budget:
        require_extra("z3", "verify")  # before suites are played for minutes
    home = open_home()
    with home.open_existing() as store:
        which = {"pending": held["pending"], "only": only or (), "retry": held["retry"]}
        tasks = list_tasks(store, make_stages(suite or (), budget, held["traces"]), **which)

        def title(place: int, task: QueuedStage) -> str:
            return f"[{place}/{len(tasks)}] {task.title}"

        def done(place: int, task: QueuedStage, record: Stored | None) -> None:
            if not json:
                print_text(f"{title(place, task)}: {_describe_outcome(record)}")

        stored = run(
            store,
            home,
            tasks,
            backend=held["backend"],
            workers=jobs,
            show=lambda place, task: progress_bar(title(place, task)),
            done=done,
            limits=limits,
        )
    if json:
        print_json({"stored": [describe_outcome(record) for record in stored], "settings": held})
    elif not tasks:
        print_text("nothing to do: every entry is evaluated by this code, or failed with it (-s retry=true)")
    else:
        print_text("next: ccenv board build")


def _describe_outcome(record: Stored | None) -> str:
    if record is None:
        return "another process was first"
    return f"failed: {record.content['reason']}" if record.kind == "failure" else "stored"


def round_command(
    action: Annotated[str, argument("show|close", "Show the rounds, or close the open one.")] = "show", json: JsonOption = False
) -> None:
    """Show the rounds and their commitments, or close the open round: its secret is revealed and the next one begins.

    Example: ccenv board round close
    """
    from ccenv.leaderboard.store.home import ROUND, close_round, revealed_secrets

    if action not in ("show", "close"):
        raise unknown_name("action", action, ("show", "close"))
    home = open_home()
    with home.open_existing() as store:
        if action == "close":
            close_round(store, home)
        secrets = revealed_secrets(store)
        rounds = [
            {"round": r.content["number"], "commitment": r.content["commitment"], "secret": secrets.get(r.content["number"])}
            for r in store.records(ROUND)
        ]
    if json:
        print_json({"rounds": rounds})
    else:
        print_table("rounds", ["round", "SHA-256 of the secret", "secret"], [list(r.values()) for r in rounds])


def audit(
    *,
    seed: Annotated[int | None, typer.Option(help="Of the sample; drawn anew by default.")] = None,
    expect_head: Annotated[
        list[str] | None,
        option("A head that the board must hold: hash of its chain, or board head's file. Repeatable.", metavar="HASH|FILE"),
    ] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Check a board: hashes, chain, seeds, summaries; play random runs again bit for bit, decide random proofs again.

    Exit code 0 if all is well, 1 if not. Only a chain head kept outside shows that the last records were dropped, or that all of
    them were rewritten: keep one (ccenv board head) and pass it.

    Example: ccenv board audit --json; ccenv board audit --expect-head head.json
    """
    from ccenv.leaderboard.audit.run import audit as run
    from ccenv.leaderboard.store.head import expected_head

    held = settings("board audit", set_)
    sample, proofs, time_limit_s, signer = (held[key] for key in ("sample", "proofs", "time_limit_s", "signer"))
    if signer is not None and not expect_head:
        raise InputError("-s signer says who signed a head: give its file with --expect-head")
    expected = [expected_head(text, signer) for text in expect_head or ()]
    if sample < 0 or proofs < 0 or not time_limit_s > 0:
        raise InputError("sample and proofs must be at least 0, time_limit_s above 0")
    home = open_home()
    with home.open_existing() as store, progress_bar("audit") as show:
        result = run(
            store,
            home,
            sample=sample,
            certificates=proofs,
            seed=seed,
            time_limit_s=time_limit_s,
            keep=held["keep"],
            expected=expected,
            progress=show,
        )
    if json:
        print_json(result | {"settings": held})
    else:
        rows = [(name, str(value)) for name, value in result.items() if name not in ("problems", "foreign")]
        print_table("audit", ["what", "value"], rows)
        for record in result["foreign"]:
            print_text(f"of another machine: {record}")
        for problem in result["problems"]:
            print_text(f"problem: {problem}")
    return 1 if result["problems"] else 0


def export(file: Annotated[Path, argument("FILE", "A .jsonl or .jsonl.xz file.")], json: JsonOption = False) -> None:
    """Write all records and files of a board into one file; secrets stay.

    Example: ccenv board export board.jsonl.xz
    """
    from ccenv.leaderboard.site.exchange import export_board

    with open_home().open_existing() as store:
        count = export_board(store, file)
    size = file.stat().st_size
    print_answer({"file": file, "records": count, "bytes": size}, f"wrote {count} records into {file}, {size} bytes", json)


def import_(file: Annotated[Path, argument("FILE", "What ccenv board export wrote.")], json: JsonOption = False) -> None:
    """Read an export into an empty board. Everything is checked; a new round begins after it.

    Example: ccenv board import docs/data/leaderboard.jsonl.xz
    """
    from ccenv.leaderboard.site.exchange import import_board, read_export

    home = open_home()
    read = read_export(file)  # read completely before a board is made
    with home.open() as store:
        count = import_board(store, home, read)
    print_answer({"records": count}, f"read {count} records", json)


def score(
    what: Annotated[str, argument("DIR|NAME", "A sender's submission folder, or a registered sender.")],
    *,
    suite: Annotated[str | None, typer.Option(help="A suite; the board's nominal one by default.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Such as 1,2,3; the suite's public ones by default.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Play a submission as the board would, with public seeds or with those of an entry's page.

    Example: ccenv board score runs/submissions/cc_qdel --suite quick --seeds 1,2
    """
    from ccenv.leaderboard.evaluate.score import parse_seeds, score_sender

    held = settings("board score", set_)
    with progress_bar("score") as show:
        summary = score_sender(what, suite, parse_seeds(seeds), held["backend"], held["jobs"], show)
    if json:
        print_json(summary | {"settings": held})
        return
    nominal, worst = summary["score"], summary["worst_case"]
    if nominal is not None:
        print_text(
            f"{nominal['metric']} {nominal['iqm']:.6f} [{nominal['low']:.6f}, {nominal['high']:.6f}] in {nominal['n_runs']} runs"
        )
    if worst is not None:
        print_text(
            f"worst {worst['metric']} {worst['value']:.6f}: {worst['adversary']} in {worst['scenario']}, seed {worst['seed']}"
        )


def serve(
    site: Annotated[Path, argument("DIR", "Folder of a site.")] = Path("runs") / "board",
    port: Annotated[int, typer.Option(help="0: any free one.")] = 8000,
    json: JsonOption = False,
) -> None:
    """Show a site on this machine only, at http://127.0.0.1:PORT, until Ctrl-C.

    Example: ccenv board serve runs/board
    """
    from ccenv.leaderboard.site.serve import make_server

    with make_server(site, port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/index.html"
        print_answer({"address": address}, address, json)
        sys.stdout.flush()
        server.serve_forever()


def pack(
    spec: Annotated[str, argument("AGENT|CHECKPOINT", "A program, a trained policy, or an adversary.")],
    *,
    author: Annotated[str, typer.Option(help="Person or group.")] = "anonymous",
    sign: Annotated[Path | None, option("Sign with this ed25519 key of ssh.", metavar="KEY")] = None,
    out: Annotated[Path | None, out_option("The folder; runs/submissions/NAME by default.")] = None,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Pack a sender or an adversary into a submission folder: data only.

    Example: ccenv board pack cc_qdel --author "Ada Lovelace"
    """
    from ccenv.leaderboard.evaluate.score import nominal_suite
    from ccenv.leaderboard.submission.document import short_name
    from ccenv.leaderboard.submission.pack import Authorship
    from ccenv.leaderboard.submission.pack import pack as pack_folder

    held = settings("board pack", set_)
    about = {key: held[key] for key in ("licence", "name", "summary", "url")}
    training = {"method": held["method"]} if held["method"] else None
    card = Authorship(author, suite=held["suite"] or nominal_suite(), training=training, **about)
    folder = out or RUNS / "submissions" / (held["name"] or short_name(Path(spec).name))
    submission, change = pack_folder(spec, card, folder, sign)
    if json:
        print_json({"folder": folder, **describe_submission(submission), "largest_change_of_a_weight": change, "settings": held})
        return
    print_text(f"wrote {folder}: {submission.document.kind} {submission.document.name!r}, {submission.sha256[:12]}")
    if submission.document.kind in ("policy", "contract"):
        print_text(f"weights are on the grid that is scored; the largest change is {change:.2g}")
    print_text(f"next: ccenv board check {folder}")


def check(folder: Annotated[Path, argument("DIR", "A submission folder.")], json: JsonOption = False) -> None:
    """Apply every rule for a folder to it. Exit code 2 and one line for the first that it breaks.

    Example: ccenv board check runs/submissions/cc_qdel
    """
    from ccenv.leaderboard.submission.identity import check_reserved
    from ccenv.leaderboard.submission.reader import read_submission

    submission = read_submission(folder)
    check_reserved(submission.document.name, submission.document.author, submission.player)
    about = describe_submission(submission)
    if json:
        print_json({"folder": folder, **about})
    else:
        print_table(f"{folder} is a good submission", ["what", "value"], [[key, str(value)] for key, value in about.items()])


def describe_submission(submission: Submission) -> dict[str, Any]:
    keys = ("name", "track", "kind", "author", "licence", "suite")
    return {
        **{key: getattr(submission.document, key) for key in keys},
        "sha256": submission.sha256,
        "player_sha256": submission.player_sha256,
        "signed_by": submission.signed_by,
    }


def withdraw(
    what: Annotated[str, argument("NAME|REQUEST|DIR", "An entry; a signed request; with --sign the submission folder.")],
    *,
    reason: Annotated[str, typer.Option(help="One line.")] = "",
    sign: Annotated[Path | None, option("Write a request, signed with the key of the submission.", metavar="KEY")] = None,
    out: Annotated[Path | None, out_option("Folder of the request; runs/withdrawals/NAME by default.")] = None,
    json: JsonOption = False,
) -> None:
    """Withdraw an entry: as the operator by its name, or by a request signed with the key of the submission.

    A withdrawn entry is not evaluated and not shown any more. Its records stay in the chain, and its name stays taken.

    Example: ccenv board withdraw cc_qdel --reason "does not end"
    Example: ccenv board withdraw runs/submissions/mine --sign ~/.ssh/id_ed25519; ccenv board withdraw runs/withdrawals/mine
    """
    from ccenv.leaderboard.store.submit import REQUEST, make_request, withdraw_by_operator, withdraw_by_request

    if sign is not None:
        folder = make_request(Path(what), sign, out or RUNS / "withdrawals" / Path(what).resolve().name, reason)
        print_answer({"request": folder}, f"wrote {folder}\nnext, by the operator: ccenv board withdraw {folder}", json)
        return
    if out is not None:
        raise InputError("--out is the folder of a request: give the key with --sign")
    is_request = (Path(what) / REQUEST).exists()
    if is_request and reason:
        raise InputError("--reason: the request says its own")
    with open_home().open_existing() as store:
        stored = withdraw_by_request(store, Path(what)) if is_request else withdraw_by_operator(store, what, reason)
    name, by = stored.content["name"], stored.content["by"]
    text = f"record {stored.number}: {name} is withdrawn, by {by}"
    print_answer({"record": stored.number, "name": name, "submission": stored.subject, "by": by}, text, json)


def head(
    file: Annotated[Path | None, argument("FILE", "Where to write the head; shown only by default.")] = None,
    *,
    sign: Annotated[Path | None, option("Sign it with this ed25519 key of ssh, as FILE.sig.", metavar="KEY")] = None,
    json: JsonOption = False,
) -> None:
    """Show or write the chain head of a board: the number of its records and the hash of its chain.

    Whoever keeps it can show later that records were dropped or rewritten: ccenv board audit --expect-head FILE

    Example: ccenv board head head.json --sign ~/.ssh/id_ed25519
    """
    from ccenv.leaderboard.store.head import current_head, write_head

    if file is None and sign is not None:
        raise InputError("--sign: a signature lies beside a file; give FILE")
    with open_home().open_existing() as store:
        store.check()
        stored_head = current_head(store) if file is None else write_head(store, file, sign)
    text = f"{stored_head.n_records} records, chain {stored_head.chain}"
    if file is not None:
        text += f"\nwrote {file}" + (f", signed with {stored_head.signed_with}" if stored_head.signed_with else "")
    print_answer({"file": file} | stored_head.model_dump(include={"n_records", "chain", "signed_with"}), text, json)


for command in (pack, check, score, submit, withdraw, evaluate, audit, head, export, serve):
    app.command()(command)
app.command("import")(import_)
app.command("round")(round_command)

RUNS = Path("runs")


@app.command()
def add(
    report: Annotated[Path, argument("REPORT", "What ccenv verify property NAME --json printed, as a file.")],
    agent: Annotated[str | None, typer.Option(help="The sender that was verified, if it is not a registered one.")] = None,
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = RUNS,
    json: JsonOption = False,
) -> None:
    """Add the report of a verification to the records; the page shows it as reported, not confirmed.

    The board does not trust reports: it confirms only the bounds of ccenv board evaluate --budget.

    Example: ccenv verify property cc_qdel --T 7 --json > report.json; ccenv board add report.json
    """
    from ccenv.leaderboard.evaluate.score import store_report

    folder = store_report(read_json(report), str(report), records, agent)
    print_answer({"record": folder}, f"wrote {folder}", json)


@app.command()
def build(
    records: Annotated[
        list[Path] | None,
        typer.Option(help="Folders with benchmark runs and verifications instead of the board's database. Repeatable."),
    ] = None,
    out: Annotated[Path, out_option("Folder of the site.")] = RUNS / "board",
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Build the static site. The same records give the same bytes.

    Without --records it shows the board's database, or the runs below runs/ if there is none yet.

    Example: ccenv board build --out runs/board
    Example: ccenv board build -s league=runs/league/quick-0
    """
    from ccenv.leaderboard.site.build import build_site
    from ccenv.leaderboard.site.sources import from_folders, from_store

    held = settings("board build", set_)
    more = (held["certificates"], held["league"], held["quic"])
    home = open_home()
    if not records and not home.exists() and not RUNS.is_dir():
        here = f"no board in {_FOLDER.get()} and no {RUNS}/ here"
        raise InputError(f"{here}: begin with ccenv bench run quick, or ccenv board pack SENDER")
    if records or not home.exists():
        result = build_site(from_folders(records or [RUNS]), out, *more)
    else:
        with home.open_existing() as store:
            result = build_site(from_store(store, home), out, *more)
    counts = ", ".join(f"{count} {name}" for name, count in result.items() if name != "index")
    print_answer(result | {"settings": held}, f"{counts}\nopen {result['index']}", json)


@app.command()
def publish(
    folder: Annotated[Path, argument("DIR", "Folder that a static host serves.")],
    *,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> None:
    """Bring a folder for any static host up to date: pages, records, checksums. Files that are not of the board stay.

    Only what differs is written, the front page last; after an interruption run it again.

    Example: ccenv board publish public --board runs/leaderboard
    """
    from ccenv.leaderboard.site.publish import publish as bring

    held, home = settings("board publish", set_), open_home()
    with home.open_existing() as store, home.publishing():
        more = {"certificates": held["certificates"], "leagues": held["league"], "quic": held["quic"]}
        result = bring(store, home, folder, records=held["records"], **more)
    text = f"{result['files']} files in {folder}: {result['written']} written, {result['removed']} removed"
    print_answer(result | {"settings": held}, text, json)
