"""Senders: classic CCAs, belief programs, learned policies. One registry, one file per agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccenv.base.errors import InputError, unknown_name
from ccenv.base.registry import Registry, build, load_target

if TYPE_CHECKING:
    from ccenv.agents.sender import Sender

AGENTS = Registry("agent")

AGENTS.add("reno", "ccenv.agents.classic.reno:sender", tags=("classic",), summary="Reno (RFC 5681, RFC 6582)")
AGENTS.add("cubic", "ccenv.agents.classic.cubic:sender", tags=("classic",), summary="CUBIC (RFC 9438)")
AGENTS.add("vegas", "ccenv.agents.classic.vegas:sender", tags=("classic",), summary="Vegas (Brakmo, Peterson 1995)")
AGENTS.add("copa", "ccenv.agents.classic.copa:sender", tags=("classic",), summary="Copa (Arun, Balakrishnan 2018)")
AGENTS.add("bbr1", "ccenv.agents.classic.bbr.bbr1:sender", tags=("classic",), summary="BBR version 1 (Cardwell et al. 2016)")
AGENTS.add(
    "bbr2",
    "ccenv.agents.classic.bbr.bbr2:sender",
    tags=("classic",),
    summary="BBR version 2 (draft-cardwell-iccrg-bbr-congestion-control-02)",
)
AGENTS.add("bbr3", "ccenv.agents.classic.bbr.bbr3:sender", tags=("classic",), summary="BBR version 3 (draft-ietf-ccwg-bbr-06)")
AGENTS.add("vivace", "ccenv.agents.classic.pcc.vivace:sender", tags=("classic",), summary="PCC Vivace (Dong et al. 2018)")
AGENTS.add(
    "vivace_linux",
    "ccenv.agents.classic.pcc.vivace_linux:sender",
    tags=("classic",),
    summary="PCC Vivace as in the authors' Linux module",
)
AGENTS.add("allegro", "ccenv.agents.classic.pcc.allegro:sender", tags=("classic",), summary="PCC Allegro (Dong et al. 2015)")
AGENTS.add(
    "allegro_linux",
    "ccenv.agents.classic.pcc.allegro_linux:sender",
    tags=("classic",),
    summary="PCC Allegro as in the authors' Linux module",
)
AGENTS.add("fast", "ccenv.agents.classic.fast:sender", tags=("classic",), summary="FAST (Wei, Jin, Low, Hegde 2006)")
AGENTS.add("ledbat", "ccenv.agents.classic.ledbat:sender", tags=("classic",), summary="LEDBAT (RFC 6817)")
AGENTS.add(
    "illinois", "ccenv.agents.classic.illinois:sender", tags=("classic",), summary="TCP-Illinois (Liu, Basar, Srikant 2008)"
)
AGENTS.add("westwood", "ccenv.agents.classic.westwood:sender", tags=("classic",), summary="Westwood+ (Grieco, Mascolo 2004)")
AGENTS.add("hybla", "ccenv.agents.classic.hybla:sender", tags=("classic",), summary="TCP Hybla (Caini, Firrincieli 2004)")
AGENTS.add("dctcp", "ccenv.agents.classic.dctcp:sender", tags=("classic",), summary="DCTCP (RFC 8257)")
AGENTS.add(
    "prague",
    "ccenv.agents.classic.prague:sender",
    tags=("classic",),
    summary="Prague for L4S (draft-briscoe-iccrg-prague-congestion-control-04)",
)
AGENTS.add(
    "gcc", "ccenv.agents.classic.gcc:sender", tags=("classic",), summary="GCC for real-time media (draft-ietf-rmcat-gcc-02)"
)
AGENTS.add("fourcp_fixed", "ccenv.agents.classic.fourcp:sender", tags=("classic",), summary="4CP, fixed target loss rate ([4CP])")
AGENTS.add(
    "fourcp_auto", "ccenv.agents.classic.fourcp:automatic_sender", tags=("classic",), summary="4CP, automatic mode ([4CP])"
)
AGENTS.add(
    "exp_delay",
    "ccenv.agents.classic.exp_delay:sender",
    tags=("classic",),
    summary="exponential delay map ([Starvation] Algorithm 1)",
)
AGENTS.add(
    "ever_delay",
    "ccenv.agents.classic.ever_delay:sender",
    tags=("classic",),
    summary="unfairness bounded for ever, for any number of flows (docs/fairness.md)",
)
AGENTS.add("constant", "ccenv.agents.classic.constant:sender", tags=("classic",), summary="a constant rate (parameter rate_mbps)")

_SYNTHESIZED = "ccenv.agents.synthesized:"
_LISTING = "belief program of [CCmatic] Listing 2: "
AGENTS.add("cc_qdel", _SYNTHESIZED + "cc_qdel", tags=("synthesized",), summary=_LISTING + "CCA1, for deep buffers")
AGENTS.add("cc_probe_fast", _SYNTHESIZED + "cc_probe_fast", tags=("synthesized",), summary=_LISTING + "CCA2, for small buffers")
AGENTS.add("cc_probe_drain", _SYNTHESIZED + "cc_probe_drain", tags=("synthesized",), summary=_LISTING + "CCA3, for any buffer")
AGENTS.add(
    "cc_probe_slow",
    _SYNTHESIZED + "cc_probe_slow",
    tags=("synthesized",),
    summary=_LISTING + "CCA4, constant loss on CBR-delay (parameters k, alpha_mss)",
)
AGENTS.add("cc_probe_qdel", _SYNTHESIZED + "cc_probe_qdel", tags=("synthesized",), summary=_LISTING + "CCA5, probes by delay")
AGENTS.add(
    "cc_probe_slow_k",
    _SYNTHESIZED + "cc_probe_slow_k",
    tags=("started",),
    summary="cc_probe_slow of [CCmatic] s.6.4 and App. H: cc_qdel until the first large loss, alpha 5 segments",
)

AGENTS.add(
    "lambda_proxy",
    "ccenv.agents.wrapped:lambda_proxy",
    tags=("proxy",),
    summary="holds the ACKs of any sender so that its smallest RTT is lambda ([Delta] Algorithm 1)",
)
AGENTS.add(
    "fixed_delay_proxy",
    "ccenv.agents.wrapped:fixed_delay_proxy",
    tags=("proxy",),
    summary="holds every ACK of any sender equally long ([Delta] s.7.2)",
)

AGENTS.add(
    "contract",
    "ccenv.agents.wrapped:contract",
    tags=("contract",),
    summary="a chooser inside a contract (parameters file, chooser, policy; docs/contracts.md)",
)

_LEARNED = "ccenv.agents.learned:"  # by name: a policy may build on a CCA of this table
_ZOO = "ccenv.agents.learned.zoo:"
_PROVED = "program with verified lemmas; its name ends with the proved utilisation in per cent (docs/distillation.md)"
for _name, _tag, _summary in (
    ("learned_nominal", "learned", "policy by PPO (figures: docs/learning.md)"),
    ("learned_robust", "learned", "policy by PPO and rounds against attacks"),
    ("learned_low_delay", "learned", "policy by PPO that pays for queue and delay"),
    ("learned_fair", "packet", "policy by PPO in company, told nothing (figures: docs/company.md)"),
    ("aurora", "packet", "policy by the recipe of [Aurora], trained here (figures: docs/learned-papers.md)"),
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
    ("learned_contract_u80", "policy by PPO inside a contract; its lemmas hold whatever it chooses (docs/contracts.md)"),
    ("learned_contract_u80_low_delay", "policy by PPO that pays for queue and delay inside the same contract"),
    ("learned_contract_u80_firm", "policy by PPO inside a part of that contract, which attacks find less in"),
    ("learned_contract_u77_timeouts", "policy by PPO inside a contract whose lemmas hold with belief time-outs"),
    ("learned_robust_v2", "policy by PPO inside a contract, trained on drawn paths under attack (figures: docs/learning.md)"),
    (
        "learned_robust_v3",
        "the same policy, with more in flight where D is above Rm: the sturdiest under attack",
    ),
):
    AGENTS.add(_name, _ZOO + _name, tags=("contract",), summary=_summary)


def make_sender(spec: str, **parameters: Any) -> Sender:
    """Build a sender.

    Args:
        spec: a registered name with optional parameters (``"cc_probe_slow:k=2"``, ``"constant:rate_mbps=10"``), the path of a
            belief program (``.json``; a contract needs a chooser: ``"contract:file=FILE,chooser=middle"``), or of a learned
            policy (``.safetensors`` with its card, or the folder of the pair).
        parameters: more parameters of a registered name, as Python values (``make_sender("lambda_proxy", inner="reno")``).

    Returns:
        Sender: for the engines.

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
