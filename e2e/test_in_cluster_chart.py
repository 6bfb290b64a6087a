"""EDL installed by its chart, on a real node: a first job, a change of values, the page, and removal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from orjson import loads

from e2e import page, rights, scheduling
from e2e.environment import Environment, IsolatedNamespace
from e2e.in_cluster import (
    FIRST_JOB_S,
    NAMESPACE,
    RELEASE,
    SINGLE_NODE,
    WAIT_S,
    BareCluster,
    Printer,
    bare_cluster,
    first_job,
    installed,
    is_busy,
)
from e2e.waiting import until
from kube import request
from kube.request import CONFIGMAPS, DEPLOYMENTS, SERVICES
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import certs, clock

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(900)]  # the first run builds

_PAGE_HOST = "edl-page.edl-system.svc"
_REMOTE_PORTS = (
    "rows = [line.split() for path in ('tcp', 'tcp6') for line in open('/proc/net/' + path)]\n"
    "listening = {row[1].split(':')[1] for row in rows if row[3] == '0A'}\n"
    "called = {row[2].split(':')[1] for row in rows\n"
    "          if row[3] == '01' and row[1].split(':')[1] not in listening}\n"
    "print(*sorted(int(port, 16) for port in called))\n"
)
"""Prints the ports that the processes of a pod are connected to, without those of its own callers."""
_SMALL = (*SINGLE_NODE, "--wait", "--timeout=120s")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """One real node and no EDL yet."""
    with bare_cluster(tmp_path_factory.mktemp("chart")) as cluster:
        cluster.helm("version")  # builds it, if it is not there
        yield cluster


@pytest.fixture(scope="module")
def environment(bare: BareCluster) -> Iterator[Environment]:
    """The cluster with a watch of its pods."""
    with installed(bare) as prepared:
        yield prepared


@pytest.fixture
def ml(environment: Environment) -> IsolatedNamespace:
    """The namespace of the jobs."""
    return IsolatedNamespace(environment, NAMESPACE)


def test_wrong_values_install_nothing(bare: BareCluster) -> None:
    """The schema's refusal names the value; not even the namespace is made."""
    words = ("--create-namespace", "--set", "webhook.replicas=0")
    with pytest.raises(AssertionError, match="/webhook/replicas"):
        bare.helm("install", *RELEASE, *words)

    assert SYSTEM_NAMESPACE not in bare.kubectl("get", "namespaces", "-o", "name")


def test_two_commands_lead_to_a_running_job(
    bare: BareCluster, ml: IsolatedNamespace, report: Printer
) -> None:
    """`helm install --wait` and the Job."""
    machine_is_busy = is_busy()
    begun_s = clock.monotonic_s()
    bare.helm("install", *RELEASE, "--create-namespace", *_SMALL)
    installed_s = clock.monotonic_s() - begun_s
    bare.apply(first_job())
    until("the job runs", lambda: ml.running("first"), lambda count: count >= 2, WAIT_S)
    took_s = clock.monotonic_s() - begun_s
    report(f"installed after {installed_s:.1f} s, the first job runs after {took_s:.1f} s")

    assert took_s < FIRST_JOB_S or machine_is_busy, bare.logs()


def test_a_second_release_is_refused(bare: BareCluster) -> None:
    """Before any of its objects is there; the line says what is."""
    before = bare.kubectl("get", "deployments", "-A", "-o", "name")
    with pytest.raises(AssertionError, match=r"another EDL is installed \(by the release edl\)"):
        bare.helm("install", "second", *RELEASE[1:], *_SMALL)

    assert bare.kubectl("get", "deployments", "-A", "-o", "name") == before


