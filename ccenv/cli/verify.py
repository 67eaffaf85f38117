"""``ccenv verify``: prove a property of a sender on a network model, or show a trace that breaks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccenv.cli.output import JsonOption, print_json, print_table, print_text
from ccenv.errors import InputError, did_you_mean, require_extra, unknown_name

if TYPE_CHECKING:
    from fractions import Fraction

    from ccenv.smt.claims.verifier import Verifier
    from ccenv.smt.network.setting import Setting
    from ccenv.workers import Workers

ACTIONS = ("lemmas", "envelope")
_NETWORK = ("model", "buffer", "prop", "at_least", "at_most", "upper", "lambda_form", "loss_detection")
NOT_TAKEN = {
    "lemmas": (*_NETWORK, "budget"),
    "envelope": (*_NETWORK, "bisect"),
    "steady_*": ("at_least", "at_most", "upper", "lambda_form", "loss_detection", "bisect", "budget"),
    "fairness": (
        *("buffer", "setting", "at_least", "upper", "lambda_form", "loss_detection", "bisect", "budget"),
        *("jobs", "backend", "cubes", "recheck", "cache"),
    ),
    "a property": ("bisect", "budget"),
}
"""What is asked -> options that have no meaning there: refused when given, so that no answer is about something else."""


def command(
    context: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[lemmas|envelope] NAME", help="A registered sender or a belief program (.json).")
    ],
    model: Annotated[str, typer.Option(help="Network model: ideal, cbr_delay or ccac.")] = "ccac",
    buffer: Annotated[
        str, typer.Option(help="infinite, small (CD/2), large (at least 3C(Rm+D)), arbitrary, or a number of C*Rm.")
    ] = "infinite",
    prop: Annotated[
        str,
        typer.Option(
            "--property",
            help="invariant, utilisation, utilisation_with_timeouts, utilisation_or_rise, inflight, queue, rtt, loss,"
            " loss_events, loss_amount, steady_*, fairness.",
        ),
    ] = "invariant",
    samples: Annotated[int | None, typer.Option("--T", min=1, help="Trace length in samples one Rm apart.")] = None,
    setting: Annotated[
        str | None, typer.Option(help="What came before the trace: history (default where possible), sound or artefact.")
    ] = None,
    at_least: Annotated[str | None, typer.Option(help="Threshold of utilisation, as a fraction.")] = None,
    at_most: Annotated[str | None, typer.Option(help="Threshold: C(Rm+D), Rm, MSS, steps or C*Rm.")] = None,
    upper: Annotated[str, typer.Option(help="Windows of C_U: paper or exact.")] = "paper",
    lambda_form: Annotated[str, typer.Option(help="C_L_lambda: paper, sent/(T*+D), or grid, sent/(T*+D+1).")] = "paper",
    loss_detection: Annotated[
        str, typer.Option(help="How window-based senders find losses: oracle (one Rm later) or dupacks (and a time-out).")
    ] = "oracle",
    time_limit: Annotated[float, typer.Option(help="Seconds per solver call; what takes longer is unknown.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Seed of the solver.")] = 0,
    bisect: Annotated[bool, typer.Option("--bisect", help="lemmas: also find the best constants.")] = False,
    budget: Annotated[float, typer.Option(help="envelope: seconds of solver time for the whole table.")] = 300.0,
    jobs: Annotated[int, typer.Option(help="Workers: queries, lemmas and cells of an envelope run side by side.")] = 1,
    backend: Annotated[str, typer.Option(help="What the workers are: processes or ray.")] = "processes",
    cubes: Annotated[int, typer.Option(help="Split each query into 2^N by the delays that the sender sees (rarely pays).")] = 0,
    recheck: Annotated[str | None, typer.Option(help="Decide every proof again with yices or cvc5.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for traces of counterexamples.")] = Path("runs/verify"),
    cache: Annotated[bool, typer.Option(help="Reuse stored answers of the very same query.")] = True,
    json: JsonOption = False,
) -> int:
    """Prove a property of a sender for every trace of a network model, or find a trace that breaks it.

    A verdict is verified, refuted (with a trace file) or unknown (the time limit; never a yes).

    Exit code 0 for verified, 1 for refuted, 3 for unknown, 2 for an error; of lemmas 0 where every lemma came out as its suite
    expects; of envelope 0 for a table, whatever its entries are. An option that has no meaning for what is asked is an error.

    Example: ccenv verify cc_qdel --model ccac --buffer infinite --property invariant --T 7

    ccenv verify lemmas cc_qdel --T 7 --bisect --jobs 2

    ccenv verify envelope cc_probe_drain --budget 300

    ccenv verify aimd --property fairness --at-most 32 --T 6
    """
    from ccenv.smt.claims.claims import DEFAULT_SAMPLES, SAMPLES
    from ccenv.smt.claims.verifier import Verifier
    from ccenv.smt.solver.store import Store
    from ccenv.workers import Workers

    action, name = _split(words)
    _refuse_unused(context, action, prop)
    _check_limits(time_limit, recheck, cubes, budget)
    require_extra("z3", "verify")
    limits = {"time_limit_s": time_limit, "seed": seed, "recheck": recheck, "reuse": cache, "folder": str(output), "cubes": cubes}
    if action == "lemmas":
        return _lemmas(name, samples, setting, bisect, limits, (jobs, backend), json)
    if action == "envelope":
        return _envelope(name, samples, setting, budget, limits, (jobs, backend), json)
    if prop == "fairness":
        return _fairness(name, model, samples, _fraction(at_most, "--at-most"), limits, output, json)
    progress = None if json else lambda line: print_text(f"  {line}")
    with Workers(jobs, backend) as workers:
        if prop.startswith("steady_"):
            return _steady(name, model, buffer, prop, samples, setting, limits, workers, json)
        verifier = Verifier(time_limit, seed, recheck, Store(), cache, progress, workers, cubes)
        thresholds = (_fraction(at_least, "--at-least", most=1), _fraction(at_most, "--at-most"))
        return _query(
            name,
            model,
            buffer,
            prop,
            samples or SAMPLES.get(prop, DEFAULT_SAMPLES),
            setting,
            thresholds,
            (upper, lambda_form, loss_detection),
            verifier,
            output,
            json,
        )


def _split(words: list[str]) -> tuple[str, str]:
    if len(words) == 1:
        return "query", words[0]
    if len(words) == 2:
        if words[0] not in ACTIONS:
            raise InputError(f"unknown action {words[0]!r}.{did_you_mean(words[0], ACTIONS)}")
        return words[0], words[1]
    raise InputError(f"give one sender, or lemmas or envelope and one sender; got {' '.join(words)!r}")


def _refuse_unused(context: typer.Context, action: str, prop: str) -> None:
    what = action
    if action == "query":
        what = "fairness" if prop == "fairness" else "steady_*" if prop.startswith("steady_") else "a property"
    options = {parameter.name: "/".join([*parameter.opts, *parameter.secondary_opts]) for parameter in context.command.params}
    given = [name for name in NOT_TAKEN[what] if str(context.get_parameter_source(name)).endswith("COMMANDLINE")]
    if given:
        raise InputError(f"{what} does not take {', '.join(options[name] for name in given)}")


def _check_limits(time_limit: float, recheck: str | None, cubes: int, budget: float) -> None:
    from ccenv.smt.claims.verifier import MOST_CUBES
    from ccenv.smt.solver.solvers import check_second_solver

    if not time_limit > 0:
        raise InputError(f"--time-limit is {time_limit}; it must be above 0 seconds")
    if not budget > 0:
        raise InputError(f"--budget is {budget}; it must be above 0 seconds")
    if not 0 <= cubes <= MOST_CUBES:
        raise InputError(f"--cubes is {cubes}; it must be 0 to {MOST_CUBES}")
    check_second_solver(recheck)


def _fraction(text: str | None, option: str, most: int | None = None) -> Fraction | None:
    from ccenv.foreign import fraction_of

    if text is None:
        return None
    try:
        value = fraction_of(text, option)
    except InputError:
        raise InputError(f"{option} is {text!r}; a number such as 0.5 or 1/2 is needed") from None
    if value < 0:
        raise InputError(f"{option} is {text}; it must not be negative")
    if most is not None and value > most:
        raise InputError(f"{option} is {text}; it must be at most {most}")
    return value


def _buffer(text: str) -> Any:
    from ccenv.smt.network.setting import BUFFERS

    if text in BUFFERS:
        return text
    try:
        return _fraction(text, "--buffer")
    except InputError:
        raise InputError(f"unknown buffer {text!r}.{did_you_mean(text, BUFFERS)} A number of C*Rm is allowed too.") from None


def build_setting(
    sender: Any, model: str, buffer: str, samples: int, name: str | None, rules: tuple[str, str, str]
) -> tuple[Setting, str]:
    """Build the setting of the options; without a name it is ``history`` where the sender's rate is bounded, else ``sound``."""
    from ccenv.smt.network.setting import BeliefRules, Setting, named_setting

    upper, lambda_form, loss_detection = rules
    for option, value, known in (("--upper", upper, ("paper", "exact")), ("--lambda-form", lambda_form, ("paper", "grid"))):
        if value not in known:
            raise unknown_name(f"value of {option}", value, known)
    beliefs = BeliefRules(upper=upper, lambda_extra_steps=int(lambda_form == "grid"))  # type: ignore[arg-type]
    base = Setting(model, _buffer(buffer), samples, loss_detection=loss_detection, beliefs=beliefs)  # type: ignore[arg-type]
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
    thresholds: tuple[Fraction | None, Fraction | None],
    rules: tuple[str, str, str],
    verifier: Verifier,
    output: Path,
    json: bool,
) -> int:
    from ccenv.smt.claims.claims import Thresholds, build_claim
    from ccenv.smt.claims.endless import ramp
    from ccenv.smt.claims.report import about_run, decide_claim
    from ccenv.smt.senders.catalog import smt_sender

    sender = smt_sender(name)
    setting, chosen = build_setting(sender, model, buffer, samples, setting_name, rules)
    queries = build_claim(prop, setting, sender, Thresholds(*thresholds))
    if not json:
        print_text(f"{sender.name} on {model}, buffer {buffer}, {prop}, T = {samples}, setting {chosen}")
    outcome = decide_claim(prop, queries, verifier, output)
    threshold = thresholds[0] if thresholds[0] is not None else thresholds[1]
    outcome.bound = None if threshold is None or outcome.verdict != "verified" else float(threshold)
    data = outcome.to_dict() | {"sender": sender.name, "model": model, "buffer": buffer, "property": prop}
    if outcome.verdict == "verified" and prop in ("utilisation", "utilisation_with_timeouts") and thresholds[0] is not None:
        data["ramp"] = ramp(queries[0].setting, sender, thresholds[0])
    data |= {"setting_name": chosen, "encoding": str(type(sender).__doc__).split("\n", 1)[0]} | about_run(setting)
    if json:
        print_json(data)
    else:
        _print_outcome(data)
    return {"verified": 0, "refuted": 1}.get(outcome.verdict, 3)


