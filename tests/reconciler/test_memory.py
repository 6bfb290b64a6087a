"""What the loop keeps in memory: expectations, recent history, endings, figures."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Job, Phase, Pod, TrainerAccounting
from policy.cluster.trainer_accounting import serialize
from policy.planning.plan import Plan
from reconciler.expectations import PATIENCE_S, Expectations
from reconciler.jobs.tracker import JobTracker
from reconciler.jobs.writer import JobWriter
from reconciler.metrics import ReconcilerMetrics
from reconciler.quarantine import Quarantine
from runtime.metrics import Metrics
from tests.reconciler.server import Clock, Instant
from tests.support.builders import NOW_S, cluster_state, job, service, trainer

JOB = job("net")
POD = trainer(JOB, 0, "n0")


class NothingReserved:
    """See `reconciler.jobs.tracker.ReservedIds`."""

    def pending_ids(self, job: Job) -> frozenset[int]:  # noqa: ARG002 - the interface's
        """None."""
        return frozenset()

    unused_ids = pending_ids

    def forget_given_back(self, job: Job) -> None:
        """Nothing to drop."""


def _changed(last: Pod | None, new: Pod | None) -> dict[str, ObjectChange[Pod]]:
    pod = new or last
    assert pod is not None
    return {pod.uid: ObjectChange(last, new)}


def test_a_trainer_just_made_is_there_at_once() -> None:
    """The plan after it must not make it again."""
    cluster, expected = cluster_state(jobs=[JOB]), Expectations()
    expected.expect_creation(cluster, POD, 0.0)
    expected.observe(cluster, {}, PATIENCE_S - 1)

    assert cluster.trainers(JOB) == (POD,)


def test_a_trainer_that_is_never_seen_is_given_up() -> None:
    """Somebody undid the write before the watch came."""
    cluster, expected = cluster_state(jobs=[JOB]), Expectations()
    expected.expect_creation(cluster, POD, 0.0)
    expected.observe(cluster, {}, PATIENCE_S)

    assert cluster.trainers(JOB) == ()


def test_a_trainer_that_was_seen_is_not_given_up() -> None:
    """From then on the watch is authoritative."""
    cluster, expected = cluster_state(jobs=[JOB]), Expectations()
    expected.expect_creation(cluster, POD, 0.0)
    expected.observe(cluster, _changed(None, POD), 1.0)
    expected.observe(cluster, {}, PATIENCE_S)

    assert cluster.trainers(JOB) == (POD,)


def test_a_trainer_that_went_before_its_answer_came_stays_gone() -> None:
    """The answer to the creation is the older news."""
    cluster, expected = cluster_state(jobs=[JOB]), Expectations()
    expected.observe(cluster, _changed(POD, None), 0.0)
    expected.expect_creation(cluster, POD, 0.0)

    assert cluster.trainers(JOB) == ()


def test_a_trainer_that_the_watch_showed_first_keeps_its_record() -> None:
    """It may be bound already, which the answer does not show."""
    cluster, expected = cluster_state(jobs=[JOB], pods=[POD]), Expectations()
    expected.expect_creation(cluster, replace(POD, node=""), 0.0)

    assert cluster.trainers(JOB) == (POD,)


def test_a_released_trainer_is_leaving_at_once() -> None:
    """Also if an older record of it arrives afterwards; and it is known that it was us."""
    cluster, expected = cluster_state(jobs=[JOB], pods=[POD]), Expectations()
    expected.expect_deletion(cluster, POD.uid, 0.0)
    first = cluster.pods[POD.uid].deleting
    cluster.put_pod(POD)
    expected.observe(cluster, _changed(POD, POD), 1.0)

    assert first
    assert cluster.pods[POD.uid].deleting
    assert expected.was_released(POD.uid)


def test_a_release_that_did_not_happen_is_seen_in_the_end() -> None:
    """After a while the watch is right."""
    cluster, expected = cluster_state(jobs=[JOB], pods=[POD]), Expectations()
    expected.expect_deletion(cluster, POD.uid, 0.0)
    cluster.put_pod(POD)
    expected.observe(cluster, _changed(POD, POD), PATIENCE_S)

    assert not cluster.pods[POD.uid].deleting


def test_a_refused_eviction_puts_the_trainer_back() -> None:
    """It stays, and its end will not be taken for a release."""
    cluster, expected = cluster_state(jobs=[JOB], pods=[POD]), Expectations()
    expected.expect_deletion(cluster, POD.uid, 0.0)
    expected.cancel_deletion(cluster, POD.uid)

    assert cluster.trainers(JOB) == (POD,)
    assert not expected.was_released(POD.uid)


def test_a_refused_eviction_does_not_bring_back_what_leaves_anyway() -> None:
    """Somebody else deleted it meanwhile, or it no longer exists."""
    leaving = replace(POD, deleting=True)
    cluster, expected = cluster_state(jobs=[JOB], pods=[POD]), Expectations()
    expected.expect_deletion(cluster, POD.uid, 0.0)
    cluster.put_pod(leaving)
    expected.observe(cluster, _changed(POD, leaving), 1.0)
    expected.cancel_deletion(cluster, POD.uid)
    expected.cancel_deletion(cluster, "unknown")

    assert cluster.pods == {POD.uid: leaving}


def test_releasing_what_is_gone_or_leaving_changes_no_record() -> None:
    """It is only remembered."""
    leaving = replace(POD, deleting=True)
    cluster, expected = cluster_state(pods=[leaving]), Expectations()
    expected.expect_deletion(cluster, POD.uid, 0.0)
    expected.expect_deletion(cluster, "unknown", 0.0)

    assert cluster.pods == {POD.uid: leaving}
    assert expected.was_released("unknown")


def test_memory_of_releases_is_bounded() -> None:
    """The oldest of more than 20 000 are forgotten."""
    cluster, expected = cluster_state(), Expectations()
    for number in range(20_001):
        expected.expect_deletion(cluster, str(number), 0.0)

    assert not expected.was_released("0")
    assert expected.was_released("20000")


@pytest.mark.parametrize(
    "change",
    [
        _changed(POD, replace(POD, disrupted=True, deleting=True)),
        _changed(replace(POD, disrupted=True), None),
    ],
)
def test_a_node_that_kube_scheduler_took_from_is_noticed(
    change: dict[str, ObjectChange[Pod]],
) -> None:
    """It cools down: the rest of what was freed is for the next service pod."""
    assert [pod.node for pod in Expectations().evicted_by_others(change)] == ["n0"]


@pytest.mark.parametrize(
    "change",
    [
        _changed(POD, None),
        _changed(None, replace(POD, disrupted=True)),
        _changed(None, replace(POD, node="", disrupted=True, deleting=True)),
        _changed(None, replace(service("web", where="n0"), disrupted=True, deleting=True)),
        {"u": ObjectChange(None, None)},
    ],
)
def test_other_departures_cool_nothing(change: dict[str, ObjectChange[Pod]]) -> None:
    """A trainer that just ended, a service, a pod without a node: that room is for everybody."""
    assert list(Expectations().evicted_by_others(change)) == []


def test_our_own_releases_are_not_taken_for_those_of_others() -> None:
    """A move between jobs must be able to use the node at once."""
    expected = Expectations()
    expected.expect_deletion(cluster_state(), POD.uid, NOW_S)
    evicted = _changed(POD, replace(POD, disrupted=True, deleting=True))

    assert list(expected.evicted_by_others(evicted)) == []


def test_pods_that_outlive_their_job_are_forgotten() -> None:
    """Garbage collection takes the Job first and its pods later, for ever and ever."""
    cluster = cluster_state(jobs=[JOB])
    api = Instant(Clock())
    tracker = JobTracker(
        cluster,
        Expectations(),
        JobWriter(api, cluster),
        NothingReserved(),
        lambda _: None,
        quarantine=Quarantine(cluster),
    )
    tracker.observe_pods(_changed(POD, None))
    tracker.observe_pods(_changed(trainer(job("gone"), 0, "n0"), None))
    tracker.update_accounting(0.0)

    assert set(tracker._deleted_pods) == {(JOB.namespace, JOB.uid)}  # noqa: SLF001 - that nothing piles up inside is the fact


def test_a_standby_keeps_only_what_the_leader_has_not_counted() -> None:
    """It may lead next, and must not grow meanwhile; the watch of pods can be ahead of that of Jobs."""
    opened = TrainerAccounting(next_id=2, open=frozenset({0, 1}))
    counted = replace(opened, open=frozenset({1}), failed=1)
    standby = [replace(JOB, accounting_text=serialize(each)) for each in (opened, counted)]
    cluster = cluster_state(jobs=[standby[0]])
    tracker = JobTracker(
        cluster,
        Expectations(),
        JobWriter(Instant(Clock()), cluster),
        NothingReserved(),
        lambda _: None,
        quarantine=Quarantine(cluster),
    )
    for number in range(3):
        tracker.observe_pods(_changed(trainer(JOB, number, "n0"), None))
    tracker.forget_counted()
    kept = tracker._deleted_pods[JOB.namespace, JOB.uid]  # noqa: SLF001 - what is kept is the fact
    before = {pod.trainer_id for pod in kept.values()}
    cluster.put_job(standby[1])
    tracker.forget_counted()
    after = {pod.trainer_id for pod in kept.values()}

    assert (before, after) == ({0, 1, 2}, {1, 2})


def test_only_trainers_are_remembered() -> None:
    """A deleted service, or a pod that only changes, is in no accounting."""
    cluster = cluster_state(jobs=[JOB])
    api = Instant(Clock())
    tracker = JobTracker(
        cluster,
        Expectations(),
        JobWriter(api, cluster),
        NothingReserved(),
        lambda _: None,
        quarantine=Quarantine(cluster),
    )
    tracker.observe_pods(_changed(service("web"), None))
    tracker.observe_pods(_changed(POD, replace(POD, phase=Phase.RUNNING, ready=True)))
    with ThreadPoolExecutor(1) as pool:
        tracker.update_accounting(0.0)
        tracker.write(NOW_S, pool, Plan())

    assert cluster.jobs[JOB.key].accounting == JOB.accounting


def _reclaimed(*steps: dict[str, ObjectChange[Pod]]) -> str:
    """The count of reclaims after these changes, one tick each."""
    metrics = Metrics("reconciler")
    reconciler_metrics = ReconcilerMetrics(metrics)
    reconciler_metrics.set_state(leads=True, age_s=0.0)
    for step in steps:
        reconciler_metrics.observe_pods(step, NOW_S)
    lines = metrics.text().decode().splitlines()
    return next(line for line in lines if line.startswith("edl_reconciler_reclaim_seconds_count"))


WAITING = service("web", created_s=NOW_S - 2)
NOMINATED = replace(WAITING, nominated="n0")
BOUND = replace(WAITING, node="n0")


def test_a_reclaim_is_timed_from_creation_to_node() -> None:
    """Also where binding and start fall into one tick, as they mostly do."""
    running = replace(BOUND, phase=Phase.RUNNING)

    assert _reclaimed(_changed(WAITING, NOMINATED), _changed(BOUND, running)).endswith(" 1.0")


def test_a_reclaim_takes_as_long_as_the_service_waited() -> None:
    """From its creation on; a clock that is behind the API server's makes no negative times."""
    metrics = Metrics("reconciler")
    reconciler_metrics = ReconcilerMetrics(metrics)
    reconciler_metrics.set_state(leads=True, age_s=0.0)
    for created_s in (NOW_S - 2, NOW_S + 3):
        waiting = replace(NOMINATED, uid=f"web-{created_s}", created_s=created_s)
        reconciler_metrics.observe_pods(_changed(WAITING, waiting), NOW_S)
        reconciler_metrics.observe_pods(_changed(waiting, replace(waiting, node="n0")), NOW_S)

    assert "edl_reconciler_reclaim_seconds_sum 2.0" in metrics.text().decode()


@pytest.mark.parametrize(
    "steps",
    [
        (_changed(WAITING, BOUND),),
        (_changed(WAITING, NOMINATED), _changed(NOMINATED, WAITING), _changed(WAITING, BOUND)),
        (_changed(WAITING, NOMINATED), _changed(NOMINATED, None)),
        (_changed(None, replace(POD, node="", nominated="n0")), _changed(None, POD)),
        (
            _changed(WAITING, replace(NOMINATED, only_resources=False)),
            _changed(NOMINATED, replace(BOUND, only_resources=False)),
        ),
    ],
)
def test_what_needed_no_preemption_is_no_reclaim(
    steps: tuple[dict[str, ObjectChange[Pod]], ...],
) -> None:
    """Placed at once, given up, deleted, a training pod itself, or nominated to wait for a volume."""
    assert _reclaimed(*steps).endswith(" 0.0")
