"""Scenarios of live runs: those of ``ccenv sim`` with kernel senders, a network model and settings of the devices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from ccenv.adversaries import make_adversary
from ccenv.adversaries.observation import N_FLOW, N_PATH
from ccenv.base.config import find_data
from ccenv.base.errors import CcenvError, InputError, shown
from ccenv.base.foreign import read_yaml
from ccenv.engine.curve.players import AdversaryTable
from ccenv.engine.packet.beliefs import STEPS_PER_RTT
from ccenv.engine.packet.spec import FlowSpec, JitterSpec
from ccenv.network.adversary import SUFFIX, Adversary, ExternalAdversary, MlpAdversary, RecordedAdversary, load_moves, moves_width
from ccenv.network.path import MBPS_IN_BPS
from ccenv.simulation.scenario import Scenario, read_scenario_as

CONFIGS = "ccenv.configs.live"
KERNEL = "kernel:"
MOST_FLOWS = 16
LARGEST_PACKET, SMALLEST_PACKET = 1500, 576
FASTEST_BPS = 1000 * MBPS_IN_BPS
LONGEST_S = 600.0
SHORTEST_LOG_S = 1e-3
PUNCTUAL_SHARE = 0.25  # of the smallest significant delay; a larger release error spoils a run
# Keys of flows for the packet engine only: the stack of this machine has its own loss detection and bursts.
NOT_EMULATED = (
    "loss_bursts",
    "reordering",
    "ack_path",
    "mss_bytes",
    "recovery",
    "ecn",
    "burst_s",
    "handshake",
    "duplicate_acks",
    "arrivals",
)
LINKS_NOT_EMULATED = ("trace", "generator", "policer")
_NAME = re.compile(r"[A-Za-z0-9_]{1,15}", re.ASCII)


class LiveError(CcenvError):
    """A live run that this machine cannot make, or a scenario that is not emulated."""

    def __init__(self, message: str) -> None:
        super().__init__(f"live: {message}")


class LiveScenario(Scenario):
    """A scenario on the real TCP stack. A sender is ``kernel:NAME`` or a belief program.

    Attributes:
        model: cbr_delay (a link, then a delay element per flow) or ccac (the link itself may keep tokens and data for up to D).
        steps_per_rtt: K: steps per smallest rtt of ccac, and of recorded moves.
        device: of the emulator: TUN devices, packet sockets, or the first that is available.
        quick_ack: the receiver acknowledges every packet, as in the packet engine; otherwise the kernel decides.
        packets_per_burst: segments per packet of the sending stack; 0: the kernel's choice.
        realtime: ask for real-time priority.
        chooser: of shields with a policy: a process that answers the kernel, or the policy compiled into the program.
    """

    phase_jitter: float = 0.0
    model: Literal["cbr_delay", "ccac"] = "cbr_delay"
    steps_per_rtt: int = Field(default=8, ge=1, le=64)
    device: Literal["auto", "tun", "packet"] = "auto"
    quick_ack: bool = True
    packets_per_burst: int = Field(default=1, ge=0, le=64)
    realtime: bool = True
    chooser: Literal["process", "kernel"] = "process"

    @property
    def limit_s(self) -> float:
        """The largest release error of a valid run: a quarter of a step of the beliefs' grid and of D."""
        steps_s = [flow.rtt_s / STEPS_PER_RTT for flow in self.flows]
        return PUNCTUAL_SHARE * min([*steps_s, *(flow.jitter.max_s for flow in self.flows if flow.jitter.max_s > 0)])


def read_live_scenario(data: Any, source: str = "scenario") -> LiveScenario:
    """Validate a scenario and check that all of it is emulated.

    Raises:
        InputError: as ``ccenv.simulation.read_scenario``.
        LiveError: for the first part that is not emulated.
    """
    scenario = read_scenario_as(LiveScenario, data, source)
    _check_network(scenario)
    for index, flow in enumerate(scenario.flows):
        _check_flow(index, flow, scenario)
    return scenario


def load_live_scenario(name: str) -> LiveScenario:
    """Load a shipped live scenario or a YAML file. Raises InputError, UnknownNameError or LiveError."""
    file = find_data(CONFIGS, name, ".yaml", "live scenario")
    return read_live_scenario(_resolve_moves(read_yaml(file), file.parent), file.name)


def _resolve_moves(data: Any, folder: Any) -> Any:
    """Replace files of moves beside the scenario by their full paths."""
    for flow in data.get("flows", ()) if isinstance(data, Mapping) and isinstance(data.get("flows"), list) else ():
        jitter = flow.get("jitter") if isinstance(flow, dict) else None
        if isinstance(jitter, dict):
            spec = jitter.get("adversary")
            if isinstance(spec, str) and spec.endswith(SUFFIX) and (folder / spec).is_file():
                jitter["adversary"] = str(folder / spec)
    return data


def load_jitter_adversary(jitter: JitterSpec) -> Adversary:
    """Return the adversary of a delay element: scripted, learned, or the moves of a file."""
    spec = jitter.adversary
    adversary = load_moves(spec).adversary if spec.endswith(SUFFIX) else make_adversary(spec)
    if isinstance(adversary, ExternalAdversary):
        raise InputError(f"adversary {shown(spec)} gets its moves from outside; a live run has none")
    return adversary


