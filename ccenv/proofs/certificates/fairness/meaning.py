"""What a certificate of fairness says: its sentence and its assumptions, from its data alone, for prover and checker alike."""

from __future__ import annotations

from ccenv.proofs.certificates.fairness.reading import BoundsData, DesignData


def statement(design: DesignData, bounds: BoundsData) -> str:
    """Return the theorem's sentence."""
    free = (
        f", whose rates are at all times within a factor of {design.freedom} of their rule's, whoever chooses them,"
        if design.freedom != "1"
        else ""
    )
    unit = _unit(design)
    early = f" and early service or errors of Rm, up to {design.early} {unit}," if design.early != "0" else ","
    return (
        f"Any number N of flows of ever_delay{free} that share one link of rate C, where every C/N is between "
        f"max_share/{design.shares} and max_share: at all times the rates of any two flows differ by a factor of at most "
        f"{bounds.ratio}, the rates add up to at least {bounds.utilisation} C, and every RTT is at most {bounds.rtt_rtts} "
        f"{unit}, whatever the jitter of each flow, up to {design.jitter_rtts} {unit}{early} does."
    )


def _unit(design: DesignData) -> str:
    """Return what the numbers of a design are multiples of."""
    return "Rm" if design.unlike == design.early == "0" else "U"


def assumptions(design: DesignData, bounds: BoundsData) -> list[str]:
    """Return all that the theorem takes for granted."""
    load, unit, early = "[w/sqrt(H+ + D), w/sqrt(L-)]", _unit(design), design.early
    if early != "0":
        load = "[w/sqrt(H+ + D), w/sqrt(max(1, L- - e))]"
    if design.freedom != "1":
        load += f", widened by a factor of {design.freedom} at both ends"
    if design.unlike != "0":
        same = f"every flow's Rm is between (1 - {design.unlike}) U and U, a time that all know; every flow knows its own Rm"
    elif early != "0":
        same = "every flow has the same Rm, at most U, a time that all know, knows Rm"
    else:
        same = "every flow has the same Rm, knows it"
    chosen = "" if design.freedom == "1" else ", and v_i follows the rule whatever rate is chosen"
    if early != "0":
        same += f" up to an error: what it takes for Rm is at most e = {early} U longer"
        link = (
            "One FIFO queue of constant rate C that loses nothing, work-conserving, or one of tokens that it may save, by which "
            "a byte leaves earlier than it would there, by at most Rm; this and the error of Rm are at most e together. "
            "The buffer holds "
        )
    else:
        link = "One work-conserving FIFO queue of constant rate C that loses nothing: the buffer holds "
    return [
        f"Time and bytes are continuous and rates are positive; {same}, and runs with the same "
        f"parameters; none is in its start, settles after it or repairs a loss{chosen}; the jitter "
        f"D = {design.jitter_rtts} {unit} is a true upper bound.",
        f"{link}C ({bounds.rtt_rtts} {unit} - {unit} - D).",
        "Jitter of each flow apart in [0, D], in order, after the queue; receiver and path of the ACKs share this D. "
        "Jitter before the queue is not covered.",
        "The same delay from every sender to the queue."
        if design.unlike == "0"
        else "Delays from senders to the queue are any part of the Rm; rates are compared as they arrive at the queue.",
        f"Every C/N is in [max_share/{design.shares}, max_share], at all times: N and C are constant from the start on.",
        "Start: over the two largest RTTs before it, w lies in the table, moves no faster than the table's drift, "
        f"L(w) <= X <= H(w), the load is at least {bounds.utilisation} C and within {load}; at the start "
        f"|v_i - v_j| <= B {'D' if early == '0' else '(D + e)'}, V >= V_lo and V - 2 g B w^2 q <= Z_max of docs/fairness.md.",
    ]


def in_full(design: DesignData, bounds: BoundsData) -> str:
    """Return the sentence with every assumption."""
    numbered = " ".join(f"({place}) {line}" for place, line in enumerate(assumptions(design, bounds), start=1))
    return f"{statement(design, bounds)} It takes for granted: {numbered}"
