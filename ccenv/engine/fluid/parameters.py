"""The two parameter sets of the fluid model: `paper` and `artefact`."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from ccenv.config import StrictModel
from ccenv.errors import unknown_name


class FiniteModel(StrictModel):
    """Base of the fluid model's data: strict, and every number finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Parameters(FiniteModel):
    """Constants of the fluid model that are not part of a scenario.

    The sharpness constants K are pure numbers per packet, millisecond and packet per millisecond, as in the published
    code; the kernels scale them to bytes and seconds.

    Attributes:
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
        bbr2_probe_rtt_interval_s: eq. 13, for BBRv2; 10 s in print. 5 s, as in BBRv2's draft and code, in `artefact`:
            inferred, since in the published 9 s runs BBRv2 enters ProbeRTT and BBRv1 does not (section 4.3.4).
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
    """

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


# `paper` keeps the printed constants; the printed gains of 1 have no unit, and only 1/ms lets the 10 ms windows of
# eqs. 19 and 21 have an effect. `artefact` holds what differs in the published code.
PARAMETER_SETS: dict[str, Parameters] = {
    "paper": Parameters(),
    "artefact": Parameters(
        x_max_growth_time_constant_s=2e-4,
        bbr2_probe_rtt_interval_s=5.0,
        lo_decrease=0.1,
        period_rtts=63.0,
        hi_start_slope=0.5,
    ),
}


def parameters(name: str) -> Parameters:
    """Return the parameter set of a name. Raises UnknownNameError with suggestions."""
    if name not in PARAMETER_SETS:
        raise unknown_name("parameter set", name, PARAMETER_SETS)
    return PARAMETER_SETS[name]
