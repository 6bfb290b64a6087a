"""`python -m admin check`: whether a cluster is ready for EDL, said before anything is installed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from admin import before, checks
from admin.findings import Finding, Level, failed
from admin.reader import ENDPOINTSLICES, Reader
from kube import request
from tests.admin.cluster import NOW, AdminCluster


@pytest.fixture
def cluster() -> AdminCluster:
    """A cluster that is ready."""
    api = AdminCluster()
    api.put(request.NAMESPACES, {"metadata": {"name": "ml"}})
    stamp = NOW.isoformat()
    lease = {"metadata": {"name": "n0"}, "spec": {"renewTime": stamp}}
    api.put(request.LEASES, lease, "kube-node-lease")
    labels = {"kubernetes.io/service-name": "kubernetes"}
    endpoints = {"metadata": {"name": "kubernetes", "labels": labels}, "ports": [{"port": 6443}]}
    api.put(ENDPOINTSLICES, endpoints, "default")
    return api


def _check(
    api: AdminCluster,
    ahead_s: float = 0.0,
) -> list[Finding]:
    now = NOW + timedelta(seconds=ahead_s)
    return checks.check(Reader(api), now, ["ml"])


def _bad(findings: list[Finding]) -> list[str]:
    return [
        f"{finding.subject}: {finding.text}"
        for finding in findings
        if finding.level in (Level.WARNING, Level.ERROR)
    ]


def test_a_ready_cluster_has_no_errors(cluster: AdminCluster) -> None:
    """And nothing is created in it."""
    before_objects = cluster.send(request.list_page(request.JOBS))
    findings = _check(cluster)

    assert _bad(findings) == []
    assert not failed(findings)
    assert Finding(Level.OK, "namespace ml", "admits masters of jobs") in findings
    assert cluster.send(request.list_page(request.JOBS)) == before_objects


def _old(api: AdminCluster) -> None:
    api.minor = "34+"


def _without_managed_by(api: AdminCluster) -> None:
    api.drops_managed_by = True


def _without_rights(api: AdminCluster) -> None:
    api.forbidden = {"clusterroles"}


def _colliding(api: AdminCluster) -> None:
    api.put(request.PRIORITYCLASSES, {"metadata": {"name": "edl-surplus"}, "value": 5})


def _low_default(api: AdminCluster) -> None:
    body = {"metadata": {"name": "low"}, "value": -10, "globalDefault": True}
    api.put(request.PRIORITYCLASSES, body)


def _second(api: AdminCluster) -> None:
    labels = {"app.kubernetes.io/part-of": "edl"}
    body = {"metadata": {"name": "edl-reconciler", "labels": labels}}
    api.put(request.DEPLOYMENTS, body, "team-a")


def _second_by_webhook(api: AdminCluster) -> None:
    labels = {"app.kubernetes.io/part-of": "edl"}
    service = {"namespace": "team-b", "name": "edl-webhook"}
    body = {
        "metadata": {"name": "edl-webhook", "labels": labels},
        "webhooks": [{"name": "jobs", "clientConfig": {"service": service}}],
    }
    api.put(request.MUTATINGWEBHOOKS, body)


def _forbidding(api: AdminCluster) -> None:
    api.refusals = {"/api/v1/namespaces/ml/pods": 'violates PodSecurity "restricted:latest"'}


def _without_services(api: AdminCluster) -> None:
    api.refusals = {"/api/v1/namespaces/ml/services": "exceeded quota: count/services"}


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (_old, "Kubernetes: v1.34+.3; EDL needs 1.35 or newer"),
        (_without_managed_by, "managedBy: the API server drops spec.managedBy"),
        (
            _without_rights,
            "rights: you may not create clusterroles, escalate clusterroles, bind clusterroles",
        ),
        (_colliding, "priority classes: edl-surplus exists with value 5"),
        (_low_default, "priority classes: low is the default class and has value -10"),
        (_second, "another EDL: also installed in team-a"),
        (_second_by_webhook, "another EDL: also installed in team-b"),
        (
            _forbidding,
            "namespace ml: masters of jobs would be refused: POST /api/v1/namespaces/ml/pods: 403: ",
        ),
        (_without_services, "namespace ml: a Service of masters of jobs would be refused: "),
    ],
)
def test_what_is_wrong_is_one_line_with_the_way_out(
    cluster: AdminCluster, break_it: Callable[[AdminCluster], None], line: str
) -> None:
    """One error for one fault, and none besides."""
    break_it(cluster)
    findings = _check(cluster)
    (bad,) = _bad(findings)

    assert bad.startswith(line)
    assert failed(findings)


@pytest.mark.parametrize(("ahead_s", "word"), [(30.0, "30 s behind"), (-30.0, "30 s ahead")])
def test_clocks_that_differ_are_named(cluster: AdminCluster, ahead_s: float, word: str) -> None:
    """The API server's beside this machine's: either may be wrong."""
    (bad,) = _bad(_check(cluster, ahead_s))

    assert bad.startswith(f"clock: the API server's clock is {word} of this machine's")


@pytest.mark.parametrize(
    ("renewed_s", "text"),
    [
        ({"n0": 1000.0, "n1": 995.0}, "2 agree with the API server"),
        ({"n0": 1000.0, "n1": 1030.0}, "n1 are ahead"),
        ({f"n{i}": 0.0 for i in range(7)}, "n0, n1, n2, n3, n4 and 2 more are more than"),
    ],
)
def test_clocks_of_nodes_are_those_of_their_leases(renewed_s: dict[str, float], text: str) -> None:
    """A kubelet writes its own time every 10 s."""
    assert before.kubelet_clocks(renewed_s, 1000.0).text.startswith(text)


def test_what_may_not_be_read_is_said(cluster: AdminCluster) -> None:
    """The other checks go on."""
    cluster.forbidden = {"priorityclasses"}
    findings = _check(cluster)

    assert "priority classes: not checked: " in " ".join(_bad(findings))
    assert [finding for finding in findings if finding.subject == "webhooks"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (None, "kube-scheduler is not visible"),
        ({"hostNetwork": True}, "runs in the host network"),
        ({}, "runs in the pod network"),
    ],
)
def test_ways_beside_the_scheduler(spec: dict[str, bool] | None, text: str) -> None:
    """Managed, as with kubeadm, or self-hosted; other pods do not matter."""
    pods: list[dict[str, Any]] = [{"metadata": {"name": "dns"}}]
    if spec is not None:
        pods.append({"metadata": {"labels": {"component": "kube-scheduler"}}, "spec": spec})

    assert before.schedulers(pods).text.startswith(text)


def test_an_installation_makes_it_an_upgrade(cluster: AdminCluster) -> None:
    """That is no error; webhooks of others show that the API server reaches the cluster's pods."""
    cluster.install()
    hook = {"clientConfig": {"service": {"name": "x", "namespace": "y"}}}
    cluster.put(request.MUTATINGWEBHOOKS, {"metadata": {"name": "mesh"}, "webhooks": [hook]})
    findings = _check(cluster)

    assert not failed(findings)
    texts = {finding.subject: finding.text for finding in findings}
    assert texts["another EDL"] == "installed in edl-system: this would be an upgrade"
    assert texts["webhooks"] == "the API server calls others in the cluster (mesh)"
