"""The report of a distillation: a Markdown page and the frontier of proved utilisation and nominal score."""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Any

PAGE, PICTURE = "report.md", "frontier.png"


def write_report(folder: FilePath, result: dict[str, Any]) -> FilePath:
    """Write report.md, and frontier.png if there are proofs; return the page."""
    fidelity = result["fidelity"]
    scenes = [f"worst, {name} ({case['set']})" for name, case in result["worst"].items()]
    lines = [
        f"# {result['name']}: distilled from {result['teacher_name']}",
        "",
        f"Score: {_format_weights(result['teacher_weights'])} in the teacher's world, on 1,024 paths that nothing was trained,",
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


def _format_weights(weights: dict[str, float]) -> str:
    """Return the weighted terms of the score."""
    return " ".join(f"{weight:+g} {term}" for term, weight in weights.items() if weight)


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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context():
        figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
        ax = figure.subplots()
        for verdict, marker in (("verified", "o"), ("unknown", "x")):
            chosen = [p for p in result["proofs"] if p["verdict"] == verdict]
            if chosen:
                ax.plot([p["utilisation"] for p in chosen], [p["score"] for p in chosen], marker, label=verdict)
        for key, style in (("score", "--"), ("teacher_score", ":")):
            ax.axhline(result[key], color="black", linewidth=0.8, linestyle=style, label=key.replace("_", " "))
        ax.set_xlabel("utilisation proved on CCAC")
        ax.set_ylabel("nominal score")
        ax.grid(alpha=0.25)
        ax.legend(frameon=False, fontsize="small")
        figure.savefig(file, format="png")
