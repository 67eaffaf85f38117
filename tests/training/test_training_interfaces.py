"""Training and distilling over signals and actions of the tables: what is stored is what was trained, and is scored as it was."""

import numpy as np
import pytest
from policy_zoo import interface, random_policy

from ccenv.agents import make_sender
from ccenv.agents.interface.interface import SENDER_V0
from ccenv.agents.interface.signals import N_SIGNALS
from ccenv.agents.learned import save_policy
from ccenv.agents.learned.convert import PolicyReference
from ccenv.agents.sender import PolicySender
from ccenv.base.errors import InputError
from ccenv.training.config import load_config
from ccenv.training.distill.imitation import imitate, make_guide
from ccenv.training.distill.objective import USUAL_WORLD, load_teacher
from ccenv.training.evaluation import evaluate_in_world

SMALL = [
    "num_envs=16", "ppo.n_steps=16", "ppo.batch_size=64", "ppo.hidden=[16]", "total_steps=512", "environment.episode_rtts=10",
    "evaluation.n_paths=16", "evaluation.n_paths_during=16", "evaluation.every_steps=256", "checkpoint_every_steps=256",
]  # fmt: skip
AURORA = ["environment.signals=aurora", "environment.action=rate_delta", "environment.history=3"]
ORCA = ["environment.signals=orca", "environment.action=cwnd_exp2_over", "environment.inner=cubic"]
DISCRETE = ["environment.discrete=true", "environment.n_actions=5", "environment.reward=company"]


@pytest.mark.parametrize("more", [AURORA, [*ORCA, *DISCRETE], ["environment.action=discrete"]], ids=["aurora", "orca", "beliefs"])
def test_the_stored_policy_is_the_network_that_was_trained(tmp_path, more):
    torch = pytest.importorskip("torch")
    pytest.importorskip("stable_baselines3")
    from ccenv.training.checkpoint import read_checkpoint
    from ccenv.training.learner import Learner
    from ccenv.training.run import train

    config = load_config("quick_sender", [*SMALL, *more])
    result = train(config, tmp_path / "run")
    sender = make_sender(str(tmp_path / "run"))
    assert isinstance(sender, PolicySender) and sender.interface == (config.environment.interface or SENDER_V0)
    assert sender.head == ("categorical" if config.environment.is_discrete else "mean")
    assert evaluate_in_world(config.environment, sender, 16) == result.evaluation
    learner = Learner(config, read_checkpoint(tmp_path / "run" / "checkpoint"))
    observations, sees = learner._task.observe(), sender.interface
    with torch.no_grad():
        mode = learner._model.policy.get_distribution(torch.from_numpy(observations)).mode().numpy()
    wanted = (
        2.0 * mode / (config.environment.n_actions - 1) - 1.0 if config.environment.is_discrete else np.clip(mode[:, 0], -1, 1)
    )
    for row, action in zip(observations, wanted, strict=True):
        reference = PolicyReference(sender)
        for interval in row.reshape(sees.history, -1):
            signals = np.full(N_SIGNALS, np.nan)
            signals[sees.numbers] = interval
            reference.history = reference.history or [signals[sees.numbers]] * sees.history
            got = reference.decide(signals)
        assert got == pytest.approx(action, abs=1e-5)


def test_a_score_of_the_table_needs_the_policy_of_that_world():
    world = load_config("quick_sender", [*SMALL, *AURORA, "environment.reward=aurora"]).environment
    with pytest.raises(InputError, match="decides over another interface"):
        evaluate_in_world(world, make_sender("learned_nominal"), 4)


TEACHERS = {
    "gru": random_policy(interface(signals="company", action="rate_exp2"), (8, 6), stages=("dense", "gru"), name="my_gru"),
    "beliefs_gru": random_policy(SENDER_V0, (6,), stages=("gru",), name="my_beliefs"),
    "aurora": random_policy(interface(signals="aurora", action="rate_delta"), (16,), name="my_aurora"),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_any_policy_that_sets_rates_is_imitated(tmp_path, name):
    save_policy(tmp_path, TEACHERS[name])
    teacher = load_teacher(str(tmp_path))
    assert teacher.policy.interface == TEACHERS[name].interface
    done = imitate(teacher.policy, 2, 0, USUAL_WORLD)
    assert np.isfinite(done.error) and len(done.samples.rate) == 6 * 128 * 90 and done.samples.rate.max() <= 8.0


def test_a_teacher_that_drives_itself_is_asked_for_what_it_does():
    """Where a student does what it is told, the teacher sees what it would see alone."""
    policy = TEACHERS["beliefs_gru"]
    guide = make_guide(policy, USUAL_WORLD.model_copy(update={"staggered": False}), 4)
    guide.reset(3)
    reference = [PolicyReference(policy) for _ in range(4)]
    for _ in range(20):
        observations = guide._task.observe()
        seen, wanted = guide.ask()
        signals = np.full(N_SIGNALS, np.nan)
        for row, (own, rate) in enumerate(zip(reference, wanted, strict=True)):
            signals[SENDER_V0.numbers] = observations[row]
            assert rate == pytest.approx(max(2.0 ** (3 * own.decide(signals)), seen[row, 2]), rel=1e-6)
        guide.play(wanted)


def test_a_policy_that_sets_windows_is_no_teacher(tmp_path):
    save_policy(tmp_path, random_policy(interface(signals="company", action="cwnd_exp2")))
    with pytest.raises(InputError, match="'cwnd_exp2' sets a window"):
        load_teacher(str(tmp_path))
