"""``ccenv distill``: imitate, polish, prove, measure, report. Finished stages are on disk, so a killed distillation resumes.

The report is a Markdown page with the frontier of proved utilisation and nominal score.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ccenv.agents.identity import sender_hash
from ccenv.agents.programs import Program, load_program, parse_program, pseudo_code, to_data, to_json
from ccenv.agents.sender import ProgramSender, Sender
from ccenv.base.errors import InputError, unknown_name
from ccenv.base.figure import finish, panels, save
from ccenv.base.files import Format, hash_value, make_folder, write_atomic
from ccenv.base.provenance import code_hash, machine, versions
from ccenv.base.store import ResultFolder, find_once
from ccenv.proofs.claims.lemma_run import LemmaRun, run_lemmas
from ccenv.proofs.claims.report import decide_claim
from ccenv.proofs.solver.solvers import SECOND_SOLVERS, Store
from ccenv.training.distill.claims import (
    INVARIANT,
    SAMPLES,
    SETTING,
    claim_queries,
    numbers_for,
    require_timeouts,
    weaken_constants,
    write_suite,
)
from ccenv.training.distill.imitation import Imitation, imitate
from ccenv.training.distill.objective import Objective, Teacher, load_teacher, measure
from ccenv.training.distill.prove import LATER_REACH, prove
from ccenv.training.distill.tree import Polished, Template, fit_leaves, ladder, polish, safety_shell

STAGES, REPORT = "stages", "distill.json"
FORMAT = Format("ccenv-distillation", 2, "the result of ccenv distill", older="ccenv distill makes it again", indent=2)


class Stages(ResultFolder):
    """Stages of a distillation, run once per key; results are stored on disk."""

    def __init__(self, folder: FilePath, key: dict[str, Any]) -> None:
        super().__init__(folder, "a distillation", REPORT, FORMAT, marks=(STAGES,))
        self._decisive = key

    @property
    def key_hash(self) -> str:
        return hash_value(self._decisive)

    def run(
        self, name: str, stage: Callable[[], dict[str, Any]], *, limits: dict[str, Any] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return a stage's result, from disk if it was finished with the same key; ``more`` is a further key of this stage.

        With other ``limits`` a search that found a proof is not repeated, and one that did not resumes.
        """
        key, limits = self._decisive | more, limits or {}
        begin = time.perf_counter()
        make_folder(self.path / STAGES)
        return find_once(
            self.path / STAGES / f"{name}.json",
            {"key": key | limits},
            "result",
            lambda stored: stage() | {"seconds": round(time.perf_counter() - begin, 1)},
            lambda stored: (
                stored["result"].get("verdict") == "verified"
                and isinstance(stored.get("key"), dict)
                and {**stored["key"], **limits} == key | limits
            ),
        )


SHALLOWEST_SHELL = 3  # drain guard, one guard on C_U / C_L, utilised
DEEPEST = 6
ATTACK_ROUNDS = 8  # of attack and polish, for a teacher trained against attacks


