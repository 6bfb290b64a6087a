"""EDL's control plane: its three servers as processes beside a local cluster.

Each has its own identity, with exactly the rights that `deploy/` grants its service account. In a
cluster, kube-scheduler and API server call them through Services; here they call them by address,
which changes the files of `deploy/` in those places only. Where training has a kube-scheduler of its
own, that runs beside them.

    control_plane = EdlControlPlane(directory)
    with (
        running(directory, scheduler=SchedulerOptions(control_plane.scheduler)) as cluster,
        control_plane.installed_in(cluster),
    ):
        control_plane.kill("webhook")
        control_plane.start("webhook")
"""

import contextlib
import dataclasses
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import orjson
import yaml
from edl.local.ports import free_ports

from e2e import scheduling
from e2e.cluster import identity
from e2e.cluster.components import SCHEDULER
from e2e.cluster.process import Process
from e2e.registrations import by_url
from e2e.scheduling import OWN_SCHEDULER, SchedulingMode
from extender import certificates
from kube import request
from kube.api import Api
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import Resource
from policy.names import LABEL_JOB, LABEL_ROLE, POLICY_CONFIGMAP, SYSTEM_NAMESPACE
from runtime import clock, extender_tls

EDL_COMPONENTS = ("webhook", "extender", "reconciler")
_READY_S = 30.0
_STOP_S = 8.0
_POLL_S = 0.1
_PROBE_S = 2.0
_APPLY_S = 60.0
_MASTER_IMAGE = "registry.invalid/edl"
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_POLICIES, _BINDINGS = "validatingadmissionpolicies", "validatingadmissionpolicybindings"
RESOURCES = {
    resource.kind: resource
    for resource in (
        *request.RESOURCES,
        SERVICE_ACCOUNTS,
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
        Resource(_ADMISSION, "v1", _POLICIES, "ValidatingAdmissionPolicy", namespaced=False),
        Resource(_ADMISSION, "v1", _BINDINGS, "ValidatingAdmissionPolicyBinding", namespaced=False),
    )
}
"""The kinds of `deploy/`, by name."""
_ELSEWHERE = frozenset({"Deployment", "Service", "PodDisruptionBudget"})
"""Kinds that run the components in a real cluster; here they are processes."""


@dataclass(frozen=True, slots=True)
class Release:
    """A tree of EDL, whose servers and manifests are used."""

    root: Path = Path(__file__).parents[1]
    has_probe_port: bool = True
    """Whether probes and metrics have a port of their own; else they are served with the API."""


class ControlPlaneError(Exception):
    """A component does not start; the one-line message names its log."""


