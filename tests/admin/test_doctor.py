"""`python -m admin doctor` and `remains`: whether EDL is well, and what is left of it."""

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from admin import after, checks, removal
from admin.findings import Finding, Level, failed, report
from admin.reader import Reader
from admin.servers import UnreachableError
from kube import request
from policy.cluster.snapshot import Node, Pod
from policy.names import MANAGER, SYSTEM_NAMESPACE, TRAINER_RESOURCE
from runtime import certs
from tests.admin.cluster import NOW, AdminCluster
from tests.reconciler import objects

PAGES: dict[str, dict[str, Any]] = {
    "edl-webhook-1": {
        "synced": {"configmaps": True},
        "policy": {"version": "abc", "source": "configmap", "error": ""},
        "certificate": {"expires": "2031-01-01", "error": ""},
    },
    "edl-extender-1": {
        "synced": True,
        "watch_age_seconds": 3.0,
        "policy": {"version": "abc", "source": "configmap", "error": ""},
        "last_requests": {"filter": "2030-05-01T11:59:00Z", "preempt": "never"},
    },
    "edl-reconciler-1": {
        "leader": True,
        "synced": True,
        "watch_age_seconds": 3.0,
        "ticks": {"age_seconds": 1.0, "failing_seconds": 0.0},
        "policy": {"version": "abc", "source": "configmap", "error": ""},
    },
}
CA = certs.new_ca("test", NOW - timedelta(days=1))