def _lemmas(
    name: str, samples: int | None, setting: str | None, bisect: bool, limits: dict[str, Any], where: tuple[int, str], json: bool
) -> int:
    from ccenv.smt.claims.lemma_report import LemmaRun, run_lemmas
    from ccenv.smt.claims.lemmas import load_suite

    suite = load_suite(name).suite
    run = LemmaRun(name, setting or suite.default_setting, samples or suite.default_T, bisect, **limits)
    progress = None if json else lambda done: print_text(f"  {done.name}: {done.verdict}, {done.seconds:.1f} s")
    data = run_lemmas(run, where[0], progress, where[1])
    if json:
        print_json(data)
    else:
        columns = ["lemma", "verdict", "bound", "paper", "refuted beyond", "seconds", "trace"]
        rows = [
            [row["name"], row["verdict"], row["bound"], row["paper"], row.get("bisection", {}).get("refuted"), row["seconds"],
             row["trace"]] for row in data["lemmas"]
        ]  # fmt: skip
        print_table(f"{suite.name} ({suite.source}), T = {run.samples}, setting {run.setting}", columns, rows)
        for row in data["lemmas"]:
            if not row["as_expected"]:
                print_text(f"{row['name']}: expected {row['expected']}, {row['verdict']}. {row.get('reason', '')}")
    verdicts = {row["verdict"] for row in data["lemmas"] if not row["as_expected"]}
    return 0 if not verdicts else 3 if verdicts == {"unknown"} else 1


