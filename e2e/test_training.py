"""Four trainers of handwritten digits on a real node; services take the place of two for a while.

Real containers, real signals, all of EDL. The model is as good as that of an
undisturbed run, no record was lost, and a picture in build/training shows each trainer's batches.
"""

import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.real_nodes import real_environment
from e2e.training import picture, traces, watched
from e2e.training.fixture import SHARED, WATCHED, Program, services, sleep_s, submit
from e2e.training.picture import PictureData
from e2e.training.traces import SIGTERM_EXIT, TrainerTrace
from e2e.waiting import until
from kube import request
from kube.request import CONFIGMAPS
from master.fence import SNAPSHOT, unpack
from policy.cluster.snapshot import Phase
from runtime import clock

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.alone,
    pytest.mark.timeout(900),
]  # the first run builds the node's parts

IMAGE = "edl.local/test-training:1"
EPOCHS, PAUSE_S = 40, 0.12
LOW, HIGH = 2, 4
SERVICES, SERVICE_CPU = 2, "500m"
"""Two trainers of the four must go before both services have room on two cores."""
BURST_S = 12.0
STOP_S = 2.0
"""The limits: SIGTERM to exit, and the longest time that others do not train."""
PAUSE_MOST_S = 2.0
POINT = 0.01
IMAGES = 20_000
"""Drawn for the comparison: an accuracy of 360 images jumps by 0.003 with each."""
train = importlib.import_module("examples.numpy_digits.train")
_TRAIN = Path(str(train.__file__))
PROGRAM = Program(
    IMAGE,
    (
        "/app/train.py",
        "--out",
        f"{SHARED}/model",
        "--epochs",
        str(EPOCHS),
        "--pause-s",
        str(PAUSE_S),
    ),
    memory="64Mi",
)
"""The numpy example, unchanged."""
_PICTURE = Path("build/training/timeline.png")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One real node with two cores and this project's image, with EDL beside it."""
    files = {WATCHED: Path(watched.__file__), "/app/train.py": _TRAIN}
    place = tmp_path_factory.mktemp("training")
    with real_environment(place, IMAGE, node_count=1, files=files) as prepared:
        yield prepared


@dataclass(frozen=True, slots=True)
class Run:
    """The observations of the disturbed run."""

    traces: list[TrainerTrace]
    burst: tuple[float, float]
    services_s: float
    """From their creation until both ran."""


def _disturbed(namespace: IsolatedNamespace, shared: Path) -> Run:
    submit(namespace, "digits", PROGRAM, shared, trainers=(LOW, HIGH))
    namespace.wait_running("digits", HIGH, 60)
    until("all train", lambda: traces.working(shared), lambda count: count == HIGH, 60)
    until("some is trained", lambda: _batches(shared), lambda count: count > 10 * HIGH, 60)
    begun_s = clock.epoch_s()
    with services(namespace, SERVICES, SERVICE_CPU, IMAGE):
        services_s = namespace.wait_services(SERVICES, 30)
        sleep_s(begun_s + BURST_S - clock.epoch_s())
        ended_s = clock.epoch_s()
    namespace.wait_running("digits", HIGH, 30)
    until("the job is over", lambda: namespace.job("digits").finished, bool, 180)
    return Run(traces.read(shared), (begun_s, ended_s), services_s)


def _batches(shared: Path) -> int:
    return len(traces.all_steps(traces.read(shared)))


def _undisturbed(folder: Path) -> None:
    """The same number of records, by four undisturbed processes."""
    words = [str(_TRAIN), "--out", str(folder), "--epochs", str(EPOCHS), "--pause-s", "0.01"]
    subprocess.run(
        [sys.executable, "-m", "edl", "run", "-n", str(HIGH), *words],
        check=True,
        capture_output=True,
        timeout=300,
    )


def _accuracy(folder: Path) -> float:
    weights, _ = train.load(folder / train.MODEL)
    return float(train.accuracy(weights, *train.drawn(IMAGES)))


def test_services_take_two_of_four_trainers_and_give_them_back(
    namespace: IsolatedNamespace, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Two leave in time, two train on, two come back; nothing is lost, and the model is as good."""
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    run = _disturbed(namespace, shared)
    released = [
        trace for trace in run.traces if trace.sigterm_s is not None and trace.code == SIGTERM_EXIT
    ]
    survivors = [
        trace for trace in run.traces if trace.start_s < run.burst[0] and trace not in released
    ]
    pauses = [
        traces.longest_pause_s(trace.steps, run.burst[0] - 1, run.burst[1] + BURST_S)
        for trace in survivors
    ]
    stops = [trace.stop_s for trace in released]
    config_map = namespace.environment.send(
        request.get(CONFIGMAPS, namespace.name, "digits-edl-master")
    )
    snapshot = unpack(config_map["data"][SNAPSHOT])
    done = snapshot["datasets"]["digits"]["totals"]
    _undisturbed(tmp_path / "plain")
    reached, plain = _accuracy(shared / "model"), _accuracy(tmp_path / "plain")
    title = (
        f"Handwritten digits: {HIGH} trainers, services take two for {BURST_S:.0f} s, "
        f"accuracy {reached:.3f} (undisturbed {plain:.3f})"
    )
    steps = traces.all_steps(run.traces)
    trained = sum(step.records for step in steps)
    picture.draw(_PICTURE, PictureData(title, run.traces, steps, run.burst))
    report(
        f"services ran after {run.services_s:.1f} s; SIGTERM to exit "
        f"{', '.join(f'{stop:.2f}' for stop in stops if stop is not None)} s; longest pause of the "
        f"others {max(pauses):.2f} s; accuracy {reached:.4f}, undisturbed {plain:.4f}; "
        f"{trained} records trained, {done[1]} acknowledged, "
        f"{snapshot['lost_records']} lost with trainers; picture {_PICTURE}"
    )

    assert len(released) == HIGH - LOW
    assert len(survivors) == LOW
    assert len(run.traces) == HIGH + len(released)
    assert all(stop is not None and stop <= STOP_S for stop in stops)
    assert max(pauses) <= PAUSE_MOST_S
    assert done[1] == EPOCHS * (1797 - train.TEST)
    assert done[2] == 0
    assert trained >= done[1]
    assert trained <= done[1] + snapshot["lost_records"] + _SLACK
    assert abs(reached - plain) <= POINT
    reasons = {c.type: c.reason for c in namespace.job("digits").status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"
    assert [pod for pod in namespace.trainers("digits") if pod.phase is Phase.FAILED] == []


_SLACK = train.BATCH * 2 * (HIGH - LOW)
"""A released trainer may have noted a batch that it had no time left to tell of."""
