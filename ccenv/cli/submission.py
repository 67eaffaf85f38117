"""``ccenv board pack`` and ``check``: make a submission folder, and apply the board's rules to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.shared import out_option
from ccenv.cli.output import JsonOption, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.leaderboard.submission.reader import Submission

RUNS = Path("runs")


def pack(
    spec: Annotated[str, typer.Argument(metavar="AGENT|CHECKPOINT", help="A program, a trained policy, or an adversary.")],
    *,
    author: Annotated[str, typer.Option(help="Person or group.")] = "anonymous",
    licence: Annotated[str, typer.Option(help="SPDX identifier.")] = "MIT",
    name: Annotated[str | None, typer.Option(help="Name of the entry; the player's own by default.")] = None,
    summary: Annotated[str, typer.Option(help="One line.")] = "",
    url: Annotated[str | None, typer.Option(help="Where more can be read (https).")] = None,
    method: Annotated[str, typer.Option(help="How it was made, one line.")] = "",
    suite: Annotated[str | None, typer.Option(help="Suite that it was made for; the board's nominal one by default.")] = None,
    sign: Annotated[Path | None, typer.Option(metavar="KEY", help="Sign with this ed25519 key of ssh.")] = None,
    out: Annotated[Path | None, out_option("The folder; runs/submissions/NAME by default.")] = None,
    json: JsonOption = False,
) -> None:
    """Pack a sender or an adversary into a submission folder: data only.

    Example: ccenv board pack cc_qdel --author "Ada Lovelace"
    """
    from ccenv.leaderboard.evaluate.plan import nominal_suite
    from ccenv.leaderboard.submission.document import short_name
    from ccenv.leaderboard.submission.pack import Authorship
    from ccenv.leaderboard.submission.pack import pack as pack_folder

    card = Authorship(author, licence, suite or nominal_suite(), name, summary, url, {"method": method} if method else None)
    folder = out or RUNS / "submissions" / (name or short_name(Path(spec).name))
    submission, change = pack_folder(spec, card, folder, sign)
    if json:
        print_json({"folder": folder, **about(submission), "largest_change_of_a_weight": change})
        return
    print_text(f"wrote {folder}: {submission.document.kind} {submission.document.name!r}, {submission.sha256[:12]}")
    if submission.document.kind in ("policy", "contract"):
        print_text(f"weights are on the grid that is scored; the largest change is {change:.2g}")
    print_text(f"next: ccenv board check {folder}")


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A submission folder.")],
    json: JsonOption = False,
) -> None:
    """Apply every rule of the board to a submission folder. Exit code 2 and one line for the first that it breaks.

    Example: ccenv board check runs/submissions/cc_qdel
    """
    from ccenv.leaderboard.submission.reader import read_submission

    submission = read_submission(folder)
    if json:
        print_json({"folder": folder, **about(submission)})
    else:
        print_table(f"{folder} is a good submission", ["what", "value"], [[k, str(v)] for k, v in about(submission).items()])


def about(submission: Submission) -> dict[str, Any]:
    """Return what a command says about a submission."""
    document = submission.document
    return {
        "name": document.name,
        "track": document.track,
        "kind": document.kind,
        "author": document.author,
        "licence": document.licence,
        "suite": document.suite,
        "sha256": submission.sha256,
        "player_sha256": submission.player_sha256,
        "signed_by": submission.signed_by,
    }
