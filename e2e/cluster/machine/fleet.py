"""The real nodes of one cluster: starts them, waits until pods can run, takes images, ends them.

Made and ended by `e2e.cluster.local`. A node is process 1 (`init.py`) of its own namespaces
under a guard process like any component, so it ends with this process, and everything in it too.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import identity
from e2e.cluster.build import Binaries
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import configuration, image, needs, sweeper
from e2e.cluster.machine.configuration import NodeLayout
from e2e.cluster.machine.network import Link, Network, connect
from e2e.cluster.probe import died
from e2e.cluster.process import Process
from runtime.certs import Pair, issue
from runtime.clock import monotonic_s, now

_INIT = Path(__file__).with_name("init.py")
_SCRIPT = (sys.executable, "-I", "-S")
_READY_S = 120.0
_STOP_S = 3.0
_SWEEP_S = 60.0
_COMMAND_S = 120.0
_POLL_S = 0.05
_ASK_S = 0.25


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Facts about the control plane that nodes need."""

    ca: Pair
    port: int
    """The API server's."""
    read: Callable[[str], dict[str, Any]]
    """Asks it for the object at a URL, as an administrator."""


class RealNode:
    """One real node; made by `Fleet`. Not thread-safe."""

    def __init__(self, name: str, cgroup: str, ends: Link, layout: NodeLayout) -> None:
        """Takes what `Fleet` has prepared; starts nothing yet."""
        self.name = name
        self.cgroup = f"{cgroup}/{name}"
        self.ends = ends
        self.layout = layout
        self._process: Process | None = None

    @property
    def logs(self) -> Path:
        """The directory of its components' logs."""
        return self.layout.logs

    @property
    def pid(self) -> int:
        """Its first process, as this machine numbers it.

        Raises:
            ClusterError: it does not run.
        """
        starter = self._running().pid
        children = Path(f"/proc/{starter}/task/{starter}/children")
        deadline_s = monotonic_s() + _STOP_S
        while monotonic_s() < deadline_s and children.exists():
            if words := children.read_text().split():
                return int(words[0])
            time.sleep(_POLL_S)
        raise ClusterError(died(self._running()))

    def start(self) -> None:
        """Starts its first process and links it to this machine's network.

        Raises:
            ClusterError: it runs already, or ended at once.
        """
        if self._process is not None:
            raise ClusterError(f"{self.name} runs already; kill it first")
        sweeper.remove(self.cgroup)  # as a reboot would; kubelets look long at strange ones
        _make_cgroup(self.cgroup)
        spaces = ("--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "--kill-child")
        command = ["unshare", *spaces, "--mount-proc", *_SCRIPT, str(_INIT), str(self.layout.plan)]
        self._process = Process(self.name, command, self.layout.logs / "init.log")
        connect(self.ends, self.pid)

    def kill(self) -> None:
        """Ends it and all its containers at once, as a power failure would."""
        self._running().kill()
        self._process = None

    def stop(self) -> None:
        """As `kill`, but does nothing if it does not run."""
        if self._process is not None:
            self.kill()

    @property
    def guard_pid(self) -> int:
        """The process that ends when the node does; 0 while it does not run."""
        return self._process.pid if self._process else 0

    @property
    def exit_code(self) -> int | None:
        """None while it runs or was killed by us."""
        return self._process.exit_code if self._process else None

    def check(self) -> None:
        """Raises ClusterError if it ended by itself."""
        if self._running().exit_code is not None:
            raise ClusterError(died(self._running()))

    def run(self, command: Sequence[str]) -> str:
        """Runs a command in the node's namespaces; what it printed.

        Raises:
            ClusterError: it failed.
        """
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--pid", "--", *command]
        done = subprocess.run(
            enter, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
        if done.returncode != 0:
            raise ClusterError(f"{self.name}: `{command[0]}` failed: {done.stderr.strip()}")
        return done.stdout

    def _running(self) -> Process:
        if self._process is None:
            raise ClusterError(f"{self.name} does not run")
        return self._process


class Fleet:
    """All real nodes of a cluster, "real-1" and so on."""

    def __init__(
        self,
        directory: Path,
        binaries: Binaries,
        count: int,
        images: Iterable[Path],
        *,
        dns: bool = False,
    ) -> None:
        """Finds what the machine has for `count` nodes; starts nothing yet.

        Args:
            directory: Emptied first; logs stay in it.
            binaries: Those of `build.NODE`.
            count: How many.
            images: Archives that every node has from its start.
            dns: Pods ask a DNS of the cluster, which somebody has to run at `dns_address`.

        Raises:
            ClusterError: the machine cannot; says why and what to do.
        """
        self._tools = needs.find()
        self._directory = directory
        self._binaries = binaries
        self._images = tuple(images)
        for place in (directory, binaries.directory, *self._images):
            needs.check_place(place)
        self._network = Network.claim()
        self._dns = self.dns_address if dns else ""
        self._cgroup = f"edl-e2e-{self._network.number}"
        self._sweeper: subprocess.Popen[bytes] | None = None
        self.nodes = {
            f"real-{number}": RealNode(
                f"real-{number}",
                self._cgroup,
                self._network.link(number),
                NodeLayout(directory / f"real-{number}"),
            )
            for number in range(1, count + 1)
        }

    @property
    def gateway(self) -> str:
        """This machine's address for nodes and pods; the API server's certificate has it."""
        return self._network.link(1).gateway

    @property
    def services(self) -> str:
        """The cluster's range of Services."""
        return self._network.link(1).services

    @property
    def api_service(self) -> str:
        """The address of the Service `kubernetes`; the API server's certificate has it."""
        return self._network.api_service

    @property
    def dns_address(self) -> str:
        """The clusterIP of a DNS for the pods."""
        return self._network.dns_service

    def up(self, plane: ControlPlane) -> None:
        """Starts all; returns when pods can run on all.

        Raises:
            ClusterError: one does not start; names its log.
        """
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        pause = self._directory / "pause.tar"
        entries = [image.Entry("/pause", self._binaries.path("pause"), mode=0o755)]
        image.write(
            pause, configuration.PAUSE_IMAGE, [entries], image.ContainerSettings(("/pause",))
        )
        libraries = [str(node.layout.library) for node in self.nodes.values()]
        self._sweeper = subprocess.Popen(
            [*_SCRIPT, sweeper.__file__, self._cgroup, *libraries],
            stdin=subprocess.PIPE,
            start_new_session=True,  # it must outlive us
        )
        for node in self.nodes.values():
            self._write(node, plane, (pause, *self._images))
            node.start()
        for node in self.nodes.values():
            _wait_ready(node, plane)

    def load(self, archive: Path) -> None:
        """Gives an image to every node.

        Raises:
            ClusterError: a node does not take it.
        """
        needs.check_place(archive.resolve())
        for node in self.nodes.values():
            command = configuration.import_command(archive.resolve())
            node.run([str(self._binaries.path(command[0])), *command[1:]])

    def down(self) -> None:
        """Ends all and removes what they leave behind."""
        for node in self.nodes.values():
            node.stop()
        if self._sweeper is not None:
            assert self._sweeper.stdin is not None
            self._sweeper.stdin.close()
            with suppress(subprocess.TimeoutExpired):  # it continues without us
                self._sweeper.wait(_SWEEP_S)
            self._sweeper = None
        self._network.release()

    def _write(self, node: RealNode, plane: ControlPlane, images: tuple[Path, ...]) -> None:
        layout, ends, name = node.layout, node.ends, node.name
        for place in (layout.library, layout.logs, layout.config("cni")):
            place.mkdir(parents=True)
        serving = issue(plane.ca, f"system:node:{name}", now(), hosts=(name, ends.address))
        layout.config("ca.crt").write_bytes(plane.ca.cert)
        layout.config("kubelet.crt").write_bytes(serving.cert)
        identity.write_secret(layout.config("kubelet.key"), serving.key)
        url = f"https://{ends.gateway}:{plane.port}"
        for part, user, groups in (
            ("kubelet", f"system:node:{name}", ("system:nodes",)),
            ("kube-proxy", "system:kube-proxy", ()),
        ):
            leaf = identity.client(plane.ca, user, groups, now())
            text = identity.kubeconfig(url, plane.ca.cert, user, leaf)
            identity.write_secret(layout.config(f"{part}.kubeconfig"), text)
        runc, plugins = self._tools.runc, self._tools.plugins
        toml = configuration.containerd(layout, runc, plugins)
        layout.config("containerd.toml").write_text(toml)
        for path, content in (
            (layout.config("cni") / "10-edl.conflist", configuration.cni(ends.pods)),
            (
                layout.config("kubelet.yaml"),
                configuration.kubelet(layout, ends, node.cgroup, self._dns),
            ),
            (layout.config("kube-proxy.yaml"), configuration.kube_proxy(layout, name, ends.pods)),
            (layout.plan, configuration.plan(layout, name, ends, self._binaries.directory, images)),
        ):
            path.write_text(json.dumps(content, indent=1))  # JSON is YAML


def _make_cgroup(name: str) -> None:
    """Makes the node's cgroup in every hierarchy; the kubelet wants to find it."""
    root = sweeper.CGROUPS
    offered = root / "cgroup.controllers"
    if not offered.exists():  # version 1: a hierarchy for each controller
        for hierarchy in root.iterdir():
            if hierarchy.is_dir():
                (hierarchy / name).mkdir(parents=True, exist_ok=True)
        return
    (root / name).mkdir(parents=True, exist_ok=True)
    enabled_controllers = " ".join(f"+{controller}" for controller in offered.read_text().split())
    for parent in (root, (root / name).parent):
        (parent / "cgroup.subtree_control").write_text(enabled_controllers)


def _wait_ready(node: RealNode, plane: ControlPlane) -> None:
    deadline_s = monotonic_s() + _READY_S
    url = f"https://127.0.0.1:{plane.port}/api/v1/nodes/{node.name}"
    while not is_ready(plane.read(url)):
        node.check()
        if monotonic_s() > deadline_s:
            raise ClusterError(f"{node.name} was not ready within {_READY_S:.0f} s ({node.logs})")
        time.sleep(_ASK_S)


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether pods are let onto a v1 Node: Ready, and no taint of Kubernetes' own on it."""
    taints = node.get("spec", {}).get("taints", [])
    conditions = node.get("status", {}).get("conditions", [])
    ready = any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
    return ready and not any(taint["key"].startswith("node.kubernetes.io/") for taint in taints)
