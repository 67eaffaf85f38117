"""``ccenv verify``: prove a property of a sender on a network model, or show a trace that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from fractions import Fraction

    from ccenv.smt.setting import Setting
    from ccenv.smt.verifier import Verifier

ACTIONS = ("lemmas", "envelope")


def command(
    words: Annotated[
        list[str], typer.Argument(metavar="[lemmas|envelope] NAME", help="A registered sender or a belief program (.json).")
    ],
    model: Annotated[str, typer.Option(help="Network model: ideal, cbr_delay or ccac.")] = "ccac",
    buffer: Annotated[
        str, typer.Option(help="infinite, small (CD/2), large (at least 3C(Rm+D)), arbitrary, or a number of C*Rm.")
    ] = "infinite",
    prop: Annotated[str, typer.Option("--property", help="invariant, utilisation, inflight, queue, loss, ...")] = "invariant",
    samples: Annotated[int | None, typer.Option("--T", help="Trace length in samples one Rm apart.")] = None,
    setting: Annotated[
        str | None, typer.Option(help="What came before the trace: history (default where possible), sound or artefact.")
    ] = None,
    at_least: Annotated[str | None, typer.Option(help="Threshold of utilisation, as a fraction.")] = None,
    at_most: Annotated[str | None, typer.Option(help="Threshold: C(Rm+D) for inflight and queue, MSS for loss.")] = None,
    upper: Annotated[str, typer.Option(help="Windows of C_U: paper or exact.")] = "paper",
    time_limit: Annotated[float, typer.Option(help="Seconds per solver call; what takes longer is unknown.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    recheck: Annotated[str | None, typer.Option(help="Decide every proof again with yices or cvc5.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for traces of counterexamples.")] = Path("runs/verify"),
    cache: Annotated[bool, typer.Option(help="Reuse stored answers of the very same query.")] = True,
    json: JsonOption = False,
) -> int:
    """Prove a property of a sender for every trace of a network model, or find a trace that breaks it.

    A verdict is verified, refuted (with a trace file) or unknown (the time limit; never a yes).

    Exit code 0 for verified, 1 for refuted, 3 for unknown, 2 for an error.

    Example: ccenv verify cc_qdel --model ccac --buffer infinite --property invariant --T 7
    """
    from ccenv.smt.store import Store
    from ccenv.smt.verifier import Verifier

    action, name = _split(words)
    _check_limits(time_limit, recheck)
    progress = None if json else lambda line: print_text(f"  {line}")
    verifier = Verifier(time_limit, seed, recheck, Store(), cache, progress)
    if action == "query":
        return _query(name, model, buffer, prop, samples or 7, setting, _fraction(at_least, "--at-least"),
                      _fraction(at_most, "--at-most"), upper, verifier, output, json)  # fmt: skip
    raise InputError(f"unknown action {action!r}")


def _split(words: list[str]) -> tuple[str, str]:
    if len(words) == 1:
        return "query", words[0]
    if len(words) == 2:
        if words[0] not in ACTIONS:
            raise InputError(f"unknown action {words[0]!r}.{did_you_mean(words[0], ACTIONS)}")
        return words[0], words[1]
    raise InputError(f"give one sender, or lemmas or envelope and one sender; got {' '.join(words)!r}")


def _check_limits(time_limit: float, recheck: str | None) -> None:
    from ccenv.smt.solvers import SECOND_SOLVERS, version_of

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    if recheck is not None:
        if recheck not in SECOND_SOLVERS:
            raise InputError(f"unknown solver {recheck!r} for --recheck.{did_you_mean(recheck, SECOND_SOLVERS)}")
        version_of(recheck)


def _fraction(text: str | None, option: str) -> Fraction | None:
    from fractions import Fraction

    if text is None:
        return None
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{option} is {text!r}; a number such as 0.5 or 1/2 is needed") from None
    if value < 0:
        raise InputError(f"{option} is {text}; it must not be negative")
    return value


def _buffer(text: str) -> Any:
    from ccenv.smt.setting import BUFFERS

    if text in BUFFERS:
        return text
    try:
        return _fraction(text, "--buffer")
    except InputError:
        raise InputError(f"unknown buffer {text!r}.{did_you_mean(text, BUFFERS)} A number of C*Rm is allowed too.") from None


def build_setting(sender: Any, model: str, buffer: str, samples: int, name: str | None, upper: str) -> tuple[Setting, str]:
    """Build the setting of the options; without a name it is ``history`` where the sender's rate is bounded, else ``sound``."""
    from ccenv.smt.setting import BeliefRules, Setting, named_setting

    if upper not in ("paper", "exact"):
        raise InputError(f"--upper is {upper!r}; it is paper or exact")
    base = Setting(model, _buffer(buffer), samples, beliefs=BeliefRules(upper=upper))  # type: ignore[arg-type]
    bound = sender.largest_rate()
    chosen = name or ("history" if bound is not None else "sound")
    return named_setting(chosen, base, bound), chosen


def _query(
    name: str,
    model: str,
    buffer: str,
    prop: str,
    samples: int,
    setting_name: str | None,
    at_least: Fraction | None,
    at_most: Fraction | None,
    upper: str,
    verifier: Verifier,
    output: Path,
    json: bool,
) -> int:
    from ccenv.smt.catalog import smt_sender
    from ccenv.smt.claims import Thresholds, build_claim
    from ccenv.smt.report import about_run, decide_claim

    sender = smt_sender(name)
    setting, chosen = build_setting(sender, model, buffer, samples, setting_name, upper)
    queries = build_claim(prop, setting, sender, Thresholds(at_least, at_most))
    if not json:
        print_text(f"{sender.name} on {model}, buffer {buffer}, {prop}, T = {samples}, setting {chosen}")
    outcome = decide_claim(prop, queries, verifier, output)
    threshold = at_least if at_least is not None else at_most
    outcome.bound = None if threshold is None or outcome.verdict != "verified" else float(threshold)
    data = outcome.to_dict() | {"sender": sender.name, "model": model, "buffer": buffer, "property": prop}
    data |= {"setting_name": chosen} | about_run(setting)
    if json:
        print_json(data)
    else:
        _print_outcome(data)
    return {"verified": 0, "refuted": 1}.get(outcome.verdict, 3)


def _print_outcome(data: dict[str, Any]) -> None:
    rows = [("verdict", data["verdict"]), ("solver time", f"{data['seconds']} s")]
    for key in ("reason", "violates", "trace"):
        if data.get(key):
            rows.append((key, data[key]))
    if data["verdict"] == "verified":
        rows.append(("satisfiable without the property", str(data["sanity"]["satisfiable"])))
    if "recheck" in data:
        confirmed = "confirmed" if data["recheck"]["confirmed"] else "not confirmed"
        rows.append(("second solver", f"{data['recheck']['solver']}: {confirmed} in {data['recheck']['seconds']} s"))
    print_table(data["name"], ["what", "value"], rows)
