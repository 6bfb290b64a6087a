"""Durations by the own clock, whatever the clocks of the API server and of kubelets say."""

from dataclasses import replace

import pytest

from policy.cluster.cluster_state import ClusterState
from policy.cluster.first_seen import CLOCKS_DIFFER_S, FirstSeen
from policy.cluster.horizon import Horizon
from policy.cluster.snapshot import Phase, Pod
from tests.support.builders import NOW_S, job, node, trainer

_JOB = job("net")


def _pod(off_s: float, **fields: object) -> Pod:
    """A trainer that was created and started 5 s ago, by a clock that is off."""
    at_s = NOW_S - 5.0 + off_s
    pod = replace(trainer(_JOB, 1, "n0"), created_s=at_s, started_s=at_s)
    return replace(pod, **fields)  # type: ignore[arg-type]  # of any field


def test_without_a_watch_timestamps_count() -> None:
    """A snapshot has one clock."""
    seen = ClusterState().first_seen
    pod = _pod(0.0, ended_s=NOW_S - 1.0)

    assert seen.created_s(pod, NOW_S) == seen.started_s(pod, NOW_S) == NOW_S - 5.0
    assert seen.ended_s(pod, NOW_S) == NOW_S - 1.0
    assert seen.started_s(replace(pod, started_s=0.0), NOW_S) == 0.0


@pytest.mark.parametrize("off_s", [-60.0, 0.0, 60.0])
def test_durations_begin_when_a_change_is_seen(off_s: float) -> None:
    """Later sights of the same pod change nothing, such as another list of all pods."""
    seen = FirstSeen()
    pod = _pod(off_s, phase=Phase.PENDING, started_s=0.0)
    seen.put_pod(pod, NOW_S, listed=False)
    started = _pod(off_s)
    seen.put_pod(started, NOW_S + 1.0, listed=False)
    ended = replace(started, phase=Phase.FAILED, ended_s=NOW_S + off_s)
    seen.put_pod(ended, NOW_S + 2.0, listed=False)
    seen.put_pod(ended, NOW_S + 9.0, listed=True)

    times = [seen.created_s, seen.started_s, seen.ended_s]
    assert [time(ended, NOW_S + 9.0) for time in times] == [NOW_S, NOW_S + 1.0, NOW_S + 2.0]


@pytest.mark.parametrize(
    ("off_s", "created_s"), [(-60.0, NOW_S - 5.0), (0.0, NOW_S), (60.0, NOW_S)]
)
def test_after_a_restart_durations_are_rather_too_short(off_s: float, created_s: float) -> None:
    """Of older objects only timestamps are known: nothing is released in a hurry for them."""
    seen = FirstSeen()
    long_ago = replace(_pod(off_s), uid="old", created_s=NOW_S - 3600.0 + off_s)
    for pod in (_pod(off_s), long_ago):
        seen.put_pod(pod, NOW_S, listed=True)

    assert seen.created_s(_pod(off_s), NOW_S) == seen.started_s(_pod(off_s), NOW_S) == created_s
    too_short_s = 3600.0 - (NOW_S - seen.created_s(long_ago, NOW_S))
    assert 0.0 <= too_short_s == CLOCKS_DIFFER_S + off_s


def test_a_pod_that_no_watch_has_shown_is_new_or_gone_just_now() -> None:
    """Its timestamps are those of other clocks, too; forgotten pods take no memory."""
    seen = FirstSeen()
    seen.put_pod(_pod(0.0), NOW_S - 9.0, listed=False)
    other = replace(_pod(-60.0, ended_s=NOW_S - 60.0), uid="other")

    assert seen.created_s(other, NOW_S) == seen.started_s(other, NOW_S) == NOW_S
    assert seen.ended_s(other, NOW_S) == NOW_S
    seen.drop_pod(_pod(0.0).uid)
    assert seen.created_s(_pod(0.0), NOW_S) == NOW_S


@pytest.mark.parametrize("off_s", [-60.0, 0.0, 60.0])
def test_a_leaving_pod_is_due_by_the_own_clock(off_s: float) -> None:
    """Its grace period of 10 s begins when its deletion is seen."""
    seen = FirstSeen()
    stamp_s = NOW_S + off_s
    leaving = _pod(off_s, deleting=True, deleted_s=stamp_s, leaves_by_s=stamp_s + 10.0)
    pod = seen.put_pod(leaving, NOW_S, listed=False)

    assert pod.leaves_by_s == NOW_S + 10.0
    again = seen.put_pod(leaving, NOW_S + 4.0, listed=False)
    assert again.leaves_by_s == NOW_S + 10.0  # a later sight prolongs nothing
    assert pod.deleted_s == stamp_s  # to be compared with its kubelet's times
    assert pod.leaves_within(Horizon.of(NOW_S + 15.0, 10.0))
    assert not pod.leaves_within(Horizon.of(NOW_S + 15.1, 10.0))


@pytest.mark.parametrize("off_s", [-60.0, 0.0, 60.0])
def test_a_node_is_not_ready_since_that_was_seen(off_s: float) -> None:
    """Its kubelet's clock says when; each change of readiness counts anew."""
    seen = FirstSeen()
    failing = node("n0", ready=False, unready_s=NOW_S + off_s)
    first = seen.put_node(failing, NOW_S, listed=False)
    again = seen.put_node(failing, NOW_S + 50.0, listed=False)

    assert first.unready_s == again.unready_s == NOW_S
    assert not again.is_lost(NOW_S + 59.0)
    assert seen.put_node(node("n0"), NOW_S + 55.0, listed=False).unready_s == 0.0
    assert seen.put_node(failing, NOW_S + 60.0, listed=False).unready_s == NOW_S + 60.0
    seen.drop_node("n0")
    assert seen.put_node(failing, NOW_S + 70.0, listed=False).unready_s == NOW_S + 70.0
