"""What the theorem says of a sender with its parameters: whether it covers a network, and how efficient the sender is."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

from ccenv.agents.sender import ClassicSender
from ccenv.network.path import MBPS_IN_BPS, Path
from ccenv.proofs.certificates.fairness.check import check_fair
from ccenv.proofs.certificates.fairness.reading import FairCertificate, exact, read_fair, shipped_fair

CLOSE = 1e-9


def certificate_of(sender: ClassicSender) -> tuple[str, FairCertificate]:
    """Return the shipped certificate from which a sender's rule comes, with its name."""
    for name, file in shipped_fair().items():
        certificate = read_fair(file)
        rule = {"slope": certificate.rule.slope, "gain": certificate.rule.gain, "start": certificate.rule.start}
        if all(float(Fraction(value)) == sender.parameters[key] for key, value in rule.items()):
            return name, certificate
    raise LookupError(f"{sender!r} has no certificate")  # DESIGNS are those of the certificates, a test says


def coverage(sender: ClassicSender, path: Path, model: str, steps_per_rtt: int) -> dict[str, Any]:
    """Return what is proved of a sender, and which of the theorem's six assumptions a run in the curve engine breaks, and how."""
    name, certificate = certificate_of(sender)
    design, bounds, parameters = exact(certificate.design), exact(certificate.bounds), sender.parameters
    rtts_s = [flow.rtt_s for flow in path.flows]
    unit_s = parameters["unit_s"] or max(rtts_s)
    largest_Bps = math.exp(parameters["target"] - float(Fraction(certificate.rule.offset)))
    share_mbps, most_mbps = path.link_rate_Bps / path.n_flows / MBPS_IN_BPS, largest_Bps / MBPS_IN_BPS
    jitter_units = max(flow.jitter_s for flow in path.flows) / unit_s
    buffer_bdp = path.buffer_bytes / (path.link_rate_Bps * unit_s)
    needed_bdp = float(bounds["rtt_rtts"] - 1 - design["jitter_rtts"])
    late, most = float(design["early"]), float(design["jitter_rtts"])
    error_units = 0.0 if parameters["rm_s"] else jitter_units  # of the smallest RTT seen, at most, if a queue empties
    broken = [f"(1) time is continuous: the engine plays steps of Rm/{steps_per_rtt}"]
    if (
        any(abs(parameters["rm_s"] - rtt_s) > CLOSE for rtt_s in rtts_s)
        if parameters["rm_s"]
        else not parameters["unit_s"] or error_units > late
    ):
        known = (
            f"rm_ms is {1e3 * parameters['rm_s']:g}"
            if parameters["rm_s"]
            else "rm_ms is not given, so it is the smallest RTT seen"
        )
        broken.append(f"(1) every flow knows Rm{f' up to an error of {late:g} units' if late else ''}: {known}")
    if min(rtts_s) < (1 - float(design["unlike"])) * unit_s - CLOSE and len(set(rtts_s)) > 1:
        broken.append(f"(1) flows have {'the same Rm' if not design['unlike'] else 'an Rm of the range'}: they differ")
    if jitter_units > most + CLOSE:
        broken.append(f"(1) jitter is at most {most:g} units: it is {jitter_units:.3g}")
    if model != "cbr_delay" and jitter_units > late + CLOSE:
        broken.append(f"(2) the queue is work-conserving{f', or early by {late:g} units' if late else ''}: {model} is not")
    if buffer_bdp < needed_bdp:
        broken.append(f"(2) nothing is lost: the buffer holds {buffer_bdp:.3g} C U, less than {needed_bdp:.3g}")
    if path.rate_changes or path.red is not None:
        broken.append("(2) a FIFO queue of constant rate: it is none")
    if not most_mbps / float(design["shares"]) - CLOSE <= share_mbps <= most_mbps + CLOSE:
        least_mbps = most_mbps / float(design["shares"])
        broken.append(f"(5) C/N is in [{least_mbps:.3g}, {most_mbps:.3g}] Mbit/s: it is {share_mbps:.3g}")
    broken.append("(6) a start inside the invariant: the flows start on an empty link")
    return {"certificate": name, **{key: float(value) for key, value in bounds.items()}, "broken": broken}


def f_efficiency(sender: ClassicSender, share: Fraction, model: str, buffer: str) -> dict[str, Any]:
    """Return the verdict about f-efficiency ([Starvation] definition 4) that follows from the sender's theorem.

    The certificate is checked anew. All rates add up to at least kappa C, nothing is lost and no byte takes longer than RTTmax:
    by t at least kappa C (t - RTTmax) bytes are delivered, which is above f C t from some time on, for every f below kappa.
    """
    begin = time.perf_counter()
    name, certificate = certificate_of(sender)
    bounds, shares = exact(certificate.bounds), certificate.design.shares
    kappa, rtt = bounds["utilisation"], certificate.bounds.rtt_rtts
    report, needed = check_fair(certificate), bounds["rtt_rtts"] - 1 - exact(certificate.design)["jitter_rtts"]
    reasons = {
        f"the theorem gives every f below {float(kappa):g}, and nothing above": share >= kappa,
        f"the buffer must be infinite, or at least {float(needed):g} C*Rm": buffer != "infinite" and _held(buffer) < needed,
        f"{name} is about cbr_delay; a design that covers ccac: fairness=2.5,jitter_rtts=0.125,shares=100": model == "ccac"
        and exact(certificate.design)["early"] < exact(certificate.design)["jitter_rtts"],
        f"the certificate {name} is {report.verdict}": report.verdict != "confirmed",
    }
    reason = next((reason for reason, missing in reasons.items() if missing), None)
    largest_mbps = math.exp(sender.parameters["target"] - float(Fraction(certificate.rule.offset))) / MBPS_IN_BPS
    top_mbps = math.exp(sender.parameters["target"] + sender.parameters["free"]) / MBPS_IN_BPS
    claim = (
        f"again and again the bytes delivered by t reach {float(share):.4g} C t, where C/N is in [{largest_mbps:g}/{shares}, "
        f"{largest_mbps:g}] Mbit/s"
    )
    return {
        "name": "f-efficient",
        "property": "f-efficient",
        "sender": sender.name,
        "model": model,
        "buffer": buffer,
        "claim": claim,
        "verdict": "unknown" if reason else "verified",
        "bound": None if reason else float(share),
        "reason": reason,
        "sentence": f"{claim}: by t at least {float(kappa):g} C (t - {rtt} Rm) are delivered. It rests on the certificate "
        f"{name}, checked here ({report.queries} queries, {report.verdict}), and takes for granted what it does. On links faster "
        f"than {top_mbps / float(share):.4g} Mbit/s a flow alone is not {float(share):.4g}-efficient: its rate is at most "
        f"{top_mbps:.4g}.",
        "assumptions": certificate.assumptions,
        "certificate": name,
        "seconds": round(time.perf_counter() - begin, 3),
        "trace": None,
    }


def _held(buffer: str) -> Fraction:
    """Return a buffer in C*Rm; 0 for a word, about which the theorem says nothing."""
    try:
        return Fraction(buffer)
    except ValueError:
        return Fraction(0)
