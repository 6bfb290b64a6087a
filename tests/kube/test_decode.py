"""API objects as records, from payloads in the shape of a 1.36 server's."""

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest

from kube import decode
from policy.cluster.snapshot import (
    ANYWHERE,
    JobCondition,
    JobStatus,
    Node,
    Phase,
    Requirement,
    ServerSpec,
    Taint,
    Toleration,
    TrainerAccounting,
)
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_SERVERS,
    LABEL_MASTER,
    MASTER_CONTAINER,
    Role,
    Tier,
)
from policy.priority_classes import PriorityClassValues
from tests.kube.items import plain_pod

VECTORS = Path(__file__).parent.parent / "vectors" / "kube"
GIB = 1 << 30


def vector(name: str) -> Any:
    """A payload; a new copy each time."""
    return orjson.loads((VECTORS / f"{name}.json").read_bytes())


def test_a_running_trainer_is_read_whole() -> None:
    """Identity, place, tier, times and ownership of a trainer pod."""
    pod = decode.pod(vector("pod"))

    assert pod.key == "training/resnet-trainer-7"
    assert pod.uid == "3f0c6a52-8d1b-4a55-9c2e-6a0f3e8f9d11"
    assert (pod.node, pod.nominated) == ("node-017", "")
    assert (pod.phase, pod.ready, pod.terminal) == (Phase.RUNNING, True, False)
    assert (pod.priority, pod.preempts) == (-1000, False)
    assert (pod.job, pod.role, pod.tier, pod.trainer_id) == (
        "resnet",
        Role.TRAINER,
        Tier.SURPLUS,
        7,
    )
    assert pod.owner_uid == "c1d2e3f4-0000-4a4a-8b8b-112233445566"
    assert pod.started_s - pod.created_s == 1.0
    assert pod.created_s == 1_795_169_472.0
    assert (pod.gated, pod.deleting, pod.disrupted, pod.ended_s) == (False, False, False, 0)


def test_requests_are_counted_as_the_scheduler_counts_them() -> None:
    """Container 5 + sidecar 0.1 < warm-up 6 + sidecar 0.1; overhead on top; no marker resource."""
    assert decode.pod(vector("pod")).requests == {
        "cpu": 6_100 + 50,
        "memory": 8 * GIB + (128 << 20),
        "nvidia.com/gpu": 1,
        "pods": 1,
    }


def test_selector_and_affinity_are_folded_into_terms() -> None:
    """The node selector joins every alternative; matchFields keep their key."""
    constraints = decode.pod(vector("pod")).constraints

    gpu = Requirement("pool", "In", ("gpu",))
    assert constraints.terms == (
        (Requirement("zone", "In", ("a", "b")), gpu),
        (Requirement("metadata.name", "NotIn", ("node-001",)), gpu),
    )
    assert Toleration("gpu", "Equal", "yes", "") in constraints.tolerations


def test_records_share_what_looks_alike() -> None:
    """Two pods of one template keep one map of requests and one set of constraints."""
    first, second = vector("pod"), vector("pod")
    second["metadata"]["uid"] = "another"
    first_pod, second_pod = decode.pod(first), decode.pod(second)

    assert first_pod.requests is second_pod.requests
    assert first_pod.constraints is second_pod.constraints
    assert first_pod.node is second_pod.node


def test_a_bare_pod_has_defaults() -> None:
    """Missing and null fields are what the API's defaults are."""
    obj = plain_pod(conditions=None, containerStatuses=None)
    obj["metadata"]["creationTimestamp"] = None
    pod = decode.pod(obj)

    assert pod.requests == {"pods": 1}
    assert pod.constraints is ANYWHERE
    assert (pod.phase, pod.scheduler, pod.preempts) == (Phase.PENDING, "default-scheduler", True)
    assert (pod.job, pod.role, pod.tier, pod.trainer_id, pod.created_s) == ("", None, None, -1, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12.5", 12.5), ("", 0), ("soon", 0), ("-3", 0), ("nan", 0), ("inf", 0), ("1e308", 2_592_000)],
)
def test_uncommitted_work_is_a_number_of_seconds_or_none(text: str, seconds: float) -> None:
    """An annotation is anybody's to write: nonsense counts as nothing, and as no more than a month."""
    obj = plain_pod()
    obj["metadata"]["annotations"] = {"edl.training/uncommitted-seconds": text}

    assert decode.pod(obj).uncommitted_s == seconds


