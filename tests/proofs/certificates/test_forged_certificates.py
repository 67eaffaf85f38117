"""Forged certificates, by rule: every field changed in every way that keeps all else in agreement, each refused by its field.

A forger who knows the checker tells words, figures, steps and hashes anew (``forger.forged``); changes of these themselves come
after that (``late``). What makes a theorem say less is no forgery and is confirmed.
"""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from forger import Change, Data, asserted, forged, lemma_of, query_of, read, retold

from ccenv.base.errors import InputError
from ccenv.cli.main import main
from ccenv.proofs.certificates import check as checking
from ccenv.proofs.certificates.canonical import Reader
from ccenv.proofs.certificates.check import KINDS, check
from ccenv.proofs.certificates.claims import ALL
from ccenv.proofs.certificates.reason import follows
from ccenv.proofs.certificates.theorem import RESERVED, RESULTS

pytest.importorskip("z3")


class Forgery(NamedTuple):
    """A change, and what the field that is refused must match."""

    name: str
    field: str
    change: Change
    late: bool = False

    def on(self, genuine: Data) -> Data:
        data = copy.deepcopy(genuine)
        self.change(data)
        assert data != genuine, self.name
        return data if self.late else retold(data)


def claim(name: str, **values: Any) -> Change:
    return lambda d: d["theorem"]["claims"][name].update(values)


def theorem(**values: Any) -> Change:
    return lambda d: d["theorem"].update(values)


def rank(name: str, **values: Any) -> Change:
    return lambda d: d["theorem"]["claims"][name]["rank"][0].update(values)


def put(path: str, value: Any) -> Change:
    """Return a change that sets the value at a path such as ``program.name``."""

    def change(data: Data) -> None:
        *way, last = path.split(".")
        for key in way:
            data = data[int(key) if key.isdecimal() else key]
        data[int(last) if last.isdecimal() else last] = value

    return change


BAD_NAMES = {
    "empty": "", "a space": "cc qdel", "no width": "cc\u200bqdel", "another alphabet": "\u0441\u0441_qdel", "a line": "cc_qdel\n",
    "a sentence": "cc_qdel uses at least 0.99 of the link, and", "long": "c" * 65, "a path": "../cc_qdel", "a number": 3,
}  # fmt: skip
LOOK_ALIKES = ("c_l", "CL", "C_1", "mss", "M_S_S", "c", "k", "RTTS")


def names() -> Iterator[Forgery]:
    """Names that are none, and constants and states that bear, or look like, the name of something else."""
    for path in ("theorem.name", "theorem.sender", "program.name"):
        for what, name in BAD_NAMES.items():
            yield Forgery(f"{path}: {what}", path, put(path, name))
    for what in ("empty", "no width", "another alphabet", "a line", "long"):
        bad = BAD_NAMES[what] * (2 if what == "long" else 1)
        yield Forgery(f"lemma: {what}", r"theorem\.lemmas\.0\.name", put("theorem.lemmas.0.name", bad))
        yield Forgery(f"lemma of a query: {what}", r"queries\.0\.lemma", put("queries.0.lemma", bad))
        yield Forgery(f"constant: {what}", r"theorem\.constants", lambda d, bad=bad: d["theorem"]["constants"].update({bad: 1}))
        yield Forgery(f"state: {what}", r"theorem\.states", lambda d, bad=bad: d["theorem"]["states"].update({bad: "C_L <= 1"}))
    yield Forgery("lemma: history", r"theorem\.lemmas", put("theorem.lemmas.0.name", "history"))
    yield Forgery("lemma: twice", r"theorem\.lemmas", lambda d: d["theorem"]["lemmas"].append(lemma_of(d, "pays")))
    for word in sorted({*ALL, *RESERVED, *RESULTS, *LOOK_ALIKES}):
        yield Forgery(f"constant {word}", r"theorem\.constants", lambda d, w=word: d["theorem"]["constants"].update({w: "3/8"}))
        yield Forgery(f"state {word}", r"theorem\.states", lambda d, w=word: d["theorem"]["states"].update({w: "C_L <= 1"}))
    for word in ("goal", "rest", "G_O_A_L"):
        yield Forgery(f"state {word}", r"theorem\.states", lambda d, w=word: d["theorem"]["states"].update({w: "C_L <= 1"}))


