"""How long services take to run, by what they waited for, and which of them starve."""

from dataclasses import replace

import pytest

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Constraints, Phase, Pod, Requirement
from policy.document.model import ReclaimCause
from reconciler.records import service_starts
from reconciler.records.service_starts import ServiceStart, ServiceStarts
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

WAITING = service("web", created_s=NOW_S - 7)
REFUSED = replace(WAITING, refused=True)
NOMINATED = replace(REFUSED, nominated="n0")
RUNNING = replace(WAITING, node="n0", phase=Phase.RUNNING)
JOB = job("net")


def _starts(*states: Pod, released_after: int = 0) -> list[ServiceStart]:
    """What comes of a pod that is seen in these states, one at a time."""
    starts = ServiceStarts()
    seen: list[ServiceStart] = []
    for number, (last, new) in enumerate(zip((None, *states), states, strict=False), start=1):
        seen += starts.observe({new.uid: ObjectChange(last, new)}, NOW_S)
        if number == released_after:
            starts.note_released([new.uid, "another"], NOW_S)
    return seen


def _timed(starts: list[ServiceStart]) -> list[tuple[ReclaimCause, float]]:
    return [(start.cause, start.seconds) for start in starts]


def test_a_service_is_timed_from_its_creation_until_it_runs() -> None:
    """Binding alone is not the end: image and containers come after it."""
    bound = replace(WAITING, node="n0")

    assert _starts(WAITING, bound) == []
    assert _timed(_starts(WAITING, bound, RUNNING)) == [(ReclaimCause.FREE, 7.0)]


@pytest.mark.parametrize(
    ("states", "released_after", "cause"),
    [
        ((WAITING, RUNNING), 0, ReclaimCause.FREE),
        ((WAITING, REFUSED, RUNNING), 0, ReclaimCause.WAITED),
        ((REFUSED, RUNNING), 1, ReclaimCause.RELEASED),
        ((WAITING, NOMINATED, REFUSED, RUNNING), 0, ReclaimCause.PREEMPTED),
        ((NOMINATED, RUNNING), 1, ReclaimCause.PREEMPTED),
    ],
)
def test_the_cause_is_the_last_that_it_needed(
    states: tuple[Pod, ...], released_after: int, cause: ReclaimCause
) -> None:
    """Releases of EDL, and then preemptions by kube-scheduler where these were not enough."""
    assert [start.cause for start in _starts(*states, released_after=released_after)] == [cause]


def test_a_start_within_one_batch_of_changes_counts() -> None:
    """The newest change alone arrives: from waiting to running."""
    change = {RUNNING.uid: ObjectChange(NOMINATED, RUNNING)}

    assert _timed(ServiceStarts().observe(change, NOW_S)) == [(ReclaimCause.PREEMPTED, 7.0)]


@pytest.mark.parametrize(
    "states",
    [
        (RUNNING,),  # it ran before this process started
        (replace(WAITING, gated=True), WAITING, RUNNING),
        (trainer(JOB, 0), trainer(JOB, 0, "n0")),
        (WAITING, replace(WAITING, phase=Phase.FAILED)),
        (WAITING, replace(WAITING, deleting=True), replace(RUNNING, deleting=True)),
    ],
)
def test_other_pods_are_not_timed(states: tuple[Pod, ...]) -> None:
    """Listed as running, behind a gate of somebody else, training, ended, or deleted."""
    assert _starts(*states) == []


def test_nothing_is_kept_of_pods_that_are_gone() -> None:
    """Whatever they were."""
    starts = ServiceStarts()
    gated = replace(WAITING, gated=True)
    starts.observe({gated.uid: ObjectChange(None, gated)}, NOW_S)
    starts.observe({gated.uid: ObjectChange(gated, None)}, NOW_S)

    assert (starts._waits, starts.reclaiming, starts._gated) == ({}, {}, set())  # noqa: SLF001 - what is kept is the fact


def test_the_oldest_service_that_trainers_keep_out_starves() -> None:
    """By its wait; a younger one that fits too, and older ones that training cannot help, do not matter."""
    only = Constraints(((Requirement("metadata.name", "In", ("n0",)),),))
    pods = [
        *trainers(job("net", 0), ["n0", "n0", "n0"]),
        service("young", created_s=NOW_S - 5),
        service("old", created_s=NOW_S - 50),
        service("volume", created_s=NOW_S - 60, only_resources=False),
        service("polite", created_s=NOW_S - 60, preempts=False),
        service("elsewhere", created_s=NOW_S - 60, scheduler="other"),
        service("daemon", created_s=NOW_S - 60, constraints=only),
        service("huge", 100, created_s=NOW_S - 60),
        service("gated", created_s=NOW_S - 60, gated=True),
    ]
    cluster = cluster_state([node("n0")], [job("net", 0)], pods)
    waiting = service_starts.waiting(cluster)

    assert len(waiting) == 7
    assert service_starts.longest_starved_s(waiting, cluster, NOW_S) == 50.0


def test_nothing_starves_where_guaranteed_trainers_are_all_that_is_left() -> None:
    """They do not leave for a service by the plan."""
    owner = job("net", 3)
    pods = [*trainers(owner, ["n0", "n0", "n0"]), service("web", 5, created_s=NOW_S - 50)]
    cluster = cluster_state([node("n0", 16)], [owner], pods)

    assert service_starts.longest_starved_s(service_starts.waiting(cluster), cluster, NOW_S) == 0.0
