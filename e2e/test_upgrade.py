"""An upgrade from the last release in a burst of services, with jobs that run: nothing is lost, nothing twice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from e2e import releases
from e2e.control_plane import EdlControlPlane, Release
from e2e.environment import (
    Environment,
    IsolatedNamespace,
    create_nodes,
    edl_environment,
    isolated_namespace,
)
from e2e.waiting import until, until_true
from e2e.workload import QUICK, elastic_job
from kube import request
from kube.errors import KubeError
from kube.request import JOBS, PODS
from policy.cluster.trainer_accounting import VERSION
from policy.names import ANNOTATION_MASTER_ADDRESS, ANNOTATION_TOKEN_SECRET, Tier

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_BURST = {"webhook": 10, "extender": 20, "reconciler": 26}
"""Services that are wanted once a component has been replaced."""
_WAIT_S = 30.0


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    """A cluster with EDL of the last release."""
    control_plane = EdlControlPlane(tmp_path / "run", release=releases.checkout(tmp_path / "old"))
    with edl_environment(tmp_path / "run", control_plane) as old:
        create_nodes(old)
        yield old


@pytest.fixture
def namespace(environment: Environment) -> Iterator[IsolatedNamespace]:
    """The namespace of the jobs."""
    with isolated_namespace(environment, "upgrade") as isolated:
        yield isolated


def _annotations(namespace: IsolatedNamespace, job: str, name: str) -> set[str]:
    """Returns the values of an annotation on the job's live trainers."""
    values = set()
    for trainer in namespace.trainers(job):
        pod = namespace.environment.send(request.get(PODS, namespace.name, trainer.name))
        values.add(pod["metadata"]["annotations"].get(name, ""))
    return values


def _is_admitted(namespace: IsolatedNamespace) -> bool:
    """Returns whether a Job whose minimum exceeds its maximum is stored: nobody has reviewed it then."""
    wrong = elastic_job(replace(QUICK, min_trainers=3, max_trainers=2), "wrong")
    wrong["metadata"]["namespace"] = namespace.name
    create = request.create(JOBS, namespace.name, wrong)
    try:
        namespace.environment.send(replace(create, query=(("dryRun", "All"),)))
    except KubeError as error:
        assert "min must not exceed max" in str(error)  # noqa: PT017 - of whichever release reviews
        return False
    return True


def test_an_upgrade_in_a_burst_loses_nothing(
    environment: Environment, namespace: IsolatedNamespace
) -> None:
    """Each trainer has one id and one end; minimums run on; services start; the books go on."""
    namespace.submit("mnist", low=4, high=20)
    namespace.submit("resnet", low=2, high=8)
    namespace.submit("digits", low=2, high=6, master="true")
    sizes = {"mnist": 20, "resnet": 8, "digits": 6}
    for job, size in sizes.items():
        namespace.wait_running(job, size, _WAIT_S)
    minimums = {
        trainer.name
        for job in sizes
        for trainer in namespace.trainers(job)
        if trainer.tier is Tier.GUARANTEED
    }
    assert all("version" not in namespace.job(job).accounting_text for job in sizes)
    addresses = _annotations(namespace, "digits", ANNOTATION_MASTER_ADDRESS)
    unreviewed: list[str] = []

    def replaced(component: str) -> None:
        """The burst grows with each server that is replaced."""
        unreviewed.extend([component] if _is_admitted(namespace) else [])
        namespace.services(_BURST[component])

    namespace.services(4)
    environment.control_plane.upgrade(environment.cluster, Release(), replaced)
    namespace.wait_services(_BURST["reconciler"], _WAIT_S)
    during = {trainer.name for job in sizes for trainer in namespace.trainers(job)}
    for job in sizes:
        namespace.wait_exact(job, _WAIT_S)
    namespace.services(0)
    for job, size in sizes.items():
        namespace.wait_running(job, size, _WAIT_S)

    assert len(minimums) == 8
    assert minimums <= during
    assert unreviewed == []
    for job in sizes:
        stored = namespace.wait_exact(job, _WAIT_S)
        assert stored.accounting_text.startswith(f'{{"version":{VERSION},')
        assert stored.status.failed == 0
    assert _annotations(namespace, "digits", ANNOTATION_MASTER_ADDRESS) == addresses
    assert len(_annotations(namespace, "digits", ANNOTATION_TOKEN_SECRET) - {""}) <= 1
    _ends(namespace, "resnet")


def _ends(namespace: IsolatedNamespace, job: str) -> None:
    """A job of the last release ends as it would have."""
    for trainer in namespace.trainers(job):
        body: dict[str, Any] = {"status": {"phase": "Succeeded"}}
        patch = request.merge_patch(PODS, namespace.name, trainer.name, body, subresource="status")
        namespace.environment.send(patch)
    until_true(lambda: namespace.job(job).finished, _WAIT_S)
    stored = until(
        "all trainers are counted",
        lambda: namespace.job(job),
        lambda ended: not ended.accounting.open,
        _WAIT_S,
    )

    assert stored.status.succeeded == 8
    assert {c.type for c in stored.status.conditions if c.status == "True"} >= {"Complete"}