def test_the_pod_that_carries_a_master_is_known_with_its_address() -> None:
    """By its sidecar: a label can be added later. Others' addresses are not kept: there are thousands."""
    pod = plain_pod(podIP="10.1.2.3")
    plain = decode.pod(pod)
    pod["metadata"]["labels"] = {LABEL_MASTER: "true"}
    claiming = decode.pod(pod)
    pod["spec"]["initContainers"] = [{"name": MASTER_CONTAINER}]
    carrier = decode.pod(pod)
    early = decode.pod({**pod, "status": {}})

    assert (plain.master, plain.address) == (False, "")
    assert (claiming.master, claiming.address) == (False, "")
    assert (carrier.master, carrier.address) == (True, "10.1.2.3")
    assert (early.master, early.address) == (True, "")


def test_a_request_for_a_master_is_read() -> None:
    """With the service account of the pods; an invalid value is an error of the Job."""
    job: dict[str, Any] = {
        "metadata": {"namespace": "ml", "name": "net", "uid": "u", "annotations": {}},
        "spec": {"template": {"spec": {"serviceAccountName": "trainers"}}},
    }
    jobs = []
    for text in ("true", "maybe"):
        job["metadata"]["annotations"] = {
            ANNOTATION_MIN: "1",
            ANNOTATION_MAX: "2",
            ANNOTATION_MASTER: text,
        }
        read = decode.job(job)
        assert read is not None
        jobs.append(read)

    assert (jobs[0].master, jobs[0].account, jobs[0].error) == (True, "trainers", "")
    assert "edl.training/master is 'maybe'" in jobs[1].error


def test_a_request_for_parameter_servers_is_read() -> None:
    """With the master's settings; an invalid value is an error of the Job."""
    annotations = {
        ANNOTATION_MIN: "1",
        ANNOTATION_MAX: "2",
        ANNOTATION_MASTER: "true",
        ANNOTATION_MASTER_STEPS: "500",
        ANNOTATION_SERVERS: "3",
    }
    obj: dict[str, Any] = {
        "metadata": {"namespace": "ml", "name": "net", "uid": "u", "annotations": annotations},
        "spec": {},
    }
    good = decode.job(obj)
    annotations[ANNOTATION_SERVERS] = "none"
    bad = decode.job(obj)

    assert good is not None
    assert bad is not None
    assert good.servers == ServerSpec(3, {"cpu": 500, "memory": 2**30, "pods": 1})
    assert good.master_settings == {ANNOTATION_MASTER_STEPS: "500"}
    assert bad.servers is None
    assert f"{ANNOTATION_SERVERS} is 'none'" in bad.error


def test_signs_of_leaving_are_read() -> None:
    """Deletion, disruption, gates and nominations."""
    obj = plain_pod(
        phase="Failed",
        nominatedNodeName="n-2",
        conditions=[
            {"type": "DisruptionTarget", "status": "True"},
            {"type": "Ready", "status": "False"},
        ],
    )
    obj["metadata"]["deletionTimestamp"] = "2026-11-20T10:11:12Z"
    obj["metadata"]["ownerReferences"] = [{"uid": "other"}]
    obj["spec"]["schedulingGates"] = [{"name": "edl.training/wait"}]
    pod = decode.pod(obj)

    assert (pod.deleting, pod.disrupted, pod.gated, pod.ready) == (True, True, True, False)
    assert (pod.nominated, pod.owner_uid, pod.terminal) == ("n-2", "", True)
    assert pod.leaves_by_s == decode.seconds("2026-11-20T10:11:12Z")


