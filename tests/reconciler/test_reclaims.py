"""Bursts of services: who asked, who gave, and which trainers kube-scheduler preempted."""

from dataclasses import replace

import pytest

from policy.document.model import ReclaimCause
from policy.names import Tier
from policy.records import CLUSTER, ELSEWHERE, Record
from reconciler.records import reclaims as reclaims_module
from reconciler.records.losses import EVICTED, FAILED, Loss
from reconciler.records.reclaims import Reclaims
from reconciler.records.service_starts import ServiceStart, ServiceWait
from tests.support.builders import NOW_S, job, service, trainer

WEB = replace(service("web-5d-abc", created_s=NOW_S - 2, nominated="n0"), owner_uid="web")
TRAINER = replace(trainer(job("net"), 3, "n0"), uncommitted_s=7.0)


def _codes(records: list[tuple[str, Record]]) -> list[tuple[str, str]]:
    return [(namespace, record.code) for namespace, record in records]


def test_a_trainer_on_a_nominated_node_was_preempted() -> None:
    """Its namespace does not learn for whom; the cluster's records say it."""
    reclaims = Reclaims()
    wait = ServiceWait(WEB, ReclaimCause.PREEMPTED, NOW_S)
    records = reclaims.observe({WEB.uid: wait}, [], [Loss(TRAINER, EVICTED)], NOW_S)

    assert _codes(records) == [("ml", "Preempted"), (CLUSTER, "Preempted")]
    assert records[0][1].figures["service"] == ELSEWHERE
    assert records[1][1].figures["service"] == WEB.key
    assert records[0][1].figures["lostSeconds"] == 7.0


def test_a_trainer_may_be_preempted_for_a_guaranteed_one() -> None:
    """Of another job, whose name its namespace does not learn; no service's burst counts it."""
    reclaims = Reclaims()
    huge = job("huge", namespace="lab")
    waits = replace(trainer(huge, 0, tier=Tier.GUARANTEED), nominated="n0")
    assert reclaims.observe({}, [], [Loss(TRAINER, EVICTED)], NOW_S) == []
    (_, own), (_, whole) = reclaims.observe({}, [], [], NOW_S + 1, [waits])

    assert (own.code, own.figures["to"]) == ("Preempted", ELSEWHERE)
    assert own.text == "preempted by kube-scheduler for guaranteed pods of another namespace"
    assert whole.figures["to"] == "lab/huge"
    late = replace(TRAINER, uid="late")
    assert reclaims.observe({}, [], [Loss(late, EVICTED)], NOW_S + 20) == []
    assert _codes(reclaims.observe({}, [], [], NOW_S + 24)) == [("ml", "Evicted")]


def test_a_victim_may_be_seen_before_the_nomination() -> None:
    """It is held for a moment; who is on no nominated node then was evicted by somebody else."""
    reclaims = Reclaims()
    other = replace(TRAINER, uid="other", node="n9")
    first = reclaims.observe({}, [], [Loss(TRAINER, EVICTED), Loss(other, EVICTED)], NOW_S)
    wait = ServiceWait(WEB, ReclaimCause.PREEMPTED, NOW_S + 1)
    second = reclaims.observe({WEB.uid: wait}, [], [], NOW_S + 1)
    third = reclaims.observe({WEB.uid: wait}, [], [], NOW_S + 4)

    assert first == []
    assert _codes(second) == [("ml", "Preempted"), (CLUSTER, "Preempted")]
    assert _codes(third) == [("ml", "Evicted")]


def test_a_trainer_that_fails_is_recorded_at_once() -> None:
    """With its exit code; a release of EDL has a record of its own."""
    failed = replace(TRAINER, exits=(("main", 137),))
    records = Reclaims().observe({}, [], [Loss(failed, FAILED), Loss(TRAINER, "FairShare")], NOW_S)
    ((namespace, record),) = records

    assert (namespace, record.code, record.figures["exit"]) == ("ml", "TrainerFailed", "137")


def test_services_of_two_namespaces_are_two_though_they_name_one_owner() -> None:
    """A pod's creator says who its controller is: what waits elsewhere is not counted under another's name."""
    reclaims = Reclaims()
    pods = [replace(WEB, namespace=namespace, uid=namespace) for namespace in ("shop", "evil")]
    waits = {pod.uid: ServiceWait(pod, ReclaimCause.RELEASED, NOW_S) for pod in pods}
    reclaims.observe(waits, [], [], NOW_S)
    records = reclaims.observe({}, [], [], NOW_S + 9) or reclaims.observe({}, [], [], NOW_S + 19)
    whole = [record for namespace, record in records if namespace == CLUSTER]

    assert [record.figures["services"].keys() for record in whole] == [
        {"evil/web-5d-*", "shop/web-5d-*"}
    ]


