"""What dies, and what happens then: EDL's rooms and the API server, killed with SIGKILL."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from e2e.cluster.components import APISERVER
from e2e.cluster.process import Process
from e2e.edl import ROOMS
from e2e.journey import SLOTS, Journey, World, journey, readiness, until, world
from kube import request
from kube.errors import NotFound
from kube.request import LEASES
from policy.names import SYSTEM_NAMESPACE
from policy.snapshot import Pod
from reconciler.app import LEASE
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[1]
RECONCILER = f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-reconciler"
LEASE_S = 3.0
RETRY_S = 1.0
"""A follower looks every 2/15 of the lease, and a little later by chance; then it must write."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster with EDL for all journeys of this file."""
    with world(tmp_path_factory.mktemp("faults")) as found:
        yield found


@pytest.fixture
def here(site: World, request: pytest.FixtureRequest) -> Iterator[Journey]:
    """A namespace of the journey's own; what it killed is started again."""
    words = request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")
    with journey(site, words.replace("_", "-")[:50]) as found:
        yield found


def fill(here: Journey, *jobs: str) -> None:
    """Jobs that share the whole cluster, each with 2 trainers at least."""
    for job in jobs:
        here.submit(job, low=2, high=SLOTS)
    share = SLOTS // len(jobs)
    until(
        "the jobs share the cluster",
        lambda: {job: here.running(job) for job in jobs},
        lambda found: sum(found.values()) == SLOTS and min(found.values()) >= share * 2 // 3,
        20,
    )


def live_ids(here: Journey) -> list[tuple[str, int]]:
    """(job, trainer id) of every trainer that is there."""
    pods: list[Pod] = here.world.pods.now(here.namespace)
    return [(pod.job, pod.trainer_id) for pod in pods if pod.role and not pod.terminal]


@pytest.mark.parametrize("room", ROOMS)
def test_killed_in_a_burst(here: Journey, room: str) -> None:
    """With any room killed in the middle of a burst services still get their capacity.

    Nothing is made twice, and after a restart all is as if nothing had happened.
    """
    edl, pods = here.world.edl, here.world.pods
    fill(here, "one", "two")
    here.services(40)
    until("the first victims", lambda: pods.left(here.namespace), bool, 5)
    edl.kill(room)

    took_s = here.wait_services(40, 15)
    print(f"{room} killed: 40 services run after {took_s:.1f} s more")

    ids = live_ids(here)
    assert len(ids) == len(set(ids))
    edl.start(room)
    edl.wait_ready(room)
    here.services(0)
    until(
        "the jobs share the cluster again",
        lambda: (here.running("one"), here.running("two")),
        lambda found: sum(found) == SLOTS,
        35,
    )
    for job in ("one", "two"):
        assert here.wait_exact(job).status.failed == 0
        assert here.running(job) >= 2


def test_reconciler_killed_while_it_makes_trainers(here: Journey) -> None:
    """Ids that were handed out and whose pods were never made are not used again, nor lost."""
    here.submit("mnist", low=2, high=SLOTS)
    until("the first trainers", lambda: here.trainers("mnist"), bool, 5)
    here.world.edl.kill("reconciler")
    made = len(here.world.pods.ever(here.namespace))
    here.world.restore()

    here.wait_running("mnist", SLOTS, 30)
    found = here.wait_exact("mnist")

    print(f"killed with {made} trainers made; {found.books}")
    assert found.books.next_id == SLOTS + found.books.disrupted + found.books.released
    assert found.status.failed == 0


def test_api_server_restarts(here: Journey) -> None:
    """An API server that was away for some seconds costs no trainer, and work goes on after it."""
    cluster, pods = here.world.cluster, here.world.pods
    fill(here, "one", "two")
    here.wait_exact("one")
    here.wait_exact("two")
    before = {pod.uid for pod in pods.now(here.namespace)}
    cluster.kill(APISERVER)
    try:
        time.sleep(4.0)
    finally:
        cluster.start(APISERVER)
    time.sleep(6.0)  # a tick of every loop, and the longest first back-off

    assert pods.left(here.namespace) == set()
    assert {pod.uid for pod in pods.now(here.namespace)} == before
    here.submit("three", low=3, high=3)
    here.wait_running("three", 3, 15)
    for job in ("one", "two", "three"):
        here.wait_exact(job)


def test_job_made_without_webhook(here: Journey) -> None:
    """The built-in controller runs it, its parallelism is moved to what has room, an event says so."""
    here.world.edl.kill("webhook")
    here.submit("mnist", low=2, high=8, spec={"parallelism": 1})

    def running() -> int:
        return here.services_running()  # its pods carry nothing that says training

    until("8 pods run", running, lambda n: n == 8, 15)
    found = here.job("mnist")
    told = until("an event", lambda: here.events("mnist", "ParallelismMoved"), bool, 5)
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})

    until("3 pods run", running, lambda n: n == 3, 15)
    assert not found.managed
    assert found.parallelism == 8
    assert "webhook was away" in told[0]["message"]
    assert here.job("mnist").status.failed == 0