def test_a_pod_ended_when_its_last_container_did() -> None:
    """The latest finishedAt of a terminal pod."""
    ends = ["2026-11-20T10:00:00Z", "2026-11-20T10:00:09Z"]
    statuses = [{"state": {"terminated": {"finishedAt": end}}} for end in ends]
    pod = decode.pod(plain_pod(phase="Succeeded", containerStatuses=statuses))

    assert pod.ended_s == decode.seconds(ends[1])


def test_a_pod_without_containers_ended_with_its_last_condition() -> None:
    """A node that refuses a pod leaves conditions only."""
    conditions = [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-11-20T10:00:00Z"}
    ]
    pod = decode.pod(plain_pod(phase="Failed", conditions=conditions))

    assert pod.ended_s == decode.seconds("2026-11-20T10:00:00Z")


def test_a_malformed_quantity_counts_as_nothing() -> None:
    """It neither raises nor hides other quantities, the second time either."""
    obj = plain_pod()
    obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "many", "memory": "1Gi"}}

    assert decode.pod(obj).requests == {"memory": GIB, "pods": 1}
    assert decode.pod(obj).requests == {"memory": GIB, "pods": 1}


def test_a_node_is_read_whole() -> None:
    """Allocatable, labels, taints, cordon and readiness."""
    node = decode.node(vector("node"))

    assert node.name == "node-017"
    assert node.allocatable["cpu"] == 17_500
    assert node.allocatable["memory"] == 96 * GIB
    assert (node.allocatable["pods"], node.allocatable["nvidia.com/gpu"]) == (110, 4)
    assert node.labels["pool"] == "gpu"
    assert node.taints == (
        Taint("gpu", "yes", "NoSchedule"),
        Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),
    )
    assert (node.unschedulable, node.ready) == (True, True)


def test_a_node_that_says_nothing_is_not_ready() -> None:
    """A node without a status is not ready; a malformed amount counts as nothing."""
    assert decode.node({"metadata": {"name": "n"}}) == Node("n", {}, ready=False)
    malformed = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "?"}}}
    assert decode.node(malformed) == Node("n", {}, ready=False)


def test_an_elastic_job_is_read_whole() -> None:
    """Bounds, share, books, status, and one trainer's needs with limits standing in."""
    job = decode.job(vector("job"))

    assert job is not None
    assert (job.key, job.resource_version) == ("training/resnet", "184300")
    assert (job.min_trainers, job.max_trainers, job.weight, job.queue) == (2, 60, 3, "research")
    assert job.requests == {"cpu": 5000, "memory": 8 * GIB, "nvidia.com/gpu": 1, "pods": 1}
    assert job.constraints.terms == ((Requirement("pool", "In", ("gpu",)),),)
    assert (job.managed, job.parallelism, job.suspended, job.deleting) == (True, 5, False, False)
    assert (job.backoff_limit, job.deadline_s) == (4, 86_400)
    assert job.accounting == TrainerAccounting(
        next_id=8, open=frozenset({3, 4, 5, 6, 7}), failed=1, disrupted=2
    )
    assert job.accounting_text.startswith('{"next":8')
    assert job.status == JobStatus(
        active=5,
        ready=4,
        terminating=1,
        failed=1,
        start_s=decode.seconds("2026-11-20T10:00:01Z"),
        conditions=(
            JobCondition(
                "Suspended",
                "False",
                "JobResumed",
                "Job resumed",
                decode.seconds("2026-11-20T10:00:01Z"),
            ),
        ),
    )
    assert job.template == vector("job")["spec"]["template"]
    assert job.error == ""


def test_a_job_without_bounds_is_none_of_ours() -> None:
    """A Job with neither annotation is not decoded."""
    obj = vector("job")
    del obj["metadata"]["annotations"]

    assert decode.job(obj) is None


