"""``ccenv verify``: prove a property of a sender on a network model, or find a trace that violates it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperGroup

from ccenv.base.errors import InputError, did_you_mean, require_extra, unknown_name
from ccenv.cli.completion import configs, names
from ccenv.cli.options import (
    JobsOption,
    JsonOption,
    SettingsOption,
    argument,
    choices,
    fresh_option,
    option,
    out_option,
    seconds_option,
    settings,
)
from ccenv.cli.output import line_printer, print_json, print_table, print_text
from ccenv.cli.theorem import theorem

if TYPE_CHECKING:
    from ccenv.base.workers import Workers
    from ccenv.proofs.claims.verifier import Query, Verifier


class _Commands(TyperGroup):
    """The sub-commands; a sender in place of a sub-command gives an error that names the right command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        from ccenv.cli.settings import former_command

        if (word := args[0]) not in self.commands:
            meant = did_you_mean(word, self.commands)
            if "Did you mean" not in meant:
                meant += f" Of a sender: ccenv verify {'fairness' if 'fairness' in args else 'property'} {word} [OPTIONS]"
            raise InputError(former_command(f"verify {word}") or f"unknown sub-command {word!r}.{meant}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_Commands,
    help="""Prove properties of a sender for every trace of a network model, or find traces that break them.

    A verdict is verified, refuted (a trace breaks the claim by itself, or repeats for ever) or unknown (the reason says which: a
    time limit, or a step of the argument fails). Exit code 0 for verified, 1 for refuted, 3 for unknown, 2 for an error. See
    docs/verification.md.

    Example: ccenv verify property cc_qdel --model ccac --buffer infinite --property invariant --T 7
    """,
)

SenderArgument = Annotated[str, argument("SENDER", "A registered sender or a belief program (.json).", names("agents"))]
SuiteArgument = Annotated[str, argument("NAME", "A sender with lemmas: ccenv list configs names its suite.", configs("verify"))]
SamplesOption = Annotated[int | None, typer.Option("--T", min=1, help="Trace length in samples one Rm apart.")]
SettingOption = Annotated[
    str | None, typer.Option(help="What came before the trace: history (default where possible), sound or artefact.")
]
TimeLimitOption = Annotated[float, seconds_option("--time-limit", "Time per solver call; what takes longer is unknown.")]
RecheckOption = Annotated[str | None, typer.Option(help="Decide every proof again with yices or cvc5.")]
OutOption = Annotated[Path, out_option("Folder for traces of counterexamples.")]
FreshOption = Annotated[bool, fresh_option("Ignore stored answers of the very same query.")]

_NETWORK = ("upper", "lambda_form", "loss_detection", "sent_share")
TIME_LIMIT_S = 600.0
OUT = Path("runs/verify")
FAIRNESS_SAMPLES = 8
STARVED = Fraction(10)
"""Default ratio of bytes between two flows of a belief program from which one starves."""


