"""`make upgrade`: `kubectl apply -k` of this release over the last one, in a cluster, in a burst of services.

Deployments replace the pods as they do for users: old and new servers run side by side for a while.
"""

from collections.abc import Iterator

import pytest
import yaml

from e2e import releases
from e2e.cluster.machine import server_image
from e2e.control_plane import Release
from e2e.environment import Environment, IsolatedNamespace
from e2e.in_cluster import (
    NAMESPACE,
    REPOSITORY,
    SLEEP,
    WAIT_S,
    BareCluster,
    bare_cluster,
    elastic_job,
    installed,
    services,
)
from e2e.reader import failed_commands
from e2e.waiting import until
from kube import request
from kube.request import SECRETS
from kube.request import SERVICES as SERVICE
from policy.names import SYSTEM_NAMESPACE, Tier
from policy.trainer_accounting import VERSION
from runtime import clock, extender_tls

pytestmark = [pytest.mark.upgrade, pytest.mark.timeout(1500)]  # the first run builds

_OLD_IMAGE = f"{REPOSITORY}:0"
_PROGRAM = SLEEP.replace("sys.exit(0)", "sys.exit(143)")
"""The last release takes a trainer that is evicted and ends with 0 for one that has finished the work."""
_PROBE = "/spec/template/spec/containers/0/livenessProbe"
_TIME_TO_START = [{"op": "add", "path": f"{_PROBE}/initialDelaySeconds", "value": 120}]
"""On a busy machine the last release restarts its servers before they serve."""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """One real node and no EDL yet."""
    with bare_cluster(tmp_path_factory.mktemp("upgrade")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(bare: BareCluster) -> Iterator[Environment]:
    """The cluster with a watch of its pods."""
    with installed(bare) as prepared:
        yield prepared


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The last release."""
    return releases.checkout(tmp_path_factory.mktemp("old"))


def _install(bare: BareCluster, environment: Environment, old: Release) -> None:
    """Installs the last release as its documents say: the admin makes the extender's certificates."""
    archive = bare.directory / "old.tar"
    bare.cluster.load(server_image.build(archive, _OLD_IMAGE, old.root))
    archive.unlink()
    base = old.root / "deploy" / "base"
    overlay = bare.overlay(base, {server_image.NAME: _OLD_IMAGE}, "old")
    kustomization = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    patch = {"target": {"kind": "Deployment"}, "patch": yaml.safe_dump(_TIME_TO_START)}
    (overlay / "kustomization.yaml").write_text(
        yaml.safe_dump({**kustomization, "patches": [patch]})
    )
    bare.kubectl("apply", "-k", str(overlay))
    get = request.get(SERVICE, SYSTEM_NAMESPACE, extender_tls.SERVICE)
    address = str(environment.send(get)["spec"]["clusterIP"])
    files = extender_tls.files(SYSTEM_NAMESPACE, (address,), clock.now())
    data = {name: content.decode() for name, content in files.items() if name != "ca.key"}
    secret = {"metadata": {"name": extender_tls.SECRET}, "stringData": data}
    environment.send(request.create(SECRETS, SYSTEM_NAMESPACE, secret))
    bare.wait_available()
    bare.register_extender()


def test_apply_over_the_last_release_in_a_burst(
    bare: BareCluster, environment: Environment, old: Release
) -> None:
    """No guaranteed trainer ends, services run, ids and counts go on, and `doctor` finds no error."""
    ml = IsolatedNamespace(environment, NAMESPACE)
    _install(bare, environment, old)
    bare.apply(elastic_job("digits", 2, 20, "100m", _PROGRAM))
    before = until("it has grown", lambda: ml.running("digits"), lambda n: n >= 5, WAIT_S)
    guaranteed = {pod.name for pod in ml.trainers("digits") if pod.tier is Tier.GUARANTEED}
    assert "version" not in ml.job("digits").accounting_text

    bare.apply(services(2))
    bare.kubectl("apply", "-k", str(bare.overlay()))
    bare.apply(services(4))
    names = [f"deployment/edl-{server}" for server in ("webhook", "extender", "reconciler")]
    for name in names:
        bare.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "status", name, "--timeout=170s")
    ml.wait_services(4, WAIT_S)
    during = {pod.name for pod in ml.trainers("digits")}
    bare.kubectl("-n", NAMESPACE, "delete", "deployment", "web")
    until("it grows back", lambda: ml.running("digits"), lambda n: n >= before - 1, WAIT_S)
    job = ml.wait_exact("digits", WAIT_S)
    failed = failed_commands(bare, ".venv/bin/python -m admin doctor", {})

    assert guaranteed <= during, bare.logs()
    assert job.accounting_text.startswith(f'{{"version":{VERSION},')
    assert job.status.failed == 0
    assert failed == []


def test_a_mistake_is_refused_by_the_new_release(bare: BareCluster) -> None:
    """The API server trusts the new replicas, whose registrations the old ones had written."""
    with pytest.raises(AssertionError, match="min must not exceed max"):
        bare.apply(elastic_job("wrong", 4, 2, "100m", SLEEP))