@dataclass(frozen=True)
class DistillSettings:
    """Settings of a distillation.

    Attributes:
        checkpoint: a learned policy: file, or folder of a training run.
        depth: largest number of conditions on the way to a leaf.
        seed: of everything random.
        prove: utilisations to prove, one program each; none: no proof.
        n_paths: paths of the search, and as many others for the choice of shapes (the reported score is on 1,024 others).
        generations: of the polish.
        population: programs per generation.
        budget_s: wall seconds for the loop of each proof.
        rounds: largest number of rounds of each loop.
        time_limit_s: per solver call.
        recheck: second solver for the final proofs: ``yices`` or ``cvc5``, or None.
        timeouts: preset of belief time-outs under which proved programs are decided too; None: no time-outs.
        attack_flow_steps: budget of the attack that measures the worst case.
    """

    checkpoint: str
    depth: int = 3
    seed: int = 0
    prove: tuple[float, ...] = ()
    n_paths: int = 256
    generations: int = 16
    population: int = 40
    budget_s: float = 900.0
    rounds: int = 40
    time_limit_s: float = 300.0
    recheck: str | None = None
    timeouts: str | None = None
    attack_flow_steps: int = 2_000_000

    def __post_init__(self) -> None:
        low = SHALLOWEST_SHELL if self.prove else 1
        if not low <= self.depth <= DEEPEST:
            why = " (a proof needs a drain guard, a guard on C_U / C_L and 'utilised')" if self.prove else ""
            raise InputError(f"depth is {self.depth}; it must be {low} to {DEEPEST}{why}")
        for name in ("n_paths", "generations", "rounds"):
            if getattr(self, name) < 1:
                raise InputError(f"{name.removeprefix('n_')} is {getattr(self, name)}; it must be at least 1")
        if not (self.budget_s > 0 and self.time_limit_s > 0):
            raise InputError(f"budget is {self.budget_s:g} s, time limit {self.time_limit_s:g} s; both must be above 0")
        if self.recheck is not None and self.recheck not in SECOND_SOLVERS:
            raise unknown_name("solver", self.recheck, SECOND_SOLVERS)
        require_timeouts(self.timeouts)
        for utilisation in self.prove:
            if not 0.05 <= utilisation <= 0.95:
                raise InputError(f"a utilisation to prove is {utilisation}; it must lie in 0.05 to 0.95")