@pytest.fixture
def cluster() -> AdminCluster:
    """A cluster with EDL, a node and an elastic Job."""
    api = AdminCluster()
    api.install()
    for server in checks.SERVERS:
        api.run_server(server)
    lease = {
        "metadata": {"name": "edl-reconciler"},
        "spec": {"holderIdentity": "edl-reconciler-1-x", "renewTime": NOW.isoformat()},
    }
    api.put(request.LEASES, lease, SYSTEM_NAMESPACE)
    bundle = base64.b64encode(CA.cert).decode()
    data = {"tls.crt": bundle, "ca.crt": bundle}
    api.put(
        request.SECRETS, {"metadata": {"name": "edl-extender-tls"}, "data": data}, SYSTEM_NAMESPACE
    )
    for kind in (request.MUTATINGWEBHOOKS, request.VALIDATINGWEBHOOKS):
        registration = Reader(api).get(kind, None, "edl-webhook")
        assert registration is not None
        for hook in registration["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
        api.send(request.replace(kind, None, "edl-webhook", registration))
    api.put(request.NODES, objects.node("n0", 8))
    return api


def _doctor(api: AdminCluster, pages: Mapping[str, Mapping[str, Any]] = PAGES) -> list[Finding]:
    def ask(pod: str) -> Mapping[str, Any]:
        if pod not in pages:
            raise UnreachableError("no such pod")
        return pages[pod]

    return checks.doctor(Reader(api), NOW, ask)


def _bad(findings: list[Finding]) -> list[str]:
    return [
        f"{finding.level} {finding.subject}: {finding.text}"
        for finding in findings
        if finding.level in (Level.WARNING, Level.ERROR)
    ]


def test_a_healthy_installation_has_no_errors(cluster: AdminCluster) -> None:
    """It says who is asked by whom, how old knowledge is, and what training uses of the cluster."""
    findings = _doctor(cluster)
    text = report(findings)

    assert _bad(findings) == []
    for line in (
        "edl-extender: 1 of 1 replicas are ready",
        "edl-extender-1: kube-scheduler's last requests: filter 2030-05-01T11:59:00Z, preempt never",
        "edl-reconciler-1: leads; last tick without an error 1 s ago",
        "policies: all 3 servers use the same version",
        "leader: edl-reconciler-1-x",
        "admission: the API server reaches the webhook",
        "extender's tls.crt: ends on 2040-04-27",
        "another EDL: none",
        "cluster: 1 nodes; CPU 8 cores (training 0, services 0)",
        "elastic jobs: 0 with 0 trainers",
    ):
        assert line in text


def test_an_image_that_is_missing_is_named(cluster: AdminCluster) -> None:
    """With the kubelet's words; so is what keeps pods from being created."""
    api = AdminCluster()
    api.install()
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "edl:0.1.0"'}
    api.run_server("webhook", containerStatuses=[{"state": {"waiting": waiting}}], phase="Pending")
    (line,) = [line for line in _bad(_doctor(api)) if line.startswith("error edl-webhook:")]
    quota = {
        "spec": {"replicas": 2},
        "status": {
            "conditions": [
                {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: small"}
            ]
        },
    }

    replaced = {
        "metadata": {"name": "edl-webhook-0", "deletionTimestamp": "2030-05-01T11:59:00Z"},
        "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
    }

    assert "edl-webhook-0" not in after.deployment("edl-webhook", quota, [replaced]).text
    assert 'edl-webhook-1: ImagePullBackOff Back-off pulling image "edl:0.1.0"' in line
    assert after.deployment("edl-webhook", quota, []).text.endswith("; exceeded quota: small")
    assert not failed(_doctor(cluster))


def test_without_edl_everything_is_missing() -> None:
    """Said line by line, and not by an exception."""
    text = report(_doctor(AdminCluster()))

    for line in (
        "error   edl-webhook: is not installed: apply deploy/base",
        "error   leader: no reconciler leads",
        "error   MutatingWebhookConfiguration: edl-webhook is missing",
        "note    policy: no ConfigMap edl-policy",
    ):
        assert line in text


def test_a_webhook_that_is_not_reached_is_an_error(cluster: AdminCluster) -> None:
    """Its replicas may all be ready."""
    cluster.webhook = False

    (bad,) = _bad(_doctor(cluster))
    assert bad.startswith("error admission: the API server does not reach the webhook")


@pytest.mark.parametrize(
    ("pod", "change", "line"),
    [
        ("edl-extender-1", {"watch_age_seconds": 100}, "last heard from the API server 100 s ago"),
        ("edl-extender-1", {"synced": False}, "has not listed the cluster yet"),
        (
            "edl-reconciler-1",
            {"ticks": {"age_seconds": 44, "failing_seconds": 40}},
            "leads; last tick without an error 44 s ago",
        ),
        ("edl-webhook-1", {"certificate": {"error": "403"}}, "cannot rotate its certificates: 403"),
        (
            "edl-webhook-1",
            {"policy": {"version": "abc", "source": "configmap", "error": "tiers: wrong"}},
            "policy abc (configmap) stays in force: tiers: wrong",
        ),
        (
            "edl-webhook-1",
            {"synced": [1], "certificate": "x"},
            "its /readyz has the format of another version",
        ),
    ],
)
def test_what_a_server_says_of_itself_is_judged(
    cluster: AdminCluster, pod: str, change: dict[str, Any], line: str
) -> None:
    """One error, with where to read on."""
    (bad,) = _bad(_doctor(cluster, PAGES | {pod: PAGES[pod] | change}))

    assert bad.startswith(f"error {pod}: {line}")


def test_servers_that_follow_different_policies_are_named(cluster: AdminCluster) -> None:
    """A server that nobody can ask is a warning: it may be well."""
    other = PAGES["edl-webhook-1"] | {"policy": {"version": "def", "source": "configmap"}}
    pages = {"edl-webhook-1": other, "edl-extender-1": PAGES["edl-extender-1"]}

    assert _bad(_doctor(cluster, pages)) == [
        "warning edl-reconciler-1: could not read /readyz: no such pod",
        "warning policies: servers use different versions: edl-extender-1 abc, edl-webhook-1 def",
    ]


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([""], "has no caBundle"),
        (["YQ==", "Yg=="], "its entries have different caBundles"),
        (["YQ=="], "is not a certificate in PEM"),
        (["?"], "is not a certificate in PEM"),
        ([base64.b64encode(CA.cert).decode()], "ends on 2040-04-27"),
    ],
)
def test_bundles_are_judged(texts: list[str], line: str) -> None:
    """Of a registration that something has overwritten, too."""
    assert after.bundles("kind", texts, NOW).text.startswith(line)


