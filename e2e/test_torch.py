"""Four trainers in PyTorch on a real node: services take the place of two, and give it back.

Once as a loop of `edl.torch.Training`, whose others train on in the same processes; once as an unchanged
script of torchrun under `edl agent`, whose processes start again from its checkpoint.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.training import picture, traces
from e2e.training.burst import Burst, train_through_a_burst
from e2e.training.fixture import services, sleep_s, submit
from e2e.training.picture import PictureData
from e2e.training.torch_fixture import torch_environment, torch_program
from e2e.training.traces import SIGTERM_EXIT
from e2e.waiting import until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(1800),
]

JOB = "digits"
LOW, HIGH, SERVICES, BURST_S = 1, 4, 2, 12.0
START_S = 600.0
"""Ends a hang: four imports of torch on two cores that others share may take minutes."""
BURST = Burst(LOW, HIGH, SERVICES, BURST_S, START_S)
EPOCHS, RECORDS, PAUSE_S = 16, 1437, 0.08
LOOP = torch_program(
    ("EXAMPLES/torch_digits/train_torch.py", "--epochs", str(EPOCHS), "--out", "SHARED/model"),
    pause_s=PAUSE_S,
)
SCRIPT = torch_program(
    (
        *("-m", "edl", "agent", "--", "python", "EXAMPLES/torch_digits/train_torchrun.py"),
        *("--steps", "400", "--pause-s", "0.1", "--out", "SHARED/model"),
    )
)
CHANGE_S = 3.0
"""The limit: from a change of members to the next step."""
GOOD = 0.9
_PICTURE = Path("build/training/torch.png")
_ACCURACY = re.compile(r"test accuracy ([\d.]+)")
_LINE = re.compile(r"step (\d+) of \d+: loss [\d.]+, (\d+) processes")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node with two cores, with EDL beside it."""
    with torch_environment(tmp_path_factory.mktemp("torch")) as prepared:
        yield prepared


def test_services_take_two_of_four_and_the_others_train_on(
    namespace: IsolatedNamespace, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """In the same processes; nothing is lost or trained twice; two come back."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    run = train_through_a_burst(namespace, shared, JOB, LOOP, BURST)
    scene = PictureData(
        f"PyTorch: {HIGH} trainers on a real node, services take two for {BURST_S:.0f} s",
        run.traces,
        run.steps,
        run.burst,
        run.observations.looks,
    )
    picture.draw(_PICTURE, scene)
    accuracy = max(map(float, _ACCURACY.findall(_logs(shared))))
    two, four = run.speed(HIGH - SERVICES), run.speed(HIGH)
    report(
        f"services ran after {run.services_s:.1f} s; last SIGTERM to a step of two "
        f"{run.changed_s():.2f} s; room to a step of four {run.back_s():.1f} s; longest time without "
        f"a step {run.pause_s():.2f} s; {len(run.steps)} steps, {four:.0f} records/s with four, "
        f"{two:.0f} with two; accuracy {accuracy:.3f}; picture {_PICTURE}"
    )
    dataset, status = run.observations.status["datasets"]["train"], run.observations.status
    assert len(run.preempted) == SERVICES
    assert {trace.code for trace in run.preempted} == {SIGTERM_EXIT}
    assert run.changed_s() <= CHANGE_S
    assert {run.restarts[trace.name] for trace in run.stayed} == {0}
    assert [len(trace.pids) for trace in run.traces] == [1] * (HIGH + SERVICES)
    assert accuracy >= GOOD
    assert traces.disagreements(run.traces) == []
    assert [step.number for step in run.steps] == list(range(1, len(run.steps) + 1))
    assert sum(step.records for step in run.steps) == EPOCHS * RECORDS
    assert dataset["done_records"] == EPOCHS * RECORDS
    assert (status["lost_records"], status["trained_again_records"]) == (0, 0)


def test_a_script_of_torchrun_does_the_same(namespace: IsolatedNamespace, tmp_path: Path) -> None:
    """It knows nothing of EDL, and continues from its checkpoint with two processes, then with four."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)

    def wait_for(processes: int, after: int = 0) -> int:
        def step() -> int:
            made = [
                int(step) for step, world in _LINE.findall(_logs(shared)) if int(world) == processes
            ]
            return max(made, default=0)

        return until(f"{processes} processes train", step, lambda made: made > after, START_S)

    submit(namespace, JOB, SCRIPT, shared, trainers=(LOW, HIGH))
    first = wait_for(HIGH)
    sleep_s(BURST_S / 4)
    with services(namespace, SERVICES, "500m", SCRIPT.image):
        namespace.wait_services(SERVICES, 60)
        during = wait_for(HIGH - SERVICES, first)
    wait_for(HIGH, during)
    until("the job is over", lambda: namespace.job(JOB).finished, bool, 300)
    lines = [int(step) for step, _ in _LINE.findall(_logs(shared))]
    assert max(lines) == 400
    assert float(_ACCURACY.findall(_logs(shared))[-1]) >= GOOD
    reasons = {c.type: c.reason for c in namespace.job(JOB).status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"


def _logs(shared: Path) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in sorted(shared.glob("*.log")))
