"""Training with RLlib (new API stack): PPO on the native batch, self-play on ``ccenv/Duel-v0``, flows that share a policy.

Runs use this machine, or a cluster at ``address``. RLlib's own checkpoints use pickle and are not written: after each iteration a
run writes its policies as ccenv's files, and weights, moments of Adam and KL coefficients as named arrays. Episodes in progress
are not stored; a resumed run begins new ones.
"""

from __future__ import annotations

import csv
import io
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import Field, model_validator

from ccenv.adversaries.learned import load_adversary, save_adversary
from ccenv.agents.interface.interface import OBSERVATION_VERSION, SENDER_V0
from ccenv.agents.learned import inner_cca, load_policy, save_policy
from ccenv.agents.sender import PolicySender, ShieldSender
from ccenv.base.config import StrictModel
from ccenv.base.errors import CcenvError, InputError, require_extra
from ccenv.base.files import json_bytes, write_atomic
from ccenv.base.foreign import read_yaml
from ccenv.base.foreign.reading import read_text
from ccenv.base.provenance import code_hash
from ccenv.base.store import ResultFolder
from ccenv.base.workers import start_ray
from ccenv.envs.curve.network import NetworkAction
from ccenv.envs.curve.settings import EXTERNAL, EnvSettings, read_settings
from ccenv.envs.packet.settings import PacketSettings, read_packet_settings
from ccenv.envs.packet.task import controlled_flows
from ccenv.network.adversary import MlpAdversary
from ccenv.training.checkpoint import Stopwatch, TrainingState, load_moments, read_checkpoint, write_checkpoint
from ccenv.training.evaluation import Evaluation, evaluate_in_world, evaluate_packet, evaluate_sender
from ccenv.training.run import FORMAT, RECORD
from ccenv.training.settings import check_widths

_MODULE, _OPTIMIZER, _KL = "module.", "optimizer.", "kl."
_STEP = "step"  # Adam's count of updates, one number


def pack(algorithm: Any) -> dict[str, np.ndarray]:
    """Return copies of a learner's weights, Adam moments and KL coefficients as named arrays."""
    state = algorithm.learner_group.get_state()["learner"]
    out: dict[str, np.ndarray] = {}
    for module, weights in state["rl_module"].items():
        for name, value in weights.items():
            out[f"{_MODULE}{module}/{name}"] = np.array(value)
    for optimizer, entry in state["optimizer"].items():
        for index, moments in entry["state"]["state"].items():
            for name, value in moments.items():
                out[f"{_OPTIMIZER}{optimizer}/{index}/{name}"] = np.atleast_1d(np.array(value))
    for module, coefficient in _learner(algorithm).curr_kl_coeffs_per_module.items():
        out[f"{_KL}{module}"] = np.atleast_1d(coefficient.detach().numpy().copy())
    return out


def unpack(algorithm: Any, tensors: dict[str, np.ndarray]) -> None:
    """Restore what :func:`pack` returned, and send it to the runners.

    Raises InputError if names or shapes do not fit the algorithm's modules.
    """
    state = algorithm.learner_group.get_state()
    learner = state["learner"]
    expected_shapes = {
        f"{_MODULE}{module}/{name}": np.shape(value) for module, w in learner["rl_module"].items() for name, value in w.items()
    }
    stored_shapes = {name: value.shape for name, value in tensors.items() if name.startswith(_MODULE)}
    optimizers = {name.removeprefix(_OPTIMIZER).partition("/")[0] for name in tensors if name.startswith(_OPTIMIZER)}
    if expected_shapes != stored_shapes or not optimizers <= set(learner["optimizer"]):
        raise InputError("checkpoint: the weights do not fit the config")
    for module, weights in learner["rl_module"].items():
        for name in weights:
            weights[name] = tensors[f"{_MODULE}{module}/{name}"]
    for optimizer, entry in learner["optimizer"].items():
        moments = load_moments(tensors, f"{_OPTIMIZER}{optimizer}/", "/").items()
        entry["state"]["state"] = {
            index: {name: float(value[0]) if name == _STEP else value for name, value in of.items()} for index, of in moments
        }
    algorithm.learner_group.set_state(state)
    coefficients = _learner(algorithm).curr_kl_coeffs_per_module
    for module in learner["rl_module"]:
        coefficients[module].fill_(float(tensors[f"{_KL}{module}"][0]))
    algorithm.env_runner_group.sync_weights(from_worker_or_learner_group=algorithm.learner_group, inference_only=True)


