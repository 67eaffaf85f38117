"""``ccenv solve``: a game of sender and network on an integer grid, solved exactly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.shared import JsonOption, out_option, print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.proofs.games.boards import Boards
    from ccenv.proofs.games.game import Game

MOST_BOARDS_PLAYED = 50_000
"""A game with more boards is told by its value only: a line of play needs the cost of every board at every step."""
_OUT = (
    "Also write a figure (.svg, .png): of the belief set along the line, with --steps of theorem 6.1, with --learn of the curve; "
    "or the line as a trace (.npz), or the learnt policy (.safetensors)."
)


def command(
    name: Annotated[
        str, typer.Argument(metavar="GAME", help="A game: ccenv list configs names them (kind solve); or a YAML file.")
    ],
    loss: Annotated[
        str | None, typer.Option(metavar="PACKETS", help="Another allowance a step: a number, C, C/2, sqrt(C), 2C+1 or free.")
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Fewest steps until all smaller rates are excluded, for each C.")
    ] = False,
    sender: Annotated[str, typer.Option(help="Whose line of play is shown: optimal, C_L, C_L+1, cc_qdel ...")] = "optimal",
    learn: Annotated[
        str | None,
        typer.Option(metavar="CONFIG", help="Let a policy learn the game: ppo, dqn, or a YAML file; each row is exact."),
    ] = None,
    out: Annotated[Path | None, out_option(_OUT, "FILE")] = None,
    json: JsonOption = False,
) -> int:
    """Solve a game of sender and network exactly: its boards are all belief sets, its value is the least regret (docs/games.md).

    The regret is the largest C t - S, in packets, over the rates C that are still possible after the game's horizon, and under
    best play of both sides. Where an allowance starves every sender, its regret has no bound: this is said, with a certificate of
    the network.

    Example: ccenv solve cbr_small --json; ccenv solve ccac_small --loss 1 --steps --json; ccenv solve cbr_small --learn ppo
    """
    if learn is not None:
        return _learn(name, learn, out, json, plain=loss is None and not steps and sender == "optimal")
    from ccenv.base.errors import InputError
    from ccenv.proofs.games.boards import explore
    from ccenv.proofs.games.game import load_game

    if steps and sender != "optimal":
        raise InputError("--steps counts steps under best play of both sides: no --sender goes with it")
    game = load_game(name)
    if loss is not None:
        game = game.changed(loss=int(loss) if loss.lstrip("-").isdecimal() else loss)
    boards = explore(game)
    data = _about(game, boards) | (_steps(game, boards) if steps else _value(boards, sender, out))
    if steps and out is not None:
        from ccenv.base.figure import require_picture
        from ccenv.proofs.games.figure import draw_steps
        from ccenv.proofs.games.values import theorem_rows

        require_picture(out)
        data["theorem_6_1"] = theorem_rows(game)
        draw_steps(data["theorem_6_1"], out)
    if json:
        print_json(data)
        return 0
    if steps:
        columns = (data["rates"][1:], data["steps"], data["ramp_steps"] or [None] * len(data["steps"]))
        title = f"{game.name}: steps until all smaller rates are excluded"
        print_table(title, ["C", "steps", "F^-1(C)"], list(zip(*columns, strict=True)))
    elif data["starves"]:
        print_text(f"{game.name}: every sender starves, the game has no value: {data['reason']}")
    else:
        print_text(f"{game.name}: regret {data['regret']} packets after {game.horizon_steps} steps, {len(boards)} boards")
    if data.get("line"):
        shown = [column for column in data["line"][0] if column != "board"]
        rows = [[row[column] for column in shown] for row in data["line"]]
        print_table(f"{sender} against its worst network", shown, rows)
    if out is not None:
        print_text(f"wrote {out}")
    return 0


def _learn(name: str, config: str, out: Path | None, json: bool, plain: bool) -> int:
    """Let a policy learn a game and print its curve beside the value."""
    from ccenv.base.errors import InputError
    from ccenv.base.figure import require_picture
    from ccenv.proofs.games.figure import draw_learning
    from ccenv.training.games import learn, load_training

    if not plain:
        raise InputError("--learn takes a game as its file says: no --loss, --steps or --sender")
    training = load_training(config)
    stores = out is not None and out.suffix == ".safetensors"
    if out is not None and not stores:
        require_picture(out)
    learned = learn(name, training, lambda row: None if json else print_text(f"  {row['steps']} steps: regret {row['regret']:g}"))
    if out is not None and stores:
        learned.save(out)
    elif out is not None:
        draw_learning(f"{training.algorithm} on {name}", learned.value, learned.curve, out)
    last = learned.curve[-1]
    if json:
        print_json({"game": name, "value": learned.value, "learned": last, "curve": learned.curve})
        return 0
    print_table(f"{training.algorithm} on {name}; value {learned.value}", [*last], [[*row.values()] for row in learned.curve])
    if out is not None:
        print_text(f"wrote {out}")
    return 0


def _about(game: Game, boards: Boards) -> dict[str, Any]:
    """Return what every table of a game says: grid, feedback, allowance, horizon."""
    kept = ("model", "jitter_steps", "rates", "buffers", "deepest_buffer_bdp", "feedback_steps", "loss", "horizon_steps")
    fields = game.model_dump(include=set(kept))
    return {
        "game": game.name,
        **{name: fields[name] for name in kept},
        "most_inflight": game.inflight_cap,
        "boards": len(boards),
        "moves": len(boards.target),
    }


def _steps(game: Game, boards: Boards) -> dict[str, Any]:
    from ccenv.base.errors import InputError
    from ccenv.proofs.games.values import ramp_steps, steps_to

    try:
        ramp = list(ramp_steps(game).values())
    except InputError:  # without an allowance theorem 6.1 says nothing
        ramp = None
    return {"steps": [steps_to(boards, rate) for rate in game.rates[1:]], "ramp_steps": ramp}


def _value(boards: Boards, sender: str, out: Path | None) -> dict[str, Any]:
    """Return the value of a game, or that it starves every sender, and a line of play where the game is small enough."""
    from ccenv.base.errors import InputError
    from ccenv.proofs.games.players import line, optimal_share, regret_of, sender_on
    from ccenv.proofs.games.values import Solved, regret, share_kept, unshrunk

    kept = share_kept(boards)
    data: dict[str, Any] = {
        "regret": None if kept.starves else regret(boards, boards.game.horizon_steps),
        "starves": kept.starves,
        "share": float(kept.share),
        "share_below": None if kept.below is None else float(kept.below),
        "reason": None,
    }
    if kept.starves:
        data["reason"] = f"the network has a certificate that keeps the sender to {kept.below} of the link for ever"
        if unshrunk(boards):
            data["reason"] += "; whatever is sent, the fastest link and a slower one stay possible ([CCmatic] lemma 2.1)"
    if len(boards) > MOST_BOARDS_PLAYED:
        if sender != "optimal" or out is not None:
            raise InputError(
                f"game {boards.game.name!r} has {len(boards)} boards; lines of play are told up to {MOST_BOARDS_PLAYED}"
            )
        return data | {"sender": None, "line": []}
    solved = Solved(boards)
    player = sender_on(sender, solved)
    rows = [] if sender == "random" and out is None else line(player, solved)
    if out is not None and out.suffix == ".npz":
        from ccenv.proofs.games.traces import trace_of

        trace_of(boards, rows, sender).save(out)
    elif out is not None:
        from ccenv.proofs.games.figure import draw_line

        draw_line(boards, rows, out)
    worst = None if kept.starves else regret_of(player, solved)
    played = {"name": sender, "regret": worst, "optimal_share": optimal_share(player, solved)}
    return data | {"sender": played, "line": rows}
