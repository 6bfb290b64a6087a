"""EDL installed by its chart, on a real node: a first job, a change of values, and removal."""

from collections.abc import Iterator

import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.in_cluster import (
    CHART,
    FIRST_JOB_S,
    NAMESPACE,
    REPOSITORY,
    TAG,
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
from kube.request import CONFIGMAPS, DEPLOYMENTS
from policy.names import POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(900)]  # the first run builds

_RELEASE = ("edl", str(CHART), "--namespace", SYSTEM_NAMESPACE)
_IMAGE = ("--set", f"image.repository={REPOSITORY}", "--set-string", f"image.tag={TAG}")
_SMALL = ("--values", str(CHART / "values-single-node.yaml"), *_IMAGE, "--wait", "--timeout=120s")


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
        bare.helm("install", *_RELEASE, *words)

    assert SYSTEM_NAMESPACE not in bare.kubectl("get", "namespaces", "-o", "name")


def test_two_commands_lead_to_a_running_job(
    bare: BareCluster, ml: IsolatedNamespace, report: Printer
) -> None:
    """`helm install --wait` and the Job."""
    machine_is_busy = is_busy()
    begun_s = clock.monotonic_s()
    bare.helm("install", *_RELEASE, "--create-namespace", *_SMALL)
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
        bare.helm("install", "second", *_RELEASE[1:], *_SMALL)

    assert bare.kubectl("get", "deployments", "-A", "-o", "name") == before


def test_an_upgrade_changes_what_was_named(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """A policy of other values is in force at once, and no trainer notices."""
    trainers = {pod.name for pod in ml.trainers("first")}
    bare.helm("upgrade", *_RELEASE, *_SMALL, "--set", "policy.tiers.graceSeconds=7")
    policy = environment.send(request.get(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    webhook = environment.send(request.get(DEPLOYMENTS, SYSTEM_NAMESPACE, "edl-webhook"))

    assert "graceSeconds: 7" in policy["data"]["policy.yaml"]
    assert webhook["spec"]["replicas"] == 1
    assert {pod.name for pod in ml.trainers("first")} == trainers


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