ANYWHERE = r"(queries|composition|witnesses)\."
NO_NUMBERS = ("many", "1/0", "nan", "inf", "1e400", "1e10", "", "1 2", "1/1000000000000")


def numbers() -> Iterator[Forgery]:
    """Every number of the theorem changed: to none, and to where it would claim more."""
    places = ["constants.goal", "constants.f", "claims.utilisation.bound", "claims.inflight_bdp.bound", "buffer"]
    places += ["claims.utilisation.rank.0.until", "claims.utilisation.rank.0.times", "claims.inflight_bdp.rank.0.minus"]
    for place in places:
        for value in NO_NUMBERS:
            yield Forgery(f"{place} is {value!r}", r"theorem\.", put(f"theorem.{place}", value))
    for name in ("goal", "grows", "f", "rest", "step"):
        for value in ("1/7", "20", "-1", "0"):
            yield Forgery(f"constant {name} is {value}", r"theorem\.claims|" + ANYWHERE, put(f"theorem.constants.{name}", value))
    for name, value in (("utilisation", "9/10"), ("utilisation", "2"), ("inflight_bdp", "2"), ("loss_per_rtt", "1/2")):
        yield Forgery(f"{name} is {value}", rf"composition\.{name}", claim(name, bound=value))
    for name in ("utilisation", "inflight_bdp", "loss_per_rtt"):
        for low, high in ((100, 0), (4, 0), (1, "1/2"), ("0.1", 0)):
            yield Forgery(f"{name} owes {low} to {high}", rf"{name}\.potential_range", claim(name, potential_range=[low, high]))
        for low, high in ((5, 6), (-6, -5), ("1/4", 4)):
            where = rf"composition\.{name}: the potential is bounded"
            yield Forgery(f"{name} owes {low} to {high}", where, claim(name, potential_range=[low, high]))
    yield Forgery("owes too little", r"composition\.utilisation: the pot", claim("utilisation", potential_range=[0, "1/10"]))
    for value in (0, 2, 22, 6.5, "7"):
        yield Forgery(f"T is {value!r}", r"theorem\.T", theorem(T=value) if value != "7" else theorem(T="seven"))
    for value in (3, 6, 9, 11):
        yield Forgery(f"T is {value}", r"witnesses\.|queries\.", theorem(T=value))
    for value in ("-1", "0", "-0.5"):
        yield Forgery(f"a buffer of {value}", r"theorem\.buffer", theorem(buffer=value))
    for value in ("20", "7", "infinite", "arbitrary", "small", 8.5):
        yield Forgery(f"a buffer of {value}", r"theorem\.buffer|" + ANYWHERE, theorem(buffer=value))


