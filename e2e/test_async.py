"""Four trainers of a PaddlePaddle model with embeddings on a real node, and two parameter servers.

Services take the place of two trainers for a while, and the servers stay. Then one server's process
is killed: it is restarted in place, all continue from its newest checkpoint, and the loss is reported.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.training import picture, traces
from e2e.training.fixture import (
    SHARED,
    edl_train,
    paddle_environment,
    services,
    sleep_s,
    submit,
    write_data,
)
from e2e.training.observer import Observations, observe
from e2e.training.picture import PictureData
from e2e.training.traces import SIGTERM_EXIT, TrainerTrace, TrainingStep
from e2e.waiting import until
from kube import request
from kube.request import PODS
from policy.names import (
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    LABEL_SERVER,
)
from runtime import clock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]  # the first run builds the node's parts

JOB = "clicks"
LOW, HIGH = 2, 4
SERVERS = {
    ANNOTATION_SERVERS: "2",
    ANNOTATION_SERVER_CPU: "100m",
    ANNOTATION_SERVER_MEMORY: "256Mi",
}
KILLED = 1
"""The index of the server that is killed."""
SERVICES, SERVICE_CPU = 2, "400m"
"""Two trainers of the four must go before both services have room on two cores."""
EPOCHS, RECORDS, BATCH, PAUSE_S, CHECKPOINT = 8, 24_000, 64, 0.08, 100
WORDS = (
    *("--async", "--data", f"{SHARED}/clicks-train.csv", "--evaluate", f"{SHARED}/clicks-test.csv"),
    *("--evaluate-every", "1000000", "--epochs", str(EPOCHS), "--batch-size", str(BATCH)),
    *("--checkpoint-every", str(CHECKPOINT), "--seed", "1"),
)
PROGRAM = edl_train(WORDS, example=JOB, pause_s=PAUSE_S)
BEFORE_S, BURST_S = 8.0, 12.0
START_S = 240.0
"""Four imports of PaddlePaddle on two cores, at most."""
PAUSE_MOST_S = 3.0
STOP_S = 2.0
BACK_S = 15.0
"""From the kill to the next batch; the kubelet restarts at once, and Python imports."""
PARTS = 3
CHANCE = 0.6
"""Above the accuracy of a constant prediction."""
_PICTURE = Path("build/training/async.png")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node with two cores, with EDL beside it."""
    with paddle_environment(tmp_path_factory.mktemp("async")) as prepared:
        yield prepared


@dataclass(frozen=True, slots=True)
class Server:
    """A parameter server's pod."""

    uid: str
    restarts: int


@dataclass(frozen=True, slots=True)
class Run:
    """The observations of a run."""

    traces: list[TrainerTrace]
    steps: list[TrainingStep]
    observations: Observations
    burst: tuple[float, float]
    services_s: float
    """From their creation until both ran."""
    killed_s: float
    """When a server was killed."""
    before: dict[int, Server]
    """By index, right before that."""
    after: dict[int, Server]
    """When all went on."""

    @property
    def preempted(self) -> list[TrainerTrace]:
        """Traces of the trainers stopped during the burst; a finished job stops trainers, too."""
        return traces.stopped_between(self.traces, self.burst)

    def pause_s(self) -> float:
        """Returns the longest time without a step while services came and went."""
        return traces.longest_pause_s(self.steps, self.burst[0], self.killed_s)

    def back_s(self) -> float:
        """Returns the longest time without a step after the kill."""
        return traces.longest_pause_s(self.steps, self.killed_s - 1, self.steps[-1].at_s)

    def speed(self, from_s: float, to_s: float) -> float:
        """Records a second in a span."""
        records = [step.records for step in self.steps if from_s <= step.at_s <= to_s]
        return sum(records) / (to_s - from_s)


def _train(namespace: IsolatedNamespace, shared: Path) -> Run:
    """Returns a job that loses two trainers to services, gets two back, and then loses a server."""
    write_data(JOB, shared)
    with observe(namespace, JOB, shared) as observations:
        submit(namespace, JOB, PROGRAM, shared, trainers=(LOW, HIGH), annotations=SERVERS)
        until("all train", lambda: traces.working(shared), lambda count: count == HIGH, START_S)
        sleep_s(BEFORE_S)
        begun_s = clock.epoch_s()
        with services(namespace, SERVICES, SERVICE_CPU):
            services_s = namespace.wait_services(SERVICES, 60)
            sleep_s(begun_s + BURST_S - clock.epoch_s())
            ended_s = clock.epoch_s()
        until("all do again", lambda: traces.working(shared), lambda count: count == HIGH, START_S)
        sleep_s(BEFORE_S)
        before = _servers(namespace)
        killed_s = _kill(namespace)
        until("it is back", lambda: _servers(namespace)[KILLED].restarts, bool, START_S)
        back_s = clock.epoch_s()
        until("all go on", lambda: _trained_since(shared, back_s), lambda few: few > HIGH, START_S)
        after = _servers(namespace)
        until("the job is over", lambda: namespace.job(JOB).finished, bool, 300)
    trainer_traces = traces.read(shared)
    burst = begun_s, ended_s
    steps = traces.all_steps(trainer_traces)
    return Run(trainer_traces, steps, observations, burst, services_s, killed_s, before, after)


