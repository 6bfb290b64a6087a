"""Configuration of kubelet, containerd, kube-proxy and the CNI plug-ins of a real node. Pure.

Paths such as /var/lib/kubelet are the node's own: `init.py` puts its directories there.
Each setting that differs from what a production node would have says why.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.machine.network import Link

SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "edl.local/pause:1"
LABEL_TYPE = "real"
"""Value of the label `type` by which tests choose real nodes; kwok leaves them alone."""
KUBELET_PORT = 10250
DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """Where a real node keeps its files; all below one directory."""

    directory: Path

    @property
    def library(self) -> Path:
        """Its /var/lib."""
        return self.directory / "lib"

    @property
    def logs(self) -> Path:
        """Its /var/log, with its components' logs."""
        return self.directory / "log"

    @property
    def plan(self) -> Path:
        """The plan file for `init.py`."""
        return self.directory / "init.json"

    def config(self, name: str) -> Path:
        """A configuration file, certificate or key."""
        return self.directory / "config" / name


def containerd(layout: NodeLayout, runc: Path, plugins: Path) -> str:
    """Containerd's configuration (TOML): runc without systemd, our pause image, no registry."""
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "{SOCKET}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE_IMAGE}"

[plugins.'io.containerd.snapshotter.v1.overlayfs']
# Without it each container's end waits until all the machine's files are on disk.
mount_options = ["volatile"]

[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# Without CAP_SYS_RESOURCE, which many virtual machines lack, no sandbox starts otherwise.
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{plugins}"]
conf_dir = "{layout.config("cni")}"
"""


def cni(pods: str) -> dict[str, Any]:
    """A bridge of the node's own; other nodes' pods are reached by routes, so nothing is masked."""
    return {
        "cniVersion": "1.0.0",
        "name": "edl",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "ranges": [[{"subnet": pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            }
        ],
    }


def kubelet(layout: NodeLayout, ends: Link, cgroup: str, dns: str) -> dict[str, Any]:
    """A KubeletConfiguration for a machine that is not the kubelet's alone.

    Args:
        layout: The node's files.
        ends: Its addresses.
        cgroup: Its cgroup.
        dns: The address that pods ask for names; "" leaves them this machine's DNS.
    """
    names = {"clusterDNS": [dns], "clusterDomain": DOMAIN} if dns else {}
    return {
        **names,
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ends.address,
        "port": KUBELET_PORT,
        "authentication": {
            "anonymous": {"enabled": False},
            "x509": {"clientCAFile": str(layout.config("ca.crt"))},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.config("kubelet.crt")),
        "tlsPrivateKeyFile": str(layout.config("kubelet.key")),
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # The machine's disk and processes are everybody's: nothing is reserved or evicted.
        "localStorageCapacityIsolation": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "oomScoreAdj": 0,  # less needs CAP_SYS_RESOURCE
    }


def kube_proxy(layout: NodeLayout, name: str, pods: str) -> dict[str, Any]:
    """A KubeProxyConfiguration; zeros leave the machine's connection tracking as it is."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(layout.config("kube-proxy.kubeconfig"))},
        "mode": "iptables",
        "clusterCIDR": pods,
        "hostnameOverride": name,
        "oomScoreAdj": 0,
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
    }


def plan(
    layout: NodeLayout, name: str, ends: Link, binaries: Path, images: tuple[Path, ...]
) -> dict[str, Any]:
    """What `init.py` does, in the order in which it does it."""
    return {
        "name": name,
        "mounts": {"/var/lib": str(layout.library), "/var/log": str(layout.logs)},
        "address": ends.address,
        "gateway": ends.gateway,
        "logs": str(layout.logs),
        "path": str(binaries),
        "runtime": ["containerd", "--config", str(layout.config("containerd.toml"))],
        "ready": ["ctr", "--address", SOCKET, "version"],
        "imports": [[*_IMPORT, str(image)] for image in images],
        "services": [
            [
                "kubelet",
                f"--config={layout.config('kubelet.yaml')}",
                f"--kubeconfig={layout.config('kubelet.kubeconfig')}",
                f"--hostname-override={name}",
                f"--node-ip={ends.address}",
                f"--node-labels=type={LABEL_TYPE}",
            ],
            ["kube-proxy", f"--config={layout.config('kube-proxy.yaml')}"],
        ],
    }


def apiserver(gateway: str, services: str, cert: Path, key: Path, ca: Path) -> tuple[str, ...]:
    """Additional flags of kube-apiserver with real nodes, so that each can reach the other."""
    return (
        f"--service-cluster-ip-range={services}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={gateway}",
        "--endpoint-reconciler-type=lease",  # pods find it at the Service `kubernetes`
        f"--kubelet-client-certificate={cert}",
        f"--kubelet-client-key={key}",
        f"--kubelet-certificate-authority={ca}",
        "--kubelet-preferred-address-types=InternalIP",
    )


def import_command(image: Path) -> list[str]:
    """Loads an image archive into a node's containerd."""
    return [*_IMPORT, str(image)]


_IMPORT = ("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", "--local")
