"""The programs of users and admins, on a cluster of a journey."""

import os
import subprocess
import sys
from collections.abc import Mapping

import yaml

from e2e.cluster.local import Cluster

COMMAND_S = 60.0
"""Ends a hang."""
Done = subprocess.CompletedProcess[str]


def kubectl(cluster: Cluster, *words: str, text: str = "", timeout_s: float = COMMAND_S) -> Done:
    """Runs the cluster's own kubectl as an administrator, with `text` as its input."""
    return run(cluster, [str(cluster.kubectl), *words], text=text, timeout_s=timeout_s)


def edl(cluster: Cluster, namespace: str, *words: str) -> Done:
    """Runs `edl` as a user whose kubectl has this namespace."""
    config = yaml.safe_load(cluster.admin.read_text(encoding="utf-8"))
    for entry in config["contexts"]:
        entry["context"]["namespace"] = namespace
    kubeconfig = cluster.admin.with_name(f"admin-{namespace}.kubeconfig")
    kubeconfig.touch(mode=0o600)
    kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
    path = f"{cluster.kubectl.parent}:{os.environ['PATH']}"
    command = [sys.executable, "-m", "edl", *words]
    return run(cluster, command, environ={"PATH": path, "KUBECONFIG": str(kubeconfig)})


def run(
    cluster: Cluster,
    command: list[str],
    *,
    text: str = "",
    environ: Mapping[str, str] | None = None,
    timeout_s: float = COMMAND_S,
) -> Done:
    """Runs a command as an administrator of the cluster, to its end.

    Args:
        cluster: KUBECONFIG names its administrator.
        command: The command and its arguments.
        text: Its input.
        environ: Further variables.
        timeout_s: How long it may take.
    """
    return subprocess.run(
        command,
        input=text,
        env={**os.environ, "KUBECONFIG": str(cluster.admin), **(environ or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