def formulas() -> Iterator[Forgery]:
    """Every formula dropped, made impossible, and made none."""
    none: tuple[Any, ...] = ("C_X <= 1", "C_L <= 1 <= 2", "C_L", "C_L * C_L <= 1", "peak_loss >= 1")
    none += (
        "peak_loss + peak_queue <= 1", "2 2 C_L <= 1", "C_L <= ", "1 ** C_L <= 1", "true_beliefs and", "C_L <= 1" + " " * 400,
        "(C_L) <= 1",
    )  # fmt: skip
    none += (7, None, {"none": []}, {"any": "C_L"})
    impossible: tuple[Any, ...] = ("C_L > 1", "queue <= -1/2", "queue > inflight", "inflight < 0", "MSS >= 1/5", "buffer < 0")
    impossible += ("C_U < C_L", {"any": []})
    places = {"start": "start", "invariant": "invariant", "states.true_beliefs": "(start|invariant)"}
    places |= {"claims.loss_per_rtt.when": "when", "lemmas.2.if": "if", "lemmas.2.then.0": "then"}
    for place, where in places.items():
        for text in none:
            yield Forgery(f"{place} is {str(text)[:30]!r}", rf"theorem\.(.*\.)?{where}", put(f"theorem.{place}", text))
    for place in ("start", "invariant", "lemmas.2.if"):
        for name in ("C_L'", "queue'", "served", "delivered", "lost", "C_L_grown", "peak_inflight", "peak_loss"):
            where = rf"theorem\.(.*\.)?{place.rpartition('.')[2]}"
            yield Forgery(f"{place} reads {name}", where, put(f"theorem.{place}", f"{name} <= 1"))
        for text in impossible:
            told = ["true_beliefs", "C_L >= MSS", text]
            yield Forgery(f"{place} with {text}", r"witnesses|composition|queries", put(f"theorem.{place}", told))
    yield Forgery("any start", r"composition\.the start is covered", theorem(start=[]))
    yield Forgery("any invariant", r"composition\.", theorem(invariant=[]))
    yield Forgery("no smallest mark", r"composition\.a trace may begin", theorem(start="true_beliefs", invariant="true_beliefs"))
    for text in ("buffer < 1", "buffer > 7 + 1/9 buffer", "MSS > 1/4", {"any": []}, "1 <= 0"):
        yield Forgery(f"no loss where {text}", r"witnesses\.", claim("loss_per_rtt", when=text))
    for text in ("C_L <= 1", "queue <= 9", "peak_loss <= 1"):
        yield Forgery(f"no loss where {text}", r"theorem\.claims\.loss_per_rtt\.when", claim("loss_per_rtt", when=text))
    for text in ("C_X", "", "C_L'", "served", "C_L_grown", "peak_loss", "MSS", "C_L * queue", "C_L <= 1"):
        yield Forgery(f"a potential {text!r}", r"utilisation\.potential", claim("utilisation", potential=text))
        yield Forgery(f"a potential {text!r} of a peak", r"inflight_bdp\.potential", claim("inflight_bdp", potential=text))
    yield Forgery("a potential of a peak", r"inflight_bdp\.potential", claim("inflight_bdp", potential="C_L"))
    yield Forgery("another potential", r"composition\.utilisation", claim("utilisation", potential="3 C_L"))


def lemmas() -> Iterator[Forgery]:
    """Lemmas that rest on what they may not, are missing, or say another thing than their queries."""
    for name in ("stays true", "never falls", "climbs", "pays", "drains", "rests", "loses"):
        yield Forgery(f"no lemma {name}", r"composition\.|theorem\.lemmas", lambda d, n=name: without_lemma(d, n))
        yield Forgery(f"{name} needs less", r"queries\.|composition\.|given", lambda d, n=name: lemma_of(d, n).update({"if": []}))
        yield Forgery(f"{name} given itself", rf"lemmas\.{name}\.given", lambda d, n=name: lemma_of(d, n).update(given=[n]))
        yield Forgery(f"{name} given loses later", r"lemmas\..*given", lambda d, n=name: lemma_of(d, n).update(given=["loses"]))
        yield Forgery(f"{name} given no one", rf"lemmas\.{name}\.given", lambda d, n=name: lemma_of(d, n).update(given=["0"]))
    yield Forgery("given what needs more", r"lemmas\.rests\.given", lambda d: lemma_of(d, "rests").update(given=["climbs"]))
    yield Forgery("history given what needs more", r"theorem\.history_given", theorem(history_given=["climbs"]))
    yield Forgery("history given nobody", r"theorem\.history_given", theorem(history_given=["says nothing"]))
    yield Forgery("history given in words alone", r"queries\.history", theorem(history_given=["stays true"]))
    yield Forgery("more is said", r"queries\.pays", lambda d: lemma_of(d, "pays").update(then=["served >= f * rtts"]))
    yield Forgery("two things are said", r"queries\.loses \(2\)", lambda d: lemma_of(d, "loses")["then"].append("C_L' <= 1"))
    many = {f"s{k}": [f"s{k - 1}"] * 100 for k in range(1, 6)} | {"s0": "C_L <= 1", "true_beliefs": ["s5", "C_L <= 1"]}
    deep = {"true_beliefs": ["C_L <= 1", *("s",) * 2], "s": ["true_beliefs"] * 2}
    for what, states in (
        ("that name each other", deep),
        ("that grow", many),
        ("by itself", {"true_beliefs": ["true_beliefs"] * 2}),
    ):
        yield Forgery(f"states {what}", r"theorem\.states", theorem(states=states))


