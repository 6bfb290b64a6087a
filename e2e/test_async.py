"""Four trainers of a PaddlePaddle model with embeddings on a real node, and two parameter servers.

Services take the place of two trainers for a while, and the servers stay. Then one server's process
is killed: it is restarted in place, all go on from its newest checkpoint, and what was lost is said.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.journey import Journey, World, journey, until
from e2e.together import lives, picture
from e2e.together.lives import LEFT, Life, Step
from e2e.together.lookout import Seen, lookout
from e2e.together.picture import Scene
from e2e.together.stage import SHARED, data, services, stage, stay, submit
from kube import request
from kube.request import PODS
from policy.names import (
    ANNOTATION_SERVER_CPU,
    ANNOTATION_SERVER_MEMORY,
    ANNOTATION_SERVERS,
    LABEL_SERVER,
)
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds the node's parts

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
BEFORE_S, BURST_S = 8.0, 12.0
START_S = 240.0
"""Four imports of PaddlePaddle on two cores, at most."""
PAUSE_MOST_S = 3.0
STOP_S = 2.0
BACK_S = 15.0
"""From the kill to the next batch; the kubelet restarts at once, and Python imports."""
PARTS = 3
CHANCE = 0.6
"""What always saying the same would reach, and some more."""
_PICTURE = Path("build/together/async.png")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One real node of two cores, and EDL beside it."""
    with stage(tmp_path_factory.mktemp("async")) as world:
        yield world


@pytest.fixture
def here(site: World) -> Iterator[Journey]:
    """A namespace of the journey's own."""
    with journey(site, JOB) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Server:
    """A parameter server's pod."""

    uid: str
    restarts: int


@dataclass(frozen=True, slots=True)
class Run:
    """What the run was like."""

    lives: list[Life]
    steps: list[Step]
    seen: Seen
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
    def taken(self) -> list[Life]:
        """Those who had to go for the services; a finished job stops trainers, too."""
        begun_s, ended_s = self.burst
        return [life for life in self.lives if begun_s <= (life.sigterm_s or 0.0) <= ended_s]

    def pause_s(self) -> float:
        """The longest time in which nobody trained while services came and went."""
        return lives.longest_pause_s(self.steps, self.burst[0], self.killed_s)

    def back_s(self) -> float:
        """The longest time in which nobody trained after the kill."""
        return lives.longest_pause_s(self.steps, self.killed_s - 1, self.steps[-1].at_s)

    def speed(self, from_s: float, to_s: float) -> float:
        """Records a second in a span."""
        found = [step.records for step in self.steps if from_s <= step.at_s <= to_s]
        return sum(found) / (to_s - from_s)


def _train(here: Journey, shared: Path) -> Run:
    """A job that loses two trainers to services, gets two back, and then loses a server."""
    data(JOB, shared)
    with lookout(here, JOB, shared) as seen:
        submit(
            *(here, JOB, WORDS, shared),
            trainers=(LOW, HIGH),
            example=JOB,
            pause_s=PAUSE_S,
            more=SERVERS,
        )
        until("all train", lambda: lives.at_work(shared), lambda count: count == HIGH, START_S)
        stay(BEFORE_S)
        begun_s = clock.epoch_s()
        with services(here, SERVICES, SERVICE_CPU):
            services_s = here.wait_services(SERVICES, 60)
            stay(begun_s + BURST_S - clock.epoch_s())
            ended_s = clock.epoch_s()
        until("all do again", lambda: lives.at_work(shared), lambda count: count == HIGH, START_S)
        stay(BEFORE_S)
        before = _servers(here)
        killed_s = _kill(here)
        until("it is back", lambda: _servers(here)[KILLED].restarts, bool, START_S)
        back_s = clock.epoch_s()
        until("all go on", lambda: _trained_since(shared, back_s), lambda few: few > HIGH, START_S)
        after = _servers(here)
        until("the job is over", lambda: here.job(JOB).finished, bool, 300)
    found = lives.read(shared)
    burst = begun_s, ended_s
    steps = lives.all_steps(found)
    return Run(found, steps, seen, burst, services_s, killed_s, before, after)