def _learner(algorithm: Any) -> Any:
    return algorithm.learner_group._learner


CONNECT_LIMIT_S = 5.0
SENDER, NETWORK = "sender", "network"
_LAYERS = ("encoder.encoder.net.mlp.", "encoder.actor_encoder.net.mlp.")  # shared and separate value networks
COLUMNS = ("iteration", "steps", "sender_return", "network_return")
CONFIG, CHECKPOINT, PROGRESS = "config.yaml", "checkpoint", "progress.csv"
_MOST_PROGRESS_BYTES = 64 << 20
_SEEDS_APART = 1_000_003  # between the seeds of runs resumed from consecutive iterations
_FREE = ("iterations", "address", "num_cpus", "n_paths")  # settings that may differ in a resumed run


@dataclass(frozen=True)
class RllibResult:
    """Result of a finished run."""

    folder: FilePath  # with policy.safetensors (the sender) and, for a duel, network/ (the adversary)
    iterations: int
    steps: int
    seconds: float  # wall time of training, without Ray's start and the evaluation
    cpu_seconds: float  # processor time of this process; that of runners and learners in other processes is missing
    # mean episode return of sender and network in each iteration; in a zero-sum duel they are opposite
    returns: list[dict[str, float | None]]
    evaluation: Evaluation  # of the sender in the config's own world, on `PathSet.REPORT`; for a duel against the default mixture
    common: Evaluation | None  # of the sender alone in the common world (`evaluate_sender`); None if it shares its link
    duel: Evaluation | None  # of the sender against the network trained with it, on paths of the environment; None without one
    resumed_from_iterations: int  # iteration that this call resumed from; 0: from the start


def train_rllib(
    config: RllibConfig, folder: FilePath, report: Callable[[int, int], None] | None = None, *, fresh: bool = False
) -> RllibResult:
    """Train with RLlib, or resume an interrupted run of the same config in the same folder.

    A resumed run continues from the last complete iteration with the same weights, moments and KL coefficients. It begins new
    episodes and draws other random numbers, so it does not repeat the uninterrupted run.

    Raises:
        MissingExtraError: if a needed extra is not installed.
        InputError: if the folder holds something else, or a run of another config.
        CcenvError: if no Ray cluster answers at ``address``, or if policies are no longer finite; those of the iteration before
            are kept.
    """
    require_extra("ray", "rllib")
    require_extra("torch", "train")
    if config.plays not in {"sender", "packet"}:
        require_extra("pettingzoo", "duel")
    runs = ResultFolder(folder, "a run of RLlib", RECORD, FORMAT, marks=(CONFIG,))
    state = None if fresh else _read_state(config, folder)
    if state is None or state.iteration < config.iterations:
        _start_ray(config)
    with runs:
        return _train(config, folder, state, report)


def _read_state(config: RllibConfig, folder: FilePath) -> TrainingState | None:
    state = read_checkpoint(folder / CHECKPOINT)
    if state is None:
        return None
    stored, current = read_yaml(folder / CONFIG), config.model_dump(mode="json")
    if not isinstance(stored, dict) or any(stored.get(key) != current[key] for key in current if key not in _FREE):
        raise InputError(f"{folder}: holds a run of another config; choose another --out, or --fresh to discard it")
    if state.iteration > config.iterations:
        raise InputError(f"{folder}: has already trained {state.iteration} iterations, more than iterations {config.iterations}")
    return state