def without_lemma(data: Data, name: str) -> None:
    data["theorem"]["lemmas"] = [lemma for lemma in data["theorem"]["lemmas"] if lemma["name"] != name]
    data["queries"] = [query for query in data["queries"] if query["lemma"] != name]


def ranks() -> Iterator[Forgery]:
    """Ranks that lead nowhere, end elsewhere, or have another law."""
    here = r"theorem\.claims\.(utilisation|inflight_bdp)\.rank"
    for value in ("0", "-1"):
        yield Forgery(f"steps of {value}", here, rank("inflight_bdp", minus=value))
        yield Forgery(f"factor {value}", here, rank("utilisation", times=value))
        yield Forgery(f"until {value}", here, rank("utilisation", until=value))
    yield Forgery("factor 1", here, rank("utilisation", times="1"))
    yield Forgery("no law", here, rank("inflight_bdp", minus=None))
    yield Forgery("two laws", here, rank("inflight_bdp", times="2"))
    yield Forgery("over without jump", here, rank("inflight_bdp", minus=None, over="2"))
    yield Forgery("jump below its end", here, rank("inflight_bdp", minus=None, over="2", jump="5"))
    yield Forgery("jump with minus", here, rank("inflight_bdp", jump="7"))
    yield Forgery("over to below 0", here, rank("inflight_bdp", minus=None, over="2", until="-1", jump="7"))
    for name in ("MSS", "served", "inflight", "C_X", "", "C_L'"):
        yield Forgery(f"rank of {name!r}", here, rank("inflight_bdp", of=name))
    yield Forgery("ends too early", r"composition\.utilisation", rank("utilisation", until="1/10"))
    yield Forgery("steps too long", r"composition\.inflight", rank("inflight_bdp", minus="1"))
    yield Forgery("other quantity", r"composition\.inflight", rank("inflight_bdp", of="C_U"))
    yield Forgery("steps for ever", r"theorem\.claims", rank("utilisation", times="1.0000001"))
    yield Forgery("no rank", r"composition\.utilisation", claim("utilisation", rank=[]))
    yield Forgery("five ranks", here, lambda d: claim("utilisation", rank=d["theorem"]["claims"]["utilisation"]["rank"] * 5)(d))


def networks() -> Iterator[Forgery]:
    """Another network, past, time-outs or program than that of the queries."""
    for model in ("ideal", "cbr_delay"):
        yield Forgery(f"model {model}", r"witnesses\.|queries\.|composition\.inflight_bdp", theorem(model=model))
    for timeouts in ("artefact", "paper"):
        yield Forgery(f"time-outs {timeouts}", r"theorem\.", theorem(timeouts=timeouts))
        yield Forgery(f"time-outs {timeouts} in 10 Rm", r"theorem\.|witnesses|queries", theorem(timeouts=timeouts, T=11))
    yield Forgery("C_L_lambda with time-outs", r"theorem\.timeouts", lambda_with_timeouts)
    yield Forgery("any past", "sent_before", lambda d: d.update(sent_before=None))
    yield Forgery("sound past", "sent_before", theorem(past="sound"))
    yield Forgery("sound past, told", r"queries\.|witnesses", lambda d: (theorem(past="sound")(d), d.update(sent_before=None)))
    for before in (["1", "0"], ["0", "0"], ["-1", "0"], ["9", "0"]):
        yield Forgery(f"before {before}", r"witnesses|queries", lambda d, b=before: d.update(sent_before=b))
    yield Forgery("before, no number", "sent_before", lambda d: d.update(sent_before=["2", "x"]))
    yield Forgery("before, three", "sent_before", lambda d: d.update(sent_before=["2", "0", "0"]))
    for version in (0, 2, -1):
        yield Forgery(f"laws {version}", "laws", lambda d, v=version: d.update(laws=v))
    for path, value in PROGRAM_CHANGES:
        yield Forgery(f"{path} is {str(value)[:40]}", r"program\b", put(f"program.{path}", value))
    yield Forgery("faster program", r"queries\.|witnesses", put("program.rule.then.rate.C_L", "3/4"))
    yield Forgery("a program that holds", r"queries\.|witnesses", put("program.rule.then.hold_rtts", 2))
    yield Forgery("program of another name", "program|theorem", put("program.name", "mine/2"))