@pytest.mark.parametrize(
    ("annotations", "spec", "named"),
    [
        ({ANNOTATION_MAX: "x"}, {}, ANNOTATION_MAX),
        ({ANNOTATION_MIN: "70"}, {}, ANNOTATION_MIN),
        ({"edl.training/weight": "-1"}, {}, "edl.training/weight"),
        ({}, {"completionMode": "Indexed"}, "spec.completionMode"),
        (
            {},
            {"template": {"spec": {"resourceClaims": [{"name": "gpu"}]}}},
            "spec.template.spec.resourceClaims: EDL does not count",
        ),
    ],
)
def test_a_job_that_contradicts_itself_is_kept_with_its_error(
    annotations: dict[str, str], spec: dict[str, Any], named: str
) -> None:
    """It is reported but not planned: it has no bounds, and its error names the field."""
    obj = copy.deepcopy(vector("job"))
    obj["metadata"]["annotations"] |= annotations
    obj["spec"] |= spec
    job = decode.job(obj)

    assert job is not None
    assert named in job.error
    assert (job.min_trainers, job.max_trainers, job.weight, job.queue) == (0, 0, 1, "")


def test_a_bare_job_has_the_defaults_of_the_api() -> None:
    """batch/v1: parallelism 1, backoffLimit 6, no deadline, the built-in controller."""
    annotations = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "2"}
    metadata = {"namespace": "d", "name": "j", "uid": "u", "annotations": annotations}
    job = decode.job({"metadata": metadata, "spec": {"template": {}}, "status": None})

    assert job is not None
    assert (job.parallelism, job.backoff_limit, job.deadline_s, job.managed) == (1, 6, 0, False)
    assert (job.accounting, job.accounting_text, job.status) == (
        TrainerAccounting(),
        "",
        JobStatus(),
    )


@pytest.mark.parametrize("number", ["3", None, [], {"a": 1}, 1.5])
def test_a_number_that_is_none_is_the_default(number: object) -> None:
    """One such Job, which no API server stores, ended every plan: no other has a part in it."""
    annotations = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "2"}
    metadata = {"namespace": "d", "name": "j", "uid": "u", "annotations": annotations}
    fields = dict.fromkeys(("parallelism", "backoffLimit", "activeDeadlineSeconds"), number)
    job = decode.job({"metadata": metadata, "spec": {"template": {}, **fields}})

    assert job is not None
    assert (job.parallelism, job.backoff_limit, job.deadline_s) == (1, 6, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T01:00:00.5+01:00", 0.5),
        (None, 0.0),
        ("", 0.0),
        ("yesterday", 0.0),
        ("1970-01-01T00:01:00", 0.0),
    ],
)
def test_times_are_seconds_since_the_epoch(text: str | None, expected: float) -> None:
    """RFC 3339 with its zone; anything else is 0."""
    assert decode.seconds(text) == expected


def test_a_configmap_is_read() -> None:
    """Its name and its data."""
    metadata = {"namespace": "edl-system", "name": "p", "uid": "u", "resourceVersion": "9"}

    assert decode.configmap({"metadata": metadata, "data": {"a": "b"}}) == decode.ConfigMap(
        "edl-system", "p", "u", {"a": "b"}
    )
    assert decode.configmap({"metadata": metadata}).data == {}


def test_a_priority_class_is_read() -> None:
    """Value and preemption policy, which defaults to preempting."""
    metadata = {"name": "edl-surplus", "uid": "u"}
    full = {"metadata": metadata, "value": -1000, "preemptionPolicy": "Never"}

    assert decode.priority_class(full) == decode.PriorityClass(
        "edl-surplus", PriorityClassValues(-1000, "Never")
    )
    assert decode.priority_class({"metadata": metadata}) == decode.PriorityClass(
        "edl-surplus", PriorityClassValues(0, "PreemptLowerPriority")
    )