def _train(
    config: RllibConfig, folder: FilePath, state: TrainingState | None, report: Callable[[int, int], None] | None
) -> RllibResult:
    import ray

    begin = 0 if state is None else state.iteration
    clock = Stopwatch() if state is None else Stopwatch(state.seconds, state.cpu_seconds)
    rows = [] if state is None else _read_progress(folder / PROGRESS, begin)
    algorithm = None
    try:
        if state is None:
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        write_atomic(folder / CONFIG, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).encode())
        if begin < config.iterations:
            algorithm = _algorithm(config, begin)
            if state is not None:
                unpack(algorithm, state.tensors)
        clock.start()
        for iteration in range(begin, config.iterations):
            before = int(rows[begin - 1]["steps"]) if begin else 0
            rows.append(_row(algorithm.train(), iteration + 1, before))  # type: ignore[union-attr]
            _write_progress(folder / PROGRESS, rows)
            _save(config, folder, algorithm, iteration)
            write_checkpoint(folder / CHECKPOINT, TrainingState(iteration + 1, *clock.read(), pack(algorithm)))
            if report is not None:
                report(iteration + 1, config.iterations)
        times = clock.read()
    finally:
        if algorithm is not None:
            algorithm.stop()
        ray.shutdown()
    returns = [{SENDER: row["sender_return"], NETWORK: row["network_return"]} for row in rows]
    evaluation, common, duel = _evaluate(config, folder)
    result = RllibResult(folder, len(rows), int(rows[-1]["steps"]), *times, returns, evaluation, common, duel, begin)
    record = asdict(result) | {"folder": str(folder), "status": "finished", "seed": config.seed, "code": [code_hash(train_rllib)]}
    write_atomic(folder / RECORD, json_bytes(record, indent=2))
    return result


def _evaluate(config: RllibConfig, folder: FilePath) -> tuple[Evaluation, Evaluation | None, Evaluation | None]:
    sender = load_policy(folder)
    if config.is_packet:
        return evaluate_packet(config.packet_settings(), sender, config.n_paths), None, None
    world = config.settings()
    evaluation = evaluate_in_world(world, sender, config.n_paths)
    common = evaluate_sender(sender, config.n_paths) if len(world.senders) == 1 else None
    if config.plays != "duel":
        return evaluation, common, None
    return evaluation, common, evaluate_in_world(world, sender, config.n_paths, adversary=load_adversary(folder / NETWORK))


