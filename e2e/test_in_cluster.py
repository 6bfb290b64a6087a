"""EDL as its users have it: installed by kustomize, on a real node, from its image, until it is removed.

The tests of this file are one story on one cluster, in their order: install, a job's life, a burst of
services, the three ways to the scheduler, removal.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import urllib3
import yaml

from e2e.cluster.components import SchedulerOptions
from e2e.environment import Environment, IsolatedNamespace
from e2e.in_cluster import (
    FIRST_JOB_S,
    NAMESPACE,
    SCHEDULER_IMAGE,
    SLEEP,
    TRAINER_IMAGE,
    WAIT_S,
    BareCluster,
    Printer,
    bare_cluster,
    elastic_job,
    installed,
    is_busy,
)
from e2e.scheduling import OWN, OWN_SCHEDULER
from e2e.waiting import until
from kube import request
from kube.errors import KubeError
from kube.request import CONFIGMAPS, JOBS, PODS
from policy.model import VERSION
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE, Tier
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(900)]  # the first run builds


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """One real node and no EDL yet."""
    with bare_cluster(tmp_path_factory.mktemp("in-cluster")) as cluster:
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


def _services(count: int) -> dict[str, Any]:
    """A Deployment of services that take a trainer and a half each."""
    container = {
        "name": "main",
        "image": TRAINER_IMAGE,
        "command": ["python", "-c", SLEEP],
        "resources": {"requests": {"cpu": "150m", "memory": "32Mi"}},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    selector = {"matchLabels": {"app": "web"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": count, "selector": selector, "template": template},
    }


def _refusals(bare: BareCluster) -> set[str]:
    """The API server's counts of calls that RBAC refused."""
    text = bare.kubectl("get", "--raw", "/metrics")
    return set(re.findall(r'^apiserver_request_total\{code="403".*$', text, re.MULTILINE))