def lambda_with_timeouts(data: Data) -> None:
    data["theorem"] |= {"timeouts": "artefact", "T": 11}
    for lemma in data["theorem"]["lemmas"]:
        lemma["given"] = []
    data["program"]["rule"]["then"]["rate"] = {"C_L_lambda": 1}


PROGRAM_CHANGES: list[tuple[str, Any]] = [
    ("format", "ccenv-policy"), ("version", 3), ("version", 2.5), ("version", "1"), ("probe_window_rtts", 0), ("note", "x"),
    ("probe_window_rtts", 65), ("source", "two\nlines"), ("source", "x" * 501), ("rule", None), ("rule", {}),
    ("rule", {"rate": {}}),
    ("rule", {"rate": {"C_X": 1}}), ("rule", {"rate": {"q_U": 1}}), ("rule", {"rate": {"Rm": 1}}), ("rule", {"rate": {"C_L": 0}}),
    ("rule", {"rate": {"C_L": 1.5}}), ("rule", {"rate": {"C_L": "1e2"}}), ("rule", {"rate": {"C_L": "9999999999"}}),
    ("rule", {"rate": {"C_L": 1, "Rm": 1}}), ("rule", {"rate": {"C_L": 1}, "hold_rtts": 65}),
    ("rule", {"rate": {"C_L": 1}, "hold_rtts": 0}), ("rule", {"rate_between": [{"C_L": 1}, {"C_L": 2}]}),
    ("rule", {"rate": {"C_L": 1}, "rate_between": [{"C_L": 1}, {"C_L": 2}]}),
    ("rule.if", "lost"), ("rule.if", {"C_L": 1, "q_U": 1}), ("rule.then", 3), ("rule.note", 3),
]  # fmt: skip


