"""Pods whose room was given away twice."""

from dataclasses import replace

import orjson

from e2e.measure import pods
from e2e.measure.criteria import criteria, measure
from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Recorder
from e2e.measure.refusals import Refusal, refusals
from policy.cluster.snapshot import Phase
from tests.e2e.runs import lifetime, timeline, view


def _refused(kind: Kind, uid: str, at_s: float, job: str = "") -> PodLifetime:
    """Created and bound a second before it was refused."""
    pod = lifetime(kind, uid=uid, job=job, created_s=at_s - 1, bound_s=at_s - 1, ended_s=at_s)
    return replace(pod, refused_s=at_s)


def test_the_next_pod_of_its_kind_and_job_is_in_its_place() -> None:
    """One for each; an earlier one, one of another job and one of another kind are not."""
    run = timeline(
        _refused(Kind.SERVICE, "b", 12.0),
        _refused(Kind.SERVICE, "a", 11.0),
        _refused(Kind.TRAINER, "c", 11.5, job="net"),
        lifetime(Kind.SERVICE, uid="old", created_s=9.0, running_s=9.5),
        lifetime(Kind.SERVICE, uid="first", created_s=11.1, running_s=13.0),
        lifetime(Kind.SERVICE, uid="second", created_s=12.1, running_s=15.0),
        lifetime(Kind.TRAINER, uid="other", job="other", created_s=13.0, running_s=14.0),
    )
    assert refusals(run) == (
        Refusal(Kind.SERVICE, "node-000", 11.0, 3.0),
        Refusal(Kind.TRAINER, "node-000", 11.5, None),
        Refusal(Kind.SERVICE, "node-000", 12.0, 4.0),
    )


def test_a_run_says_how_many_and_what_a_service_paid() -> None:
    """None are allowed; the time of the worst service is there where there is one."""
    run = timeline(
        _refused(Kind.SERVICE, "a", 11.0),
        lifetime(Kind.SERVICE, uid="first", created_s=11.1, running_s=13.0),
    )
    figures = measure(run, min_trainers=2, warm_up_s=0, demo_s=1)
    values = {criterion.name: criterion for criterion in criteria(figures)}
    assert orjson.dumps(figures.refused) == b'{"service":1}'
    assert not values["pods_refused_by_nodes"].holds
    assert values["refused_service_worst_s"].value == 3.0

    quiet = criteria(measure(timeline(), min_trainers=2, warm_up_s=0, demo_s=1))
    names = {criterion.name: criterion.holds for criterion in quiet}
    assert names["pods_refused_by_nodes"]
    assert "refused_service_worst_s" not in names


def test_a_refusal_is_read_from_the_pod_and_recorded() -> None:
    """A kubelet's reason, not any failure."""
    body = {
        "metadata": {"uid": "u", "name": "n", "namespace": "services"},
        "spec": {"containers": [], "nodeName": "node-000"},
        "status": {"phase": "Failed", "reason": "OutOfcpu"},
    }
    assert pods.view(body).refused
    assert not pods.view(body | {"status": {"phase": "Failed", "reason": "Evicted"}}).refused

    recorder = Recorder(lambda: 7.0)
    bound = view(Kind.SERVICE, node="node-000")
    failed = replace(bound, phase=Phase.FAILED, refused=True)
    recorder.change(None, bound)
    recorder.change(bound, failed)
    recorder.change(failed, replace(failed))
    (pod,) = recorder.timeline({}).lifetimes
    assert (pod.refused_s, pod.ended_s) == (7.0, 7.0)