def _steady(
    name: str,
    model: str,
    buffer: str,
    prop: str,
    samples: int | None,
    setting: str | None,
    limits: dict[str, Any],
    workers: Workers,
    json: bool,
) -> int:
    from ccenv.smt.claims.lemma_report import LemmaRun, run_lemma
    from ccenv.smt.claims.lemmas import load_suite, suite_setting
    from ccenv.smt.claims.report import about_run

    loaded = load_suite(name)
    suite = loaded.suite
    if prop not in suite.properties:
        raise unknown_name(f"property of suite {suite.name!r}", prop, suite.properties)
    if (model, buffer) != (suite.model, suite.buffer):
        raise InputError(f"{prop} of {name} is proved on {suite.model} with buffer {suite.buffer}, not {model} with {buffer}")
    run = LemmaRun(name, setting or suite.default_setting, samples or suite.default_T, True, **limits)
    outcome = run_lemma(run, suite.properties[prop], workers)
    data = outcome.to_dict() | {"property": prop, "sender": loaded.sender.name, "model": model, "buffer": buffer}
    data |= {"lemma": outcome.name, "name": prop, "setting_name": run.setting}
    data |= about_run(suite_setting(loaded, run.setting, run.samples))
    if json:
        print_json(data)
    else:
        _print_outcome(data)
    return {"verified": 0, "refuted": 1}.get(outcome.verdict, 3)