def parts() -> Iterator[Forgery]:
    """Queries, answers, steps and witnesses: changed, dropped, doubled, and of something else."""
    for query, lemma in ((0, "stays true"), (3, "pays")):
        at = rf"queries\.{lemma} \(1\)\."
        yield Forgery(f"{lemma}: one fact more", at + "smtlib", lambda d, n=lemma: asserted(d, n, "(>= S_2 G_2)"))
        yield Forgery(f"{lemma}: one fact less", at + "smtlib", lambda d, n=lemma: drop_fact(query_of(d, n)))
        yield Forgery(f"{lemma}: hash", at + "sha256", lambda d, n=lemma: query_of(d, n).update(sha256="0" * 64), late=True)
        yield Forgery(f"{lemma}: answer", at + "answer", lambda d, n=lemma: query_of(d, n).update(answer="sat"))
        yield Forgery(f"{lemma}: solver", rf"queries\.{query}\.solver", put(f"queries.{query}.solver", "an oracle"))
    for solver in ("z3", "z3-solver", "z3-solver 5.4 and a proof", "z3-solver 5\u200b", "", "Z3-SOLVER 5"):
        yield Forgery(f"solver {solver!r}", r"queries\.0\.solver", put("queries.0.solver", solver))
    for body in ("false", "true) (push 1", "(> C_L_0 none)", "(let 3 true)", "(* C_L_0 C_L_0)", "(f 1.0)", "true) (assert false"):
        yield Forgery(f"a query with {body}", r"queries\.pays \(1\)\.smtlib", lambda d, b=body: asserted(d, "pays", b))
    for answer in ("unknown", "", "UNSAT", "proved"):
        yield Forgery(f"answer {answer!r}", r"queries\.stays true \(1\)\.answer", put("queries.0.answer", answer))
        yield Forgery(f"a step {answer!r}", r"composition\.", lambda d, a=answer: d["composition"][0].update(answer=a), late=True)
    yield Forgery("no query", r"queries\.", lambda d: d["queries"].clear())
    yield Forgery("a query dropped", r"queries\.", lambda d: d["queries"].pop(3))
    yield Forgery("a query twice", r"queries\.", lambda d: d["queries"].append(copy.deepcopy(d["queries"][0])))
    yield Forgery("a query of no lemma", r"queries\.pays \(2\)", lambda d: d["queries"].append(query_of(d, "pays") | {"part": 2}))
    other = lambda d: query_of(d, "pays").update(smtlib=query_of(d, "climbs")["smtlib"])  # noqa: E731
    yield Forgery("a query of another lemma", r"queries\.", other)
    yield Forgery("a query that asks nothing", r"queries\.pays", lambda d: query_of(d, "pays").update(smtlib="(check-sat)\n"))
    yield Forgery("part 0", r"queries\.0\.part", put("queries.0.part", 0))
    yield Forgery("part 2", r"queries\.stays true", put("queries.0.part", 2))
    yield Forgery("seconds below 0", r"queries\.0\.seconds", put("queries.0.seconds", -1))
    for change in ("pop", "clear"):
        yield Forgery(f"steps: {change}", r"composition\.", lambda d, c=change: getattr(d["composition"], c)(), late=True)
    yield Forgery("a step twice", r"composition\.", lambda d: d["composition"].append(d["composition"][0]), late=True)
    nothing = lambda d: d["composition"].append({"name": "x", "answer": "unsat"})  # noqa: E731
    yield Forgery("a step of nothing", r"composition\.", nothing, late=True)
    for k in range(3):
        for name, value in WITNESS_CHANGES[: 2 if k else None]:
            change = lambda d, k=k, n=name, v=value: d["witnesses"][k]["values"].update({n: v})  # noqa: E731
            yield Forgery(f"witness {k}: {name} is {value}", rf"witnesses\.{k}\.values", change)
        yield Forgery(f"witness {k} of nothing", rf"witnesses\.{k}\.values", put(f"witnesses.{k}.values", {}))
        yield Forgery(f"witness {k} shows nothing", rf"witnesses\.{k}\.shows", put(f"witnesses.{k}.shows", []))
        yield Forgery(f"witness {k} dropped", r"theorem\.(start|lemmas|claims)", lambda d, k=k: d["witnesses"].pop(k))
        yield Forgery(f"witness {k} twice", r"witnesses\.\d\.shows", lambda d, k=k: d["witnesses"].append(d["witnesses"][k]))
        moon = lambda d, k=k: d["witnesses"][k]["shows"].append("the moon")  # noqa: E731
        yield Forgery(f"witness {k} shows the moon", rf"witnesses\.{k}\.shows", moon)
    yield Forgery("one trace for all", r"witnesses\.0\.values", one_trace_for_all)
    yield Forgery("an empty list of witnesses", r"theorem\.", lambda d: d["witnesses"].clear())


WITNESS_CHANGES: list[tuple[str, Any]] = [
    ("S_3", "-1"), ("alpha", "1/4"), ("G_2", "1000"), ("C_L_0", "0"), ("E_before_0", "99"), ("rate_1", "-3"), ("beta", "1"),
    ("x", "1"), ("S_1", True), ("S_1", "1e3"), ("S_1", "nan"),
]  # fmt: skip


def drop_fact(query: Data) -> None:
    """Leave out of a query that S never falls in the third step."""
    facts = query["smtlib"].split("\n(assert ")
    kept = [fact for fact in facts if not re.match(r"\(>= S_3 S_2\)|\(<= S_2 S_3\)", fact)]
    query["smtlib"] = "\n(assert ".join(kept if len(kept) < len(facts) else facts[:-2] + facts[-1:])


