"""EDL in the cluster, as users install it: pods of its image on a real node, behind Services.

    with bare_cluster(directory) as bare:
        bare.kubectl("apply", "-k", str(bare.overlay()))

The cluster has a DNS, kube-proxy and a registry's worth of images, and nothing of EDL. API server and
kube-scheduler are processes in the host's network, as those of kubeadm are.
"""

import base64
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from e2e import commands, rights, scheduling
from e2e.cluster import build
from e2e.cluster.components import SchedulerOptions
from e2e.cluster.local import Cluster, running
from e2e.cluster.machine import image, needs, python_image, server_image
from e2e.cluster.toolchain import DEPLOYMENT_TOOLS, DNS, HELM
from e2e.control_plane import EdlControlPlane
from e2e.environment import Environment, PodHistory
from e2e.real_nodes import skip_unless_able
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import NAMESPACES
from policy.names import SYSTEM_NAMESPACE
from runtime import extender_tls

NAMESPACE = "ml"
"""Of the jobs."""
WAIT_S = 90.0
Printer = Callable[[str], None]
_ROOT = Path(__file__).parents[1]
CHART = _ROOT / "deploy" / "chart"
_FIRST_JOB = _ROOT / "examples" / "first-job.yaml"
REPOSITORY, TAG = "edl.local/edl", "1"
_THIS_TREE: Mapping[str, Path] = {TAG: _ROOT}
TRAINER_IMAGE = "edl.local/trainer:1"
FIRST_JOB_S = 60.0
"""From the first command to a running job, on two cores that do nothing else."""
SLEEP = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
    "time.sleep(3600)\n"
)
"""A program that runs until it is stopped."""
SCHEDULER_IMAGE = "edl.local/kube-scheduler:1"
RELEASE = ("edl", str(CHART), "--namespace", SYSTEM_NAMESPACE)
"""The arguments of `helm install` that name the chart and the namespace."""
SINGLE_NODE = (
    *("--values", str(CHART / "values-single-node.yaml")),
    *("--set", f"image.repository={REPOSITORY}", "--set-string", f"image.tag={TAG}"),
)
"""The words that give the values of a single node, and the image of this tree."""
IMAGES = {server_image.NAME: f"{REPOSITORY}:{TAG}"}
"""Name in `deploy/base` -> image here."""
_DNS_IMAGE = "edl.local/coredns:1"
_DNS_MANIFEST = DEPLOYMENT_TOOLS / "coredns" / "dns.yaml"
_COMMAND_S = 420.0
KWOK = CHART.parent / "overlays" / "kwok"
COMPONENTS = ("webhook", "extender", "reconciler")


