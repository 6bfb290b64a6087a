"""Four trainers of a PaddlePaddle model on a real node, every step made together.

Services take the place of two for a while. The others train on without a restart, the lead stays
where it is, every record is trained exactly once an epoch, and a picture shows it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.training import picture, traces
from e2e.training.burst import Burst, train_through_a_burst
from e2e.training.fixture import SHARED, edl_train, paddle_environment, write_data
from e2e.training.picture import PictureData
from e2e.training.traces import SIGTERM_EXIT
from policy.cluster.snapshot import Phase

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]  # the first run builds the node's parts

JOB = "digits"
LOW, HIGH = 1, 4
"""With one guaranteed trainer, services may take any two of three, and the leader is one of them."""
SERVICES = 2
EPOCHS, RECORDS, BATCH, MICRO_BATCHES, PAUSE_S = 30, 1437, 64, 4, 0.06
WORDS = (
    *("--data", f"{SHARED}/digits-train.npz", "--evaluate", f"{SHARED}/digits-test.npz"),
    *("--evaluate-every", "1000000", "--epochs", str(EPOCHS), "--batch-size", str(BATCH)),
    *("--micro-batches", str(MICRO_BATCHES), "--seed", "1"),
)
PROGRAM = edl_train(WORDS, example=JOB, pause_s=PAUSE_S)
BURST_S = 12.0
BURST = Burst(LOW, HIGH, SERVICES, BURST_S, start_s=240.0)
"""Four imports of PaddlePaddle on two cores take no longer than that."""
CHANGE_S = 3.0
"""The limit: from a change of members to the next step."""
STOP_S = 2.0
GOOD = 0.9
"""Accuracy on the test images."""
PARTS = 6
_PICTURE = Path("build/training/sync.png")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node with two cores, with EDL beside it."""
    with paddle_environment(tmp_path_factory.mktemp("sync")) as prepared:
        yield prepared


def test_services_take_two_of_four_and_the_others_train_on(
    namespace: IsolatedNamespace, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Never the leader; without a restart; nothing is lost or trained twice; two come back."""
    write_data("digits", tmp_path / "shared")
    run = train_through_a_burst(namespace, tmp_path / "shared", JOB, PROGRAM, BURST)
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
