"""A running cluster: starts the components, restarts single ones, stops them in order.

```python
with running(directory) as cluster:
    client = Client(config.load(cluster.admin))
```
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from e2e.cluster import build, components, identity, stages
from e2e.cluster.components import (
    APISERVER,
    CLIENTS,
    COMPONENTS,
    CONTROLLERS,
    ETCD,
    KWOK,
    SCHEDULER,
    ClusterLayout,
    Ports,
    SchedulerOptions,
)
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import needs
from e2e.cluster.machine.configuration import apiserver as node_flags
from e2e.cluster.machine.fleet import ControlPlane, Fleet, RealNode
from e2e.cluster.ports import is_collision, pick
from e2e.cluster.probe import Check, Prober
from e2e.cluster.process import Process
from e2e.cluster.toolchain import NODE
from runtime.certs import Pair, new_ca
from runtime.clock import now

READY_S = 60.0
"""Longest start of one component; usual is 1 to 4 s."""

STOP_S = 3.0
"""After that a component is killed: an API server without etcd ignores SIGTERM."""

_USERS = {
    # Those that Kubernetes has built-in roles for, and kwok, which has none.
    CONTROLLERS: ("system:kube-controller-manager", ()),
    SCHEDULER: ("system:kube-scheduler", ()),
    KWOK: ("kwok", (identity.ADMINS,)),
}
_ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a cluster; each has a default.

    Attributes:
        scheduler: kube-scheduler's configuration.
        apiserver_args: More flags of kube-apiserver.
        stop_time_ms: How long pods take to end after SIGTERM, unless annotated.
        real_nodes: How many nodes run real containers (`machine/`).
        images: Archives of container images for them.
        node_binaries: What they run; needed if there are any.
        dns: Their pods ask a DNS of the cluster, which somebody has to run.
    """

    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    apiserver_args: tuple[str, ...] = ()
    stop_time_ms: int = stages.STOP_TIME_MS
    real_nodes: int = 0
    images: tuple[Path, ...] = ()
    node_binaries: build.Binaries | None = None
    dns: bool = False


