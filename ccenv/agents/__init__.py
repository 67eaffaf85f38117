"""Senders: classic CCAs, belief programs, learned policies. One registry, one file per agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.registry import Registry, build, load_target

if TYPE_CHECKING:
    from ccenv.agents.sender import Sender

AGENTS = Registry("agent")

_LISTING = "belief program of [CCmatic] Listing 2: "
for _name, _target, _tag, _summary in (
    ("reno", "classic.reno:sender", "classic", "Reno (RFC 5681, RFC 6582)"),
    ("cubic", "classic.cubic:sender", "classic", "CUBIC (RFC 9438)"),
    ("vegas", "classic.vegas:sender", "classic", "Vegas (Brakmo, Peterson 1995)"),
    ("copa", "classic.copa:sender", "classic", "Copa (Arun, Balakrishnan 2018)"),
    ("bbr1", "classic.bbr.bbr1:sender", "classic", "BBR version 1 (Cardwell et al. 2016)"),
    ("bbr2", "classic.bbr.bbr2:sender", "classic", "BBR version 2 (draft-cardwell-iccrg-bbr-congestion-control-02)"),
    ("bbr3", "classic.bbr.bbr3:sender", "classic", "BBR version 3 (draft-ietf-ccwg-bbr-06)"),
    ("vivace", "classic.pcc.vivace:sender", "classic", "PCC Vivace (Dong et al. 2018)"),
    ("vivace_linux", "classic.pcc.vivace_linux:sender", "classic", "PCC Vivace as in the authors' Linux module"),
    ("allegro", "classic.pcc.allegro:sender", "classic", "PCC Allegro (Dong et al. 2015)"),
    ("allegro_linux", "classic.pcc.allegro_linux:sender", "classic", "PCC Allegro as in the authors' Linux module"),
    ("fast", "classic.fast:sender", "classic", "FAST (Wei, Jin, Low, Hegde 2006)"),
    ("ledbat", "classic.ledbat:sender", "classic", "LEDBAT (RFC 6817)"),
    ("illinois", "classic.illinois:sender", "classic", "TCP-Illinois (Liu, Basar, Srikant 2008)"),
    ("westwood", "classic.westwood:sender", "classic", "Westwood+ (Grieco, Mascolo 2004)"),
    ("hybla", "classic.hybla:sender", "classic", "TCP Hybla (Caini, Firrincieli 2004)"),
    ("dctcp", "classic.dctcp:sender", "classic", "DCTCP (RFC 8257)"),
    ("prague", "classic.prague:sender", "classic", "Prague for L4S (draft-briscoe-iccrg-prague-congestion-control-04)"),
    ("gcc", "classic.gcc:sender", "classic", "GCC for real-time media (draft-ietf-rmcat-gcc-02)"),
    ("fourcp_fixed", "classic.fourcp:sender", "classic", "4CP, fixed target loss rate ([4CP])"),
    ("fourcp_auto", "classic.fourcp:automatic_sender", "classic", "4CP, automatic mode ([4CP])"),
    ("exp_delay", "classic.exp_delay:sender", "classic", "exponential delay map ([Starvation] Algorithm 1)"),
    (
        "ever_delay",
        "classic.ever_delay:sender",
        "classic",
        "unfairness bounded for ever, for any number of flows (docs/fairness.md)",
    ),
    ("aimd_delay", "classic.aimd_delay:sender", "classic", "AIMD on delay ([Starvation] s.6.2)"),
    ("nice", "classic.nice:sender", "classic", "TCP Nice, background transfers (Venkataramani et al. 2002)"),
    ("tcp_lp", "classic.tcp_lp:sender", "classic", "TCP-LP, low priority (Kuzmanovic, Knightly 2003)"),
    ("proteus", "classic.pcc.proteus:sender", "classic", "PCC Proteus (Meng et al. 2020; parameter scavenger)"),
    ("libra", "classic.pcc.libra:sender", "classic", "Libra: CUBIC and a learner by what they achieve (Du et al. 2021)"),
    ("verus", "classic.verus:sender", "classic", "Verus, by a learned delay profile (Zaki et al. 2015)"),
    ("sprout", "classic.sprout:sender", "classic", "Sprout, by a forecast of the rate (Winstein et al. 2013)"),
    ("remy", "classic.remy:sender", "classic", "Remy-like: a table of rules found by a search (Winstein, Balakrishnan 2013)"),
    ("packet_train", "classic.packet_train:sender", "classic", "the link rate from a packet train ([CCmatic] s.6.2)"),
    ("constant", "classic.constant:sender", "classic", "a constant rate (parameter rate_mbps)"),
    ("cc_qdel", "synthesized:cc_qdel", "synthesized", _LISTING + "CCA1, for deep buffers"),
    ("cc_probe_fast", "synthesized:cc_probe_fast", "synthesized", _LISTING + "CCA2, for small buffers"),
    ("cc_probe_drain", "synthesized:cc_probe_drain", "synthesized", _LISTING + "CCA3, for any buffer"),
    (
        "cc_probe_slow",
        "synthesized:cc_probe_slow",
        "synthesized",
        _LISTING + "CCA4, constant loss on CBR-delay (parameters k, alpha_mss)",
    ),
    ("cc_probe_qdel", "synthesized:cc_probe_qdel", "synthesized", _LISTING + "CCA5, probes by delay"),
    (
        "cc_probe_slow_k",
        "synthesized:cc_probe_slow_k",
        "started",
        "cc_probe_slow of [CCmatic] s.6.4 and App. H: cc_qdel until the first large loss, alpha 5 segments",
    ),
    (
        "lambda_proxy",
        "wrapped:lambda_proxy",
        "proxy",
        "holds the ACKs of any sender so that its smallest RTT is lambda ([Delta] Algorithm 1)",
    ),
    ("fixed_delay_proxy", "wrapped:fixed_delay_proxy", "proxy", "holds every ACK of any sender equally long ([Delta] s.7.2)"),
    (
        "shield",
        "wrapped:shield",
        "shield",
        "a chooser inside a shield (parameters file, chooser, policy; docs/shields.md)",
    ),
):
    AGENTS.add(_name, f"ccenv.agents.{_target}", tags=(_tag,), summary=_summary)

_LEARNED = "ccenv.agents.learned:"  # by name: a policy may build on a CCA of this table
_ZOO = "ccenv.agents.learned.zoo:"
_PROVED = "program with verified lemmas; its name ends with the proved utilisation in per cent (docs/distillation.md)"
for _name, _tag, _summary in (
    ("learned_nominal", "learned", "policy by PPO (figures: docs/learning.md)"),
    ("learned_robust", "learned", "policy by PPO and rounds against attacks"),
    ("learned_low_delay", "learned", "policy by PPO that pays for queue and delay"),
    ("learned_fair", "packet", "policy by PPO in company, told nothing (figures: docs/learning.md)"),
    ("learned_everywhere", "packet", "policy by PPO for networks of every kind, told nothing (figures: docs/learning.md)"),
    ("aurora", "packet", "policy by the recipe of [Aurora], trained here (figures: docs/learning.md)"),
    ("orca", "packet", "policy over CUBIC by the recipe of [Orca], trained here"),
    ("astraea", "packet", "policy of several flows by the recipe of [Astraea], trained here"),
    ("genet", "packet", "policy by the recipe of [Aurora] and the curriculum of [Genet] (parameter curriculum)"),
    ("mocc", "packet", "one policy for many preferences, as in [Multi-objective] (parameters throughput, latency, loss)"),
    ("indigo", "packet", "policy that imitates an oracle of the path, as Indigo in [Pantheon]"),
    ("canopy", "packet", "policy over CUBIC with a certificate in its training, as in [Canopy]"),
    ("learned_nominal_d4", "distilled", "program distilled from learned_nominal (figures: docs/distillation.md)"),
    ("learned_robust_d4", "distilled", "program distilled from learned_robust, polished against attacks too"),
    ("learned_low_delay_d4", "distilled", "program distilled from learned_low_delay"),
    ("learned_nominal_u54", "distilled", _PROVED),
    ("learned_nominal_u70", "distilled", _PROVED),
    ("learned_nominal_u78", "distilled", _PROVED),
):
    AGENTS.add(_name, _ZOO + _name, tags=(_tag,), summary=_summary)
for _name, _summary in (
    ("learned_shield_u80", "policy by PPO inside a shield; its lemmas hold whatever it chooses (docs/shields.md)"),
    ("learned_shield_u80_low_delay", "policy by PPO that pays for queue and delay inside the same shield"),
    ("learned_shield_u80_firm", "policy by PPO inside a part of that shield, which attacks find less in"),
    ("learned_shield_u77_timeouts", "policy by PPO inside a shield whose lemmas hold with belief time-outs"),
    ("learned_robust_v2", "policy by PPO inside a shield, trained on drawn paths under attack (figures: docs/learning.md)"),
    ("learned_robust_v3", "the same policy, with more in flight where D is above Rm: the sturdiest under attack"),
):
    AGENTS.add(_name, _ZOO + _name, tags=("shield",), summary=_summary)


def make_sender(spec: str, **parameters: Any) -> Sender:
    """Build a sender.

    Args:
        spec: a registered name with optional parameters (``"cc_probe_slow:k=2"``, ``"constant:rate_mbps=10"``), the path of a
            belief program (``.json``; a shield needs a chooser: ``"shield:file=FILE,chooser=middle"``), or of a learned
            policy (``.safetensors`` with its card, or the folder of the pair).
        parameters: more parameters of a registered name, as Python values (``make_sender("lambda_proxy", inner="reno")``).

    Raises:
        UnknownNameError: if neither an agent nor a file has this name.
        InputError: if a parameter is unknown or out of range, or a policy is damaged or does not fit.
        ProgramError: if the file is not a valid program.
    """
    if spec.partition(":")[0] in AGENTS:
        sender: Sender = build(AGENTS, spec, **parameters)
        return sender
    if parameters:
        raise InputError(f"agent {spec!r}: only registered names take parameters, not {', '.join(parameters)}")
    if load_target(_LEARNED + "is_policy")(spec):
        policy: Sender = load_target(_LEARNED + "load_policy")(spec)
        return policy
    if spec.endswith(".json"):
        from ccenv.agents.programs import load_program
        from ccenv.agents.sender import ProgramSender

        program = load_program(spec)
        return ProgramSender(program.name, program)
    if spec.partition(":")[0].endswith(".py"):
        raise InputError(
            f"{spec!r} is Python, which is run and attacked but not proved, exported or submitted; write it as a program: "
            "ccenv new program NAME"
        )
    raise unknown_name("agent", spec.partition(":")[0], AGENTS.names())
