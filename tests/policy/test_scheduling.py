from dataclasses import replace

import pytest

from policy.cluster.snapshot import Pod
from policy.document.parser import parse
from policy.names import CHECK_RESOURCE, TRAINER_RESOURCE, Tier
from policy.planning.plan import History
from policy.planning.planner import plan
from policy.reasons import Reason
from policy.scheduling import (
    UNMARKED,
    Registration,
    SchedulerCheck,
    Scheduling,
    in_force,
    registration_by,
)
from tests.support.builders import NOW_S, cluster_state, job, node, server, servers, trainer

MARKED = Scheduling(marked=True)


@pytest.mark.parametrize(
    ("extender", "registration", "marked"),
    [
        ("auto", Registration.REGISTERED, True),
        ("auto", Registration.MISSING, False),
        ("auto", Registration.UNKNOWN, False),
        ("always", Registration.MISSING, True),
        ("never", Registration.REGISTERED, False),
    ],
)
def test_the_marker_is_requested_where_it_is_known_to_be_ignored(
    extender: str, registration: Registration, *, marked: bool
) -> None:
    """Unless the policy says which it is."""
    policy = parse(f"scheduling: {{extender: {extender}}}")
    check = SchedulerCheck(registration=registration)

    assert in_force(policy, check) == Scheduling("default-scheduler", marked)


def test_a_result_about_another_scheduler_says_nothing() -> None:
    """Each scheduler has its own configuration."""
    policy = parse("scheduling: {schedulerName: edl-scheduler}")
    check = SchedulerCheck("default-scheduler", Registration.REGISTERED)

    assert in_force(policy, check) == Scheduling("edl-scheduler", marked=False)


@pytest.mark.parametrize(
    ("insufficient", "registration"),
    [
        ((), Registration.UNKNOWN),
        ((TRAINER_RESOURCE,), Registration.UNKNOWN),
        ((CHECK_RESOURCE,), Registration.REGISTERED),
        ((TRAINER_RESOURCE, CHECK_RESOURCE), Registration.MISSING),
    ],
)
def test_the_answer_to_a_test_pod(
    insufficient: tuple[str, ...], registration: Registration
) -> None:
    """An answer that has compared the pod with no node, as where there is none, says nothing."""
    assert registration_by(insufficient) is registration


@pytest.mark.parametrize(
    "data", [{}, {"scheduler": "x"}, {"scheduler": "x", "extender": "perhaps"}]
)
def test_a_stored_result_that_is_invalid_is_unknown(data: dict[str, str]) -> None:
    """A later version may have written it."""
    stored = SchedulerCheck("edl", Registration.MISSING)

    assert SchedulerCheck.from_data(data) == SchedulerCheck()
    assert SchedulerCheck.from_data(stored.to_data()) == stored


_JOB = job("a", 1, 1)
_WAITING = trainer(_JOB, 0, tier=Tier.GUARANTEED, created_s=NOW_S - 3, marked=True)


def _replaced(pod: Pod, scheduling: Scheduling) -> list[tuple[str, Reason]]:
    cluster = cluster_state([node("n0", 16)], [_JOB], [pod])
    new_plan = plan(cluster, parse(""), NOW_S, History(scheduling=scheduling))
    return [(release.uid, release.reason) for release in new_plan.releases]


def test_a_waiting_trainer_of_another_scheduling_is_replaced() -> None:
    """Also a guaranteed one, which nothing else would ever withdraw."""
    elsewhere = replace(_WAITING, marked=False, scheduler="edl-scheduler")
    expected = [(_WAITING.uid, Reason.SCHEDULER_CHANGED)]

    assert _replaced(_WAITING, UNMARKED) == expected
    assert _replaced(elsewhere, UNMARKED) == expected


def test_a_trainer_whose_scheduler_another_webhook_names_stays() -> None:
    """A new one would get the same; with another scheduling in force it is replaced once."""
    renamed = replace(
        _WAITING, marked=False, scheduler="yunikorn", asked_scheduler="default-scheduler"
    )
    late = replace(_WAITING, marked=False, scheduler="edl", asked_scheduler="default-scheduler")
    changed = Scheduling("edl")

    assert _replaced(renamed, UNMARKED) == []
    assert _replaced(renamed, changed) == [(renamed.uid, Reason.SCHEDULER_CHANGED)]
    assert _replaced(replace(renamed, asked_scheduler="edl"), changed) == []
    assert _replaced(late, changed) == []  # the webhook knew of the change first


def test_other_trainers_stay() -> None:
    """One that runs, that came just now, whose victims end, or that any scheduler takes."""
    assert _replaced(replace(_WAITING, node="n0"), UNMARKED) == []
    assert _replaced(replace(_WAITING, created_s=NOW_S - 2.9), UNMARKED) == []
    assert _replaced(replace(_WAITING, nominated="n0"), UNMARKED) == []
    assert _replaced(_WAITING, MARKED) == []
    assert _replaced(replace(_WAITING, marked=False), MARKED) == []


def test_a_waiting_parameter_server_of_another_scheduling_is_replaced() -> None:
    """The next plan creates it again under its name."""
    owner = replace(_JOB, master=True, servers=servers(1))
    waiting = server(owner, 0, created_s=NOW_S - 3, marked=True)
    running = replace(_WAITING, node="n0", master=True)
    cluster = cluster_state([node("n0", 16)], [owner], [running, waiting])
    releases = [
        [release.reason for release in plan(cluster, parse(""), NOW_S, history).server_releases]
        for history in (History(), History(scheduling=MARKED))
    ]

    assert releases == [[Reason.SCHEDULER_CHANGED], []]


def test_a_job_that_stops_or_is_not_managed_keeps_its_pods() -> None:
    """Others end those, or create them."""
    for owner in (replace(_JOB, suspended=True), replace(_JOB, managed=False)):
        cluster = cluster_state([node("n0", 16)], [owner], [_WAITING])
        releases = plan(cluster, parse(""), NOW_S).releases

        assert Reason.SCHEDULER_CHANGED not in [release.reason for release in releases]


def test_a_pod_that_waits_for_a_new_node_has_no_marker() -> None:
    """It asks the same scheduler."""
    assert Scheduling("edl", marked=True).unmarked == Scheduling("edl", marked=False)
