"""Run the compiled curve engine and its plain reference side by side."""

import math

from oracles.curve import ReferenceCurveEngine

from ccenv.engine.curve.engine import CurveEngine

CURVES = ("A", "E", "L", "L_free", "S", "P")


def run_both(path, *, model, senders, adversary, steps, K=8, seed=3, most_flips=None, **options):
    """Return both engines after ``steps`` steps, having compared curves, transport, beliefs and decisions at every step.

    A decision may flip where a sender compares two numbers that are equal but for round-off. Then the reference takes over the
    kernel's sender; such flips are counted, and must stay rare.
    """
    run = {"model": model, "senders": senders, "adversary": adversary, "steps_per_rtt": K, "seed": seed}
    engine = CurveEngine([path], record=True, **run, **options)
    settings = {k: v for k, v in options.items() if k in ("timing", "loss_detection", "initial_C_L_Bps")}
    if "beliefs" in options:
        settings["settings"] = options["beliefs"]
    window_bytes = float(engine.flow("receive_window_bytes")[0, 0])
    reference = ReferenceCurveEngine(path, receive_window_bytes=window_bytes, **run, **settings)
    flips = 0
    for _ in range(steps):
        engine.advance(1)
        reference.step()
        compare(engine, reference)
        flips += take_over_decisions(engine, reference)
    most_flips = max(1, steps // 50) if most_flips is None else most_flips
    assert flips <= most_flips, f"{flips} decisions differ in {steps} steps"
    return engine, reference


def compare(engine, reference):
    """Raise AssertionError where the two differ by more than round-off."""
    k = reference.k
    for i, f in enumerate(reference.flows):
        where = f"step {k}, flow {i}: "
        own = {"A": f.A, "E": f.E, "L": f.L, "L_free": f.free, "S": f.S, "P": f.P}
        for name in CURVES:
            close(engine.flow(name)[0, i], own[name][-1], where + name, 1500.0)
        if k <= f.start:
            continue
        b = f.beliefs
        pairs = {
            "acked_bytes": f.acked, "found_lost_bytes": f.found_lost, "rtt_min_steps": f.min_rtt_steps,
            "recovery_step": f.recovery_step, "last_ack_step": f.last_ack_step, "delay_floor_steps": f.delay_floor,
            "C_L_Bps": b.C_L, "C_U_Bps": b.C_U, "C_L_lambda_Bps": b.C_L_lambda, "q_U_bytes": f.q_U, "utilised": int(f.utilised),
        }  # fmt: skip
        compare_rtt(engine, i, f, where)
        for name, value in pairs.items():
            close(engine.flow(name)[0, i], value, where + name, reference.path.link_rate_Bps if name.endswith("Bps") else 1500.0)
    close(engine.env("tokens_bytes")[0], reference.G[-1], f"step {k}: G", 1500.0)


def compare_rtt(engine, i, f, where):
    """Compare RTT samples; round-off moves one in a step of few bytes, and there the reference takes the kernel's."""
    width = max(f.E[f.ack_sent_step] - f.E[f.ack_sent_step - 1], 1e-9) if f.ack_sent_step > 0 else 1500.0
    names = {"rtt_now_steps": "rtt_steps", "srtt_steps": "srtt", "rttvar_steps": "rttvar"}
    for name, own in names.items():
        close(engine.flow(name)[0, i], getattr(f, own), where + name, max(1500.0, 1e-6 * f.E[-1] / width))
    if width < 1e-8 * f.E[-1]:
        for name, own in names.items():
            setattr(f, own, float(engine.flow(name)[0, i]))


def take_over_decisions(engine, reference):
    """Return how many senders decided differently; make the reference go on with the kernel's decision."""
    flips = 0
    for i, f in enumerate(reference.flows):
        if reference.k <= f.start:
            continue
        rate, cwnd = float(engine.flow("rate_Bps")[0, i]), float(engine.flow("cwnd_bytes")[0, i])
        if not all(math.isclose(*pair, rel_tol=1e-9, abs_tol=1e-8) for pair in ((rate, f.rate), (cwnd, f.cwnd))):
            flips += 1
            f.rate, f.cwnd = rate, cwnd
            f.next_decision = int(engine.flow("decision_step")[0, i])
            moved = {}
            for curve, name in ((f.A, "A"), (f.E, "E"), (f.L, "L"), (f.S, "S"), (f.P, "P")):
                moved[name] = float(engine.flow(name)[0, i]) - float(curve[-1])  # round-off: else the next tie falls the same way
                curve[:] = [
                    value + moved[name] for value in curve
                ]  # the whole of it: no byte may seem lost or served between two steps
            f.acked, f.found_lost = f.acked + moved["S"], f.L[f.loss_step]
            f.round_end = float(engine.flow("round_end_bytes")[0, i])
            if f.state is not None:
                words = engine._state_words[i]
                for name, value in zip(vars(f.state), words, strict=False):
                    setattr(f.state, name, value)
    return flips


def close(got, want, what, scale):
    """Compare to 1e-9 of the value or of ``scale``."""
    got, want = float(got), float(want)
    if math.isinf(want) or math.isinf(got):
        assert got == want, f"{what}: {got} against {want}"
    else:
        assert abs(got - want) <= 1e-9 * max(abs(want), scale), f"{what}: {got} against {want}"