def _metric(environment: Environment, server: str, pattern: str) -> float:
    """The sum of a metric's samples over those pods of a server that answer."""
    page = environment.send(request.list_page(PODS, SYSTEM_NAMESPACE))
    addresses = [
        pod["status"].get("podIP")
        for pod in page["items"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/name") == f"edl-{server}"
    ]
    total = 0.0
    for address in filter(None, addresses):
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            url = f"http://{address}:8080/metrics"
            answer = urllib3.request("GET", url, timeout=5.0, retries=False)
            samples = re.findall(rf"^{pattern} (\S+)$", answer.data.decode(), re.MULTILINE)
            total += sum(map(float, samples))
    return total


@pytest.fixture(scope="module")
def refused_before(bare: BareCluster) -> set[str]:
    """What RBAC has refused before EDL was there."""
    return _refusals(bare)


@pytest.mark.usefixtures("refused_before")
def test_three_commands_lead_to_a_running_job(
    bare: BareCluster,
    ml: IsolatedNamespace,
    report: Printer,
) -> None:
    """`apply -k`, `wait`, and the Job: the webhook has made its certificates and those of the extender."""
    overlay = bare.overlay()
    machine_is_busy = is_busy()
    begun_s = clock.monotonic_s()
    bare.kubectl("apply", "-k", str(overlay))
    bare.wait_available()
    available_s = clock.monotonic_s() - begun_s
    bare.apply(elastic_job("digits", 2, 20, "100m", SLEEP))
    until("the job runs", lambda: ml.running("digits"), lambda count: count >= 2, WAIT_S)
    took_s = clock.monotonic_s() - begun_s
    report(f"servers available after {available_s:.1f} s, the first job runs after {took_s:.1f} s")

    assert took_s < FIRST_JOB_S or machine_is_busy, bare.logs()


def test_the_job_grows_into_what_is_free(ml: IsolatedNamespace) -> None:
    """The node has two CPUs; what EDL and the DNS request is not the job's."""
    grown = until("it grows", lambda: ml.running("digits"), lambda count: count >= 6, WAIT_S)

    assert grown <= 20
    assert ml.job("digits").managed


def test_a_mistake_is_refused_through_the_service(bare: BareCluster) -> None:
    """The API server finds the webhook by its Service, with the bundle that the webhook published."""
    with pytest.raises(AssertionError, match="min must not exceed max"):
        bare.apply(elastic_job("wrong", 4, 2, "100m", SLEEP))


def test_kube_scheduler_asks_the_extender_at_its_service(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """By the address of the Service, with the certificates that the webhook made; EDL notices it."""
    bare.register_extender()
    bare.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "restart", "deployment", "edl-reconciler")
    words = ("rollout", "status", "deployment", "edl-reconciler", "--timeout=90s")
    bare.kubectl("-n", SYSTEM_NAMESPACE, *words)
    found = 'edl_reconciler_extender_registration\\{[^}]*state="registered"[^}]*\\}'
    until(
        "EDL knows it", lambda: _metric(environment, "reconciler", found), lambda n: n > 0, WAIT_S
    )
    bare.apply(elastic_job("marked", 1, 1, "50m", SLEEP))
    ml.wait_running("marked", 1, WAIT_S)
    asked = 'edl_extender_last_request_timestamp_seconds\\{verb="filter"\\}'

    assert _metric(environment, "extender", asked) > clock.epoch_s() - WAIT_S
    assert all(pod.marked for pod in ml.trainers("marked"))
    bare.kubectl("-n", NAMESPACE, "delete", "job", "marked")


def test_a_second_scheduler_finds_the_extender_by_name(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """A pod with `deploy/own-scheduler`: the cluster's DNS, the certificates of the one Secret, its own rights."""
    bare.cluster.configure_scheduler(SchedulerOptions())
    images = {"registry.k8s.io/kube-scheduler": SCHEDULER_IMAGE}
    overlay = str(bare.overlay(OWN, images, "own-scheduler"))
    bare.kubectl("apply", "-k", overlay)
    words = ("rollout", "status", "deployment", OWN_SCHEDULER, "--timeout=90s")
    bare.kubectl("-n", SYSTEM_NAMESPACE, *words)
    _set_policy(environment, {"scheduling": {"schedulerName": OWN_SCHEDULER, "extender": "always"}})
    bare.apply(elastic_job("own", 1, 1, "50m", SLEEP))
    begun_s = clock.epoch_s()
    ml.wait_running("own", 1, WAIT_S)
    asked = 'edl_extender_last_request_timestamp_seconds\\{verb="filter"\\}'
    asked_s = _metric(environment, "extender", asked)
    (trainer,) = ml.trainers("own")
    bare.kubectl("-n", NAMESPACE, "delete", "job", "own")
    _set_policy(environment, {})
    bare.kubectl("delete", "-k", overlay)

    assert asked_s > begun_s - 5.0
    assert (trainer.marked, trainer.scheduler) == (True, OWN_SCHEDULER)


def _set_policy(environment: Environment, settings: dict[str, Any]) -> None:
    """Replaces the policy, as an admin's edit does."""
    document = {"apiVersion": VERSION, "kind": "Policy", **settings}
    body = {"data": {POLICY_KEY: yaml.safe_dump(document)}}
    patch = request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body)
    environment.send(patch)


def test_a_burst_of_services_takes_its_room_from_trainers(
    bare: BareCluster, ml: IsolatedNamespace, report: Printer
) -> None:
    """All of them run at once; the guaranteed trainers stay, and the surplus comes back afterwards."""
    before = until("it has grown", lambda: ml.running("digits"), lambda n: n >= 6, WAIT_S)
    bare.apply(_services(4))
    took_s = ml.wait_services(4, WAIT_S)
    during = ml.running("digits")
    report(f"four services run after {took_s:.1f} s; trainers went from {before} to {during}")
    bare.kubectl("-n", NAMESPACE, "delete", "deployment", "web")
    until("it grows back", lambda: ml.running("digits"), lambda n: n >= before - 1, WAIT_S)

    assert 2 <= during < before


def test_an_update_of_all_servers_misses_no_admission(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace, report: Printer
) -> None:
    """Jobs that are wrong are refused all the time, although the registrations fail open.

    The servers' new pods have the priority to take the room of surplus; guaranteed trainers stay.
    """
    guaranteed = {pod.name for pod in ml.trainers("digits") if pod.tier is Tier.GUARANTEED}
    wrong = dict(elastic_job("wrong", 4, 2, "100m", SLEEP))
    create = replace(request.create(JOBS, NAMESPACE, wrong), query=(("dryRun", "All"),))
    names = [f"deployment/edl-{server}" for server in ("webhook", "extender", "reconciler")]
    accepted, refused = 0, 0
    with ThreadPoolExecutor(1) as pool:
        updating = pool.submit(_update, bare, names)
        while not updating.done():
            is_refused = _is_refused(environment, create)
            refused += is_refused
            accepted += not is_refused
            time.sleep(0.1)
        updating.result()
    report(f"{refused} reviews while all servers were replaced")

    assert accepted == 0
    assert {pod.name for pod in ml.trainers("digits") if pod.tier is Tier.GUARANTEED} == guaranteed


def _is_refused(environment: Environment, create: request.Request) -> bool:
    """Whether admission refuses an object for what is wrong with it."""
    try:
        environment.send(create)
    except KubeError as error:
        if "min must not exceed max" not in str(error):
            raise
        return True
    return False


def _update(bare: BareCluster, names: list[str]) -> None:
    bare.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "restart", *names)
    for name in names:
        bare.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "status", name, "--timeout=170s")


