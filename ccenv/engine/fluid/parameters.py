"""The parameter sets of the fluid model, `paper`, `artefact` and `calibrated`, and the record layouts of its kernels.

Seconds, bytes and bytes/s throughout. The kernels and nothing else index these records, by field name.
"""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from ccenv.base.config import StrictModel, validate
from ccenv.base.errors import unknown_name


class FiniteModel(StrictModel):
    """Base of the fluid model's data: strict, and every number finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Parameters(FiniteModel):
    """Constants of the fluid model that are not part of a scenario.

    The sharpness constants K are pure numbers per packet, millisecond and packet per millisecond, as in the published
    code; the kernels scale them to bytes and seconds.

    Attributes:
        form: which equations hold: `print` as printed (with the corrections named in the kernels), `code` as the published
            simulator computes them, `rounds` with one reaction to loss per round trip.
        sharpness: K of eq. 5 for all sigmoids but the pulses.
        pulse_sharpness: K of the BBRv1 phase pulses (eq. 22), per ms.
        loss_exponent: L of eq. 4.
        tau_min_time_constant_s: of eq. 9.
        x_max_growth_time_constant_s: of eq. 19, first term.
        x_max_reset_time_constant_s: of eq. 19, second term.
        x_btl_time_constant_s: of eqs. 21 and 29.
        w_lo_time_constant_s: of eq. 31, first term.
        reset_window_s: time at the start of a period during which x_max is reset (eq. 19).
        update_window_s: time at the end of a period during which BBRv1 updates x_btl (eq. 21).
        rtt_tolerance_s: how much lower an RTT must be to restart the ProbeRTT timer (eq. 14).
        probe_rtt_interval_s: eq. 13, for BBRv1.
        bbr2_probe_rtt_interval_s: eq. 13, for BBRv2.
        bbr2_probe_rtt_first_s: time to BBRv2's first ProbeRTT (not above the interval). 5 s in the published code, whose
            later intervals are 10 s: in the published 9 s runs BBRv2 enters ProbeRTT and BBRv1 does not (section 4.3.4).
        probe_rtt_duration_s: eq. 13.
        loss_threshold: loss above which BBRv2 reacts (eqs. 27, 30, 31).
        hi_decrease: share of w_hi lost per RTT of excessive loss (eq. 30).
        lo_decrease: share of w_lo lost per RTT of excessive loss (eq. 31).
        period_rtts: cap of BBRv2's period in tau_min (eq. 25).
        period_base_s: eq. 25; agent i of N waits this plus period_spread_s i/N.
        period_spread_s: eq. 25.
        hi_start: w_hi(0) in BDPs of the flow for buffers up to hi_start_knee_bdp.
        hi_start_slope: growth of w_hi(0), relative to hi_start, per BDP of buffer beyond the knee (insight 5).
        hi_start_knee_bdp: see hi_start.
        reno_decrease: share of the window lost per lost packet (eq. 52).
        cubic_c: eq. 54.
        cubic_b: eq. 54; 0.7 as printed, 0.3 in RFC 8312's form.
        cubic_offset_s: form `code`: added to the time since the last loss.
        cubic_loss_floor: form `code`: loss from which on CUBIC's variables relax.
        cubic_lag_rtts: form `code`: age of the window that becomes w_max, in propagation RTTs.
        cubic_start_w_max: form `code`: w_max(0) in windows; the time since the last loss starts at 0.
        code_time_constant_s: form `code`: of CUBIC's reset and of BBRv2's volume in cruise and ProbeRTT.
        down_limit_rtts: form `code`: longest drain of BBRv2 in tau_min, from the start of the period on.
        hi_floor_bdp: form `code`: least w_hi in estimated BDP.
        hi_growth_interval_s: form `code`: w_hi grows by 2^(t/tau_min) packets in this time.
        start_phase_rtts: form `code`: BBRv2 starts in cruise, this many propagation RTTs and a random part of
            start_phase_spread_s into its period.
        start_phase_spread_s: see start_phase_rtts.
        reaction_packets: form `rounds`: packets of a flow that must be lost before it reacts.
        reaction_rtts: form `rounds`: shortest time between two reactions in RTTs.
        conserve_rtts: form `rounds`: how long BBRv1 sends what is delivered after a reaction, in RTTs.
        window_gain: BBR's window in estimated BDP (eqs. 24, 32).
        pacing_margin: share by which BBR paces below its estimate; 0.01 in Linux.
    """

    form: Literal["print", "code", "rounds"] = "print"
    sharpness: float = Field(default=500.0, gt=0)
    pulse_sharpness: float = Field(default=5.0, gt=0)
    loss_exponent: float = Field(default=100.0, ge=1)
    tau_min_time_constant_s: float = Field(default=1e-3, gt=0)
    x_max_growth_time_constant_s: float = Field(default=1e-3, gt=0)
    x_max_reset_time_constant_s: float = Field(default=1e-3, gt=0)
    x_btl_time_constant_s: float = Field(default=1e-3, gt=0)
    w_lo_time_constant_s: float = Field(default=1e-3, gt=0)
    reset_window_s: float = Field(default=0.01, gt=0)
    update_window_s: float = Field(default=0.01, gt=0)
    rtt_tolerance_s: float = Field(default=1e-5, ge=0)
    probe_rtt_interval_s: float = Field(default=10.0, gt=0)
    bbr2_probe_rtt_interval_s: float = Field(default=10.0, gt=0)
    bbr2_probe_rtt_first_s: float = Field(default=10.0, gt=0)
    probe_rtt_duration_s: float = Field(default=0.2, gt=0)
    loss_threshold: float = Field(default=0.02, gt=0, lt=1)
    hi_decrease: float = Field(default=0.3, gt=0, lt=1)
    lo_decrease: float = Field(default=0.3, gt=0, lt=1)
    period_rtts: float = Field(default=62.0, gt=0)
    period_base_s: float = Field(default=2.0, gt=0)
    period_spread_s: float = Field(default=1.0, ge=0)
    hi_start: float = Field(default=1.25, gt=0)
    hi_start_slope: float = Field(default=0.0, ge=0)
    hi_start_knee_bdp: float = Field(default=4.0, ge=0)
    reno_decrease: float = Field(default=0.5, gt=0, lt=1)
    cubic_c: float = Field(default=0.4, gt=0)
    cubic_b: float = Field(default=0.7, gt=0, lt=1)
    cubic_offset_s: float = Field(default=2.0, ge=0)
    cubic_loss_floor: float = Field(default=1e-6, gt=0, lt=1)
    cubic_lag_rtts: float = Field(default=2.0, gt=0, le=10)
    cubic_start_w_max: float = Field(default=1.1, gt=0)
    code_time_constant_s: float = Field(default=1e-3, gt=0)
    down_limit_rtts: float = Field(default=10.0, gt=0)
    hi_floor_bdp: float = Field(default=1.15, ge=0)
    hi_growth_interval_s: float = Field(default=1e-3, gt=0)
    start_phase_rtts: float = Field(default=10.0, ge=0)
    start_phase_spread_s: float = Field(default=1.0, ge=0)
    reaction_packets: float = Field(default=1.0, gt=0)
    reaction_rtts: float = Field(default=1.0, gt=0)
    conserve_rtts: float = Field(default=1.0, ge=0)
    window_gain: float = Field(default=2.0, gt=0)
    pacing_margin: float = Field(default=0.0, ge=0, lt=1)


CALIBRATED = Path(__file__).parent / "calibrated.json"


@cache
def calibration() -> dict[str, Any]:
    """Return the stored calibration: fitted constants under ``constants``, records, split and errors beside them."""
    stored: dict[str, Any] = json.loads(CALIBRATED.read_text(encoding="utf-8"))
    return stored


# `paper` keeps the printed constants; the printed gains of 1 have no unit, and only 1/ms lets the 10 ms windows of
# eqs. 19 and 21 have an effect. `artefact` is the published code. `calibrated` has RFC 9438's b, Linux's pacing margin and
# constants fitted to records.
PARAMETER_SETS: dict[str, Parameters] = {
    "paper": Parameters(),
    "artefact": Parameters(
        form="code",
        x_max_growth_time_constant_s=2e-4,
        bbr2_probe_rtt_first_s=5.0,
        lo_decrease=-math.log(0.9),
        period_rtts=63.0,
        hi_start_slope=0.5,
    ),
    "calibrated": validate(
        Parameters, {"form": "rounds", "cubic_b": 0.3, "pacing_margin": 0.01} | calibration()["constants"], CALIBRATED.name
    ),
}


def parameters(name: str) -> Parameters:
    """Return the parameter set of a name. Raises UnknownNameError with suggestions."""
    if name not in PARAMETER_SETS:
        raise unknown_name("parameter set", name, PARAMETER_SETS)
    return PARAMETER_SETS[name]


BBR1, BBR2, RENO, CUBIC = 0, 1, 2, 3
CCA_CODES = {"bbr1": BBR1, "bbr2": BBR2, "reno": RENO, "cubic": CUBIC}

# How senders react to loss: the printed equations, the published code, once per round (see Parameters.form).
PRINT, CODE, ROUNDS = 0, 1, 2
FORM_CODES = {"print": PRINT, "code": CODE, "rounds": ROUNDS}

DROP_TAIL, RED = 0, 1
DISCIPLINE_CODES = {"drop-tail": DROP_TAIL, "red": RED}


def _record(integers: str, reals: str) -> np.dtype:
    return np.dtype([(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in reals.split()])


# hops, hop_start: the links on the path, as a run of the hop table; row: first ring of the flow (sent, then accepted and
# departed for every hop); return_steps: egress of the last link to the sender, by way of the receiver; lag_steps: how far
# back the window that CUBIC remembers lies.
FLOW = _record(
    "cca hops hop_start row return_steps lag_steps",
    "rtt_prop_s phase period_s prt_interval_s "
    # state: BBR
    "tau_min_s x_btl_Bps x_max_Bps x_last_Bps x_next_Bps t_pbw_s t_prt_s m_prt m_dwn m_crs w_hi_bytes w_lo_bytes "
    # state: loss-based
    "cwnd_bytes since_loss_s w_max_bytes w_est_bytes cwnd_old_bytes "
    # state: published code's volume in flight; reactions once per round
    "v_bytes lost_packets quiet_s conserve_s "
    # signals and outputs of the newest step
    "tau_s rtt_seen_s x_dlv_Bps x_lost_Bps p_seen p_signal inflight_bytes settled_bytes window_bytes x_Bps "
    # sums over the measured part of the run
    "sent_bytes delivered_bytes lost_bytes rtt_sum_s jitter_sum_s jitter_samples last_rtt_s "
    # sums over the whole run
    "all_sent_bytes all_lost_bytes",
)

LINK = _record(
    "discipline oldest",
    "capacity_Bps buffer_bytes q0_bytes q1_bytes p1 average_gain "
    # state: queue, its average, cumulative accepted and departed bytes, where in the oldest step the head of line is
    "queue_bytes average_bytes accepted_bytes departed_bytes oldest_part "
    # newest step
    "arriving_bytes loss signal "
    # sums over the measured part of the run
    "arrived_sum_bytes lost_sum_bytes departed_sum_bytes queue_sum_bytes "
    # sums over the whole run
    "all_arrived_bytes all_lost_bytes",
)

# Gains that end in _part are 1 - exp(-step/time constant): the exact step of a linear relaxation.
CONFIG = _record(
    "steps ring measure_step trace_every form",
    "step_s mss_bytes jitter_interval_s rate_limit_Bps loss_exponent "
    "k_rate k_time k_pulse k_loss drain_tolerance_bytes "
    "tau_part max_growth_part max_reset_part btl_part lo_part code_part "
    "rtt_tolerance_s probe_rtt_duration_s reset_window_s update_window_s "
    "hi_decrease lo_decrease loss_threshold period_rtts "
    "reno_decrease cubic_c cubic_b cubic_offset_s cubic_loss_floor "
    "down_limit_rtts hi_floor_bdp hi_growth_interval_s "
    "reaction_packets reaction_rtts conserve_rtts window_gain pacing_margin",
)

FLOW_TRACE = [
    *("x_Bps", "x_btl_Bps", "x_max_Bps", "x_dlv_Bps", "tau_s", "tau_min_s", "inflight_bytes", "window_bytes"),
    *("w_hi_bytes", "w_lo_bytes", "m_prt", "m_dwn", "m_crs", "t_pbw_s", "p_seen"),
]
LINK_TRACE = ["queue_bytes", "arrival_Bps", "loss"]