class Cluster:
    """A control plane whose processes are ours; made by `running`. Not thread-safe."""

    def __init__(self, binaries: build.Binaries, directory: Path, options: Options) -> None:
        """Makes certificates and configuration in an empty `directory`; starts nothing yet."""
        self.binaries = binaries
        self.options = options
        self.ca: Pair = new_ca("edl-local", now())
        self.ports: Ports = pick()
        self._layout = ClusterLayout(directory)
        self._processes: dict[str, Process] = {}
        self._fleet = _fleet(directory, options)
        self._write_identities()
        self._write_configuration()
        pki = self._layout.pki
        self._prober = Prober(pki("ca.crt"), pki("admin.crt"), pki("admin.key"))

    @property
    def url(self) -> str:
        """URL of the API server."""
        return self.ports.url

    @property
    def admin(self) -> Path:
        """A kubeconfig that may do everything."""
        return self._layout.kubeconfig(_ADMIN)

    @property
    def serving(self) -> tuple[Path, Path]:
        """The API server's certificate and its key."""
        return self._layout.pki("serving.crt"), self._layout.pki("serving.key")

    @property
    def kubectl(self) -> Path:
        """The kubectl that fits this cluster."""
        return self.binaries.path("kubectl")

    @property
    def scheduler_program(self) -> Path:
        """The kube-scheduler binary of this cluster, for a second scheduler."""
        return self.binaries.path(SCHEDULER)

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """Returns a kubeconfig for any user, by client certificate.

        Args:
            user: Such as "system:serviceaccount:edl-system:edl-reconciler"; a service
                account is in its usual groups without their being named.
            groups: More groups.
        """
        every = dict.fromkeys((*identity.groups_of(user), *groups))
        leaf = identity.client(self.ca, user, tuple(every), now())
        return self._write_kubeconfig(self._layout.kubeconfig(user), user, leaf)

    @property
    def real_nodes(self) -> dict[str, RealNode]:
        """Nodes that run real containers, by name: "real-1" and so on."""
        return self._fleet.nodes if self._fleet else {}

    @property
    def dns_address(self) -> str:
        """The clusterIP of a DNS for the pods of real nodes; "" without these."""
        return self._fleet.dns_address if self._fleet else ""

    def load(self, image: Path) -> None:
        """Gives a container image (see `machine.python_image`) to every real node.

        Raises:
            ClusterError: a node does not take it.
        """
        if self._fleet:
            self._fleet.load(image)

    def log(self, name: str) -> Path:
        """Returns a component's log; kept over restarts."""
        return self._layout.log(name)

    def pid(self, name: str) -> int:
        """Returns a running component's process id.

        Raises:
            ClusterError: no component of that name runs.
        """
        return self._process(name).pid

    def exit_code(self, name: str) -> int | None:
        """None while a component runs; 128 + signal for one that another process killed.

        Raises:
            ClusterError: see `pid`.
        """
        return self._process(name).exit_code

    def kill(self, name: str) -> None:
        """Ends a component with SIGKILL; the others are left as they are."""
        self._process(name).kill()
        del self._processes[name]

    def start(self, name: str) -> None:
        """Starts a component that was killed: same port, same data; returns when it is ready.

        Raises:
            ClusterError: it runs already, or does not become ready.
        """
        if name in self._processes:
            raise ClusterError(f"{name} runs already; kill it first")
        self._launch(name)
        self._wait(name)

    def configure_scheduler(self, options: SchedulerOptions) -> None:
        """Restarts kube-scheduler with another configuration; returns when it is ready."""
        self.options = replace(self.options, scheduler=options)
        if SCHEDULER in self._processes:
            self._stop(SCHEDULER)
        self._write_scheduler()
        self.start(SCHEDULER)

    def up(self) -> None:
        """Starts everything; returns when a pod could be scheduled.

        Raises:
            ClusterError: a component did not become ready; names its log.
        """
        self._launch(ETCD)
        self._wait(ETCD)
        self._launch(APISERVER)
        self._wait(APISERVER)
        for name in CLIENTS:
            self._launch(name)
        self._wait(*CLIENTS)
        account = f"{self.url}/api/v1/namespaces/default/serviceaccounts/default"
        self._prober.wait([Check(self._processes[CONTROLLERS], account)], READY_S)
        if self._fleet:
            port = self.ports.by_name[APISERVER]
            self._fleet.up(ControlPlane(self.ca, port, self._prober.read))

    def down(self) -> None:
        """Stops everything, etcd last; what does not leave in time is killed."""
        if self._fleet:
            self._fleet.down()
        self._stop(APISERVER, *CLIENTS)
        self._stop(ETCD)
        self._prober.close()

    def _process(self, name: str) -> Process:
        if name not in self._processes:
            running_ones = ", ".join(self._processes) or "none"
            raise ClusterError(f"no component {name!r} runs; there are: {running_ones}")
        return self._processes[name]

    def _launch(self, name: str) -> None:
        command = [str(self.binaries.path(name)), *self._arguments(name)]
        self._processes[name] = Process(name, command, self.log(name))

    def _wait(self, *names: str) -> None:
        checks = [Check(self._processes[name], self._health(name)) for name in names]
        self._prober.wait(checks, READY_S)

    def _stop(self, *names: str) -> None:
        leaving = [self._processes.pop(name) for name in names if name in self._processes]
        for process in leaving:
            process.terminate()
        for process in leaving:
            if not process.wait(STOP_S):
                process.kill()

    def _health(self, name: str) -> str:
        scheme = "http" if name in (ETCD, KWOK) else "https"
        path = {ETCD: "health", CONTROLLERS: "healthz"}.get(name, "readyz")
        return f"{scheme}://127.0.0.1:{self.ports.by_name[name]}/{path}"

    def _arguments(self, name: str) -> list[str]:
        layout, ports, options = self._layout, self.ports, self.options
        commands = {
            ETCD: lambda: components.etcd(layout, ports),
            APISERVER: lambda: components.apiserver(layout, ports, self._apiserver_args()),
            CONTROLLERS: lambda: components.controllers(layout, ports),
            SCHEDULER: lambda: components.scheduler(layout, ports, options.scheduler),
            KWOK: lambda: components.kwok(layout, ports),
        }
        if name not in commands:
            raise ClusterError(f"no component {name!r}; there are: {', '.join(COMPONENTS)}")
        return commands[name]()

    def _apiserver_args(self) -> tuple[str, ...]:
        if self._fleet is None:
            return self.options.apiserver_args
        pki, fleet = self._layout.pki, self._fleet
        files = (pki("admin.crt"), pki("admin.key"), pki("ca.crt"))
        ours = node_flags(fleet.gateway, fleet.services, *files)
        return (*ours, *self.options.apiserver_args)

    def _write_identities(self) -> None:
        pki = self._layout.pki
        pki("ca.crt").parent.mkdir(parents=True)
        self._layout.kubeconfig(_ADMIN).parent.mkdir()
        pki("ca.crt").write_bytes(self.ca.cert)
        addresses = (self._fleet.gateway, self._fleet.api_service) if self._fleet else ()
        serving = identity.serving(self.ca, now(), addresses)
        pki("serving.crt").write_bytes(serving.cert)
        identity.write_secret(pki("serving.key"), serving.key)
        accounts = identity.signing_key()
        pki("service-accounts.pub").write_bytes(accounts.cert)
        identity.write_secret(pki("service-accounts.key"), accounts.key)
        admin = identity.client(self.ca, _ADMIN, (identity.ADMINS,), now())
        pki("admin.crt").write_bytes(admin.cert)
        identity.write_secret(pki("admin.key"), admin.key)
        self._write_kubeconfig(self.admin, _ADMIN, admin)
        for name, (user, groups) in _USERS.items():
            leaf = identity.client(self.ca, user, groups, now())
            self._write_kubeconfig(self._layout.kubeconfig(name), user, leaf)

    def _write_kubeconfig(self, path: Path, user: str, leaf: Pair) -> Path:
        text = identity.kubeconfig(self.url, self.ca.cert, user, leaf)
        return identity.write_secret(path, text)

    def _write_configuration(self) -> None:
        self._layout.config(SCHEDULER).parent.mkdir()
        self._write_scheduler()
        self._layout.config(KWOK).write_text(stages.document(self.options.stop_time_ms))

    def _write_scheduler(self) -> None:
        config = components.scheduler_config(self._layout, self.options.scheduler)
        self._layout.config(SCHEDULER).write_text(json.dumps(config, indent=1))  # JSON is YAML