def test_an_upgrade_changes_what_was_named(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """A policy of other values is in force at once, and no trainer notices."""
    trainers = {pod.name for pod in ml.trainers("first")}
    bare.helm("upgrade", *RELEASE, *_SMALL, "--set", "policy.tiers.graceSeconds=7")
    policy = environment.send(request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    webhook = environment.send(request.get(DEPLOYMENTS, SYSTEM_NAMESPACE, "edl-webhook"))

    assert "graceSeconds: 7" in policy["data"]["policy.yaml"]
    assert webhook["spec"]["replicas"] == 1
    assert {pod.name for pod in ml.trainers("first")} >= trainers  # it may still grow


def test_the_page_is_served_from_its_pod(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace, report: Printer
) -> None:
    """By its Service, with its certificate, to callers with their own rights.

    Its account is refused nothing, has no right too many, and calls no other port than its NetworkPolicy
    opens: no plugin of this cluster enforces that.
    """
    begun_s = clock.monotonic_s()
    ca = _page_certificate(bare)
    words = ("--set", "page.enabled=true", "--set", "page.tlsSecret=edl-page-tls")
    bare.helm("upgrade", *RELEASE, *_SMALL, *words)
    report(f"the page is ready {clock.monotonic_s() - begun_s:.1f} s after it was switched on")
    service = environment.send(request.get(SERVICES, SYSTEM_NAMESPACE, "edl-page"))
    tenant = page.token(environment, NAMESPACE, "page-tenant", "view", everywhere=False)
    stranger = page.token(environment, SYSTEM_NAMESPACE, "page-stranger", "view", everywhere=False)

    def get(path: str, token: str) -> tuple[int, Any]:
        url = f"https://{service['spec']['clusterIP']}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        with urllib3.PoolManager(ca_certs=str(ca), server_hostname=_PAGE_HOST) as pool:
            answer = pool.request("GET", url, headers=headers, timeout=10.0)
        return answer.status, answer.json()

    path = f"/api/v1/jobs/{NAMESPACE}/first"
    until("a tenant sees the job", lambda: get(path, tenant)[0], lambda code: code == 200, WAIT_S)
    status, hidden, unknown = (get(path, token)[0] for token in (tenant, stranger, "none"))
    until(
        "the page has all trainers",
        lambda: (get(path, tenant)[1]["memberCount"], len(ml.trainers("first"))),
        lambda counts: counts[0] == counts[1],
        WAIT_S,
    )
    granted = rights.granted(scheduling.documents(page.COMPONENT / "page-rbac.yaml"))
    until(
        "the page uses all its rights",
        lambda: rights.unused(granted, _audited(bare)),
        lambda unused: not unused,
        WAIT_S,
    )
    called = bare.kubectl(
        *("-n", SYSTEM_NAMESPACE, "exec", "deployment/edl-page", "--"),
        *("python", "-c", _REMOTE_PORTS),
    )
    policy = bare.kubectl(
        *("-n", SYSTEM_NAMESPACE, "get", "networkpolicy", "edl-page", "-o", "json")
    )
    opened = {port["port"] for rule in loads(policy)["spec"]["egress"] for port in rule["ports"]}

    assert (status, hidden, unknown) == (200, 404, 401)
    assert {str(right) for right in rights.refused(_audited(bare))} == set()
    assert set(map(int, called.split())) <= opened
    assert called.split()


def _audited(bare: BareCluster) -> list[rights.AuditedRequest]:
    """What the page's account has asked for."""
    audited = rights.read(rights.audit_log(bare.directory).read_text(encoding="utf-8"))
    return [request for request in audited if request.asked.account == "edl-page"]


def _page_certificate(bare: BareCluster) -> Path:
    """Stores a certificate for the page, as docs/page.md says; the file with its CA."""
    ca = certs.new_ca("page", clock.now())
    leaf = certs.issue(ca, "edl-page", clock.now(), hosts=(_PAGE_HOST,))
    paths = {name: bare.directory / f"page-{name}" for name in ("tls.crt", "tls.key", "ca.crt")}
    for path, content in zip(paths.values(), (leaf.cert, leaf.key, ca.cert), strict=True):
        path.write_bytes(content)
    bare.kubectl(
        *("-n", SYSTEM_NAMESPACE, "create", "secret", "tls", "edl-page-tls"),
        *(f"--cert={paths['tls.crt']}", f"--key={paths['tls.key']}"),
    )
    return paths["ca.crt"]


def test_removal_leaves_the_jobs_and_the_namespace(
    bare: BareCluster, ml: IsolatedNamespace
) -> None:
    """Objects that EDL made itself go with its namespace; its kind stays, for what users made of it."""
    running = {pod.name for pod in ml.trainers("first")}
    bare.helm("uninstall", "edl", "--namespace", SYSTEM_NAMESPACE, "--wait")
    bare.kubectl("delete", "namespace", SYSTEM_NAMESPACE, "--timeout=90s")
    kinds = bare.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    words = ("-A", "-l", "app.kubernetes.io/part-of=edl", "--ignore-not-found", "-o", "name")

    remaining = bare.kubectl("get", ",".join(kinds), *words).split()

    assert remaining == ["customresourcedefinition.apiextensions.k8s.io/trainingjobs.edl.training"]
    assert "edl-" not in bare.kubectl("get", "priorityclasses", "-o", "name")
    assert {pod.name for pod in ml.trainers("first")} >= running
