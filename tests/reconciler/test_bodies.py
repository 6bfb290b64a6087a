"""Exact bodies of requests: the API server silently drops fields that it does not know."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from kube import errors, request
from kube.request import JOBS, Request
from policy.cluster import trainer_accounting
from policy.cluster.snapshot import Job, JobCondition, JobStatus, TrainerAccounting
from policy.names import Tier
from policy.scheduling import Scheduling
from reconciler.jobs import status
from reconciler.jobs.writer import JobUpdate, JobWriter
from reconciler.manifests import master as master_manifests
from reconciler.manifests import server as server_manifests
from reconciler.manifests import trainer as trainer_manifests
from reconciler.records.events import Event, EventRecorder
from tests.reconciler.server import Clock, Instant
from tests.reconciler.waiting import Writers, until
from tests.support.builders import NOW_S, cluster_state, job, servers

MARKED = Scheduling(marked=True)
_FILE = Path(__file__).with_name("bodies.yaml")
_DOCUMENTS = yaml.safe_load_all(_FILE.read_text())
BODIES = {name: body for document in _DOCUMENTS for name, body in document.items()}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"team": "vision"}, "annotations": {"a": "b"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "net:1"}]},
}
NAME = "net-edl-master"
ASKED = servers(2, 0.5, 1, "nets")
JOB = replace(
    job("net", 2),
    template_json=orjson.dumps(TEMPLATE),
    account="data",
    servers=ASKED,
    resource_version="7",
    master_settings={"edl.training/master-steps": "500"},
)


def _trainer() -> dict[str, Any]:
    addresses = ["http://10.96.0.2:8791", "http://10.96.0.3:8791"]
    endpoints = trainer_manifests.endpoint_annotations(
        JOB, "http://10.96.0.1:8790", addresses, NAME
    )
    return trainer_manifests.pod(
        JOB, 3, Tier.GUARANTEED, "n0", 10, endpoints=endpoints, snapshot=NAME, scheduling=MARKED
    )


def _server() -> dict[str, Any]:
    return server_manifests.pod(JOB, ASKED, 1, "n0", 10, secret=NAME, scheduling=MARKED)


def _status() -> dict[str, Any]:
    text = "the master reported that all work is done"
    condition = JobCondition("Complete", "True", "MasterSaysDone", text, NOW_S + 60)
    ended = JobStatus(
        active=1,
        ready=2,
        terminating=3,
        succeeded=4,
        failed=5,
        start_s=NOW_S,
        completion_s=NOW_S + 60,
        conditions=(condition,),
    )
    return status.patch(ended)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("trainer", _trainer),
        ("budget", lambda: trainer_manifests.disruption_budget(JOB)),
        ("config_map", lambda: master_manifests.config_map(JOB, NAME)),
        ("secret", lambda: master_manifests.secret(JOB, NAME, b"key")),
        ("role", lambda: master_manifests.role(JOB, NAME)),
        ("role_binding", lambda: master_manifests.role_binding(JOB, NAME)),
        ("network_policy", lambda: master_manifests.network_policy(JOB, NAME, "edl-system")),
        ("service", lambda: master_manifests.service(JOB, NAME)),
        ("server_service", lambda: server_manifests.service(JOB, 1)),
        ("server", _server),
        ("status", _status),
    ],
)
def test_a_body_is_what_the_api_server_understands(
    name: str, make: Callable[[], dict[str, Any]]
) -> None:
    """Each field by the name that the API has for it."""
    assert make() == BODIES[name]


def test_an_event_is_what_kubectl_describe_shows() -> None:
    """On the Job, by EDL, at the time it was written."""
    clock = Clock()
    api = Instant(clock)
    recorder = EventRecorder(api, "edl-test", clock.now)
    recorder.record(Event(JOB, "TrainersMade", "created 1 surplus trainers"), 0.0)
    recorder.start()
    recorder.stop()
    until(lambda: api.writes)
    (written,) = api.writes
    body = orjson.loads(written.body)
    name = body["metadata"].pop("name")

    assert written.path == "/api/v1/namespaces/ml/events"
    assert name.startswith("net.")
    assert len(name) == len("net.") + 16
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "ml"},
        "involvedObject": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "namespace": "ml",
            "name": "net",
            "uid": "uid-net",
        },
        "reason": "TrainersMade",
        "message": "created 1 surplus trainers",
        "type": "Normal",
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
        "source": {"component": "edl-test"},
        "reportingComponent": "edl.training/reconciler",
        "reportingInstance": "edl-test",
    }


class Refusing:
    """An API server that records requests and refuses them."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def send(self, api_request: Request) -> bytes:
        """See `kube.api.Api`."""
        self.asked.append(api_request)
        raise errors.Conflict("changed", status=409)

    def stream(self, api_request: Request) -> Any:
        """Nobody watches here."""
        raise AssertionError(api_request.line)


OPENED, _ = trainer_accounting.reserve(TrainerAccounting(), 1)
_PATH = "/metadata/annotations/edl.training~1books"


def _asked(write: str, owner: Job) -> Request:
    """The only request that a writer sends."""
    api = Refusing()
    writer = JobWriter(api, cluster_state(jobs=[owner]))
    with Writers(1) as pool:
        if write == "accounting":
            assert writer.write_accounting([(owner, OPENED)], pool) != [None]
        elif write == "report":
            report = JobUpdate(owner, JobStatus(active=1), trainer_accounting.serialize(OPENED))
            assert writer.write_updates([report], pool) == [False]
        else:
            assert not writer.write_parallelism(owner, 3)
    (api_request,) = api.asked
    return api_request


@pytest.mark.parametrize(
    ("before", "test"),
    [
        ("", {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}),
        ("old", {"op": "test", "path": _PATH, "value": "old"}),
    ],
)
def test_books_are_replaced_if_nobody_else_did(before: str, test: dict[str, str]) -> None:
    """The first ones are written on the version of the Job that was read."""
    patch = _asked("accounting", replace(JOB, accounting_text=before))

    assert (patch.method, patch.path) == ("PATCH", "/apis/batch/v1/namespaces/ml/jobs/net")
    assert patch.content_type == "application/json-patch+json"
    assert orjson.loads(patch.body) == [
        test,
        {"op": "add", "path": _PATH, "value": trainer_accounting.serialize(OPENED)},
    ]


def test_status_and_books_are_one_patch() -> None:
    """Of the version that was read; the annotation is left out where it is right."""
    text = trainer_accounting.serialize(OPENED)
    differs = _asked("report", JOB)
    same = _asked("report", replace(JOB, accounting_text=text))
    counts = status.patch(JobStatus(active=1))

    for patch in (differs, same):
        assert patch.path == "/apis/batch/v1/namespaces/ml/jobs/net/status"
        assert patch.content_type == "application/merge-patch+json"
    annotations = {"edl.training/books": text}
    version = {"resourceVersion": "7"}
    assert orjson.loads(differs.body) == {
        "metadata": {**version, "annotations": annotations},
        **counts,
    }
    assert orjson.loads(same.body) == {"metadata": version, **counts}


def test_parallelism_is_one_field_of_this_very_job() -> None:
    """Its uid goes along, so that a namesake is refused."""
    patch = _asked("parallelism", JOB)

    assert patch.path == request.get(JOBS, "ml", "net").path
    assert orjson.loads(patch.body) == {"spec": {"parallelism": 3}, "metadata": {"uid": "uid-net"}}