def kernel_cca(sender: str) -> str | None:
    """Return the name of a kernel's congestion control, None for other senders. Raises LiveError for an invalid name."""
    if not sender.startswith(KERNEL):
        return None
    name = sender.removeprefix(KERNEL)
    if not _NAME.fullmatch(name):
        raise LiveError(f"{shown(sender)}: the kernel's names have 1 to 15 letters, digits and _")
    return name


def _not_emulated_error(key: str, value: object, supported: str) -> LiveError:
    return LiveError(f"{key} {shown(value)} is not emulated; {supported}")


def _check_left_out(prefix: str, part: BaseModel, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(part, name) != type(part).model_fields[name].get_default(call_default_factory=True):
            raise LiveError(f"{prefix}{name} is not emulated; leave it out")


def _check_network(scenario: LiveScenario) -> None:
    if scenario.phase_jitter:
        raise _not_emulated_error("phase_jitter", scenario.phase_jitter, "0 is: packets of real hosts have their own phases")
    if scenario.profile != "plain":
        raise _not_emulated_error("profile", scenario.profile, "plain is: the hosts are this machine's")
    if len(scenario.links) > 1:
        raise _not_emulated_error("links: a network of", len(scenario.links), "one link is")
    if len(scenario.flows) > MOST_FLOWS:
        raise _not_emulated_error("flows: a number of", len(scenario.flows), f"at most {MOST_FLOWS} are")
    link = scenario.links[0]
    _check_left_out("", scenario, ("applications",))
    _check_left_out("links.0.", link, LINKS_NOT_EMULATED)
    if link.discipline != "drop_tail":
        raise _not_emulated_error("links.0.discipline", link.discipline, "drop_tail is")
    fastest = max([link.rate_Bps, *(step.rate_Bps for step in link.rate_steps)])
    if fastest > FASTEST_BPS:
        raise _not_emulated_error(
            "links.0: a rate in Mbit/s of", fastest / MBPS_IN_BPS, f"at most {FASTEST_BPS / MBPS_IN_BPS:g} is"
        )
    if scenario.duration_s > LONGEST_S:
        raise _not_emulated_error("duration_s", scenario.duration_s, f"at most {LONGEST_S:g} is")
    if not (SMALLEST_PACKET <= scenario.mss_bytes <= LARGEST_PACKET and scenario.mss_bytes == int(scenario.mss_bytes)):
        raise _not_emulated_error(
            "mss_bytes", scenario.mss_bytes, f"whole numbers from {SMALLEST_PACKET} to {LARGEST_PACKET} are"
        )
    if scenario.log_s < SHORTEST_LOG_S:
        raise _not_emulated_error("log_s", scenario.log_s, f"at least {SHORTEST_LOG_S:g} is")
    adversaries = {(flow.jitter.adversary, flow.jitter.max_s) for flow in scenario.flows}
    boxed = {flow.jitter.kind == "adversary" for flow in scenario.flows}
    if scenario.model == "ccac" and (boxed != {True} or len(adversaries) > 1):
        raise LiveError("model ccac needs jitter of kind adversary, the same for all flows: the link itself is its box")
    if len({adversary for adversary, _ in adversaries} - {""}) > 1:
        raise LiveError("flows with different adversaries are not emulated; one adversary for all boxes is")


def _check_learned(key: str, adversary: MlpAdversary, scenario: LiveScenario) -> None:
    n = len(scenario.flows)
    if adversary.weights[0].shape[0] != N_PATH + n * N_FLOW:
        raise LiveError(f"{key}.jitter.adversary: {adversary.name} was trained on another number of flows than {n}")
    if scenario.steps_per_rtt != STEPS_PER_RTT:
        raise _not_emulated_error("steps_per_rtt", scenario.steps_per_rtt, f"with a learned adversary {STEPS_PER_RTT} is")
    AdversaryTable(adversary, 1, n)


def _check_flow(index: int, flow: FlowSpec, scenario: LiveScenario) -> None:
    key, n_flows = f"flows.{index}", len(scenario.flows)
    if flow.workload.kind not in ("bulk", "finite"):
        raise _not_emulated_error(f"{key}.workload.kind", flow.workload.kind, "bulk and finite are")
    if flow.loss_rate and scenario.model == "ccac":
        raise _not_emulated_error(f"{key}.loss_rate", flow.loss_rate, "0 is in ccac; random loss is in cbr_delay")
    _check_left_out(f"{key}.", flow, NOT_EMULATED)
    if flow.receiver.quick_acks:
        raise _not_emulated_error(f"{key}.receiver.quick_acks", flow.receiver.quick_acks, "the kernel decides")
    kernel_cca(flow.sender)
    if flow.jitter.kind == "adversary":
        adversary = load_jitter_adversary(flow.jitter)
        if isinstance(adversary, MlpAdversary):
            _check_learned(key, adversary, scenario)
        if isinstance(adversary, RecordedAdversary) and adversary.moves.shape[1] not in {moves_width(1), moves_width(n_flows)}:
            raise LiveError(
                f"{key}.jitter.adversary: moves for {(adversary.moves.shape[1] - 2) // 2} flows; the scenario has {n_flows}"
            )