def _servers(namespace: IsolatedNamespace) -> dict[int, Server]:
    """Returns the parameter servers that are there, by index."""
    pods = namespace.environment.send(request.list_page(PODS, namespace.name))["items"]
    return {
        int(pod["metadata"]["labels"][LABEL_SERVER]): Server(
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ())),
        )
        for pod in pods
        if LABEL_SERVER in pod["metadata"]["labels"]
    }


def _kill(namespace: IsolatedNamespace) -> float:
    """Kills the process of one server, kill -9; when.

    The node has its own PID namespace, so no other process can match.
    """
    (node,) = namespace.environment.cluster.real_nodes.values()
    pids = node.run(["pgrep", "--full", f"pserver --index {KILLED} .*--job {JOB}"]).split()
    assert len(pids) == 1
    node.run(["kill", "-9", *pids])
    return clock.epoch_s()


def _trained_since(shared: Path, since_s: float) -> int:
    """Returns how many batches."""
    return sum(step.at_s > since_s for step in traces.all_steps(traces.read(shared)))


def test_servers_stay_and_one_that_is_killed_comes_back_in_place(
    namespace: IsolatedNamespace, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Services take two trainers and give them back; a dead server costs what no checkpoint had."""
    run = _train(namespace, tmp_path / "shared")
    accuracy = traces.evaluated_accuracy(tmp_path / "shared")
    status = run.observations.status
    dataset = status["datasets"]["training"]
    lost = [
        rollback
        for rollback in status["setbacks"]["newest"]
        if "from version" in rollback["reason"]
    ]
    four = run.speed(run.burst[0] - BEFORE_S, run.burst[0])
    two = run.speed(run.burst[1] - BURST_S / 2, run.burst[1])
    title = (
        f"PaddlePaddle, two parameter servers: {HIGH} trainers on a real node, services take two "
        f"for {BURST_S:.0f} s, then a server dies"
    )
    marks = [(run.killed_s, f"kill -9 of server {KILLED}")]
    scene = PictureData(title, run.traces, run.steps, run.burst, run.observations.looks, marks)
    picture.draw(_PICTURE, scene)
    report(
        f"services ran after {run.services_s:.1f} s; longest time without a batch meanwhile "
        f"{run.pause_s():.2f} s, after the kill {run.back_s():.1f} s; lost "
        f"{[rollback['steps'] for rollback in lost]} batches (a checkpoint every {CHECKPOINT} batches); "
        f"{len(run.steps)} batches, {four:.0f} records/s with four, {two:.0f} with two; accuracy "
        f"{accuracy:.3f}; picture {_PICTURE}"
    )

    assert len(run.preempted) == SERVICES
    assert {trace.code for trace in run.preempted} == {SIGTERM_EXIT}
    assert max(trace.stop_s or 0.0 for trace in run.preempted) <= STOP_S
    assert run.pause_s() <= PAUSE_MOST_S
    assert run.back_s() <= BACK_S
    assert {index: server.restarts for index, server in run.before.items()} == {0: 0, 1: 0}
    assert {index: server.restarts for index, server in run.after.items()} == {0: 0, KILLED: 1}
    assert {server.uid for server in run.before.values()} == {
        server.uid for server in run.after.values()
    }
    assert [len(trace.pids) for trace in run.traces] == [1] * (HIGH + SERVICES)
    assert {trace.code for trace in run.traces if trace not in run.preempted} == {0}
    assert len(lost) == 1
    assert lost[0]["steps"] <= 2 * CHECKPOINT  # none, where the kill comes right after a checkpoint
    falls = traces.means(run.steps, PARTS)
    assert falls == sorted(falls, reverse=True)
    assert accuracy >= CHANCE
    assert dataset["done_records"] == EPOCHS * RECORDS
    assert dataset["dropped_records"] == 0
    reasons = {c.type: c.reason for c in namespace.job(JOB).status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"
