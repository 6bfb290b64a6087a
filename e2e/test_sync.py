"""Four trainers of a PaddlePaddle model on a real node, every step made together.

Services take the place of two for a while. The others train on without a restart, the lead stays
where it is, every record is trained exactly once an epoch, and a picture shows it.
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
from policy.names import LABEL_TRAINER_ID
from policy.snapshot import Phase
from runtime import clock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]  # the first run builds the node's parts

JOB = "digits"
LOW, HIGH = 1, 4
"""With one guaranteed trainer, services may take any two of three, and the leader is one of them."""
SERVICES, SERVICE_CPU = 2, "500m"
"""Two trainers of the four must go before both services have room on two cores."""
EPOCHS, RECORDS, BATCH, MICRO_BATCHES, PAUSE_S = 30, 1437, 64, 4, 0.06
WORDS = (
    *("--data", f"{SHARED}/digits-train.npz", "--evaluate", f"{SHARED}/digits-test.npz"),
    *("--evaluate-every", "1000000", "--epochs", str(EPOCHS), "--batch-size", str(BATCH)),
    *("--micro-batches", str(MICRO_BATCHES), "--seed", "1"),
)
PROGRAM = edl_train(WORDS, example=JOB, pause_s=PAUSE_S)
BEFORE_S, BURST_S = 8.0, 12.0
START_S = 240.0
"""Four imports of PaddlePaddle on two cores, at most."""
CHANGE_S = 3.0
"""The limit: from a change of members to the next step."""
STOP_S = 2.0
GOOD = 0.9
"""Accuracy on the test images."""
PARTS = 6
_PICTURE = Path("build/training/sync.png")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node of two cores, and EDL beside it."""
    with paddle_environment(tmp_path_factory.mktemp("sync")) as prepared:
        yield prepared


@dataclass(frozen=True, slots=True)
class Run:
    """The observations of a run."""

    traces: list[TrainerTrace]
    steps: list[TrainingStep]
    observations: Observations
    burst: tuple[float, float]
    services_s: float
    """From their creation until both ran."""
    restarts: dict[str, int]
    """Container restarts by trainer, for trainers present at the end."""

    @property
    def preempted(self) -> list[TrainerTrace]:
        """Traces of the trainers stopped during the burst; a finished job stops trainers, too."""
        return traces.stopped_between(self.traces, self.burst)

    @property
    def stayed(self) -> list[TrainerTrace]:
        """Traces of the trainers that ran from before the burst until the end."""
        first = [trace for trace in self.traces if trace.start_s < self.burst[0]]
        return [trace for trace in first if trace not in self.preempted]

    def changed_s(self) -> float:
        """From the last SIGTERM to the first step of the remaining trainers."""
        last_sigterm_s = max(trace.sigterm_s or 0.0 for trace in self.preempted)
        alone = HIGH - len(self.preempted)
        return (
            next(s.at_s for s in self.steps if s.at_s > last_sigterm_s and s.world_size == alone)
            - last_sigterm_s
        )

    def back_s(self) -> float:
        """From the services' end to the first step of all."""
        freed_s = self.burst[1]
        return (
            next(s.at_s for s in self.steps if s.at_s > freed_s and s.world_size == HIGH) - freed_s
        )

    def pause_s(self) -> float:
        """The longest time without a step, from the services' coming to the end."""
        return traces.longest_pause_s(self.steps, self.burst[0], self.steps[-1].at_s)

    def speed(self, world_size: int) -> float:
        """Records per second in rounds with this number of members."""
        steps = [step for step in self.steps if step.world_size == world_size]
        return sum(step.records for step in steps) / sum(step.seconds for step in steps)


