"""``ccenv board withdraw`` and ``head``: take an entry back, and write down how far the board is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ccenv.cli.operator import HOME, BoardOption, DatabaseOption, home_of
from ccenv.cli.shared import out_option
from ccenv.cli.output import JsonOption, print_json, print_text

RUNS = Path("runs")


def withdraw(
    what: Annotated[
        str, typer.Argument(metavar="NAME|REQUEST|DIR", help="An entry; a signed request; with --sign the submission folder.")
    ],
    *,
    reason: Annotated[str, typer.Option(help="One line.")] = "",
    sign: Annotated[
        Path | None, typer.Option(metavar="KEY", help="Write a request, signed with the key of the submission.")
    ] = None,
    out: Annotated[Path | None, out_option("Folder of the request; runs/withdrawals/NAME by default.")] = None,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Take an entry back: as the operator by its name, or by a request that is signed with the key of the submission.

    A withdrawn entry is not evaluated and not shown any more. Its records stay in the chain, and its name stays taken.

    Example: ccenv board withdraw cc_qdel --reason "does not end"
    Example: ccenv board withdraw runs/submissions/mine --sign ~/.ssh/id_ed25519; ccenv board withdraw runs/withdrawals/mine
    """
    from ccenv.base.errors import InputError
    from ccenv.leaderboard.store.withdraw import REQUEST, make_request, withdraw_by_operator, withdraw_by_request

    if sign is not None:
        folder = make_request(Path(what), sign, out or RUNS / "withdrawals" / Path(what).resolve().name, reason)
        if json:
            print_json({"request": folder})
        else:
            print_text(f"wrote {folder}")
            print_text(f"next, by the operator: ccenv board withdraw {folder}")
        return
    if out is not None:
        raise InputError("--out is the folder of a request: give the key with --sign")
    is_request = (Path(what) / REQUEST).exists()
    if is_request and reason:
        raise InputError("--reason: the request says its own")
    with home_of(board, database).open_existing() as store:
        stored = withdraw_by_request(store, Path(what)) if is_request else withdraw_by_operator(store, what, reason)
    if json:
        print_json(
            {"record": stored.number, "name": stored.content["name"], "submission": stored.subject, "by": stored.content["by"]}
        )
    else:
        print_text(f"record {stored.number}: {stored.content['name']} is withdrawn, by {stored.content['by']}")


def head(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where to write the head; shown only by default.")] = None,
    *,
    sign: Annotated[Path | None, typer.Option(metavar="KEY", help="Sign it with this ed25519 key of ssh, as FILE.sig.")] = None,
    board: BoardOption = HOME,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> None:
    """Show or write the head of a board: the number of its records and the hash of its chain.

    Whoever keeps it can show later that records were dropped or written anew: ccenv board audit --expect-head FILE

    Example: ccenv board head head.json --sign ~/.ssh/id_ed25519
    """
    from ccenv.base.errors import InputError
    from ccenv.leaderboard.store.head import head_of, write_head

    if file is None and sign is not None:
        raise InputError("--sign: a signature lies beside a file; give FILE")
    with home_of(board, database).open_existing() as store:
        store.check()
        found = head_of(store) if file is None else write_head(store, file, sign)
    if json:
        print_json({"file": file, "n_records": found.n_records, "chain": found.chain, "signed_with": found.signed_with})
        return
    print_text(f"{found.n_records} records, chain {found.chain}")
    if file is not None:
        print_text(f"wrote {file}" + (f", signed with {found.signed_with}" if found.signed_with else ""))