@contextmanager
def running(
    directory: Path,
    *,
    scheduler: SchedulerOptions | None = None,
    apiserver_args: Sequence[str] = (),
    stop_time_ms: int = stages.STOP_TIME_MS,
    binaries: build.Binaries | None = None,
    real_nodes: int = 0,
    images: Sequence[Path] = (),
    dns: bool = False,
) -> Iterator[Cluster]:
    """Runs a cluster within the context. It ends with this process, even if that is killed.

    Args:
        directory: Gets the cluster's files; created, and emptied first of an earlier cluster.
        scheduler: How kube-scheduler is set up; None means Kubernetes' defaults.
        apiserver_args: More flags of kube-apiserver.
        stop_time_ms: How long pods take to end after SIGTERM, unless annotated.
        binaries: From `build.ensure`; None means to build what is missing.
        real_nodes: How many nodes run real containers; 0 needs nothing of the machine.
        images: Container images for them, such as `machine.python_image.build` makes.
        dns: Their pods ask a DNS at `Cluster.dns_address`, which the caller runs.

    Raises:
        ClusterError: it cannot be built or does not start; the text names the log.
    """
    cache = build.cache_root(os.environ)
    if real_nodes:
        needs.find()  # before anything is built
    binaries = binaries or build.ensure(cache)
    options = Options(
        scheduler or SchedulerOptions(),
        tuple(apiserver_args),
        stop_time_ms,
        real_nodes,
        tuple(image.resolve() for image in images),
        build.ensure(cache, kit=NODE) if real_nodes else None,
        dns,
    )
    cluster = _started(binaries, directory.resolve(), options)
    try:
        yield cluster
    finally:
        cluster.down()


def _started(binaries: build.Binaries, directory: Path, options: Options) -> Cluster:
    try:
        return _start(binaries, directory, options)
    except ClusterError as error:
        if not is_collision(str(error)):
            raise
    return _start(binaries, directory, options)  # once more, with other ports


def _fleet(directory: Path, options: Options) -> Fleet | None:
    if options.node_binaries is None:
        return None
    return Fleet(
        directory / "nodes",
        options.node_binaries,
        options.real_nodes,
        options.images,
        dns=options.dns,
    )


def _start(binaries: build.Binaries, directory: Path, options: Options) -> Cluster:
    for part in ("etcd", "pki", "kubeconfig", "config", "logs"):
        shutil.rmtree(directory / part, ignore_errors=True)
    cluster = Cluster(binaries, directory, options)
    try:
        cluster.up()
    except BaseException:
        cluster.down()
        raise
    return cluster