@pytest.mark.parametrize(
    ("days", "level"), [(3600, Level.WARNING), (3700, Level.ERROR), (100, Level.OK)]
)
def test_certificates_that_end_are_named(days: int, level: Level) -> None:
    """A month before, with the command that renews them."""
    finding = after.certificate("x", CA.cert, NOW + timedelta(days=days + 25), "renew it")

    assert finding.level is level
    assert ("renew it" in finding.text) == (level is not Level.OK)


def test_a_lease_that_is_not_renewed_is_no_leader() -> None:
    """Nor is one that was given up."""
    held = {"spec": {"holderIdentity": "a"}}

    assert after.lease(held, 100.0, 110.0).level is Level.OK
    assert "has not renewed its lease for 60 s" in after.lease(held, 100.0, 160.0).text
    assert after.lease({"spec": {"holderIdentity": ""}}, 100.0, 110.0).level is Level.ERROR


@pytest.mark.parametrize(
    ("config_map", "level"),
    [
        ({"data": {"policy.yaml": "{}"}}, Level.OK),
        ({"data": {"policy.yaml": "tiers: [1]"}}, Level.ERROR),
        ({"data": {}}, Level.ERROR),
        (None, Level.NOTE),
    ],
)
def test_the_policy_is_read_as_the_servers_read_it(
    config_map: dict[str, Any] | None, level: Level
) -> None:
    """Whether it is valid, and which version it is."""
    assert after.policy(config_map).level is level


@pytest.mark.parametrize(
    ("extender", "text"),
    [
        ("registered", "default-scheduler has the entries"),
        ("missing", "default-scheduler has no entries"),
        ("unknown", "default-scheduler unknown"),
    ],
)
def test_entries_of_the_scheduler_are_those_that_the_reconciler_found(
    extender: str, text: str
) -> None:
    """As it wrote them into a ConfigMap."""
    data = {"scheduler": "default-scheduler", "extender": extender}

    assert after.scheduling({"data": data}).text.startswith(text)


@pytest.mark.parametrize(
    ("extender", "line"),
    [
        ("missing", "note    edl-extender: is not installed (way (b)"),
        ("unknown", "note    edl-extender: is not installed (way (b)"),
        ("registered", "error   edl-extender: is not installed, but default-scheduler has its"),
    ],
)
def test_an_installation_without_the_extender_is_one_of_the_three_ways(
    cluster: AdminCluster, extender: str, line: str
) -> None:
    """As `extender.enabled: false` of the chart makes it; an error where kube-scheduler would ask it."""
    for kind, name in ((request.DEPLOYMENTS, "edl-extender"), (request.PODS, "edl-extender-1")):
        cluster.send(request.delete(kind, SYSTEM_NAMESPACE, name))
    data = {"scheduler": "default-scheduler", "extender": extender}
    body = {"metadata": {"name": "edl-scheduling"}, "data": data}
    cluster.put(request.CONFIGMAPS, body, SYSTEM_NAMESPACE)
    findings = _doctor(cluster)

    assert line in report(findings)
    assert failed(findings) == (extender == "registered")