def distill(settings: DistillSettings, folder: FilePath, say: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Distil a policy into a belief program; with ``prove`` also into programs that the solver verifies.

    Finished stages are stored in the folder; the same call resumes from them. The result is JSON-ready: ``score``,
    ``teacher_score``, ``worst_utilisation``, ``program`` and ``proofs``. Raises InputError if the checkpoint is no policy of this
    observation, or the folder holds something else.
    """
    say = say or (lambda line: None)
    teacher = load_teacher(settings.checkpoint)
    head = _head(settings, teacher)
    decisive = ("depth", "seed", "n_paths", "generations", "population", "attack_flow_steps")
    key = {name: head["settings"][name] for name in decisive}
    key |= {name: head[name] for name in ("teacher_sha256", "teacher_world", "teacher_robust")}
    key["code"] = code_hash(distill)
    with Stages(folder, key) as stages:
        return _run_stages(_Distillation(settings, teacher, folder, stages, say), head)


def _run_stages(work: _Distillation, head: dict[str, Any]) -> dict[str, Any]:
    settings, folder = work.settings, work.folder
    tree = work.stages.run("tree", lambda: _tree_stage(work))
    proofs = [_prove_program(work, utilisation) for utilisation in settings.prove]
    result = head | {"teacher_score": tree["teacher"]["score"]} | tree | {"proofs": proofs}
    FORMAT.write(folder / REPORT, result)
    write_report(folder, result)
    return result


@dataclass
class _Distillation:
    """Shared state of the stages of a distillation."""

    settings: DistillSettings
    teacher: Teacher
    folder: FilePath
    stages: Stages
    say: Callable[[str], None]

    @cached_property
    def imitation(self) -> Imitation:
        """The tree that CART grew, and the states that it was fitted to."""
        done = imitate(self.teacher.policy, self.settings.depth, self.settings.seed, self.teacher.world)
        self.say(f"imitated {self.teacher.name}: mean relative difference {done.error:.3f}")
        return done

    def objective(self) -> Objective:
        """Return a new objective, so that a stage's attacks do not depend on whether another stage ran or was on disk."""
        return Objective(self.teacher, self.settings.n_paths, self.settings.seed)

    @property
    def stem(self) -> str:
        """The teacher's name, short enough for names of programs."""
        return self.teacher.name[:40]

    def measure(self, sender: Sender) -> dict[str, Any]:
        """Return the reported numbers of a sender (``measure``)."""
        return measure(sender, self.teacher, self.settings.attack_flow_steps, self.settings.seed)

    def record(self, program: Program, file: FilePath) -> dict[str, Any]:
        """Write a program, measure it as read back from the file, and return its record."""
        write_atomic(file, to_json(program).encode())
        program = load_program(file)
        about = {"name": program.name, "file": str(file), "program": to_data(program), "pseudo_code": pseudo_code(program)}
        return about | self.measure(ProgramSender(program.name, program))


def _head(settings: DistillSettings, teacher: Teacher) -> dict[str, Any]:
    content = b"".join(np.ascontiguousarray(a).tobytes() for a in teacher.policy.arrays)
    if not teacher.policy.is_first_version:
        content += sender_hash(teacher.policy).encode()
    return {
        **FORMAT.head,
        "teacher_name": teacher.name,
        "teacher_sha256": hashlib.sha256(content).hexdigest(),
        "teacher_weights": teacher.weights.model_dump(),
        "teacher_world": teacher.world.model_dump(mode="json"),
        "teacher_robust": None if teacher.robust is None else teacher.robust.model_dump(mode="json"),
        "settings": asdict(settings) | {"prove": list(settings.prove)},
        "versions": versions(),
        "machine": machine(),
    }


def _tree_stage(work: _Distillation) -> dict[str, Any]:
    """Polish CART's tree and plain shapes of the same depth; keep the one with the highest value on other paths."""
    settings, imitation, objective = work.settings, work.imitation, work.objective()
    shapes = {"CART": (imitation.template, imitation.numbers)}
    if settings.depth >= SHALLOWEST_SHELL:
        shapes |= {"shell": safety_shell(settings.depth - 2), "ladder": ladder(settings.depth)}
    polished: dict[str, Polished] = {}
    values: dict[str, float] = {}
    for shape, (template, numbers) in shapes.items():
        start = numbers if shape == "CART" else fit_leaves(template, numbers, imitation.samples)
        polished[shape] = _polish_shape(work, objective, shape, template, start, settings.generations, 1.0)
        values[shape] = objective.select_value(polished[shape].program)
        work.say(f"polished {shape}: {polished[shape].value:.4f} on the paths of the search, {values[shape]:.4f} on others")
    shape = max(polished, key=lambda name: values[name])
    best = polished[shape]
    if objective.under_attack:
        for _ in range(ATTACK_ROUNDS):
            worst = objective.learn(best.program)
            work.say(f"attacked {shape}: worst utilisation {worst:.4f}")
            generations = max(1, settings.generations // 4)
            best = _polish_shape(work, objective, shape, shapes[shape][0], best.numbers, generations, LATER_REACH)
    fidelity = {"mean_relative_difference": imitation.error, "states": len(imitation.samples.rate), "shape": shape}
    measured = {"teacher": work.measure(work.teacher.policy), "fidelity": fidelity}
    return work.record(best.program, work.folder / f"{best.program.name}.json") | measured


def _polish_shape(
    work: _Distillation, objective: Objective, shape: str, template: Template, start: np.ndarray, generations: int, reach: float
) -> Polished:
    depth = work.settings.depth
    return polish(
        template,
        start,
        objective.values,
        name=f"{work.stem}_d{depth}",
        source=f"distilled from {work.teacher.name} ({shape}, depth {depth}, polished)",
        seed=work.settings.seed,
        generations=generations,
        population=work.settings.population,
        reach=reach,
    )


def _prove_program(work: _Distillation, utilisation: float) -> dict[str, Any]:
    """Search a program until it is proved, then decide its written suites in further stages."""
    settings = work.settings
    name = f"{work.stem}_u{100 * utilisation:g}".replace(".", "_")
    limits = {"budget_s": settings.budget_s, "rounds": settings.rounds, "time_limit_s": settings.time_limit_s}
    record = work.stages.run(name, lambda: _proof_stage(work, name, utilisation), limits=limits, utilisation=utilisation)
    if record["verdict"] != "verified":
        return record
    question = {"program": record["program"], "utilisation": utilisation, "recheck": settings.recheck}
    limits = {"time_limit_s": settings.time_limit_s}
    lemmas = work.stages.run(f"{name}_lemmas", lambda: _suite_stage(work, name, record, None), limits=limits, **question)
    record |= lemmas | {"seconds": round(record["seconds"] + lemmas["seconds"], 1)}
    if settings.timeouts is not None:
        record["timeouts"] = work.stages.run(
            f"{name}_timeouts",
            lambda: _suite_stage(work, name, record, settings.timeouts),
            limits=limits,
            timeouts=settings.timeouts,
            **question,
        )
    return record


def _proof_stage(work: _Distillation, name: str, utilisation: float) -> dict[str, Any]:
    settings, say = work.settings, work.say
    numbers = numbers_for(utilisation)
    shell, numbers_of_shell = safety_shell(settings.depth - 2)
    proof_folder = work.folder / name
    proof_folder.mkdir(exist_ok=True)
    proof = prove(
        shell,
        fit_leaves(shell, numbers_of_shell, work.imitation.samples),
        numbers,
        work.objective(),
        name=name,
        source=f"distilled from a policy, shell of depth {settings.depth}, searched until proved",
        seed=settings.seed,
        rounds=settings.rounds,
        budget_s=settings.budget_s,
        time_limit_s=settings.time_limit_s,
        store=Store(),
        state=proof_folder / "pool.npz",
        state_key=work.stages.key_hash,
        report=lambda r: say(f"{name}: round {r['round']}, {r['value']:.4f}: {r['outcome']} ({r['seconds']} s)"),
    )
    return work.record(proof.program, proof_folder / "program.json") | {
        "utilisation": utilisation,
        "claims": {key: str(value) for key, value in asdict(numbers).items()},
        "verdict": proof.verdict,
        "rounds": proof.rounds,
        "traces": proof.traces,
    }


def _suite_stage(work: _Distillation, name: str, record: dict[str, Any], timeouts: str | None) -> dict[str, Any]:
    """Decide a written suite as ``ccenv verify lemmas`` does, and without time-outs the invariant too."""
    settings, folder = work.settings, work.folder / name
    program, numbers = parse_program(json.dumps(record["program"])), numbers_for(record["utilisation"])

    def make_run(suite: FilePath) -> LemmaRun:
        limit_s = settings.time_limit_s
        return LemmaRun(str(suite), SETTING, SAMPLES, time_limit_s=limit_s, recheck=settings.recheck, folder=str(folder))

    if timeouts is not None:
        numbers = weaken_constants(folder, program, numbers, timeouts, make_run)
    suite = write_suite(folder, program, numbers, timeouts)
    lemmas = run_lemmas(make_run(suite))["lemmas"]
    if timeouts is None:
        queries = dict(claim_queries(program, numbers))[INVARIANT]
        lemmas.append(decide_claim(INVARIANT, queries, make_run(suite).verifier(), folder).to_dict())
    keys = ("name", "text", "given", "verdict", "reason", "bound", "seconds", "recheck")
    recorded = [{key: lemma[key] for key in keys if key in lemma} for lemma in lemmas]
    proved = all(lemma["verdict"] == "verified" for lemma in lemmas)  # a refuted lemma does not refute the program
    decided = {"verdict": "verified" if proved else "unknown", "suite": str(suite), "lemmas": recorded}
    if timeouts is None:
        return decided
    return decided | {"preset": timeouts, "C_L_low": float(numbers.C_L_low), "utilisation": float(numbers.utilisation)}


PAGE, PICTURE = "report.md", "frontier.png"


def write_report(folder: FilePath, result: dict[str, Any]) -> FilePath:
    """Write report.md, and frontier.png if there are proofs; return the page."""
    fidelity = result["fidelity"]
    scenes = [f"worst, {name} ({case['set']})" for name, case in result["worst"].items()]
    weights = " ".join(f"{weight:+g} {term}" for term, weight in result["teacher_weights"].items() if weight)
    lines = [
        f"# {result['name']}: distilled from {result['teacher_name']}",
        "",
        f"Score: {weights} in the teacher's world, on 1,024 paths that nothing was trained,",
        "searched or chosen on. Worst cases: lowest utilisation that the attack found on each scene (corners and CEM,",
        f"{result['settings']['attack_flow_steps']:,} flow-steps, CCAC); † marks a scene of attacks in training or polish.",
        "",
        f"| sender | score | {' | '.join(scenes)} | lemmas for a utilisation of | verdict |",
        f"|{' --- |' * (len(scenes) + 4)}",
        _row(result["teacher_name"], result["teacher"], None, ""),
        _row(result["name"], result, None, ""),
        *(_row(p["name"], p, p["utilisation"], p["verdict"]) for p in result["proofs"]),
        "",
        f"Fidelity: CART's tree is off the teacher's rate by {100 * fidelity['mean_relative_difference']:.0f} % in the mean,",
        f"on states that it was not fitted to ({fidelity['states']:,} in all).",
        "What is scored and proved is the program, not the policy.",
        "",
        *_program(result),
    ]
    for proof in result["proofs"]:
        lines += _program(proof)
        if "lemmas" in proof:
            lines += ["CCAC, buffer of at least 3 C (Rm + D), T = 11, setting `history`, without belief time-outs:", ""]
            lines += [*_lemmas(proof), ""]
        if "timeouts" in proof:
            with_them = proof["timeouts"]
            asked = f"C_L stays above {with_them['C_L_low']:g} C, utilisation is at least {with_them['utilisation']:g}"
            lines += [f"With belief time-outs (`{with_them['preset']}`) the claim is: {asked}. It is {with_them['verdict']}:", ""]
            lines += [*_lemmas(with_them), ""]
        last = proof["rounds"][-1]
        spent = f"{len(proof['rounds'])} rounds, {proof['traces']:,} traces in the pool, {last['seconds']} s"
        lines += [f"{spent}; last: {last['outcome']}.", ""]
    if result["proofs"]:
        _draw(folder / PICTURE, result)
        lines += [f"![proved utilisation and nominal score]({PICTURE})", ""]
    page = folder / PAGE
    page.write_text("\n".join(lines), encoding="utf-8")
    return page


def _row(name: str, measured: dict[str, Any], proved: float | None, verdict: str) -> str:
    bound = "" if proved is None or verdict != "verified" else f"{proved:.2f}"
    cases = [f"{case['utilisation']:.3f}{'†' if case['seen'] else ''}" for case in measured["worst"].values()]
    return f"| {name} | {measured['score']:.3f} | {' | '.join(cases)} | {bound} | {verdict} |"


def _program(record: dict[str, Any]) -> list[str]:
    return ["```", record["pseudo_code"], "```", ""]


def _lemmas(proof: dict[str, Any]) -> list[str]:
    head = ["| lemma | verdict | bound | solver s | second solver |", "| --- | --- | --- | --- | --- |"]
    return [*head, *(_lemma(lemma) for lemma in proof["lemmas"])]


def _lemma(lemma: dict[str, Any]) -> str:
    again = lemma.get("recheck")
    second = "" if again is None else f"{again['solver']}: {'confirmed' if again['confirmed'] else 'not confirmed'}"
    bound = "" if lemma["bound"] is None else f"{lemma['bound']:g}"
    return f"| {lemma['name']} | {lemma['verdict']} | {bound} | {lemma['seconds']:.1f} | {second} |"


def _draw(file: FilePath, result: dict[str, Any]) -> None:
    figure, (ax,) = panels(1, 1, (6, 4))
    for verdict, marker in (("verified", "o"), ("unknown", "x")):
        chosen = [p for p in result["proofs"] if p["verdict"] == verdict]
        if chosen:
            ax.plot([p["utilisation"] for p in chosen], [p["score"] for p in chosen], marker, label=verdict)
    for key, style in (("score", "--"), ("teacher_score", ":")):
        ax.axhline(result[key], color="black", linewidth=0.8, linestyle=style, label=key.replace("_", " "))
    finish(ax, "utilisation proved on CCAC", "nominal score", loc="best", frameon=False)
    save(figure, file)
