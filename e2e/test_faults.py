"""What dies, and what happens then: EDL's components and the API server, killed with SIGKILL."""

import signal
import time
from pathlib import Path

import pytest

from e2e.cluster.components import APISERVER
from e2e.control_plane import EDL_COMPONENTS
from e2e.environment import SLOTS, IsolatedNamespace
from e2e.faults import authors, fill, live_ids
from e2e.two_reconcilers import LEASE_S, pair
from e2e.waiting import until
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

WAIT_S = 30.0
"""Ends a hang: how long things take is measured elsewhere."""
RETRY_S = 1.0
"""A follower looks every 2/15 of the lease, and a little later by chance; then it must write."""
BUSY_S = 4.0
"""A busy machine may take so much longer; a lease of the usual length would take longer still."""


@pytest.mark.parametrize("component", EDL_COMPONENTS)
def test_killed_in_a_burst(namespace: IsolatedNamespace, component: str) -> None:
    """With any component killed in the middle of a burst services still get their capacity.

    Nothing is made twice, and after a restart all is as if nothing had happened.
    """
    control_plane, pods = namespace.environment.control_plane, namespace.environment.pods
    fill(namespace, "one", "two")
    namespace.services(40)
    until("the first victims", lambda: pods.stopped_trainers(namespace.name), bool, WAIT_S)
    control_plane.kill(component)

    took_s = namespace.wait_services(40, WAIT_S)
    print(f"{component} killed: 40 services run after {took_s:.1f} s more")

    ids = live_ids(namespace)
    assert len(ids) == len(set(ids))
    control_plane.start(component)
    control_plane.wait_ready(component)
    namespace.services(0)
    until(
        "the jobs share the cluster again",
        lambda: (namespace.running("one"), namespace.running("two")),
        lambda counts: sum(counts) == SLOTS,
        2 * WAIT_S,
    )
    for job in ("one", "two"):
        assert namespace.wait_exact(job).status.failed == 0
        assert namespace.running(job) >= 2


def test_reconciler_killed_while_it_makes_trainers(namespace: IsolatedNamespace) -> None:
    """Ids that were handed out and whose pods were never made are not used again, nor lost."""
    namespace.submit("mnist", low=2, high=SLOTS)
    until("the first trainers", lambda: namespace.trainers("mnist"), bool, WAIT_S)
    namespace.environment.control_plane.kill("reconciler")
    trainers_before = len(namespace.environment.pods.ever(namespace.name))
    namespace.environment.restore()

    namespace.wait_running("mnist", SLOTS, 2 * WAIT_S)  # the dead one's lease ends first
    job = namespace.wait_exact("mnist")

    print(f"killed with {trainers_before} trainers made; {job.accounting}")
    assert job.accounting.next_id == SLOTS + job.accounting.disrupted + job.accounting.released
    assert job.status.failed == 0


def test_api_server_restarts(namespace: IsolatedNamespace) -> None:
    """An API server that is down for some seconds costs no trainer; work continues after it."""
    cluster, pods = namespace.environment.cluster, namespace.environment.pods
    for job in ("one", "two"):  # none has more than its share, which would be moved meanwhile
        namespace.submit(job, low=2, high=SLOTS // 2)
    for job in ("one", "two"):
        namespace.wait_running(job, SLOTS // 2, WAIT_S)
        namespace.wait_exact(job)
    before = {pod.uid for pod in pods.now(namespace.name)}
    cluster.kill(APISERVER)
    try:
        time.sleep(4.0)
    finally:
        cluster.start(APISERVER)
    time.sleep(6.0)  # a tick of every loop, and the longest first back-off

    assert pods.stopped_trainers(namespace.name) == set()
    assert {pod.uid for pod in pods.now(namespace.name)} == before
    namespace.submit("three", low=3, high=3)
    namespace.wait_running("three", 3, WAIT_S)
    for job in ("one", "two", "three"):
        namespace.wait_exact(job)


def test_job_made_without_webhook(namespace: IsolatedNamespace) -> None:
    """The built-in controller runs it; its parallelism follows the free capacity; an event says so."""
    namespace.environment.control_plane.kill("webhook")
    namespace.submit("mnist", low=2, high=8, spec={"parallelism": 1})

    def running() -> int:
        return namespace.services_running()  # its pods carry nothing that says training

    until("8 pods run", running, lambda n: n == 8, WAIT_S)
    job = namespace.job("mnist")
    events = until("an event", lambda: namespace.events("mnist", "ParallelismMoved"), bool, WAIT_S)
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})

    until("3 pods run", running, lambda n: n == 3, WAIT_S)
    assert not job.managed
    assert job.parallelism == 8
    assert "webhook was unavailable" in events[0]["message"]
    assert namespace.job("mnist").status.failed == 0