def _start_ray(config: RllibConfig) -> None:
    if config.address is None:
        start_ray(config.num_cpus)
        return
    host, colon, port = config.address.removeprefix("ray://").rpartition(":")
    try:
        if colon and port.isdigit():  # without an answer Ray would end the process
            socket.create_connection((host, int(port)), timeout=CONNECT_LIMIT_S).close()
        start_ray(address=config.address)
    except (OSError, RuntimeError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CcenvError(f"no Ray cluster at address {config.address!r} ({first}); leave it out to use this machine") from None


def _algorithm(config: RllibConfig, iteration: int = 0) -> Any:
    """Build RLlib's algorithm; its random numbers depend on the iteration that it resumes from."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    from ccenv.envs.clients.rllib import FLOWS, PACKET_FLOWS, make_env_config, register_rllib

    register_rllib()
    env_config = make_env_config(config.environment)
    start: Any = PPOConfig  # Ray gives it no types
    chosen = (
        start()
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=config.train_batch_size,
            minibatch_size=config.minibatch_size,
            num_epochs=config.num_epochs,
            lr=config.learning_rate,
            gamma=config.gamma,
            lambda_=config.gae_lambda,
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=list(config.hidden), fcnet_activation="tanh"))
        .debugging(seed=(config.seed + _SEEDS_APART * iteration) % 2**31, log_level="ERROR")
    )
    if config.plays in {"sender", "packet"}:
        chosen.environment(f"ccenv/{config.plays.capitalize()}-v0", env_config=env_config)
        chosen.env_runners(
            num_env_runners=config.num_env_runners,
            num_envs_per_env_runner=config.num_envs,
            gym_env_vectorize_mode="vector_entry_point",
        )
    else:
        environments = {"flows": FLOWS, "packet_flows": PACKET_FLOWS, "duel": "ccenv/Duel-v0"}
        chosen.environment(environments[config.plays], env_config=env_config)
        chosen.env_runners(num_env_runners=config.num_env_runners, num_envs_per_env_runner=config.num_envs)
        policies = {SENDER, NETWORK} if config.plays == "duel" else {SENDER}
        chosen.multi_agent(policies=policies, policy_mapping_fn=_choose_policy)
    return chosen.build_algo()


def _choose_policy(agent: Any, episode: Any, **_: Any) -> str:
    return NETWORK if agent == NETWORK else SENDER


def _row(result: dict[str, Any], iteration: int, steps_before: int) -> dict[str, Any]:
    runners = result["env_runners"]
    by_module = runners.get("module_episode_returns_mean") or {}
    returns = {SENDER: by_module.get(SENDER, runners.get("episode_return_mean")), NETWORK: by_module.get(NETWORK)}
    row: dict[str, Any] = {"iteration": iteration, "steps": steps_before + int(runners["num_env_steps_sampled_lifetime"])}
    for side, value in returns.items():
        is_finite = value is not None and np.isfinite(value)
        row[f"{side}_return"] = float(value) if is_finite and value is not None else None
    return row


def _write_progress(file: FilePath, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomic(file, text.getvalue().encode())


def _read_progress(file: FilePath, iterations: int) -> list[dict[str, Any]]:
    """Return the rows of the first iterations. Raises InputError if they are missing."""
    rows: list[dict[str, Any]] = []
    try:
        for row in list(csv.DictReader(io.StringIO(read_text(file, _MOST_PROGRESS_BYTES))))[:iterations]:
            returns = {name: float(row[name]) if row[name] else None for name in COLUMNS[2:]}
            rows.append({"iteration": int(row["iteration"]), "steps": int(row["steps"]), **returns})
    except (KeyError, TypeError, ValueError):
        rows = []
    if [row["iteration"] for row in rows] != list(range(1, iterations + 1)):
        raise InputError(f"{file}: not the progress of {iterations} iterations; --fresh trains again")
    return rows


def _save(config: RllibConfig, folder: FilePath, algorithm: Any, iteration: int) -> None:
    """Write the policies without exploration noise, if all of them are finite."""
    notes = {"trainer": "rllib", "config": config.model_dump(mode="json")}
    sender, network = _make_policies(config, algorithm)
    for policy in (sender.policy if isinstance(sender, ShieldSender) else sender, network):
        if policy is not None and not all(np.isfinite(array).all() for array in (*policy.weights, *policy.biases)):
            kept = f"the policies of iteration {iteration} are kept" if iteration else "no policy was written"
            raise CcenvError(
                f"training left the finite numbers in iteration {iteration + 1}; {kept}. "
                f"Try a smaller learning_rate (it is {config.learning_rate:g})"
            )
    save_policy(folder, sender, notes)
    if network is not None:
        (folder / NETWORK).mkdir(exist_ok=True)
        save_adversary(folder / NETWORK, network, notes)


def _make_policies(config: RllibConfig, algorithm: Any) -> tuple[PolicySender | ShieldSender, MlpAdversary | None]:
    module = "default_policy" if config.plays in {"sender", "packet"} else SENDER
    weights, biases = mean_layers(algorithm.get_module(module).get_state(), 1)
    interface = config.packet_settings().policy_interface() if config.is_packet else config.settings().interface or SENDER_V0
    policy = PolicySender(config.name, weights, biases, "tanh", interface, inner=inner_cca(interface, config.name))
    shield = (config.packet_settings() if config.is_packet else config.settings()).shield_program()
    sender = policy if shield is None else ShieldSender(config.name, shield, "policy", policy)
    if config.plays != "duel":
        return sender, None

    settings = config.settings()
    columns = NetworkAction(settings, 1).columns
    weights, biases = mean_layers(algorithm.get_module(NETWORK).get_state(), len(columns))
    # RLlib's actions lie in [-1, 1]; the moves of the network in [0, 1].
    weights, biases = (*weights[:-1], weights[-1] / 2), (*biases[:-1], (biases[-1] + 1) / 2)
    return sender, MlpAdversary(
        f"{config.name}_network",
        weights,
        biases,
        "tanh",
        OBSERVATION_VERSION,
        columns,
        settings.decision_steps or 0,
        settings.episode_rtts,
    )


def mean_layers(state: dict[str, np.ndarray], n_actions: int) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
    """Return weights (n_in, n_out) and biases of the mean action, float64, from the state of RLlib's default PPO module."""
    stem = next((s for s in _LAYERS if any(name.startswith(s) for name in state)), None)
    if stem is None or "pi.net.mlp.0.weight" not in state:
        raise CcenvError(f"RLlib's module has tensors {sorted(state)}; the default PPO network was expected")
    numbers = sorted({int(name.removeprefix(stem).partition(".")[0]) for name in state if name.startswith(stem)})
    names = [f"{stem}{number}" for number in numbers]
    weights = [np.asarray(state[f"{name}.weight"]).T.astype(np.float64) for name in names]
    biases = [np.asarray(state[f"{name}.bias"]).astype(np.float64) for name in names]
    # The head's outputs are the means, then the logarithms of the deviations.
    weights.append(np.asarray(state["pi.net.mlp.0.weight"]).T.astype(np.float64)[:, :n_actions])
    biases.append(np.asarray(state["pi.net.mlp.0.bias"]).astype(np.float64)[:n_actions])
    return tuple(weights), tuple(biases)


class RllibConfig(StrictModel):
    """A run of RLlib's PPO.

    Attributes:
        trainer: ``"rllib"``, which distinguishes these configs.
        name: of the run and its policies; by default the name of the file.
        seed: of everything random.
        plays: ``"sender"``: PPO on ``ccenv/Sender-v0``; ``"duel"``: sender and network learn against each other;
            ``"flows"``: all ``"external"`` flows learn one policy, each as a separate agent; ``"packet"`` and
            ``"packet_flows"``: as ``"sender"`` and ``"flows"``, on ``ccenv/Packet-v0``.
        iterations: of RLlib.
        environment: arguments of the environment.
        num_envs: environments per runner; RLlib batches the policies of a duel, not its environments.
        num_env_runners: processes that play; 0: the learner's own.
        num_cpus: that a local Ray may use.
        address: of a Ray cluster, or ``"auto"``; None: start Ray on this machine.
        train_batch_size: steps per iteration.
        minibatch_size: samples per gradient step.
        num_epochs: passes over the samples.
        learning_rate: of Adam.
        gamma: discount per environment step.
        gae_lambda: of the generalised advantage estimate.
        hidden: widths of the tanh layers.
        n_paths: of the final evaluation of the sender.
    """

    trainer: Literal["rllib"]
    name: str = Field(min_length=1, max_length=48)
    seed: int = Field(default=0, ge=0, lt=2**31)
    plays: Literal["sender", "duel", "flows", "packet", "packet_flows"] = "sender"
    iterations: int = Field(ge=1)
    environment: dict[str, Any] = Field(default_factory=dict)
    num_envs: int = Field(default=64, ge=1)
    num_env_runners: int = Field(default=0, ge=0)
    num_cpus: int = Field(default=2, ge=1)
    address: str | None = None
    train_batch_size: int = Field(default=4096, ge=2)
    minibatch_size: int = Field(default=1024, ge=2)
    num_epochs: int = Field(default=5, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0, allow_inf_nan=False)
    gamma: float = Field(default=0.95, ge=0, le=1)
    gae_lambda: float = Field(default=0.9, ge=0, le=1)
    hidden: tuple[int, ...] = Field(default=(32, 32), min_length=1, max_length=5)
    n_paths: int = Field(default=1024, ge=1)

    @model_validator(mode="after")
    def _playable(self) -> RllibConfig:
        check_widths(self.hidden)
        if self.is_packet:
            self._check_packet()
            return self
        settings = self.settings()
        external = settings.senders.count(EXTERNAL)
        if (external < 2 if self.plays == "flows" else external != 1) or settings.is_discrete:
            senders = "two or more 'external' senders" if self.plays == "flows" else "exactly one 'external' sender"
            raise ValueError(f"environment: {senders} and a continuous action are needed")
        if self.plays == "duel" and (len(settings.models) != 1 or len(settings.senders) != 1):
            raise ValueError("environment: a duel needs one model and one flow")
        return self

    def _check_packet(self) -> None:
        settings = self.packet_settings()
        flows = len(controlled_flows(settings.distribution))
        if settings.n_actions is not None:
            raise ValueError("environment.n_actions: RLlib's runs have continuous actions; leave it out")
        if (flows < 2) if self.plays == "packet_flows" else (flows != 1):
            senders = "two or more 'external' senders" if self.plays == "packet_flows" else "exactly one 'external' sender"
            raise ValueError(f"environment.scenario: {senders} are needed (got {flows})")
        if flows > 1 and not settings.clock.common:
            raise ValueError("environment.clock: flows that share a policy must decide at once; set common: true")

    @property
    def is_packet(self) -> bool:
        return self.plays in {"packet", "packet_flows"}

    def packet_settings(self) -> PacketSettings:
        return read_packet_settings(self.environment, "environment")

    def settings(self) -> EnvSettings:
        return read_settings(self.environment, "environment")
