"""What this machine must have for real nodes, and what of it is missing."""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.errors import ClusterError

COMMANDS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2"}
"""Command -> the Debian package that has it."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CGROUPS = Path("/sys/fs/cgroup")
_COVERED = ("/var/lib/", "/var/log/", "/run/")


@dataclass(frozen=True, slots=True)
class HostTools:
    """Tools of this machine that real nodes use."""

    runc: Path
    plugins: Path
    """The directory of the CNI plug-ins."""


def find() -> HostTools:
    """What real nodes need.

    Raises:
        ClusterError: something is missing; one line that says how to get it.
    """
    runc = shutil.which("runc", path=SYSTEM_PATH)
    plugins = next((place for place in _PLUGINS if (place / "bridge").exists()), None)
    problem = _problem()
    if problem:
        raise ClusterError(f"no real nodes here: {problem}")
    missing = [] if runc else ["runc"]
    missing += [] if plugins else ["containernetworking-plugins"]
    missing += [] if shutil.which("iptables", path=SYSTEM_PATH) else ["iptables"]
    missing += [package for name, package in COMMANDS.items() if not _has(name)]
    if missing or runc is None or plugins is None:
        packages = " ".join(dict.fromkeys(missing))
        raise ClusterError(f"no real nodes here: install `apt-get install {packages}`")
    return HostTools(Path(runc), plugins)


def check_place(directory: Path) -> None:
    """Refuses a directory that nodes cover with their own.

    Raises:
        ClusterError: it is below /var/lib, /var/log or /run.
    """
    if str(directory).startswith(_COVERED):
        raise ClusterError(
            f"real nodes have their own /var/lib, /var/log and /run and cannot see {directory}; "
            "choose another place (EDL_CACHE moves the binaries)"
        )


def _problem() -> str:
    if sys.platform != "linux":
        return "they need Linux"
    if os.geteuid() != 0:
        return "they need root"
    if not os.access(_CGROUPS, os.W_OK) or not any(_CGROUPS.iterdir()):
        return f"{_CGROUPS} holds no cgroups that can be written"
    if "\toverlay\n" not in Path("/proc/filesystems").read_text():
        return "the kernel has no overlay file system"
    return ""


def _has(command: str) -> bool:
    return shutil.which(command, path=SYSTEM_PATH) is not None