def _fairness(
    name: str, model: str, samples: int | None, ratio: Fraction | None, limits: dict[str, Any], output: Path, json: bool
) -> int:
    from ccenv.smt.claims.fairness import QUERIES
    from ccenv.smt.claims.report import about_run, decide_fairness
    from ccenv.smt.claims.verifier import Verifier

    if name not in QUERIES:
        raise unknown_name("sender with a fairness query", name, QUERIES)
    if ratio is None or ratio < 1:
        raise InputError("property 'fairness' needs the largest ratio between two flows: --at-most X, 1 or more")
    if model != "ccac":
        raise InputError("two flows are encoded on ccac: leave --model out")
    query = QUERIES[name](ratio, samples or 8, 2)
    outcome = decide_fairness(query, Verifier(limits["time_limit_s"], limits["seed"]), output)
    outcome.bound = float(ratio) if outcome.verdict == "verified" else None
    data = outcome.to_dict() | {"sender": name, "flows": 2, "model": model, "property": "fairness", "setting_name": "sound"}
    data |= {"buffer": str(query.setting.buffer)} | about_run(query.setting)
    if json:
        print_json(data)
    else:
        _print_outcome(data)
    return {"verified": 0, "refuted": 1}.get(outcome.verdict, 3)


def _envelope(
    name: str, samples: int | None, setting: str | None, budget: float, limits: dict[str, Any], where: tuple[int, str], json: bool
) -> int:
    from ccenv.smt.claims.endless import SAMPLES
    from ccenv.smt.claims.envelope import EnvelopeRun, run_envelope

    run = EnvelopeRun(name, samples or SAMPLES, setting, budget, **limits)
    progress = None if json else lambda row: print_text(f"  {row['name']}: {row['verdict']}, {row['seconds']:.1f} s")
    data = run_envelope(run, *where, progress)
    if json:
        print_json(data)
    else:
        columns = ["model", "buffer", "metric", "verdict", "bound", "refuted beyond", "seconds"]
        rows = [
            [row[key] for key in ("model", "buffer", "metric", "verdict", "bound", "beyond", "seconds")] for row in data["rows"]
        ]
        print_table(f"verified envelope of {data['sender']}, T = {run.samples}", columns, rows)
    return 0


def _print_outcome(data: dict[str, Any]) -> None:
    rows = [("verdict", data["verdict"]), ("solver time", f"{data['seconds']} s")]
    if data["bound"] is not None:
        rows.append(("bound", str(data["bound"])))
    for key in ("reason", "violates", "trace"):
        if data.get(key):
            rows.append((key, data[key]))
    if data["verdict"] == "verified":
        rows.append(("satisfiable without the property", str(data["sanity"]["satisfiable"])))
    if "recheck" in data:
        confirmed = "confirmed" if data["recheck"]["confirmed"] else "not confirmed"
        rows.append(("second solver", f"{data['recheck']['solver']}: {confirmed} in {data['recheck']['seconds']} s"))
    print_table(data["name"], ["what", "value"], rows)