def _train(namespace: IsolatedNamespace, shared: Path) -> Run:
    """A job whose capacity services want for a while."""
    write_data("digits", shared)
    with observe(namespace, JOB, shared) as observations:
        submit(namespace, JOB, PROGRAM, shared, trainers=(LOW, HIGH))
        until("all train", lambda: traces.working(shared), lambda count: count == HIGH, START_S)
        sleep_s(BEFORE_S)
        begun_s = clock.epoch_s()
        with services(namespace, SERVICES, SERVICE_CPU):
            services_s = namespace.wait_services(SERVICES, 60)
            sleep_s(begun_s + BURST_S - clock.epoch_s())
            ended_s = clock.epoch_s()
        until(
            "all train again", lambda: traces.working(shared), lambda count: count == HIGH, START_S
        )
        restarts = _restarts(namespace)
        until("the job is over", lambda: namespace.job(JOB).finished, bool, 300)
    trainer_traces = traces.read(shared)
    return Run(
        trainer_traces,
        traces.group_steps(trainer_traces),
        observations,
        (begun_s, ended_s),
        services_s,
        restarts,
    )


def _restarts(namespace: IsolatedNamespace) -> dict[str, int]:
    """How often containers were restarted, by trainer."""
    pods = namespace.environment.send(request.list_page(PODS, namespace.name))["items"]
    return {
        f"trainer-{pod['metadata']['labels'][LABEL_TRAINER_ID]}": sum(
            status["restartCount"] for status in pod["status"].get("containerStatuses", ())
        )
        for pod in pods
        if LABEL_TRAINER_ID in pod["metadata"]["labels"]
    }


def test_services_take_two_of_four_and_the_others_train_on(
    namespace: IsolatedNamespace, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Never the leader; without a restart; nothing is lost or trained twice; two come back."""
    run = _train(namespace, tmp_path / "shared")
    leader = run.observations.leader(run.burst[0])
    accuracy = traces.evaluated_accuracy(tmp_path / "shared")
    dataset, status = run.observations.status["datasets"]["training"], run.observations.status
    two, four = run.speed(HIGH - SERVICES), run.speed(HIGH)
    scene = PictureData(
        f"PaddlePaddle, synchronous: {HIGH} trainers on a real node, services take two for "
        f"{BURST_S:.0f} s",
        run.traces,
        run.steps,
        run.burst,
        run.observations.looks,
    )
    picture.draw(_PICTURE, scene)
    report(
        f"services ran after {run.services_s:.1f} s; last SIGTERM to a step of two "
        f"{run.changed_s():.2f} s; room to a step of four {run.back_s():.1f} s; longest time without "
        f"a step {run.pause_s():.2f} s; {len(run.steps)} steps, {four:.0f} records/s with four, "
        f"{two:.0f} with two; accuracy {accuracy:.3f}; loss {run.steps[-1].loss:.4f}; "
        f"picture {_PICTURE}"
    )

    assert len(run.preempted) == SERVICES
    assert leader not in [trace.name for trace in run.preempted]
    assert run.observations.leader(run.steps[-1].at_s) == leader
    assert {trace.code for trace in run.preempted} == {SIGTERM_EXIT}
    assert max(trace.stop_s or 0.0 for trace in run.preempted) <= STOP_S
    assert run.changed_s() <= CHANGE_S
    assert run.pause_s() <= CHANGE_S
    assert accuracy >= GOOD
    assert [len(trace.pids) for trace in run.traces] == [1] * (HIGH + SERVICES)
    assert {run.restarts[trace.name] for trace in run.stayed} == {0}
    # a trainer of a finished job that takes more than 5 s to end gets SIGTERM
    assert {trace.code for trace in run.traces if trace not in run.preempted} <= {0, SIGTERM_EXIT}
    falls = traces.means(run.steps, PARTS)
    assert falls == sorted(falls, reverse=True)
    assert traces.disagreements(run.traces) == []
    assert [step.number for step in run.steps] == list(range(1, len(run.steps) + 1))
    assert sum(step.records for step in run.steps) == EPOCHS * RECORDS
    assert dataset["done_records"] == EPOCHS * RECORDS
    assert dataset["dropped_records"] == 0
    assert (status["lost_records"], status["trained_again_records"]) == (0, 0)
    assert status["setbacks"]["count"] == 0
    reasons = {c.type: c.reason for c in namespace.job(JOB).status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"
    assert [pod for pod in namespace.trainers(JOB) if pod.phase is Phase.FAILED] == []