def test_a_burst_ends_when_no_service_of_it_waits() -> None:
    """Work lost and trainers are those that left for it; a long one is told now and then."""
    reclaims = Reclaims()
    wait = ServiceWait(WEB, ReclaimCause.RELEASED, NOW_S)
    reclaims.note_released("ml/net", 12.0, NOW_S - 0.1)
    assert reclaims.observe({WEB.uid: wait}, [], [], NOW_S) == []
    assert _codes(reclaims.observe({WEB.uid: wait}, [], [], NOW_S + 31))[0] == (
        CLUSTER,
        "Reclaiming",
    )
    wait.bound_s = NOW_S + 39
    start = ServiceStart(wait, 42.0)
    assert reclaims.observe({}, [start], [], NOW_S + 40) == []
    records = reclaims.observe({}, [], [], NOW_S + 44)
    whole = records[0][1]

    assert _codes(records) == [
        (CLUSTER, "Reclaimed"),
        ("ml", "Reclaimed"),
        (WEB.namespace, "Reclaimed"),
    ]
    assert whole.figures["trainers"] == {"ml/net": {"count": 1, "lostSeconds": 12.0}}
    assert whole.figures["stages"]["decide"] == {"median": 2.0, "max": 2.0}
    assert whole.figures["stages"]["free"] == {"median": 39.0, "max": 39.0}
    assert whole.figures["stages"]["total"] == {"median": 42.0, "max": 42.0}
    assert whole.text == ("1 of 1 service running, slowest 42.0 s; 1 trainer of 1 job evicted")
    assert reclaims.observe({}, [], [], NOW_S + 100) == []


def test_a_release_without_a_service_that_waits_is_no_burst() -> None:
    """The service was gone before it was seen."""
    reclaims = Reclaims()
    reclaims.note_released("ml/net", 12.0, NOW_S)

    assert reclaims.observe({}, [], [], NOW_S) == []
    assert reclaims.observe({}, [], [], NOW_S + 60) == []
    wait = ServiceWait(WEB, ReclaimCause.RELEASED, NOW_S + 61)
    reclaims.observe({WEB.uid: wait}, [], [], NOW_S + 61)
    (record, *_) = reclaims.observe({}, [], [], NOW_S + 70) or reclaims.observe(
        {}, [], [], NOW_S + 80
    )
    assert record[1].figures["trainers"] == {}


def test_a_record_names_a_bounded_number_of_services_and_jobs() -> None:
    """The rest is one sum."""
    reclaims = Reclaims()
    waits = {
        f"uid-{n}": ServiceWait(
            replace(WEB, name=f"s{n}-x", uid=f"uid-{n}", owner_uid=f"o{n}"),
            ReclaimCause.RELEASED,
            NOW_S,
        )
        for n in range(100)
    }
    for n in range(100):
        reclaims.note_released(f"ml/job-{n}", 0.0, NOW_S)
    reclaims.observe(waits, [], [], NOW_S)
    reclaims.observe({}, [], [], NOW_S + 1)
    records = reclaims.observe({}, [], [], NOW_S + 10)
    figures = records[0][1].figures

    assert len(figures["services"]) == len(figures["trainers"]) == 21
    assert sum(group["count"] for group in figures["services"].values()) == 100
    assert sum(group["count"] for group in figures["trainers"].values()) == 100


def test_what_each_namespace_sees_costs_no_look_at_all_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's many pods without an owner are as many groups, and a tick puts them into records."""
    looks = [0]
    merge = vars(reclaims_module)["_merge"]

    def counting(total: dict[str, float], group: dict[str, float]) -> None:
        looks[0] += 1
        merge(total, group)

    monkeypatch.setattr(reclaims_module, "_merge", counting)
    pods = [
        replace(WEB, namespace=f"team-{number % 50:02}", uid=str(number), owner_uid="")
        for number in range(1000)
    ]
    reclaims = Reclaims()
    waits = {pod.uid: ServiceWait(pod, ReclaimCause.RELEASED, NOW_S) for pod in pods}
    assert reclaims.observe(waits, [], [], NOW_S) == []
    records = dict(reclaims.observe(waits, [], [], NOW_S + 31))

    assert len(records) == 51
    assert looks[0] < 10 * len(pods)
    own = records["team-07"].figures["services"]
    assert {name: group["count"] for name, group in own.items()} == {
        f"team-07/{WEB.name}": 20,
        ELSEWHERE: 980,
    }
