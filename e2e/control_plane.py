"""EDL's control plane: its three servers as processes beside a local cluster.

Each has its own identity, with exactly the rights that `deploy/base` grants its service account. In a
cluster, kube-scheduler and API server call them through Services; here they call them by address,
which changes two files of `deploy/base` in those places only.

    control_plane = EdlControlPlane(directory)
    with (
        running(directory, scheduler=SchedulerOptions(control_plane.scheduler)) as cluster,
        control_plane.installed_in(cluster),
    ):
        control_plane.kill("webhook")
        control_plane.start("webhook")
"""

import base64
import contextlib
import dataclasses
import shutil
import ssl
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Protocol

import orjson
import yaml
from edl.local.ports import free_ports

from e2e.cluster.process import Process
from extender import certificates
from kube import request
from kube.api import Api
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from kube.request import Resource
from policy.names import LABEL_JOB, LABEL_ROLE, SYSTEM_NAMESPACE
from runtime import clock
from webhook.registration import by_url

EDL_COMPONENTS = ("webhook", "extender", "reconciler")
_ROOT = Path(__file__).parents[1]
_BASE = _ROOT / "deploy" / "base"
_READY_S = 30.0
_STOP_S = 8.0
_POLL_S = 0.1
_PROBE_S = 2.0
_MASTER_IMAGE = "registry.invalid/edl"
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
_RBAC = "rbac.authorization.k8s.io"
RESOURCES = {
    resource.kind: resource
    for resource in (
        *request.RESOURCES,
        SERVICE_ACCOUNTS,
        Resource(_RBAC, "v1", "roles", "Role"),
        Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
        Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
        Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    )
}
"""The kinds of `deploy/base`, by name."""
_ELSEWHERE = frozenset({"Deployment", "Service", "PodDisruptionBudget"})
"""Kinds that run the components in a real cluster; here they are processes."""


class ControlPlaneError(Exception):
    """A component does not start; the one-line message names its log."""


class ClusterAccess(Protocol):
    """What EDL needs of a local cluster: kubeconfigs."""

    @property
    def admin(self) -> Path:
        """Kubeconfig of an administrator."""

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """Kubeconfig of another user."""


class EdlControlPlane:
    """The EDL components of one cluster; nothing runs before `installed_in`."""

    def __init__(
        self, directory: Path, master_image: str = _MASTER_IMAGE, *, registered: bool = True
    ) -> None:
        """Chooses addresses and makes the extender's certificates: configurations name both.

        Args:
            directory: Logs and certificates go to its `edl/`, which is emptied first.
            master_image: Image of the jobs' masters; simulated nodes run nothing.
            registered: Whether kube-scheduler's configuration gets the extender's entries.
        """
        self._master_image = master_image
        self.registered = registered
        self._directory = directory / "edl"
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        self._ports = dict(zip(EDL_COMPONENTS, free_ports(len(EDL_COMPONENTS)), strict=True))
        self._processes: dict[str, Process] = {}
        self._kubeconfigs: dict[str, Path] = {}
        certificate_files = certificates.files(SYSTEM_NAMESPACE, (), clock.now())
        self._tls = self._directory / "extender-tls"
        certificates.write(self._tls, certificate_files)

    @property
    def scheduler(self) -> dict[str, Any]:
        """kube-scheduler's configuration of `deploy/base`, with the extender's address here.

        The defaults where the extender is not registered.
        Without leader election: `e2e.cluster` runs one scheduler.
        """
        if not self.registered:
            return {}
        (configuration,) = _documents(_BASE / "scheduler-config.yaml")
        del configuration["leaderElection"]
        files = {"caData": "ca.crt", "certData": "client.crt", "keyData": "client.key"}
        tls = {
            field: base64.b64encode((self._tls / name).read_bytes()).decode()
            for field, name in files.items()
        }
        for entry in configuration["extenders"]:
            entry["urlPrefix"] = self.url("extender")
            entry["tlsConfig"] = tls
        return configuration

    @property
    def pids(self) -> dict[str, int]:
        """Component -> process id, for running components."""
        return {name: process.pid for name, process in self._processes.items()}

    def url(self, name: str) -> str:
        """A component's URL."""
        scheme = "http" if name == "reconciler" else "https"
        return f"{scheme}://127.0.0.1:{self._ports[name]}"

    def log(self, name: str) -> Path:
        """A component's log file; restarts append to it."""
        return self._directory / f"{name}.log"

    @contextmanager
    def installed_in(self, cluster: ClusterAccess) -> Iterator["EdlControlPlane"]:
        """Installs EDL in the cluster and runs its components until the end of the block.

        Raises:
            ControlPlaneError: a component did not get ready.
        """
        for name in EDL_COMPONENTS:
            self._kubeconfigs[name] = cluster.kubeconfig(
                f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-{name}",
                ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}"),
            )
        api = Client(load(cluster.admin), user_agent="edl-e2e")
        try:
            self._install(api)
            for name in EDL_COMPONENTS:
                self.start(name)
            for name in EDL_COMPONENTS:
                self.wait_ready(name)
            self._wait_admission(api)
            yield self
        finally:
            self.stop()
            api.close()

    def start(self, name: str) -> None:
        """Starts one component; call `wait_ready` to wait until it serves."""
        words = [
            *(sys.executable, "-m", name),
            *("--kubeconfig", str(self._kubeconfigs[name])),
            *("--listen", f"127.0.0.1:{self._ports[name]}"),
            *("--drain-seconds", "0", "--log-format", "json"),
            *self._own_flags(name),
        ]
        self._processes[name] = Process(name, words, self.log(name), cwd=_ROOT)

    def kill(self, name: str) -> None:
        """Kills one component with its worker, with SIGKILL."""
        self._processes.pop(name).kill()

    def stop(self) -> None:
        """Stops all components, with SIGKILL after a time limit."""
        processes, self._processes = self._processes, {}
        for process in processes.values():
            process.terminate()
        deadline_s = clock.monotonic_s() + _STOP_S
        for process in processes.values():
            if not process.wait(max(0.1, deadline_s - clock.monotonic_s())):
                process.kill()

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

    def _own_flags(self, name: str) -> tuple[str, ...]:
        if name == "webhook":
            place = self._directory / "webhook-certificate"
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
        """Creates everything of `deploy/base` but the components' own workloads."""
        documents = [
            document
            for path in sorted(_BASE.glob("*.yaml"), key=lambda path: path.name != "namespace.yaml")
            for document in _documents(path)
            if document["kind"] in RESOURCES and document["kind"] not in _ELSEWHERE
        ]
        for document in documents:
            if document["kind"].endswith("WebhookConfiguration"):
                document = by_url(document, self.url("webhook"))  # noqa: PLW2901 - the same, readdressed
            resource = RESOURCES[document["kind"]]
            api.send(request.create(resource, document["metadata"].get("namespace"), document))

    def _ready(self, name: str) -> bool:
        """Probes like a kubelet: without certificate check, by status code only."""
        host = f"127.0.0.1:{self._ports[name]}"
        connection: HTTPConnection = HTTPConnection(host, timeout=_PROBE_S)
        if self.url(name).startswith("https"):
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


def _documents(path: Path) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [dict(document) for document in documents if isinstance(document, Mapping)]
