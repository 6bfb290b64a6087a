"""An upgrade from the last release where EDL is pods, in bursts of services, with jobs that run.

For `make e2e-upgrade`. The image of that release is made of its tree and of the packages of this tree's lock; it is
installed as its own docs/install.md says, and replaced by `kubectl apply -k`, as the document of today says.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping

import orjson
import pytest
import yaml

from e2e import releases
from e2e.control_plane import Release
from e2e.environment import (
    SLOTS,
    Environment,
    IsolatedNamespace,
    isolated_namespace,
    played_nodes,
    send_nodes,
)
from e2e.in_cluster import (
    COMPONENTS,
    IMAGES,
    KWOK,
    REPOSITORY,
    TAG,
    BareCluster,
    installed,
    nodes_for_servers,
)
from e2e.real_nodes import skip_unless_able
from e2e.rollout import TWO_JOBS, Load, bursts_during, wait_full
from e2e.scheduling import BASE
from e2e.waiting import until_true
from kube import request
from kube.request import PODS
from policy.cluster.trainer_accounting import VERSION
from policy.names import ANNOTATION_MASTER_ADDRESS, SYSTEM_NAMESPACE, Tier
from runtime import extender_tls

pytestmark = [pytest.mark.upgrade, pytest.mark.timeout(1200)]

_OLD_TAG = "0"
_OLD_IMAGES = {"edl": f"{REPOSITORY}:{_OLD_TAG}"}
_LOAD = Load((*TWO_JOBS.jobs, "digits"), SLOTS - 3)  # the master takes room of trainers
_LIVENESS = "/spec/template/spec/containers/0/livenessProbe/initialDelaySeconds"
_PATIENT = {
    "target": {"kind": "Deployment"},
    "patch": orjson.dumps([{"op": "add", "path": _LIVENESS, "value": 300}]).decode(),
}
"""That release has no startup probes: on a busy machine its servers are killed before they serve."""
_WAIT_S = 90.0
_INSTALLED_S = 390.0
_COMMAND_S = 60.0
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """EDL of the last release in pods on a real node, which kube-scheduler asks."""
    skip_unless_able()
    directory = tmp_path_factory.mktemp("upgrade")
    old = releases.checkout(directory / "old")
    trees = {TAG: BASE.parents[1], _OLD_TAG: old.root}
    with nodes_for_servers(directory, trees=trees) as cluster:
        _install(cluster, old)
        yield cluster


def _install(bare: BareCluster, release: Release) -> None:
    """The servers, and the certificates that the release wants of an admin, for the Service's address."""
    base = release.root / "deploy" / "base"
    overlay = bare.overlay(base, _OLD_IMAGES, "old-overlay")
    kustomization = overlay / "kustomization.yaml"
    patched = yaml.safe_load(kustomization.read_text()) | {"patches": [_PATIENT]}
    kustomization.write_text(yaml.safe_dump(patched))
    bare.kubectl("apply", "-k", str(overlay))
    out = bare.directory / "old-certificates"
    words = [sys.executable, "-m", "extender", "certificates", "--out", str(out)]
    words += ["--host", bare.extender_address()]
    subprocess.run(words, cwd=release.root, check=True, capture_output=True, timeout=_COMMAND_S)
    files = [f"--from-file={out / name}" for name in ("tls.crt", "tls.key", "ca.crt")]
    words = ["create", "secret", "generic", extender_tls.SECRET, *files]
    bare.kubectl("-n", SYSTEM_NAMESPACE, *words)
    bare.wait_available(_INSTALLED_S)
    bare.register_extender(out)


@pytest.fixture
def environment(bare: BareCluster) -> Iterator[Environment]:
    """Played nodes for the load."""
    with installed(bare) as prepared:
        send_nodes(prepared, played_nodes())
        yield prepared


def _images(bare: BareCluster) -> Mapping[str, str]:
    """Pod of EDL -> its image."""
    text = bare.kubectl("-n", SYSTEM_NAMESPACE, "get", "pods", "-o", "json")
    return {
        pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"]
        for pod in orjson.loads(text)["items"]
        if pod["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "edl"
        and not pod["metadata"].get("deletionTimestamp")
    }


def _minimums(namespace: IsolatedNamespace) -> set[str]:
    """Returns the uids of guaranteed trainers."""
    return {
        trainer.uid
        for job in _LOAD.jobs
        for trainer in namespace.trainers(job)
        if trainer.tier is Tier.GUARANTEED
    }


def _addresses(namespace: IsolatedNamespace) -> set[str]:
    """Where the trainers of the job with a master look for it."""
    pods = [
        namespace.environment.send(request.get(PODS, namespace.name, trainer.name))
        for trainer in namespace.trainers("digits")
    ]
    return {pod["metadata"]["annotations"].get(ANNOTATION_MASTER_ADDRESS, "") for pod in pods}


def test_an_upgrade_in_the_cluster_loses_nothing(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """Every wrong Job is refused, each trainer has one id and one end, minimums run on, services start in time."""
    with isolated_namespace(environment, "upgrade") as namespace:
        namespace.submit("digits", low=2, high=6, master="true")
        for job in TWO_JOBS.jobs:
            namespace.submit(job, low=2, high=SLOTS)
        wait_full(namespace, _LOAD)
        assert set(_images(bare).values()) == set(_OLD_IMAGES.values())
        assert all("version" not in namespace.job(job).accounting_text for job in _LOAD.jobs)
        minimums, addresses = _minimums(namespace), _addresses(namespace)

        def upgrade() -> None:
            bare.kubectl("apply", "-k", str(bare.overlay(KWOK)))
            bare.wait_rolled_out(*COMPONENTS)

        update = bursts_during(namespace, upgrade, _LOAD)
        until_true(lambda: set(_images(bare).values()) == set(IMAGES.values()), _WAIT_S)
        longest_s = max(update.bursts_s)
        report(
            f"an upgrade in {len(update.bursts_s)} bursts, of which the longest took {longest_s:.1f} s;"
            f" {update.refused} reviews, {update.accepted} missed"
        )

        assert update.accepted == 0
        assert update.refused > 10
        assert len(minimums) == 6
        assert minimums <= _minimums(namespace)
        assert _addresses(namespace) == addresses
        for job in _LOAD.jobs:
            stored = namespace.wait_exact(job, _WAIT_S)
            assert stored.accounting_text.startswith(f'{{"version":{VERSION},')
            assert stored.status.failed == 0
        doctor = bare.admin("doctor")
        assert not re.search("^error", doctor, re.MULTILINE), doctor
