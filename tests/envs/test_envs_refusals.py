"""What the environments refuse, in one line: settings by the name of the environment that does not take them."""

from typing import Any

import pytest
from shields_data import document, shield
from test_packet_envs import BOXED, FAST

from ccenv.base.errors import CcenvError
from ccenv.envs import ENVIRONMENTS

RATE_STEPS = {"rate_mbps": 12, "buffer_bdp": 1, "rate_steps": [{"time_s": 1, "rate_mbps": 6}]}
INSIDE = {"scenario": FAST, "shield": shield()}
MOVED = {"scenario": BOXED, "link_rate_min_share": 0.5}
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "ccenv/Sender-v0": [
        ({"pathz": 1}, "unexpected keyword argument 'pathz'. Did you mean 'paths'"),
        ({"paths": {"buffer_bpd": [1, 2]}}, "Did you mean 'buffer_bdp'"),
        ({"paths": {"rtt_s": [2, 1]}}, "low <= high"),
        ({"paths": {"link_rate_mss_per_rtt": [0, 1]}}, "low > 0"),
        ({"paths": {"rtt_s": [0.1, float("nan")]}}, "finite"),
        ({"paths": {"jitter_rtts": [0.3, 0.4]}, "steps_per_rtt": 4}, "no whole step"),
        ({"models": ["ccacc"]}, "unknown model 'ccacc'. Did you mean 'ccac'"),
        ({"senders": ["cubik"]}, "Did you mean 'cubic'"),
        ({"senders": [3]}, "neither a name nor a sender"),
        ({"senders": ["cubic"]}, "nothing to control"),
        ({"adversary": 5}, "neither a name, a mixture"),
        ({"adversary": "external"}, "Duel-v0"),
        ({"adversary": {"kind": 0, "uniform": 0, "sticky": 0, "bang_bang": 0}}, "at least one share"),
        ({"reward": {"utilization": 1}}, "Did you mean 'utilisation'"),
        ({"beliefs": "papr"}, "Did you mean 'paper'"),
        ({"render_mode": "human"}, "unknown render_mode"),
        ({"episode_rtts": 4, "decision_steps": 32}, "fewer than two steps"),
        ({"signals": ["sendratio"]}, "unknown signal 'sendratio'. Did you mean 'send_ratio'"),
        ({"signals": "arora"}, "unknown signal or set of signals 'arora'. Did you mean 'aurora'"),
        ({"reward": "auror"}, "unknown reward 'auror'. Did you mean 'aurora'"),
        ({"signals": ["app_left"]}, "'app_left' is not known on the curve engine"),
        ({"signals": ["true_others"]}, "for critics"),
        ({"action": "rate_between"}, "needs a shield"),
        ({"action": "cwnd_exp2_over"}, "needs inner CCA"),
        ({"action_parameters": {"alpha": 0.1}}, "parameters is given"),
        ({"signals": []}, "signals"),
        ({"signals": "aurora", "history": 0}, "history"),
        ({"history": 33}, "history"),
        ({"reward": {"throughput": float("nan")}}, "reward"),
    ],
    "ccenv/Network-v0": [
        ({"models": ("cbr_delay", "ccac")}, "exactly one model"),
        ({"models": ("ideal",)}, "no choice"),
        ({"senders": ("external",)}, "Duel-v0"),
        ({"adversary": "kind"}, "leave it out"),
        ({"signals": "aurora"}, "for the senders of ccenv/Sender-v0"),
    ],
    "ccenv/Duel-v0": [
        ({"senders": ("cubic",)}, "no sender to play"),
        ({"adversary": "kind"}, "leave it out"),
        ({"game": "zerosum"}, "Did you mean 'zero_sum'"),
        ({"network_reward": {"queue": 1.0}}, "minus the senders'"),
        ({"game": "general", "network_reward": {"que": 1.0}}, "Did you mean 'queue'"),
        ({"models": ("ccac", "cbr_delay")}, "exactly one model"),
    ],
    "ccenv/Packet-v0": [
        ({"signals": "aurra"}, "Did you mean 'aurora'"),
        ({"action": "rate_between"}, "action 'rate_between' needs a shield"),
        ({"action": "cwnd_exp2_over"}, "needs inner CCA"),
        ({"reward": "aurra"}, "Did you mean 'aurora'"),
        ({"reward": {"throughtput": 1}}, "Did you mean 'throughput'"),
        ({"scenario": "singel"}, "Did you mean 'single'"),
        ({"scenario": 3}, "neither a scenario"),
        ({"scenario": {**FAST, "flows": [{"sender": "reno", "rtt_ms": 20}]}}, "nothing to control"),
        ({"scenario": {**FAST, "flows": [{"sender": {"choice": ["external", "reno"]}, "rtt_ms": 20}]}}, "'external' cannot be"),
        ({"scenario": BOXED}, "nothing to control"),
        ({"scenario": "duel"}, "PacketDuel-v0"),
        ({"signals": ["app_left"]}, "needs an application that ends"),
        ({"clock": {"every": "srtt", "count": 0}}, "clock.count"),
        ({"clock": {"every": "acks", "least_rtts": 2}}, "least_rtts is 2; a clock of acks"),
        ({"history": 1000}, "history"),
        ({"episode_decisions": 1}, "episode_decisions"),
        ({"episode_decision": 10}, "Did you mean 'episode_decisions'"),
        ({"start_rate_share": [0, 1]}, "start_rate_share"),
        ({"scenario": {**FAST, "links": [{"rate_mbps": 0.1}]}, "signals": "beliefs"}, "segment"),
        ({"scenario": FAST, "link_rate_min_share": 0.5}, "for ccenv/PacketNetwork-v0"),
        ({**INSIDE, "action": "rate_delta"}, "inside one the action is 'rate_between' (got action 'rate_delta')"),
        ({**INSIDE, "clock": {"every": "srtt"}}, "flows decide when the shield does"),
        ({**INSIDE, "start_rate_share": [0.1, 1]}, "begin with the shield's first rate"),
        ({**INSIDE, "shield": "learned_nominal"}, "'learned_nominal' has no shield"),
        ({**INSIDE, "shield": "learned_shield_u8"}, "learned_shield_u80"),
        ({**INSIDE, "shield": {**document(), "rule": {"rate": {"C_L": 1}}}}, "no shield: none of its leaves is an interval"),
        ({**INSIDE, "shield": 5}, "neither a name, a file nor a shield"),
        ({**INSIDE, "shield": document(rule={"rate_between": [{"C_L": 2}, {"C_L": 1}]})}, "C_L"),  # ends that cross
        ({**INSIDE, "shield": "cut.json"}, "cut.json"),
    ],
    "ccenv/PacketNetwork-v0": [
        ({**MOVED, "link_rate_min_share": 0}, "greater than 0"),
        ({**MOVED, "link_rate_min_share": 1.5}, "less than 1"),
        ({**MOVED, "link_rate_min_share": float("nan")}, "link_rate_min_share"),
        ({**MOVED, "link_rate_min_share": 0.01}, "less than a segment per RTT"),
        ({**MOVED, "scenario": {**BOXED, "links": [RATE_STEPS]}}, "one link, without rate_steps"),
        ({"shield": shield()}, "a shield is for ccenv/Packet-v0"),
    ],
    "ccenv/PacketDuel-v0": [({"shield": shield()}, "a shield is for ccenv/Packet-v0")],
}


@pytest.mark.parametrize(("env_id", "settings", "said"), [(env_id, *row) for env_id, rows in REFUSED.items() for row in rows])
def test_settings_are_refused_in_one_line(env_id: str, settings: dict[str, Any], said: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cut.json").write_text('{"format": "ccenv-program", "version": 2')
    with pytest.raises(CcenvError) as caught:
        ENVIRONMENTS.load(env_id)(**settings)
    assert said in str(caught.value) and "\n" not in str(caught.value)
