"""The command line of each part of the control plane, and the paths of its files. Pure.

Flags as kwokctl and controller-runtime's test control plane use them; each that differs
from what a production cluster would have says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
CLIENTS = (CONTROLLERS, SCHEDULER, KWOK)
"""Components that talk to the API server."""
COMPONENTS = (ETCD, APISERVER, *CLIENTS)
"""In the order in which they need each other."""

SERVICE_RANGE = "10.0.0.0/24"
_ISSUER = "https://kubernetes.default.svc.cluster.local"
_OPEN_PATHS = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"
_NODE_GRACE = "9000s"  # longer than the leases of kwok


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """The set-up of kube-scheduler.

    Attributes:
        config: Laid over our KubeSchedulerConfiguration (mappings are merged, lists and
            values replaced): extenders, profiles, percentageOfNodesToScore, ...
        args: More command line flags, such as "--v=4".
    """

    config: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Paths of a cluster's files."""

    directory: Path

    @property
    def etcd_data(self) -> Path:
        """The data directory of etcd."""
        return self.directory / "etcd"

    def pki(self, name: str) -> Path:
        """Returns a certificate or key, such as "ca.crt"."""
        return self.directory / "pki" / name

    def kubeconfig(self, user: str) -> Path:
        """Returns the kubeconfig of a user."""
        return self.directory / "kubeconfig" / user.replace(":", "_").replace("/", "_")

    def config(self, name: str) -> Path:
        """Returns a component's configuration file."""
        return self.directory / "config" / f"{name}.yaml"

    def log(self, name: str) -> Path:
        """Returns a component's log."""
        return self.directory / "logs" / f"{name}.log"


@dataclass(frozen=True, slots=True)
class Ports:
    """One port per component on 127.0.0.1, and etcd's second one."""

    by_name: Mapping[str, int]
    etcd_peer: int

    @property
    def url(self) -> str:
        """URL of the API server."""
        return f"https://127.0.0.1:{self.by_name[APISERVER]}"


def etcd(layout: ClusterLayout, ports: Ports) -> list[str]:
    """Returns a single member, plain HTTP on loopback, without fsync: its data is thrown away."""
    client = f"http://127.0.0.1:{ports.by_name[ETCD]}"
    peer = f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        "--name=node0",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=node0={peer}",
        "--auto-compaction-retention=1",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
        "--unsafe-no-fsync",
    ]


def apiserver(layout: ClusterLayout, ports: Ports, extra: tuple[str, ...]) -> list[str]:
    """Real admission and RBAC; no flow control, for load tests measure EDL and not its queues."""
    return [
        f"--etcd-servers=http://127.0.0.1:{ports.by_name[ETCD]}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.by_name[APISERVER]}",
        f"--tls-cert-file={layout.pki('serving.crt')}",
        f"--tls-private-key-file={layout.pki('serving.key')}",
        f"--client-ca-file={layout.pki('ca.crt')}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={layout.pki('service-accounts.pub')}",
        f"--service-account-signing-key-file={layout.pki('service-accounts.key')}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=0",
        "--max-mutating-requests-inflight=0",
        *extra,
    ]


def controllers(layout: ClusterLayout, ports: Ports) -> list[str]:
    """All built-in controllers with a client that does not throttle."""
    kubeconfig = layout.kubeconfig(CONTROLLERS)
    return [
        f"--kubeconfig={kubeconfig}",
        *_serving(layout, ports, CONTROLLERS),
        f"--service-account-private-key-file={layout.pki('service-accounts.key')}",
        f"--root-ca-file={layout.pki('ca.crt')}",
        # With false it may not patch nodes, and their not-ready taint stays for ever.
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        f"--node-monitor-grace-period={_NODE_GRACE}",
    ]


def scheduler(layout: ClusterLayout, ports: Ports, options: SchedulerOptions) -> list[str]:
    """Its behaviour is in the configuration file (`scheduler_config`)."""
    return [
        f"--config={layout.config(SCHEDULER)}",
        *_serving(layout, ports, SCHEDULER),
        *options.args,
    ]


def scheduler_config(layout: ClusterLayout, options: SchedulerOptions) -> dict[str, Any]:
    """Returns the KubeSchedulerConfiguration: the defaults, a client without throttle, and `options`."""
    ours = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfig(SCHEDULER)),
            "qps": 1000,
            "burst": 2000,
        },
        "leaderElection": {"leaderElect": False},
    }
    return merged(ours, options.config)


def kwok(layout: ClusterLayout, ports: Ports) -> list[str]:
    """Its behaviour is in the configuration file (`stages.document`)."""
    return [
        f"--kubeconfig={layout.kubeconfig(KWOK)}",
        f"--config={layout.config(KWOK)}",
        f"--server-address=127.0.0.1:{ports.by_name[KWOK]}",
        "--v=WARN",
    ]


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it; mappings inside are merged too, all else is replaced."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _serving(layout: ClusterLayout, ports: Ports, name: str) -> list[str]:
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.by_name[name]}",
        f"--tls-cert-file={layout.pki('serving.crt')}",
        f"--tls-private-key-file={layout.pki('serving.key')}",
        _OPEN_PATHS,
    ]
