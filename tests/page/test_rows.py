"""What rows say about jobs and nodes."""

from dataclasses import replace
from typing import Any

import pytest

from page import job_page, rows
from page.record_query import LoggedRecord
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import JobCondition, JobStatus, Pod, ServerSpec, Snapshot, Taint
from policy.names import Role, Tier
from policy.records import Record
from tests.support import builders

NO_ROOM = Record(5.0, "job ml/net", "NoRoom", "no node has room", {"target": 4}, "ml/net", 3.0)


def _row(pods: int = 2, record: Record | None = NO_ROOM, **fields: Any) -> dict[str, Any]:
    job = builders.job("net", 2, 6, cpu=9, **fields)
    trainers = tuple(builders.trainer(job, number, "n0") for number in range(pods))
    cluster = ClusterState.of(Snapshot((builders.node("n0"),), trainers, (job,)))
    return rows.job(cluster, job, record)


def test_a_job_says_what_it_has_and_why_no_more() -> None:
    """Trainers, target, share, fulfilment, and the newest decision."""
    row = _row(3)

    assert (row["trainers"], row["ready"], row["target"]) == (3, 3, 4)
    assert (row["code"], row["text"], row["since"]) == ("NoRoom", "no node has room", 3.0)
    assert (row["share"], row["fulfilment"], row["state"]) == (1.5, 0.25, "Running")


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({"pods": 1}, "Waiting", "NoRoom"),
        ({"record": None}, "Running", "Unknown"),
        ({"suspended": True}, "Suspended", "Suspended"),
        ({"error": "max is below min"}, "Invalid", "NoRoom"),
        (
            {"status": JobStatus(conditions=(JobCondition("Failed", "True", time_s=9.0),))},
            "Failed",
            "Failed",
        ),
    ],
)
def test_states_of_jobs(fields: dict[str, Any], state: str, code: str) -> None:
    """In a word."""
    row = _row(**fields)

    assert (row["state"], row["code"]) == (state, code)
    assert row["since"] == (9.0 if state == "Failed" else 0.0 if code == "Unknown" else 3.0)


def test_a_job_of_one_size_has_no_fulfilment() -> None:
    """There is nothing between min and max."""
    job = builders.job("net", 2, 2)
    cluster = ClusterState.of(Snapshot((), (), (job,)))

    assert rows.job(cluster, job, None)["fulfilment"] is None


def test_parameter_servers_are_counted() -> None:
    """Those that are ready, of those that it requests."""
    job = builders.job("net", servers=ServerSpec(2, builders.shape(1)))
    server = builders.trainer(
        job, -1, "n0", Tier.SUPPORT, role=Role.PSERVER, server=0, name="net-ps-0"
    )
    cluster = ClusterState.of(Snapshot((builders.node("n0"),), (server,), (job,)))
    row = rows.job(cluster, job, None)
    document = job_page.document(cluster, job, None, shares=True)

    assert (row["servers"], row["serversReady"], row["trainers"]) == (2, 1, 0)
    assert [server["index"] for server in document["parameterServers"]] == [0]
    assert document["members"] == []


def _service(pod: Pod) -> Pod:
    """The same pod as one of a service."""
    return replace(pod, role=None, tier=None, job="", owner_uid="")


def test_a_node_says_who_uses_it() -> None:
    """Services, guaranteed and surplus trainers; flags for what keeps pods away."""
    job = builders.job("net")
    node = builders.node("n0", taints=(Taint("a", "", "NoSchedule"),), unschedulable=True)
    pods = [
        builders.trainer(job, 0, "n0", Tier.GUARANTEED),
        builders.trainer(job, 1, "n0", deleting=True),
        _service(builders.trainer(job, 2, "n0")),
    ]
    row, labels = rows.node(node, pods, ["cpu"])

    assert row == [
        "n0",
        rows.READY | rows.CORDONED | rows.TAINTED | rows.LEAVING,
        [[18000, 5000, 5000, 5000]],
    ]
    assert labels == {}


def test_devices_are_shown_and_pods_are_not() -> None:
    """Cpu and memory first, at most six in all."""
    devices = {f"vendor.com/{letter}": 1 for letter in "fedcba"}
    names = rows.resources(
        {"pods": 110, "hugepages-2Mi": 0, "hugepages-1Gi": 1, "cpu": 1, **devices}
    )

    assert names == (
        "cpu",
        "memory",
        "vendor.com/a",
        "vendor.com/b",
        "vendor.com/c",
        "vendor.com/d",
    )


def test_who_waits() -> None:
    """Services that nothing but room keeps waiting, and trainers."""
    job = builders.job("net")
    pods = (
        builders.trainer(job, 0),
        _service(builders.trainer(job, 1, created_s=7.0)),
        _service(builders.trainer(job, 2, created_s=5.0)),
        _service(builders.trainer(job, 3, gated=True)),
    )
    cluster = ClusterState.of(Snapshot((), pods, (job,)))

    assert rows.waiting(cluster) == {"services": 2, "oldestSince": 5.0, "trainers": 1}


def test_what_a_job_has_lost() -> None:
    """What it gave to bursts, each once, and trainers that others ended or that failed."""
    given = {"trainers": {"ml/net": {"count": 1, "lostSeconds": 2.0}, "ml/b": {"lostSeconds": 9.0}}}
    records = [
        Record(1, "job ml/net", "Growing", figures={"target": 3}, job="ml/net"),
        Record(
            2, "reclaim x", "Reclaiming", figures={"trainers": {"ml/net": {"lostSeconds": 1.0}}}
        ),
        Record(3, "reclaim x", "Reclaimed", figures=given),
        Record(4, "pod ml/net-trainer-1", "Preempted", figures={"lostSeconds": 2.0}, job="ml/net"),
        Record(5, "pod ml/net-trainer-2", "Evicted", figures={"lostSeconds": 4.5}, job="ml/net"),
        Record(
            6, "pod ml/net-trainer-3", "TrainerFailed", figures={"lostSeconds": "?"}, job="ml/net"
        ),
    ]
    history = job_page.history(
        "ml/net", [LoggedRecord("ml", record) for record in records], [(3.5, 2)]
    )

    assert history["lostSeconds"] == 6.5
    assert history["trainersOverTime"] == [(1, 3), (3.5, 2)]
    assert [record["code"] for record in history["history"]][-1] == "TrainerFailed"