def one_trace_for_all(data: Data) -> None:
    shows = [name for witness in data["witnesses"] for name in witness["shows"]]
    data["witnesses"] = [{"shows": shows, "values": data["witnesses"][0]["values"]}]


def words() -> Iterator[Forgery]:
    """Words and figures alone."""
    changes: dict[str, tuple[str, Change]] = {
        "sentence, more of the link": ("statement", lambda d: d.update(statement=d["statement"].replace("0.3", "0.9"))),
        "sentence, every grid": ("statement", lambda d: d.update(statement=d["statement"].replace("K = 1, D = Rm and ", ""))),
        "sentence, a constant": ("statement", lambda d: d.update(statement=d["statement"].replace("rest = 6, ", ""))),
        "sentence, another program": ("statement", lambda d: d.update(statement=d["statement"].replace("cc_qdel", "reno"))),
        "sentence, longer": ("statement", lambda d: d.update(statement=d["statement"] + " Always.")),
        "sentence, empty": ("statement", lambda d: d.update(statement="")),
        "figure, larger": ("figures", lambda d: d["figures"].update(utilisation=0.9)),
        "figure, not claimed": ("figures", lambda d: d["figures"].update(loss_per_rtt=None)),
        "figure, unknown": ("figures", lambda d: d["figures"].update(delay=0.0)),
        "sooner": ("converges", lambda d: d["converges"]["utilisation"]["from_one_segment"].update({"100": 10})),
        "never": ("converges", lambda d: d["converges"].clear()),
        "comes first": ("settles", lambda d: d["settles"].update(loss_per_rtt=True)),
        "comes last": ("statement", lambda d: d["settles"].update(utilisation=False)),
        "not told when": ("settles", lambda d: d["settles"].clear()),
        "made elsewhere": (r"made_with", lambda d: d["made_with"].update(solver="z3-solver 9")),
        "made by hand": (r"made_with", lambda d: d["made_with"].update(ccenv="a friend")),
        "source in two lines": (r"theorem\.source", lambda d: d["theorem"].update(source="a\nb")),
        "text in no ASCII": (r"theorem\.lemmas\.0\.text", put("theorem.lemmas.0.text", "\u200b")),
    }  # fmt: skip
    for name, (field, change) in changes.items():
        yield Forgery(name, field, change, late=True)
    for k in range(9):
        yield Forgery(f"assumption {k} dropped", "assumptions", lambda d, k=k: d["assumptions"].pop(k), late=True)
        yield Forgery(f"assumption {k} changed", "assumptions", put(f"assumptions.{k}", "nothing"), late=True)


def keys() -> Iterator[Forgery]:
    """Every key of every object missing, and one that is unknown."""
    objects = {"": None, "theorem": None, "theorem.lemmas.0": None, "theorem.claims.utilisation": None, "queries.0": None,
               "composition.0": None, "witnesses.0": None, "theorem.claims.utilisation.rank.0": None}  # fmt: skip
    for path in objects:
        where = path.replace(".", r"\.")
        yield Forgery(f"{path or 'certificate'}: an unknown key", where, put(f"{path}.note".lstrip("."), "trust me"), late=True)
    for path in ("theorem", "program", "statement", "figures", "assumptions", "queries", "composition", "witnesses", "settles",
                 "laws", "theorem.name", "theorem.start", "theorem.lemmas", "theorem.claims", "theorem.model", "queries.0.smtlib",
                 "queries.0.answer", "composition.0.answer", "witnesses.0.shows", "theorem.lemmas.0.if"):  # fmt: skip
        yield Forgery(f"no {path}", re.escape(path), lambda d, p=path: drop_key(d, p), late=True)


def drop_key(data: Data, path: str) -> None:
    *way, last = path.split(".")
    for key in way:
        data = data[int(key) if key.isdecimal() else key]
    del data[last]