def test_default_job_made_without_webhook(namespace: IsolatedNamespace) -> None:
    """With the API server's completions of 1 it can only be one pod; an event says what to do."""
    namespace.environment.control_plane.kill("webhook")
    namespace.submit("mnist", low=2, high=8)

    until("its pod runs", namespace.services_running, lambda n: n == 1, WAIT_S)
    events = until("an event", lambda: namespace.events("mnist", "Invalid"), bool, WAIT_S)
    job = namespace.job("mnist")

    assert "spec.completions" in events[0]["message"]
    assert "create it again" in events[0]["message"]
    assert job.parallelism == 1
    assert not namespace.events("mnist", "ParallelismMoved")


def test_bounds_spoiled_without_webhook(namespace: IsolatedNamespace) -> None:
    """Nonsense in a running Job's annotations costs no trainer; an event names the annotation."""
    namespace.submit("mnist", low=2, high=6)
    namespace.wait_running("mnist", 6, WAIT_S)
    namespace.wait_exact("mnist")
    namespace.environment.control_plane.kill("webhook")
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "many"}}})
    events = until("an event", lambda: namespace.events("mnist", "Invalid"), bool, WAIT_S)
    time.sleep(2.0)

    assert "edl.training/max-trainers is 'many'" in events[0]["message"]
    assert namespace.environment.pods.stopped_trainers(namespace.name) == set()
    namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "8"}}})
    namespace.wait_running("mnist", 8, WAIT_S)
    namespace.wait_exact("mnist")


def test_second_reconciler_takes_over(namespace: IsolatedNamespace, tmp_path: Path) -> None:
    """Of two reconcilers one acts; when it is killed the other continues within the lease time."""
    with pair(namespace.environment, tmp_path) as two:
        namespace.submit("before", low=2, high=10)
        namespace.wait_running("before", 10, WAIT_S)
        time.sleep(LEASE_S)  # long enough for the second to want to lead
        assert two.holder() == "first"
        assert until("an event", lambda: authors(namespace, "before"), bool, WAIT_S) == {"first"}

        two.processes["first"].kill()
        begun_s = clock.monotonic_s()
        namespace.submit("after", low=2, high=10)
        within_s = LEASE_S + RETRY_S + BUSY_S
        until("the second leads", two.holder, lambda name: name == "second", within_s)
        took_s = clock.monotonic_s() - begun_s
        namespace.wait_running("after", 10, WAIT_S)

        print(f"the second leads after {took_s:.1f} s")
        assert until("an event", lambda: authors(namespace, "after"), bool, WAIT_S) == {"second"}
        for job in ("before", "after"):
            assert namespace.wait_exact(job).accounting.next_id == 10


def test_stopped_leader_does_not_act_late(namespace: IsolatedNamespace, tmp_path: Path) -> None:
    """A leader that was frozen for longer than its lease makes nothing when it thaws.

    It was frozen at rest: of one that is frozen while it creates, what is on its way may arrive.
    """
    with pair(namespace.environment, tmp_path) as two:
        namespace.submit("mnist", low=2, high=6)
        namespace.wait_running("mnist", 6, WAIT_S)
        namespace.wait_exact("mnist")
        two.signal("first", signal.SIGSTOP)
        namespace.edit("mnist", {"metadata": {"annotations": {"edl.training/max-trainers": "20"}}})
        until("the second leads", two.holder, lambda name: name == "second", WAIT_S)
        namespace.wait_running("mnist", 20, WAIT_S)
        two.signal("first", signal.SIGCONT)
        time.sleep(LEASE_S + RETRY_S)

        job = namespace.wait_exact("mnist")
        assert two.holder() == "second"
        assert job.accounting.next_id == 20
        assert namespace.environment.pods.stopped_trainers(namespace.name) == set()
        assert job.status.failed == 0