def _trainer(api: AdminCluster, resource: str) -> None:
    """A trainer of now that kube-scheduler has placed."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1", resource: "1"}}}
    pod = {
        "metadata": {"name": "net-trainer-0", "labels": {"edl.training/role": "trainer"}},
        "spec": {"nodeName": "n0", "containers": [container]},
    }
    api.put(request.PODS, pod, "ml")


def _ready(api: AdminCluster, pod: str, since: datetime) -> None:
    condition = {"type": "Ready", "status": "True", "lastTransitionTime": since.isoformat()}
    body = {"status": {"conditions": [condition]}}
    api.send(request.merge_patch(request.PODS, SYSTEM_NAMESPACE, pod, body, subresource="status"))


@pytest.mark.parametrize(
    ("last", "ready_min", "resource", "is_fault"),
    [
        ("never", -5, TRAINER_RESOURCE, True),
        ("never", 5, TRAINER_RESOURCE, False),
        ("never", -5, "memory", False),
        ("2030-05-01T11:59:00Z", -5, TRAINER_RESOURCE, False),
    ],
)
def test_an_extender_that_kube_scheduler_does_not_reach_is_an_error(
    cluster: AdminCluster, last: str, ready_min: int, resource: str, is_fault: bool
) -> None:
    """Trainers that should be asked about were placed without it; its entries are ignorable, so nothing else fails."""
    _ready(cluster, "edl-extender-1", NOW + timedelta(minutes=ready_min))
    _trainer(cluster, resource)
    extender = PAGES["edl-extender-1"] | {"last_requests": {"filter": last, "preempt": "never"}}

    bad = _bad(_doctor(cluster, PAGES | {"edl-extender-1": extender}))

    start = "error edl-extender-1: kube-scheduler placed 1 trainer without calling this extender: "
    assert [line.startswith(start) for line in bad] == [True] * is_fault


@pytest.mark.parametrize(
    ("nodes", "places", "is_fault"),
    [
        (("n0", "n1"), ("n0", "n0"), True),
        (("n0", "n1"), ("n0", "n1"), False),
        (("n0",), ("n0", "n0"), False),
        (("n0", "gone"), ("n0", "n0"), False),
        (("n0", "n1"), ("n0",), False),
    ],
)
def test_replicas_that_share_a_node_are_named(
    nodes: tuple[str, ...], places: tuple[str, ...], is_fault: bool
) -> None:
    """With what moves them, where another node admits them."""
    cluster = tuple(Node(name, {}, ready=name != "gone") for name in nodes)
    pods = [Pod("edl-system", f"r-{i}", str(i), {}, node=node) for i, node in enumerate(places)]

    texts = [finding.text for finding in after.apart("edl-reconciler", pods, cluster)]

    text = "all 2 replicas run on node n0 and fail with it; to spread them to n1: "
    text += "kubectl -n edl-system rollout restart deployment edl-reconciler"
    assert texts == [text] * is_fault


def test_a_server_that_is_scaled_away_is_no_error() -> None:
    """As the extender is where nobody asks it; one replica of two is a warning."""
    scaled = {"spec": {"replicas": 0}}
    half = {"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}

    assert after.deployment("edl-extender", scaled, []).level is Level.NOTE
    assert after.deployment("edl-extender", half, []).level is Level.WARNING


def test_a_removal_leaves_nothing_behind(cluster: AdminCluster) -> None:
    """Jobs that EDL manages are named before it, with what happens to them."""
    job = objects.job("net", 1, 4)
    job["spec"]["managedBy"] = MANAGER
    cluster.put(request.JOBS, job, "ml")
    present = checks.remains(Reader(cluster))
    cluster.uninstall()
    cluster.send(request.delete(request.JOBS, "ml", "net"))
    absent = checks.remains(Reader(cluster))

    (bad,) = _bad(present)
    assert bad.startswith(
        "warning job ml/net: its 0 trainers run on, but EDL no longer adds or replaces"
    )
    assert "deployments: edl-webhook in edl-system is left" in report(present)
    assert "priorityclasses: edl-surplus is left" in report(present)
    assert report(absent) == (
        "ok      jobs: EDL manages no running job\n"
        "ok      pods: no training pod is left\n"
        "ok      objects: none of EDL is left"
    )


def test_training_pods_and_finished_jobs_are_told_apart() -> None:
    """A finished Job needs nobody."""
    done = {
        "metadata": {"namespace": "ml", "name": "net"},
        "spec": {"managedBy": MANAGER},
        "status": {"conditions": [{"type": "Complete", "status": "True"}]},
    }
    pod = {"metadata": {"namespace": "ml", "name": "t", "labels": {"edl.training/role": "trainer"}}}

    assert removal.jobs([done])[0].level is Level.OK
    assert removal.pods([pod, {"metadata": {"name": "web"}}]).text == (
        "1 training pod is left, such as ml/t"
    )
