"""The binaries of a local cluster, with their Go modules and inputs. Pure.

Every cluster needs the control plane. Real nodes are optional and have separate modules, so that a
change of theirs does not rebuild Kubernetes.
"""

import dataclasses
import hashlib
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).with_name("tools")
DEPLOYMENT_TOOLS = Path(__file__).with_name("deployment")
CERT_MANAGER_TOOLS = Path(__file__).with_name("cert-manager")
KARPENTER_TOOLS = Path(__file__).with_name("karpenter")
PROMETHEUS_TOOLS = Path(__file__).with_name("prometheus")
NODE_TOOLS = Path(__file__).with_name("machine") / "tools"
PACKAGES: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
"""Binary -> main package; the small ones first, so that a broken set-up shows early."""


@dataclass(frozen=True, slots=True)
class Toolchain:
    """Binaries that are built together, from one Go module or several.

    Attributes:
        title: What is built, for the user.
        modules: Directory of a module -> its binaries and their main packages.
        tags: Of `go build`.
        takes: How long, for the user.
        folder: Of the cache.
    """

    title: str
    modules: Mapping[Path, Mapping[str, str]]
    tags: str
    takes: str
    folder: str

    @property
    def packages(self) -> dict[str, str]:
        """Binary -> main package, of all modules."""
        return {
            name: package
            for packages in self.modules.values()
            for name, package in packages.items()
        }


CONTROL_PLANE = Toolchain("Kubernetes", {TOOLS: PACKAGES}, "", "5 to 10 minutes", "kubernetes")
_AROUND = ("etcd", "kwok")
"""What is the same for all versions of Kubernetes, of the module of the control plane."""
_VERSIONS = Path(__file__).with_name("versions")


def _version(minor: str) -> Toolchain:
    around = {name: PACKAGES[name] for name in _AROUND}
    of_version = {name: PACKAGES[name] for name in PACKAGES if name not in _AROUND}
    modules = {TOOLS: around, _VERSIONS / minor: of_version}  # the last names the version
    return dataclasses.replace(CONTROL_PLANE, modules=modules)


KUBERNETES: Mapping[str, Toolchain] = {
    "1.35": _version("1.35"),
    "1.36": CONTROL_PLANE,
    "1.37": _version("1.37"),
}
"""Minor version -> its control plane; `make matrix` tries each one."""

NODE = Toolchain(
    "real nodes for Kubernetes",
    {
        # containerd needs newer modules of Kubernetes than Kubernetes itself.
        NODE_TOOLS / "containerd": {
            "pause": "./pause",
            "ctr": "github.com/containerd/containerd/v2/cmd/ctr",
            "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            "containerd": "github.com/containerd/containerd/v2/cmd/containerd",
        },
        NODE_TOOLS / "kubernetes": {
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
        },
    },
    "no_btrfs,no_zfs,no_devmapper",  # file systems that need C libraries
    "3 to 12 minutes",
    "nodes",
)

KARPENTER = Toolchain(
    "Karpenter",
    {
        KARPENTER_TOOLS: {
            "karpenter-crds": "./crds",
            "karpenter": "sigs.k8s.io/karpenter/kwok",
        }
    },
    "",
    "3 to 12 minutes",
    "karpenter",
)
"""An autoscaler whose nodes kwok plays."""

_PROMETHEUS = "github.com/prometheus/prometheus/cmd"
PROMETHEUS = Toolchain(
    "Prometheus",
    {
        PROMETHEUS_TOOLS: {
            "promtool": f"{_PROMETHEUS}/promtool",
            "prometheus": f"{_PROMETHEUS}/prometheus",
        }
    },
    "remove_all_sd",  # service discovery of clouds, which is most of it
    "2 to 5 minutes",
    "prometheus",
)
"""For EDL's alerts: rules are checked, and fire."""
HELM = Toolchain(
    "Helm",
    {DEPLOYMENT_TOOLS / "helm": {"helm": "helm.sh/helm/v4/cmd/helm"}},
    "",
    "2 to 6 minutes",
    "helm",
)
DNS = Toolchain(
    "CoreDNS",
    {DEPLOYMENT_TOOLS / "coredns": {"coredns": "./dns"}},
    "",
    "1 to 4 minutes",
    "coredns",
)
"""The DNS of a cluster, for real nodes."""
CERT_MANAGER = Toolchain(
    "cert-manager",
    {CERT_MANAGER_TOOLS: {"cert-manager-controllers": "./controllers"}},
    "",
    "2 to 8 minutes",
    "cert-manager",
)
"""Those of its controllers that issue certificates of a CA."""

_PINNED = re.compile(r"^\s*(?:require )?([\w./-]+) (v[\w.+-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All inputs of a build.

    Attributes:
        go_mod: Of the kit's module; of all, one after the other.
        go_sum: As `go_mod`, and our own Go files.
        platform: Operating system and processor.
        packages: The main packages.
        tags: Of `go build`.
    """

    go_mod: str
    go_sum: str
    platform: str
    packages: tuple[str, ...]
    tags: str

    @property
    def versions(self) -> dict[str, str]:
        """Module -> version of the modules that go.mod asks for itself."""
        return {match[1]: match[2] for match in _PINNED.finditer(self.go_mod)}

    @property
    def kubernetes(self) -> str:
        """Such as "v1.36.3"."""
        return self.versions["k8s.io/kubernetes"]

    @property
    def version(self) -> str:
        """The version of Kubernetes, or else of the first module that go.mod asks for."""
        versions = self.versions
        return versions.get("k8s.io/kubernetes") or next(iter(versions.values()))

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build`; without the version clients would see v0.0.0."""
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        names = {
            "k8s.io/component-base/version.gitVersion": self.version,
            "k8s.io/component-base/version.gitMajor": major,
            "k8s.io/component-base/version.gitMinor": minor,
            "k8s.io/client-go/pkg/version.gitVersion": self.version,
        }
        defines = " ".join(f"-X {name}={value}" for name, value in names.items())
        tags = ("-tags", self.tags) if self.tags else ()
        return ("-trimpath", *tags, "-ldflags", f"-s -w {defines}")

    @property
    def key(self) -> str:
        """Names the build: the version and a hash of all the rest."""
        parts = (self.go_mod, self.go_sum, self.platform, *self.flags, *self.packages)
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"{self.version}-{digest[:12]}"


def recipe(kit: Toolchain = CONTROL_PLANE) -> Recipe:
    """Returns the recipe of this source tree and machine."""
    return Recipe(
        go_mod="".join((module / "go.mod").read_text() for module in kit.modules),
        go_sum="".join(_texts(module) for module in kit.modules),
        platform=f"{platform.system()}/{platform.machine()}",
        packages=tuple(kit.packages.values()),
        tags=kit.tags,
    )


def _texts(module: Path) -> str:
    """Returns a module's go.sum, and the sources that are its own."""
    own = sorted(module.glob("*/*.go"))
    return "".join(path.read_text() for path in (module / "go.sum", *own))
