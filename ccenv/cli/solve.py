"""``ccenv solve``: a game of sender and network on an integer grid, solved exactly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.base.errors import InputError
from ccenv.cli.options import JsonOption, argument, option, out_option
from ccenv.cli.output import print_json, print_table, print_text

if TYPE_CHECKING:
    from ccenv.proofs.games.boards import Boards

MOST_BOARDS_PLAYED = 50_000
"""A game with more boards is told by its value only: a line of play needs the cost of every board at every step."""
_OUT = (
    "Also write a figure (.svg, .png): of the belief set along the line, with --steps of theorem 6.1, with --learn of the curve; "
    "or the line as a trace (.npz), or the learnt policy (.safetensors)."
)


def command(
    name: Annotated[str, argument("GAME", "A game: ccenv list configs names them (kind solve); or a YAML file.")],
    loss: Annotated[
        str | None, option("Another allowance a step: a number, C, C/2, sqrt(C), 2C+1 or free.", metavar="PACKETS")
    ] = None,
    steps: Annotated[
        bool, typer.Option("--steps", help="Fewest steps until all smaller rates are excluded, for each C.")
    ] = False,
    sender: Annotated[str, typer.Option(help="Whose line of play is shown: optimal, C_L, C_L+1, cc_qdel ...")] = "optimal",
    learn: Annotated[
        str | None, option("Let a policy learn the game: ppo, dqn, or a YAML file; each row is exact.", metavar="CONFIG")
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
    from ccenv.base.figure import require_picture
    from ccenv.proofs.games.boards import explore
    from ccenv.proofs.games.figure import draw_steps
    from ccenv.proofs.games.game import load_game
    from ccenv.proofs.games.players import require_sender
    from ccenv.proofs.games.values import ramp_steps, steps_to, theorem_rows

    if learn is not None:
        if loss is not None or steps or sender != "optimal":
            raise InputError("--learn takes a game as its file says: no --loss, --steps or --sender")
        return _learn(name, learn, out, json)
    if steps and sender != "optimal":
        raise InputError("--steps counts steps under best play of both sides: no --sender goes with it")
    require_sender(sender)
    game = load_game(name)
    if loss is not None:
        game = game.changed(loss=int(loss) if loss.lstrip("-").isdecimal() else loss)
    boards, about = explore(game), game.model_dump(exclude={"name", "summary", "source"})
    data = {"game": game.name, **about, "most_inflight": game.inflight_cap, "boards": len(boards), "moves": len(boards.target)}
    if steps:
        try:
            ramp = list(ramp_steps(game).values())
        except InputError:  # without an allowance theorem 6.1 says nothing
            ramp = None
        data |= {"steps": [steps_to(boards, rate) for rate in game.rates[1:]], "ramp_steps": ramp}
        if out is not None:
            require_picture(out)
            data["theorem_6_1"] = theorem_rows(game)
            draw_steps(data["theorem_6_1"], out)
    else:
        data |= _value(boards, sender, out)
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
        if data["reason"]:
            print_text(f"{game.name}: {data['reason']}")
    if rows := data.get("line"):
        shown = [column for column in rows[0] if column != "board"]
        print_table(f"{sender} against its worst network", shown, [[row[column] for column in shown] for row in rows])
    if out is not None:
        print_text(f"wrote {out}")
    return 0


def _learn(name: str, config: str, out: Path | None, json: bool) -> int:
    from ccenv.base.figure import require_picture
    from ccenv.proofs.games.figure import draw_learning
    from ccenv.training.games import learn, load_training

    training = load_training(config)
    stores = out is not None and out.suffix == ".safetensors"
    if out is not None and not stores:
        require_picture(out)
    learned = learn(name, training, lambda row: None if json else print_text(f"  {row['steps']} steps: regret {row['regret']:g}"))
    title, curve = f"{training.algorithm} on {name}", learned.curve
    if out is not None:
        learned.save(out) if stores else draw_learning(title, learned.value, curve, out)
    if json:
        print_json({"game": name, "value": learned.value, "learned": curve[-1], "curve": curve})
        return 0
    print_table(f"{title}; value {learned.value}", [*curve[-1]], [[*row.values()] for row in curve])
    if out is not None:
        print_text(f"wrote {out}")
    return 0


def _value(boards: Boards, sender: str, out: Path | None) -> dict[str, Any]:
    """Return the value of a game, or why it has none, and a line of play where the game is small enough."""
    from ccenv.proofs.games.figure import draw_line
    from ccenv.proofs.games.players import line, optimal_share, regret_of, sender_on
    from ccenv.proofs.games.traces import trace_of
    from ccenv.proofs.games.values import Solved, delay_kept, regret, share_kept, unshrunk

    kept, reasons, data = share_kept(boards), list[str](), dict[str, Any]()
    if kept.starves:
        reasons.append(f"the network has a certificate that keeps the sender to {kept.below} of the link for ever")
        if unshrunk(boards):
            reasons.append("whatever is sent, the fastest link and a slower one stay possible ([CCmatic] lemma 2.1)")
    if len(boards.game.delays) > 1:
        data["delay_steps"], data["busy_delay_steps"], unbounded = delay_kept(boards)
        if unbounded:
            steps = data["busy_delay_steps"]
            reasons.append(f"no sender that keeps the link busy has a bound on the queueing delay below {steps:g} steps")
            reasons.append("whatever it sends, the least and the greatest propagation delay stay possible ([CCmatic] lemma 4.1)")
    data |= {
        "regret": None if kept.starves else regret(boards, boards.game.horizon_steps),
        "starves": kept.starves,
        "share": float(kept.share),
        "share_below": None if kept.below is None else float(kept.below),
        "reason": "; ".join(reasons) or None,
    }
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
        trace_of(boards, rows, sender).save(out)
    elif out is not None:
        draw_line(boards, rows, out)
    worst = None if kept.starves else regret_of(player, solved)
    return data | {"sender": {"name": sender, "regret": worst, "optimal_share": optimal_share(player, solved)}, "line": rows}
