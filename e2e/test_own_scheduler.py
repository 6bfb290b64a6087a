"""A separate kube-scheduler for training: `deploy/own-scheduler` beside the cluster's unmodified one."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from e2e.environment import (
    NODE_COUNT,
    SLOTS,
    Environment,
    IsolatedNamespace,
    running_environment,
)
from e2e.scheduling import OWN, OWN_SCHEDULER, SchedulingMode
from e2e.waiting import until
from kube import request
from kube.request import DEPLOYMENTS, EVENTS, LEASES, PODS
from policy.names import DEFAULT_SCHEDULER, SYSTEM_NAMESPACE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

_GROW_S = 30.0
_BURST_S = 20.0
_RENDER_S = 30.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A cluster with two schedulers; only the scheduler of training knows EDL."""
    directory = tmp_path_factory.mktemp("own-scheduler")
    with running_environment(directory, SchedulingMode.OWN_SCHEDULER) as cluster_environment:
        yield cluster_environment


def _bound_by(namespace: IsolatedNamespace) -> dict[str, Counter[str]]:
    """Which schedulers have bound "trainers" and "services", by the events of the bindings."""
    trainer_names = {
        pod.name for pod in namespace.environment.pods.ever(namespace.name) if pod.role
    }
    counts: dict[str, Counter[str]] = {"trainers": Counter(), "services": Counter()}
    for event in namespace.environment.send(request.list_page(EVENTS, namespace.name))["items"]:
        if event["reason"] == "Scheduled":
            is_trainer = event["involvedObject"]["name"] in trainer_names
            counts["trainers" if is_trainer else "services"][event["reportingComponent"]] += 1
    return counts


def test_each_scheduler_binds_its_own_and_services_get_their_capacity_back(
    namespace: IsolatedNamespace, report: Callable[[str], None]
) -> None:
    """Trainers have the extender's scheduler to themselves; a burst is served, and they grow back."""
    namespace.submit("net", low=2, high=SLOTS)
    namespace.wait_running("net", SLOTS, _GROW_S)
    planned = sum(pod.node == pod.planned for pod in namespace.trainers("net"))
    services = 3 * NODE_COUNT
    namespace.services(services)
    burst_s = namespace.wait_services(services, _BURST_S)
    remaining = namespace.running("net")
    namespace.services(0)
    namespace.wait_running("net", SLOTS, _GROW_S)
    bound = until(
        "events of all bindings",
        lambda: _bound_by(namespace),
        lambda counts: counts["services"].total() >= services,
        _GROW_S,
    )
    trainers = [pod for pod in namespace.environment.pods.ever(namespace.name) if pod.role]
    report(f"{planned} of {SLOTS} on the planned node, a burst within {burst_s:.1f} s")

    assert remaining < SLOTS
    assert bound["trainers"].keys() == {OWN_SCHEDULER}
    assert bound["services"].keys() == {DEFAULT_SCHEDULER}
    assert all(pod.marked and pod.scheduler == OWN_SCHEDULER for pod in trainers)
    namespace.wait_exact("net")


def test_services_never_wait_for_it(namespace: IsolatedNamespace) -> None:
    """While training's scheduler is away, services come as ever, and trainers wait."""
    namespace.environment.control_plane.kill(OWN_SCHEDULER)
    namespace.services(NODE_COUNT)
    namespace.submit("net", low=2, high=2)
    until("trainers are created", lambda: namespace.trainers("net"), lambda t: len(t) == 2, _GROW_S)
    namespace.wait_services(NODE_COUNT, _BURST_S)

    assert [pod.node for pod in namespace.trainers("net")] == ["", ""]


def test_the_manifests_are_accepted_by_a_real_api_server(environment: Environment) -> None:
    """`kubectl kustomize` renders them; its pod is allowed in a namespace that enforces `restricted`."""
    kubectl = environment.cluster.kubectl
    rendered = subprocess.run(
        [kubectl, "kustomize", OWN], capture_output=True, text=True, timeout=_RENDER_S, check=True
    ).stdout
    objects: dict[str, dict[str, Any]] = {
        item["kind"]: item for item in yaml.safe_load_all(rendered)
    }
    deployment, configuration = objects["Deployment"], objects["ConfigMap"]
    template = deployment["spec"]["template"]
    pod = {**template, "metadata": {**template["metadata"], "name": OWN_SCHEDULER}}
    for kind, body in ((DEPLOYMENTS, deployment), (PODS, pod)):
        created = request.create(kind, SYSTEM_NAMESPACE, body)
        query = (("dryRun", "All"), ("fieldValidation", "Strict"))
        environment.send(replace(created, query=query))
    lease = environment.send(request.get(LEASES, SYSTEM_NAMESPACE, OWN_SCHEDULER))
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}

    assert volumes["config"]["configMap"]["name"] == configuration["metadata"]["name"]
    assert lease["spec"]["holderIdentity"]
