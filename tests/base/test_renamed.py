"""The former word for shields is still read wherever a user may have written it."""

import pytest

from ccenv.agents import AGENTS, make_sender
from ccenv.agents.identity import sender_hash
from ccenv.agents.programs import to_data
from ccenv.base.errors import InputError
from ccenv.base.renamed import with_keys_of_today
from ccenv.cli.main import main
from ccenv.envs.curve.settings import EnvSettings
from ccenv.envs.packet.settings import PacketSettings
from ccenv.proofs.certificates.fairness.reading import find_fair
from ccenv.proofs.certificates.library import find
from ccenv.training.config import load_config

U80 = "learned_contract_u80"


def test_names_of_senders_certificates_and_configs_and_keys_of_settings() -> None:
    today = make_sender("learned_shield_u80")
    assert sender_hash(make_sender(U80)) == sender_hash(today)
    assert make_sender(f"contract:file={U80},chooser=lo").program == today.program
    assert U80 in AGENTS and U80 not in AGENTS.names()
    assert find("learned_contract_u77_timeouts") == find("learned_shield_u77_timeouts")
    assert find_fair("ever_delay_contract") == find_fair("ever_delay_shield") is not None
    assert load_config("learned_contract").environment.shield == to_data(today.program)
    program = to_data(make_sender("learned_shield_u80").program)
    assert EnvSettings(contract=U80).shield == PacketSettings(contract=U80).shield == program  # type: ignore[call-arg]
    config = load_config("packet_shield", ["contract=learned_shield_u80_firm"])
    assert config.packet is not None and config.packet["shield"] != program
    assert with_keys_of_today({"contract": 1, "shield": 2}) == {"contract": 1, "shield": 2}


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(["contract", "hull", U80, "--out", f"{tmp_path}/hull.json"]) == 0
    assert "shield" not in capsys.readouterr().err
    with pytest.raises(InputError):
        make_sender("contracts")