@dataclass(frozen=True, slots=True)
class BareCluster:
    """A real node with images and a DNS; commands of an admin act on it."""

    cluster: Cluster
    directory: Path

    def kubectl(self, *words: str, text: str = "") -> str:
        """Runs kubectl as an administrator; returns its output."""
        return self._run([str(self.cluster.kubectl), *words], text)

    def apply(self, manifest: Any) -> None:
        """Applies an object in the namespace of the jobs."""
        text = orjson.dumps(manifest).decode()
        self.kubectl("-n", NAMESPACE, "apply", "-f", "-", text=text)

    def helm(self, *words: str) -> str:
        """Runs Helm as an administrator; returns its output."""
        binaries = build.ensure(build.cache_root(os.environ), kit=HELM)
        return self._run([str(binaries.path("helm")), *words], "")

    def overlay(
        self,
        base: Path = scheduling.BASE,
        images: Mapping[str, str] = IMAGES,
        name: str = "overlay",
    ) -> Path:
        """Writes the overlay of docs/install.md, which names images; its folder."""
        folder = self.directory / name
        folder.mkdir(exist_ok=True)
        tagged = [(old, *new.rsplit(":", 1)) for old, new in images.items()]
        kustomization = {
            "resources": [os.path.relpath(base, folder)],
            "images": [{"name": old, "newName": new, "newTag": tag} for old, new, tag in tagged],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return folder

    def wait_available(self, within_s: float = 150.0) -> None:
        """Waits as an admin would until all Deployments of EDL are available."""
        words = ("--for=condition=Available", "deployment", "--all", f"--timeout={within_s:.0f}s")
        self.kubectl("-n", SYSTEM_NAMESPACE, "wait", *words)

    def restart(self, *servers: str) -> None:
        """Replaces the pods of servers as an admin would, all at a time; returns when the new ones are ready."""
        names = [f"deployment/edl-{server}" for server in servers]
        self.kubectl("-n", SYSTEM_NAMESPACE, "rollout", "restart", *names)
        self.wait_rolled_out(*servers)

    def wait_rolled_out(self, *servers: str) -> None:
        """Waits until the pods of all servers belong to the newest Deployments and are ready."""
        for server in servers:
            words = ("rollout", "status", f"deployment/edl-{server}", "--timeout=400s")
            self.kubectl("-n", SYSTEM_NAMESPACE, *words)

    def admin(self, *words: str) -> str:
        """Runs `python -m admin` as an administrator; returns its output."""
        command = [sys.executable, "-m", "admin", "--kubectl", str(self.cluster.kubectl), *words]
        return self._run(command, "")

    def extender_address(self) -> str:
        """Returns the address of the extender's Service."""
        words = ("get", "service", extender_tls.SERVICE, "-o", "jsonpath={.spec.clusterIP}")
        return self.kubectl("-n", SYSTEM_NAMESPACE, *words).strip()

    def register_extender(self, certificates: Path | None = None) -> None:
        """Restarts kube-scheduler with the extender's entries, as docs/install.md says for way (a).

        Args:
            certificates: A folder with kube-scheduler's; None for those that the webhook has made.
        """
        tls = certificates or self._made_certificates()
        url = f"https://{self.extender_address()}:8443"
        mode = scheduling.SchedulingMode.EXTENDER
        options = SchedulerOptions(scheduling.cluster_scheduler(mode, url, tls))
        self.cluster.configure_scheduler(options)

    def _made_certificates(self) -> Path:
        """Returns a folder with the certificates of kube-scheduler, from the webhook's Secret."""
        words = ("get", "secret", extender_tls.SECRET, "-o", "json")
        secret = orjson.loads(self.kubectl("-n", SYSTEM_NAMESPACE, *words))
        tls = self.directory / "extender-tls"
        tls.mkdir(exist_ok=True)
        for file in ("ca.crt", "client.crt", "client.key"):
            (tls / file).write_bytes(base64.b64decode(secret["data"][file]))
        return tls

    def logs(self) -> str:
        """Returns the end of every server's log, for a failed journey."""
        texts = [self.kubectl("-n", SYSTEM_NAMESPACE, "get", "pods", "-o", "wide")]
        for component in COMPONENTS:
            label = f"app.kubernetes.io/name=edl-{component}"
            words = ("logs", "-l", label, "--tail=15", "--prefix", "--ignore-errors")
            texts.append(self.kubectl("-n", SYSTEM_NAMESPACE, *words))
        return "\n".join(texts)

    def _run(self, words: list[str], text: str) -> str:
        homes = _homes(self.directory)
        done = commands.run(self.cluster, words, text=text, environ=homes, timeout_s=_COMMAND_S)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
        return done.stdout


@contextmanager
def bare_cluster(directory: Path) -> Iterator[BareCluster]:
    """One real node with the images of EDL, of a trainer and of a DNS that answers; no EDL.

    The API server notes what EDL asks for (`e2e.rights`).
    """
    skip_unless_able()
    plane = build.ensure(build.cache_root(os.environ))
    binaries = build.ensure(build.cache_root(os.environ), kit=DNS)
    images = [
        server_image.build(directory / "edl.tar", f"{REPOSITORY}:{TAG}"),
        python_image.build(directory / "trainer.tar", TRAINER_IMAGE),
        _program(directory / "coredns.tar", _DNS_IMAGE, binaries.path("coredns")),
        _program(directory / "scheduler.tar", SCHEDULER_IMAGE, plane.path("kube-scheduler")),
    ]
    try:
        with running(
            directory / "cluster",
            apiserver_args=rights.audit_flags(directory),
            real_nodes=1,
            images=images,
            dns=True,
        ) as cluster:
            bare = BareCluster(cluster, directory)
            manifest = _DNS_MANIFEST.read_text().replace("ADDRESS", cluster.dns_address)
            bare.kubectl("apply", "-f", "-", text=manifest)
            words = ("rollout", "status", "deployment", "coredns", "--timeout=60s")
            bare.kubectl("-n", "kube-system", *words)
            yield bare
    finally:
        for archive in images:
            archive.unlink()  # pytest keeps the directories of the last runs


@contextmanager
def edl_beside_played_nodes(directory: Path, *, real_nodes: int = 1) -> Iterator[BareCluster]:
    """EDL in pods on real nodes, asked by kube-scheduler, in a cluster whose other nodes kwok plays.

    So its servers are as in a cluster, and the load is that of hundreds of pods. Played nodes are the caller's.

    Args:
        directory: Gets the files.
        real_nodes: For EDL; 2 for two replicas on different ones.
    """
    with nodes_for_servers(directory, real_nodes=real_nodes) as bare:
        bare.kubectl("apply", "-k", str(bare.overlay(KWOK)))
        bare.wait_available()
        bare.register_extender()
        bare.restart("reconciler")  # it looks for the extender's entries at its start
        yield bare


@contextmanager
def nodes_for_servers(
    directory: Path, *, real_nodes: int = 1, trees: Mapping[str, Path] = _THIS_TREE
) -> Iterator[BareCluster]:
    """Real nodes with images of EDL, and no EDL, in a cluster without a DNS.

    Args:
        directory: Gets the files.
        real_nodes: How many.
        trees: Tag of an image -> the tree whose servers are in it.

    Raises:
        ClusterError: this machine cannot run containers.
    """
    needs.find()
    images = [
        server_image.build(directory / f"edl-{tag}.tar", f"{REPOSITORY}:{tag}", root)
        for tag, root in trees.items()
    ]
    try:
        with running(directory / "cluster", real_nodes=real_nodes, images=images) as cluster:
            yield BareCluster(cluster, directory)
    finally:
        for archive in images:
            archive.unlink()


@contextmanager
def installed(bare: BareCluster) -> Iterator[Environment]:
    """The environment with the namespace of the jobs, where EDL's servers are pods."""
    control_plane = EdlControlPlane(bare.directory)
    control_plane.components = ()  # none is a process of ours
    with (
        contextlib.closing(Client(load(bare.cluster.admin), user_agent="edl-e2e")) as api,
        PodHistory(api).following() as pods,
    ):
        environment = Environment(bare.cluster, control_plane, api, pods)
        environment.send(request.create(NAMESPACES, None, {"metadata": {"name": NAMESPACE}}))
        yield environment


def is_busy() -> bool:
    """Returns whether others use this machine, so that how long something takes says nothing."""
    return os.getloadavg()[0] > (os.cpu_count() or 1)


def is_refused(environment: Environment, create: request.Request) -> bool:
    """Returns whether admission refuses a Job whose minimum is above its maximum."""
    try:
        environment.send(create)
    except KubeError as error:
        if "min must not exceed max" not in str(error):
            raise
        return True
    return False


def elastic_job(name: str, low: int, high: int, cpu: str, program: str) -> Mapping[str, Any]:
    """Returns a Job as a user writes it, for `kubectl apply`; its pods run a Python program."""
    container = {
        "name": "main",
        "image": TRAINER_IMAGE,
        "command": ["python", "-c", program],
        "resources": {"requests": {"cpu": cpu, "memory": "32Mi"}},
    }
    annotations = {"edl.training/min-trainers": str(low), "edl.training/max-trainers": str(high)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


def first_job() -> dict[str, Any]:
    """Returns the Job of docs/install.md that tries EDL, in an image that nodes here have."""
    job: dict[str, Any] = yaml.safe_load(_FIRST_JOB.read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = TRAINER_IMAGE
    return job


def services(count: int) -> dict[str, Any]:
    """Returns a Deployment of services that take a trainer and a half each."""
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


def _program(target: Path, name: str, binary: Path) -> Path:
    """Returns an image of one static program."""
    entries = [
        image.Entry(f"/usr/bin/{binary.name}", binary, mode=0o755),
        image.Entry("/tmp", mode=0o1777),  # noqa: S108 - the image's, not ours
    ]
    settings = image.ContainerSettings((f"/usr/bin/{binary.name}",), ("PATH=/usr/bin",))
    return image.write(target, name, [entries], settings)


def _homes(directory: Path) -> dict[str, str]:
    """The folder for Helm's files, instead of the user's folders."""
    places = ("CACHE", "CONFIG", "DATA")
    return {f"HELM_{place}_HOME": str(directory / "helm" / place.lower()) for place in places}