def test_default_job_made_without_webhook(here: Journey) -> None:
    """With the API server's completions of 1 it can only be one pod; an event says what to do."""
    here.world.edl.kill("webhook")
    here.submit("mnist", low=2, high=8)

    until("its pod runs", here.services_running, lambda n: n == 1, 15)
    told = until("an event", lambda: here.events("mnist", "Invalid"), bool, 10)
    found = here.job("mnist")

    assert "spec.completions" in told[0]["message"]
    assert "create it again" in told[0]["message"]
    assert found.parallelism == 1
    assert not here.events("mnist", "ParallelismMoved")


def test_bounds_spoiled_without_webhook(here: Journey) -> None:
    """Nonsense in a running Job's annotations costs no trainer; an event names the annotation."""
    here.submit("mnist", low=2, high=6)
    here.wait_running("mnist", 6, 6)
    here.wait_exact("mnist")
    here.world.edl.kill("webhook")
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "many"}}})
    told = until("an event", lambda: here.events("mnist", "Invalid"), bool, 8)
    time.sleep(2.0)

    assert "edl.training/max-trainers is 'many'" in told[0]["message"]
    assert here.world.pods.left(here.namespace) == set()
    here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "8"}}})
    here.wait_running("mnist", 8, 6)
    here.wait_exact("mnist")


class Pair:
    """Two reconcilers in place of the usual one, with a short lease."""

    def __init__(self, found: World, directory: Path) -> None:
        self._world = found
        self._directory = directory
        self._kubeconfig = found.cluster.kubeconfig(RECONCILER)
        self.processes: dict[str, Process] = {}

    def start(self, name: str) -> None:
        """Starts one under that identity; returns when it knows the cluster."""
        announced = self._directory / f"{name}.address"
        self.processes[name] = Process(
            name,
            [
                *(sys.executable, "-m", "reconciler", "--kubeconfig", str(self._kubeconfig)),
                *("--listen", "127.0.0.1:0", "--announce-file", str(announced)),
                *("--drain-seconds", "0"),
                *("--identity", name, "--lease-seconds", str(LEASE_S)),
            ],
            self._directory / f"{name}.log",
            cwd=ROOT,
        )
        until(f"{name} is ready", lambda: is_synced(announced), bool, 20)

    def holder(self) -> str:
        """Who leads, as the lease says."""
        found = self._world.send(request.get(LEASES, SYSTEM_NAMESPACE, LEASE))
        return str(found["spec"].get("holderIdentity", ""))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to all processes of one of them."""
        os.killpg(self.processes[name].pid, number)

    def stop(self) -> None:
        """Ends both."""
        for process in self.processes.values():
            process.kill()


@contextmanager
def pair(found: World, directory: Path) -> Iterator[Pair]:
    """Both run, and `first` leads."""
    found.edl.kill("reconciler")
    with suppress(NotFound):
        found.api.send(request.delete(LEASES, SYSTEM_NAMESPACE, LEASE))  # of the one just killed
    two = Pair(found, directory)
    try:
        two.start("first")
        until("the first leads", lambda: led_by(two), lambda name: name == "first", 10)
        two.start("second")
        yield two
    finally:
        two.stop()


def is_synced(announced: Path) -> bool:
    """Whether the reconciler whose address is in that file has all first lists."""
    if not announced.exists():
        return False
    return readiness(f"http://{announced.read_text().strip()}").get("synced") is True


def led_by(two: Pair) -> str:
    """Who leads; nobody before there is a lease."""
    try:
        return two.holder()
    except NotFound:
        return ""


def authors(here: Journey, job: str) -> set[str]:
    """Which reconcilers made trainers of a job, by its events."""
    return {event["source"]["component"] for event in here.events(job, "TrainersMade")}


def test_second_reconciler_takes_over(here: Journey, tmp_path: Path) -> None:
    """Of two reconcilers one acts; when it is killed the other goes on within the lease time."""
    with pair(here.world, tmp_path) as two:
        here.submit("before", low=2, high=10)
        here.wait_running("before", 10, 10)
        time.sleep(LEASE_S)  # long enough for the second to want to lead
        assert two.holder() == "first"
        assert authors(here, "before") == {"first"}

        two.processes["first"].kill()
        begun_s = clock.monotonic_s()
        here.submit("after", low=2, high=10)
        until("the second leads", two.holder, lambda name: name == "second", LEASE_S + RETRY_S + 1)
        took_s = clock.monotonic_s() - begun_s
        here.wait_running("after", 10, 10)

        print(f"the second leads after {took_s:.1f} s")
        assert authors(here, "after") == {"second"}
        for job in ("before", "after"):
            assert here.wait_exact(job).books.next_id == 10


def test_stopped_leader_does_not_act_late(here: Journey, tmp_path: Path) -> None:
    """A leader that was frozen for longer than its lease makes nothing when it thaws.

    It was frozen at rest: of one that is frozen while it creates, what is on its way may arrive.
    """
    with pair(here.world, tmp_path) as two:
        here.submit("mnist", low=2, high=6)
        here.wait_running("mnist", 6, 10)
        here.wait_exact("mnist")
        two.signal("first", signal.SIGSTOP)
        here.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "20"}}})
        until("the second leads", two.holder, lambda name: name == "second", 10)
        here.wait_running("mnist", 20, 15)
        two.signal("first", signal.SIGCONT)
        time.sleep(LEASE_S + RETRY_S)

        found = here.wait_exact("mnist")
        assert two.holder() == "second"
        assert found.books.next_id == 20
        assert here.world.pods.left(here.namespace) == set()
        assert found.status.failed == 0