class ClusterAccess(Protocol):
    """What EDL needs of a local cluster: kubeconfigs, and the program of a second scheduler."""

    @property
    def scheduler_program(self) -> Path:
        """The kube-scheduler that fits the cluster."""

    @property
    def kubectl(self) -> Path:
        """The kubectl that fits the cluster."""

    @property
    def admin(self) -> Path:
        """Kubeconfig of an administrator."""

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Kubeconfig of another user."""


class EdlControlPlane:
    """The EDL components of one cluster; nothing runs before `installed_in`."""

    def __init__(
        self,
        directory: Path,
        master_image: str = _MASTER_IMAGE,
        mode: SchedulingMode = SchedulingMode.EXTENDER,
        release: Release = Release(),
    ) -> None:
        """Chooses addresses and makes the extender's certificates: configurations name both.

        Args:
            directory: Logs and certificates go to its `edl/`, which is emptied first.
            master_image: Image of the jobs' masters; simulated nodes run nothing.
            mode: How training pods are scheduled.
            release: Which EDL runs; `upgrade` replaces it.
        """
        self._release = release
        self._master_image = master_image
        self.mode = mode
        is_own = mode is SchedulingMode.OWN_SCHEDULER
        self.components = (*EDL_COMPONENTS, *((OWN_SCHEDULER,) if is_own else ()))
        """Everything that runs: `EDL_COMPONENTS`, and training's own scheduler where it has one."""
        self._directory = directory / "edl"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        count = len(self.components)
        ports = free_ports(2 * count)
        self._ports = dict(zip(self.components, ports[:count], strict=True))
        self._probe_ports = dict(zip(self.components, ports[count:], strict=True))
        self._own_program = Path(SCHEDULER)
        self._processes: dict[str, Process] = {}
        self._kubeconfigs: dict[str, Path] = {}
        self.clock_offsets_s: dict[str, float] = {}
        """Component -> how far its clock is ahead, from its next start on."""
        self.flags: dict[str, tuple[str, ...]] = {}
        """Component -> further flags, from its next start on."""
        certificate_files = extender_tls.files(SYSTEM_NAMESPACE, (), clock.now())
        self._tls = self._directory / "extender-tls"
        certificates.write(self._tls, certificate_files)

    @property
    def scheduler(self) -> dict[str, Any]:
        """The configuration of the cluster's own scheduler; {} for the defaults."""
        return scheduling.cluster_scheduler(self.mode, self.url("extender"), self._tls)

    @property
    def extender_tls(self) -> Path:
        """The folder with the certificates between kube-scheduler and the extender, and their CA's key."""
        return self._tls

    @property
    def pids(self) -> dict[str, int]:
        """Component -> process id, for running components."""
        return {name: process.pid for name, process in self._processes.items()}

    def url(self, name: str) -> str:
        """Returns a component's URL."""
        scheme = "http" if name == "reconciler" else "https"
        return f"{scheme}://127.0.0.1:{self._ports[name]}"

    def probe_url(self, name: str) -> str:
        """Returns the URL of a component's probes; of EDL's own, also of metrics and decisions."""
        if name == OWN_SCHEDULER or not self._release.has_probe_port:
            return self.url(name)
        return f"http://127.0.0.1:{self._probe_ports[name]}"

    def log(self, name: str) -> Path:
        """Returns a component's log file; restarts append to it."""
        return self._directory / f"{name}.log"

    @contextmanager
    def installed_in(self, cluster: ClusterAccess) -> Iterator["EdlControlPlane"]:
        """Installs EDL in the cluster and runs its components until the end of the block.

        Raises:
            ControlPlaneError: a component did not get ready.
        """
        self._own_program = cluster.scheduler_program
        for name in self.components:
            account = name if name == OWN_SCHEDULER else f"edl-{name}"
            self._kubeconfigs[name] = cluster.kubeconfig(
                f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}",
                ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"),
            )
        api = Client(load(cluster.admin), user_agent="edl-e2e")
        try:
            if self._release == Release():
                self._install(api)
            else:
                self._apply(cluster)  # it will be upgraded
            for name in self.components:
                self.start(name)
            for name in self.components:
                self.wait_ready(name)
            self._wait_admission(api)
            yield self
        finally:
            self.stop()
            api.close()

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of a component."""
        return self._kubeconfigs[name]

    def reach_through(self, name: str, url: str) -> None:
        """Gives a component another URL of the API server, from its next start on."""
        config = yaml.safe_load(self._kubeconfigs[name].read_text(encoding="utf-8"))
        config["clusters"][0]["cluster"]["server"] = url
        path = self._directory / f"{name}.kubeconfig"
        self._kubeconfigs[name] = identity.write_secret(path, yaml.safe_dump(config))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Sends a signal to all processes of a component."""
        os.killpg(self._processes[name].pid, number)

    def start(self, name: str) -> None:
        """Starts one component; call `wait_ready` to wait until it serves."""
        words = self._scheduler_words() if name == OWN_SCHEDULER else self._server_words(name)
        self._processes[name] = Process(name, words, self.log(name), cwd=self._release.root)

    def upgrade(
        self, cluster: ClusterAccess, release: Release, replaced: Callable[[str], None]
    ) -> None:
        """Installs another release over the running one, and replaces the servers one at a time.

        As Deployments do: manifests first, then each new server is ready before the old one is
        asked to leave. But the extender: kube-scheduler knows one address here.

        Args:
            cluster: Where EDL runs.
            release: What follows.
            replaced: Called with each component that has been replaced.

        Raises:
            ControlPlaneError: a component did not get ready.
        """
        self._release = release
        self._apply(cluster)
        for name in self.components:
            old = self._processes.pop(name)
            if name == "extender":
                _end(old)
            else:
                self._ports[name], self._probe_ports[name] = free_ports(2)
            self.start(name)
            self.wait_ready(name)
            if name == "webhook":
                self._apply(cluster)  # its new address
            if name != "extender":
                _end(old)
            replaced(name)

    def kill(self, name: str) -> None:
        """Kills one component with its worker, with SIGKILL."""
        self._processes.pop(name).kill()

    def stop(self) -> None:
        """Stops all components, with SIGKILL after a time limit."""
        processes, self._processes = self._processes, {}
        _end(*processes.values())

    def wait_ready(self, name: str, timeout_s: float = _READY_S) -> None:
        """Waits until a component is ready.

        Raises:
            ControlPlaneError: it ended, or did not get ready in time.
        """
        deadline_s = clock.monotonic_s() + timeout_s
        while not self._ready(name):
            code = self._processes[name].exit_code
            if code is not None:
                raise ControlPlaneError(f"{name} ended with {code}: {self._last_words(name)}")
            if clock.monotonic_s() > deadline_s:
                raise ControlPlaneError(
                    f"{name} is not ready after {timeout_s:.0f} s: {self._last_words(name)}"
                )
            time.sleep(_POLL_S)

    def _server_words(self, name: str) -> list[str]:
        offset_s = self.clock_offsets_s.get(name, 0.0)
        wrapper = ("e2e.off_clock", str(offset_s)) if offset_s else ()
        probes = ("--probe-listen", f"127.0.0.1:{self._probe_ports[name]}")
        return [
            *(sys.executable, "-m", *wrapper, name),
            *("--kubeconfig", str(self._kubeconfigs[name])),
            *("--listen", f"127.0.0.1:{self._ports[name]}"),
            *(probes if self._release.has_probe_port else ()),
            *("--drain-seconds", "0", "--log-format", "json"),
            *self._own_flags(name),
            *self.flags.get(name, ()),
        ]

    def _scheduler_words(self) -> list[str]:
        """Returns the command of training's own kube-scheduler; writes its configuration."""
        kubeconfig, path = self._kubeconfigs[OWN_SCHEDULER], self._directory / "own-scheduler.json"
        configuration = scheduling.own_scheduler(kubeconfig, self.url("extender"), self._tls)
        identity.write_secret(path, orjson.dumps(configuration))
        return [
            str(self._own_program),
            f"--config={path}",
            *scheduling.own_flags(),
            *("--bind-address=127.0.0.1", f"--secure-port={self._ports[OWN_SCHEDULER]}"),
        ]

    def _own_flags(self, name: str) -> tuple[str, ...]:
        if name == "webhook":
            place = self._directory / f"webhook-certificate-{self._ports[name]}"
            image = ("--master-image", self._master_image)
            return ("--hosts", "127.0.0.1", "--certificate-dir", str(place), *image)
        if name == "extender":
            server = (
                "--tls-cert",
                str(self._tls / "tls.crt"),
                "--tls-key",
                str(self._tls / "tls.key"),
            )
            return (*server, "--client-ca", str(self._tls / "ca.crt"))
        return ()

    def _install(self, api: Api) -> None:
        """Creates the objects, faster than kubectl does."""
        for document in self._documents():
            resource = RESOURCES[document["kind"]]
            api.send(request.create(resource, document["metadata"].get("namespace"), document))

    def _apply(self, cluster: ClusterAccess) -> None:
        """Applies the objects with kubectl, over the objects of another release.

        Raises:
            ControlPlaneError: it does not.
        """
        text = orjson.dumps({"apiVersion": "v1", "kind": "List", "items": self._documents()})
        words = [str(cluster.kubectl), "--kubeconfig", str(cluster.admin), "apply", "-f", "-"]
        applied = subprocess.run(
            words, input=text, capture_output=True, timeout=_APPLY_S, check=False
        )
        if applied.returncode:
            raise ControlPlaneError(f"kubectl apply: {applied.stderr.decode().strip()}")

    def _documents(self) -> list[dict[str, Any]]:
        """Everything of `deploy/` but the components' own workloads."""
        base = self._release.root / "deploy" / "base"
        return [
            self._addressed(document)
            for document in scheduling.manifests(self.mode, base)
            if document["kind"] in RESOURCES and document["kind"] not in _ELSEWHERE
        ]

    def _addressed(self, document: dict[str, Any]) -> dict[str, Any]:
        """Returns an object for servers that run beside a cluster."""
        is_policy = document["metadata"]["name"] == POLICY_CONFIGMAP
        if is_policy and self.mode is SchedulingMode.OWN_SCHEDULER:
            return scheduling.with_own_scheduler(document)
        if document["kind"].endswith("WebhookConfiguration"):
            return by_url(document, self.url("webhook"))
        return document

    def _ready(self, name: str) -> bool:
        """Probes like a kubelet: without certificate check, by status code only."""
        scheme, host, *_ = urlsplit(self.probe_url(name))
        connection: HTTPConnection = HTTPConnection(host, timeout=_PROBE_S)
        if scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = HTTPSConnection(host, timeout=_PROBE_S, context=context)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/readyz")
                return connection.getresponse().status == HTTPStatus.OK
            except (OSError, HTTPException):
                return False

    def _wait_admission(self, api: Api) -> None:
        """Waits until the API server calls the webhook, a moment after its configuration."""
        probe = {
            "metadata": {"name": "edl-probe", "labels": {LABEL_JOB: "edl-probe"}},
            "spec": {"containers": [{"name": "main", "image": "registry.invalid/probe"}]},
        }
        dry_run = dataclasses.replace(
            request.create(request.PODS, "default", probe), query=(("dryRun", "All"),)
        )
        deadline_s = clock.monotonic_s() + _READY_S
        while True:
            problem = "it was not called"
            try:
                pod = orjson.loads(api.send(dry_run))
                if LABEL_ROLE in pod["metadata"].get("labels", {}):
                    return
            except KubeError as error:
                problem = str(error)
            if clock.monotonic_s() > deadline_s:
                raise ControlPlaneError(
                    f"webhook: admission does not work after {_READY_S:.0f} s: {problem}"
                )
            time.sleep(_POLL_S)

    def _last_words(self, name: str) -> str:
        return f"{self._processes[name].last_lines()} (its log: {self.log(name)})"


def _end(*processes: Process) -> None:
    """Stops processes, with SIGKILL after a time limit."""
    for process in processes:
        process.terminate()
    deadline_s = clock.monotonic_s() + _STOP_S
    for process in processes:
        if not process.wait(max(0.1, deadline_s - clock.monotonic_s())):
            process.kill()