@app.command("property")
def property_command(
    sender: SenderArgument,
    model: Annotated[str, option("Network model: ideal, cbr_delay or ccac.", choices("ideal", "cbr_delay", "ccac"))] = "ccac",
    buffer: Annotated[
        str, typer.Option(help="infinite, small (CD/2), large (at least 3C(Rm+D)), arbitrary, or a number of C*Rm.")
    ] = "infinite",
    prop: Annotated[
        str,
        typer.Option(
            "--property",
            help="invariant, utilisation, utilisation_with_timeouts, utilisation_or_rise, inflight, queue, rtt, loss,"
            " loss_events, loss_amount; of a lemma suite: steady_utilisation, steady_inflight, ...",
        ),
    ] = "invariant",
    samples: SamplesOption = None,
    setting: SettingOption = None,
    at_least: Annotated[str | None, typer.Option(help="Threshold of utilisation, as a fraction.")] = None,
    at_most: Annotated[
        str | None, typer.Option(help="Threshold; unit by property: C(Rm+D), rtt Rm, loss MSS, loss_amount C*Rm.")
    ] = None,
    time_limit: TimeLimitOption = TIME_LIMIT_S,
    jobs: JobsOption = 1,
    recheck: RecheckOption = None,
    out: OutOption = OUT,
    fresh: FreshOption = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Prove one property of a sender, or find a trace that breaks it, or one at which the argument for it fails.

    Example: ccenv verify property cc_qdel --model ccac --buffer infinite --property invariant --T 7

    ccenv verify property copa --property utilisation_or_rise --at-least 0.1 --T 10
    """
    from ccenv.base.workers import Workers
    from ccenv.proofs.claims.ask import ask, fraction
    from ccenv.proofs.claims.claims import Thresholds

    if prop == "fairness":
        raise InputError(f"fairness has a command of its own: ccenv verify fairness {sender} [OPTIONS]")
    held = settings("verify property", set_)
    limits = _check_limits(time_limit, held | {"recheck": recheck}, fresh, out)
    if prop.startswith("steady_"):
        unused = {"--model": model != "ccac", "--buffer": buffer != "infinite", "--at-least": at_least, "--at-most": at_most}
        unused |= {f"-s {key}": held[key] not in ("paper", "oracle", "1") for key in _NETWORK}
        if names_given := [option for option, is_given in unused.items() if is_given]:
            raise InputError(f"{prop} is a bound of the lemma suite, which says its own network: leave out {names_given[0]}")
        return _steady(sender, prop, samples, setting, limits, jobs, held, json)
    thresholds = Thresholds(fraction(at_least, "--at-least", most=1), fraction(at_most, "--at-most"))
    if prop == "f-efficient" and sender.partition(":")[0] == "ever_delay":
        options = (("--at-most", at_most), ("--T", samples), ("--setting", setting), ("--recheck", recheck))
        if unread := [option for option, value in options if value is not None]:
            raise InputError(f"f-efficient of ever_delay follows from its certificate: leave out {unread[0]}")
        return _from_theorem(sender, thresholds.at_least, model, buffer, held, json)
    rules = (held["upper"], held["lambda_form"], held["loss_detection"])
    sent = fraction(held["sent_share"], "-s sent_share", most=1)
    say = (lambda line: None) if json else print_text
    with Workers(jobs, held["backend"]) as workers:
        verifier = _verifier(limits, workers, json)
        data = ask(
            sender, prop, thresholds, model, buffer, samples, setting, verifier, out, rules=rules, sent_share=sent, say=say
        )
    return _print_verdict(data, held, json)


def _from_theorem(sender: str, at_least: Fraction | None, model: str, buffer: str, held: dict[str, Any], json: bool) -> int:
    """Tell what the theorem about any number of flows says of f-efficiency; return the exit code."""
    from ccenv.agents.load import load_sender
    from ccenv.agents.sender import ClassicSender
    from ccenv.proofs.claims.claims import LEAST_EFFICIENCY
    from ccenv.proofs.theorems.fairness.applied import f_efficiency

    loaded = cast(ClassicSender, load_sender(sender))
    data = f_efficiency(loaded, LEAST_EFFICIENCY if at_least is None else at_least, model, buffer)
    if json:
        print_json(data | {"settings": held})
    else:
        print_text(data["sentence"])
        print_table(sender, ["what", "value"], [(key, str(data[key])) for key in ("verdict", "reason", "bound") if data[key]])
    return 3 if data["reason"] else 0


def _steady(
    name: str,
    prop: str,
    samples: int | None,
    setting: str | None,
    limits: dict[str, Any],
    jobs: int,
    held: dict[str, Any],
    json: bool,
) -> int:
    """Find the best constant of a steady-state bound that a sender's lemma suite names, on the network of the suite."""
    from ccenv.base.workers import Workers
    from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemma
    from ccenv.proofs.claims.lemmas import load_suite, suite_setting
    from ccenv.proofs.claims.report import about_run

    loaded = load_suite(name)
    suite = loaded.suite
    if prop not in suite.properties:
        raise unknown_name(f"property of suite {suite.name!r}", prop, suite.properties)
    run = LemmaRun(name, setting or suite.default_setting, samples or suite.default_T, True, **limits)
    with Workers(jobs, held["backend"]) as workers:
        outcome = run_lemma(run, suite.properties[prop], workers)
    about = {"property": prop, "sender": loaded.sender.name, "model": suite.model, "buffer": suite.buffer}
    about |= {"lemma": outcome.name, "name": prop, "setting_name": run.setting}
    setting_asked = suite_setting(loaded, run.setting, run.samples)
    return _print_verdict(outcome.to_dict() | about | about_run(setting_asked), held, json)


@app.command()
def lemmas(
    name: SuiteArgument,
    samples: SamplesOption = None,
    bisect: Annotated[bool, typer.Option("--bisect", help="Also find the best constants.")] = False,
    time_limit: TimeLimitOption = TIME_LIMIT_S,
    jobs: JobsOption = 1,
    out: OutOption = OUT,
    fresh: FreshOption = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Decide all lemmas of a sender's suite. Exit code 0 if every lemma comes out as its suite expects.

    Example: ccenv verify lemmas cc_qdel --T 10 --bisect -s setting=history
    """
    held = settings("verify lemmas", set_)
    limits = _check_limits(time_limit, held, fresh, out)
    from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemmas
    from ccenv.proofs.claims.lemmas import load_suite

    suite = load_suite(name).suite
    run = LemmaRun(name, held["setting"] or suite.default_setting, samples or suite.default_T, bisect, **limits)
    progress = None if json else lambda done: print_text(f"  {done.name}: {done.verdict}, {done.seconds:.1f} s")
    data = run_lemmas(run, jobs, progress, held["backend"])
    if json:
        print_json(data | {"settings": held})
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


@app.command()
def fairness(
    sender: Annotated[str, argument("SENDER", "aimd, dctcp, rate_delay or a program.", choices("aimd", "dctcp", "rate_delay"))],
    at_most: Annotated[str | None, typer.Option(help="Largest ratio between two flows, 1 or more; of programs 10.")] = None,
    flows: Annotated[int, typer.Option(min=2, help="Flows of the sender that share the link.")] = 2,
    samples: SamplesOption = None,
    time_limit: TimeLimitOption = TIME_LIMIT_S,
    jobs: JobsOption = 1,
    out: OutOption = OUT,
    fresh: FreshOption = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Prove how far apart flows of one sender can get, or find a trace that drives them further.

    Programs that read C_L_lambda or q_U have no encoding for several flows; of those a late start is played in the engine.
    Without --at-most, rate_delay is asked whether its rates stay within s, for its invariant, and for the range of its delays.

    Example: ccenv verify fairness aimd --at-most 32 --T 6
    """
    from ccenv.attacks.constructions.late_start import late_start_outcome
    from ccenv.base.workers import Workers
    from ccenv.proofs.claims.ask import fraction
    from ccenv.proofs.claims.fairness import BELIEFS_OF_ONE, QUERIES, algorithm1_claims, program_query
    from ccenv.proofs.claims.report import about_run, decide_claim
    from ccenv.proofs.formulas.setting import Setting
    from ccenv.proofs.senders.catalog import program_of
    from ccenv.proofs.senders.program import ProgramSmtSender
    from ccenv.proofs.senders.rate_based import RateDelay

    held = settings("verify fairness", set_)
    if (model := held["model"]) not in ("cbr_delay", "ccac"):
        raise unknown_name("model for fairness", model, ("cbr_delay", "ccac"))
    limits = _check_limits(time_limit, held, fresh, out)
    ratio = fraction(at_most, "--at-most")
    claims: list[Query] = []
    if ratio is None and sender == "rate_delay":
        claims, ratio = algorithm1_claims(flows, model), RateDelay().s
    elif ratio is None and sender not in QUERIES:
        ratio = STARVED
    if ratio is None or ratio < 1:
        raise InputError("fairness needs the largest ratio between two flows: --at-most X, 1 or more")
    if claims:
        query = claims[0]
    elif sender in QUERIES:
        query = QUERIES[sender](ratio, samples or FAIRNESS_SAMPLES, flows, model)
    else:
        encoded = ProgramSmtSender(program_of(sender))
        if encoded.needs(Setting()).bounds & BELIEFS_OF_ONE:
            if model != "cbr_delay":
                raise InputError(f"-s model={model}: {sender!r} has no encoding for it; its late start is played on cbr_delay")
            outcome, about, network = late_start_outcome(sender, ratio, flows, out)
            return _print_verdict(outcome.to_dict() | about | about_run(network), held, json)
        query = program_query(encoded, ratio, samples or FAIRNESS_SAMPLES, flows, model)
    with Workers(jobs, held["backend"]) as workers:
        verifier = _verifier(limits, workers, json)
        outcome = decide_claim("fairness", [query], verifier, out)
        if claims:
            parts = [outcome, *(decide_claim(claim.name, [claim], verifier, out) for claim in claims[1:])]
            outcome.details["claims"] = [
                {
                    "name": claim.name,
                    "claim": claim.claim.text,
                    "verdict": part.verdict,
                    "seconds": part.seconds,
                    "trace": part.trace,
                }
                for claim, part in zip(claims, parts, strict=True)
            ]
    outcome.bound = float(ratio) if outcome.verdict == "verified" else None
    about = {
        "ratio": float(ratio),
        "claim": query.claim.text,
        "evidence": outcome.details["queries"][0]["evidence"],
        "sender": sender,
        "flows": flows,
    }
    about |= {"model": query.setting.model, "property": "fairness", "setting_name": "sound", "buffer": str(query.setting.buffer)}
    return _print_verdict(outcome.to_dict() | about | about_run(query.setting), held, json)


@app.command()
def envelope(
    name: SenderArgument,
    samples: SamplesOption = None,
    budget: Annotated[float, seconds_option("--budget", "Solver time for the whole table.")] = 300.0,
    jobs: JobsOption = 1,
    out: OutOption = OUT,
    fresh: FreshOption = False,
    set_: SettingsOption = None,
    json: JsonOption = False,
) -> int:
    """Find the bounds that can be proved of a sender on every model and buffer. Exit code 0 for a table, whatever is in it.

    Example: ccenv verify envelope cc_probe_drain --budget 300
    """
    from ccenv.proofs.claims.endless import SAMPLES
    from ccenv.proofs.claims.envelope import EnvelopeRun, run_envelope

    if not budget > 0:
        raise InputError(f"--budget is {budget:g} s; it must be above 0")
    held = settings("verify envelope", set_)
    limits = _check_limits(held["time_limit_s"], held, fresh, out)
    run = EnvelopeRun(name, samples or SAMPLES, held["setting"], budget, **limits)
    progress = None if json else lambda row: print_text(f"  {row['name']}: {row['verdict']}, {row['seconds']:.1f} s")
    data = run_envelope(run, jobs, held["backend"], progress)
    if json:
        print_json(data | {"settings": held})
    else:
        columns = ["model", "buffer", "metric", "verdict", "bound", "fails at", "seconds"]
        rows = [
            [row[key] for key in ("model", "buffer", "metric", "verdict", "bound", "beyond", "seconds")] for row in data["rows"]
        ]
        print_table(f"verified envelope of {data['sender']}, T = {run.samples}", columns, rows)
    return 0


app.command()(theorem)


def _check_limits(time_limit_s: float, held: dict[str, Any], fresh: bool, out: Path) -> dict[str, Any]:
    """Check what all sub-commands share; return it as arguments of runs."""
    from ccenv.proofs.claims.verifier import MOST_CUBES
    from ccenv.proofs.solver.solvers import check_second_solver

    if not time_limit_s > 0:
        raise InputError(f"the time limit is {time_limit_s} s; it must be above 0 seconds")
    if not 0 <= held["cubes"] <= MOST_CUBES:
        raise InputError(f"-s cubes is {held['cubes']}; it must be 0 to {MOST_CUBES}")
    check_second_solver(held["recheck"])
    require_extra("z3", "verify")
    limits = {name: held[name] for name in ("seed", "recheck", "cubes")}
    return {"time_limit_s": time_limit_s, "reuse": not fresh, "folder": str(out), **limits}


def _verifier(limits: dict[str, Any], workers: Workers, json: bool) -> Verifier:
    from ccenv.proofs.claims.verifier import Verifier
    from ccenv.proofs.solver.solvers import Store

    limits = {name: value for name, value in limits.items() if name != "folder"}
    return Verifier(**limits, store=Store(), progress=line_printer(json), workers=workers)


def _print_verdict(data: dict[str, Any], held: dict[str, Any], json: bool) -> int:
    if json:
        print_json(data | {"settings": held})
    else:
        _print_outcome(data)
    return {"verified": 0, "refuted": 1}.get(data["verdict"], 3)


def _print_outcome(data: dict[str, Any]) -> None:
    rows = [("verdict", data["verdict"]), ("solver time", f"{data['seconds']} s")]
    if data["bound"] is not None:
        rows.append(("bound", str(data["bound"])))
    rows += [(key, data[key]) for key in ("reason", "fails", "violates", "lasso", "trace") if data.get(key)]
    if "replay" in data:
        rows.append(("engine", data["replay"]["engine"]))
    rows += [(claim["name"], f"{claim['verdict']}: {claim['claim']}") for claim in data.get("claims", ())]
    if "shows" in data:
        rows.append(("the trace uses", f"{100 * data['shows']['utilisation']:.3g} % of the link in {data['shows']['rtts']:g} Rm"))
    if data["verdict"] == "verified":
        rows.append(("satisfiable without the property", str(data["sanity"]["satisfiable"])))
    if "recheck" in data:
        confirmed = "confirmed" if data["recheck"]["confirmed"] else "not confirmed"
        rows.append(("second solver", f"{data['recheck']['solver']}: {confirmed} in {data['recheck']['seconds']} s"))
    print_table(data["name"], ["what", "value"], rows)