def test_nothing_that_edl_asked_for_was_refused(
    bare: BareCluster, refused_before: set[str]
) -> None:
    """By RBAC, in all of this file until here: the accounts have what they use."""
    assert _refusals(bare) == refused_before


def test_servers_need_little_and_write_nowhere(bare: BareCluster, environment: Environment) -> None:
    """No root, no privilege, no shell; each restarts never."""
    page = environment.send(request.list_page(PODS, SYSTEM_NAMESPACE))
    servers = [
        pod
        for pod in page["items"]
        if pod["spec"]["containers"][0]["image"].startswith("edl.local/edl")
    ]
    restarts = {
        pod["metadata"]["name"]: status["restartCount"]
        for pod in servers
        for status in pod["status"]["containerStatuses"]
    }
    (first, *_) = servers
    with pytest.raises(AssertionError, match=r"executable file not found|no such file"):
        bare.kubectl(
            "-n", SYSTEM_NAMESPACE, "exec", first["metadata"]["name"], "--", "sh", "-c", "id"
        )
    user = bare.kubectl(
        *("-n", SYSTEM_NAMESPACE, "exec", first["metadata"]["name"], "--"),
        *("python", "-c", "import os; print(os.getuid(), os.access('/app', os.W_OK))"),
    )

    assert set(restarts.values()) == {0}
    assert user.split() == ["65532", "False"]


def test_removal_leaves_the_jobs_and_nothing_else(bare: BareCluster, ml: IsolatedNamespace) -> None:
    """Trainers run on, as docs/install.md says; of EDL no object is left."""
    running = {pod.name for pod in ml.trainers("digits")}
    bare.kubectl("delete", "-k", str(bare.overlay()), "--timeout=120s")
    time.sleep(2.0)  # what a server that ends might still write
    kinds = bare.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    words = ("-A", "-l", "app.kubernetes.io/part-of=edl", "--ignore-not-found", "-o", "name")
    remaining = bare.kubectl("get", ",".join(kinds), *words).split()
    classes = bare.kubectl("get", "priorityclasses", "-o", "name")

    assert remaining == []
    assert "edl-" not in classes
    assert {pod.name for pod in ml.trainers("digits")} >= running