RULES = (names, numbers, formulas, lemmas, ranks, networks, parts, words, keys)
FORGERIES = [forgery for rule in RULES for forgery in rule()]


def refused_fields(data: Data) -> list[tuple[set[str], set[str]]]:
    """Return the kinds and the fields for which a certificate is refused: at reading, or without and with a second solver."""
    try:
        certificate = read(data)
    except InputError as error:
        assert "\n" not in str(error)
        return [({"read"}, {re.sub(r"unknown key '(.*)'\..*", r"\1", str(error).removeprefix("forged: ")).partition(": ")[0]})]
    reports = [check(certificate), check(certificate, solver="yices")]
    assert all(report.verdict == "refused" and report.seconds < 20 for report in reports)
    assert all("\n" not in text for report in reports for _, _, text in report.refusals)
    return [({kind for kind, _, _ in one.refusals}, {field for _, field, _ in one.refusals}) for one in reports]


@pytest.fixture(scope="module", autouse=True)
def same_work_once() -> Iterator[None]:
    """Decide each step of a composition, and read each line of a query, once: forgeries share most of theirs."""
    known: dict[str, bool] = {}
    shared = Reader()

    def reader() -> Reader:
        shared._work = 0
        return shared

    def remembered(facts: list[Any], goal: Any, work: Any) -> bool:
        del work  # each step has a bound of its own here
        key = repr((facts, goal))
        if key not in known:
            known[key] = follows(facts, goal)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checking, "follows", remembered)
        patch.setattr(checking, "Reader", reader)
        yield


def never(*args: Any, **options: Any) -> str:
    raise AssertionError("a solver was asked about a certificate that the checker refuses without one")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_forged_certificate_is_refused_by_its_field(rule, genuine, monkeypatch) -> None:
    monkeypatch.setattr(checking.second, "decide", never)
    wrong = []
    for forgery in rule():
        reasons = refused_fields(forgery.on(genuine))
        for kinds, fields in reasons:
            if not kinds <= {*KINDS, "read"} or not any(re.search(forgery.field, field) for field in fields):
                wrong.append((forgery.name, forgery.field, sorted(fields)[:4]))
    assert not wrong, "\n".join(map(str, wrong))


def test_there_are_many_forged_certificates_of_every_rule(genuine) -> None:
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES) > 700
    assert check(read(genuine)).verdict == "confirmed"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("solve", [[], ["--solve"]])
def test_the_command_names_the_field_of_a_forged_certificate(rule, solve, genuine, tmp_path, capsys) -> None:
    first, *_, last = rule()
    for place, forgery in enumerate((first, last)):
        file = tmp_path / f"{place}.certificate.json"
        file.write_text(json.dumps(forgery.on(genuine)), encoding="utf-8")
        code = main(["certificate", "check", str(file), "--json", *solve])
        said = capsys.readouterr()
        text = said.err if code == 2 else " ".join(one["field"] for one in json.loads(said.out)["refusals"])
        assert code in (1, 2) and re.search(forgery.field, text), forgery.name
        assert code == 2 or json.loads(said.out)["sentence"] is None


LESS: dict[str, Change] = {
    "less of the link": claim("utilisation", bound="1/4"),
    "more in flight": claim("inflight_bdp", bound=12),
    "more owed": claim("utilisation", potential_range=[-1, 5]),
    "smaller steps": rank("utilisation", times="21/20"),
    "a narrower start": theorem(start=["true_beliefs", "C_L >= MSS", "queue <= 0"]),
    "one claim less": lambda d: d["theorem"]["claims"].pop("utilisation"),
}


@pytest.mark.parametrize("name", LESS)
def test_what_says_less_is_not_forged(name, genuine) -> None:
    """Without this the rules above could be those of a checker that refuses everything."""
    report = check(read(forged(genuine, LESS[name])))
    told = [refusal for refusal in report.refusals if refusal.kind != "witness"]  # a narrower start needs a trace of its own
    assert not told and (not report.refusals or name in ("a narrower start", "one claim less")), report.refusals