def _servers(here: Journey) -> dict[int, Server]:
    """The parameter servers that are there, by index."""
    pods = here.world.send(request.list_page(PODS, here.namespace))["items"]
    return {
        int(pod["metadata"]["labels"][LABEL_SERVER]): Server(
            pod["metadata"]["uid"],
            sum(status["restartCount"] for status in pod["status"].get("containerStatuses", ())),
        )
        for pod in pods
        if LABEL_SERVER in pod["metadata"]["labels"]
    }


def _kill(here: Journey) -> float:
    """Kills the process of one server, kill -9; when.

    The node has process ids of its own: nobody else's can be meant.
    """
    (node,) = here.world.cluster.real_nodes.values()
    found = node.run(["pgrep", "--full", f"pserver --index {KILLED} .*--job {JOB}"]).split()
    assert len(found) == 1
    node.run(["kill", "-9", *found])
    return clock.epoch_s()


def _trained_since(shared: Path, since_s: float) -> int:
    """How many batches."""
    return sum(step.at_s > since_s for step in lives.all_steps(lives.read(shared)))


def _accuracy(shared: Path) -> float:
    """Of the last model, as a trainer's last line says."""
    printed = "".join(path.read_text() for path in shared.glob("*.log"))
    found = re.search(r"evaluation of step \d+: loss [\d.e-]+, accuracy ([\d.]+)", printed)
    assert found is not None, printed
    return float(found[1])


def test_servers_stay_and_one_that_is_killed_comes_back_in_place(
    here: Journey, tmp_path: Path, report: Callable[[str], None]
) -> None:
    """Services take two trainers and give them back; a dead server costs what no checkpoint had."""
    run = _train(here, tmp_path / "shared")
    accuracy = _accuracy(tmp_path / "shared")
    status = run.seen.status
    books = status["datasets"]["training"]
    lost = [one for one in status["setbacks"]["newest"] if "from version" in one["reason"]]
    four = run.speed(run.burst[0] - BEFORE_S, run.burst[0])
    two = run.speed(run.burst[1] - BURST_S / 2, run.burst[1])
    title = (
        f"PaddlePaddle, two parameter servers: {HIGH} trainers on a real node, services take two "
        f"for {BURST_S:.0f} s, then a server dies"
    )
    marks = [(run.killed_s, f"kill -9 of server {KILLED}")]
    scene = Scene(title, run.lives, run.steps, run.seen.looks, run.burst, marks)
    picture.draw(_PICTURE, scene)
    report(
        f"services ran after {run.services_s:.1f} s; longest time without a batch meanwhile "
        f"{run.pause_s():.2f} s, after the kill {run.back_s():.1f} s; lost "
        f"{[one['steps'] for one in lost]} batches (a checkpoint every {CHECKPOINT} batches); "
        f"{len(run.steps)} batches, {four:.0f} records/s with four, {two:.0f} with two; accuracy "
        f"{accuracy:.3f}; picture {_PICTURE}"
    )

    assert len(run.taken) == SERVICES
    assert {life.code for life in run.taken} == {LEFT}
    assert max(life.stop_s or 0.0 for life in run.taken) <= STOP_S
    assert run.pause_s() <= PAUSE_MOST_S
    assert run.back_s() <= BACK_S
    assert {index: server.restarts for index, server in run.before.items()} == {0: 0, 1: 0}
    assert {index: server.restarts for index, server in run.after.items()} == {0: 0, KILLED: 1}
    assert {one.uid for one in run.before.values()} == {one.uid for one in run.after.values()}
    assert [len(life.pids) for life in run.lives] == [1] * (HIGH + SERVICES)
    assert {life.code for life in run.lives if life not in run.taken} == {0}
    assert len(lost) == 1
    assert lost[0]["steps"] <= 2 * CHECKPOINT  # none, where the kill comes right after a checkpoint
    falls = lives.means(run.steps, PARTS)
    assert falls == sorted(falls, reverse=True)
    assert accuracy >= CHANCE
    assert books["done_records"] == EPOCHS * RECORDS
    assert books["dropped_records"] == 0
    reasons = {c.type: c.reason for c in here.job(JOB).status.conditions}
    assert reasons["Complete"] == "MasterSaysDone"
