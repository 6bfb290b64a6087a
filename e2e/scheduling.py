"""The three ways to run EDL with kube-scheduler (docs/install.md), as files for local processes.

Pure but for reading `deploy/`: in a cluster schedulers call the extender through its Service; here they call
it by address, and that is all that differs from the deployed configuration.
"""

import base64
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from policy.names import POLICY_KEY

OWN_SCHEDULER = "edl-scheduler"
"""Name of the second scheduler: its profile, its service account and its lease."""
_DEPLOY = Path(__file__).parents[1] / "deploy"
BASE = _DEPLOY / "base"
OWN = _DEPLOY / "own-scheduler"
_TLS_FILES = {"caData": "ca.crt", "certData": "client.crt", "keyData": "client.key"}


class SchedulingMode(StrEnum):
    """The ways in which training pods are scheduled."""

    EXTENDER = "extender"
    """By the cluster's scheduler, whose configuration has the extender's entries."""
    WITHOUT_EXTENDER = "without-extender"
    """By the untouched scheduler of the cluster."""
    OWN_SCHEDULER = "own-scheduler"
    """A separate kube-scheduler with the extender places trainers; the unmodified one places services."""


def cluster_scheduler(mode: SchedulingMode, extender_url: str, tls: Path) -> dict[str, Any]:
    """Configuration of the cluster's scheduler; {} for the defaults.

    Without leader election: `e2e.cluster` runs one.
    """
    if mode is not SchedulingMode.EXTENDER:
        return {}
    (configuration,) = documents(BASE / "scheduler-config.yaml")
    del configuration["leaderElection"]
    return _with_extender_at(configuration, extender_url, tls)


def own_scheduler(kubeconfig: Path, extender_url: str, tls: Path) -> dict[str, Any]:
    """Returns the configuration of the second scheduler, which runs outside of the cluster."""
    (configuration,) = documents(OWN / "scheduler-config.yaml")
    configuration["clientConnection"]["kubeconfig"] = str(kubeconfig)
    return _with_extender_at(configuration, extender_url, tls)


def own_flags() -> list[str]:
    """Returns the flags in the second scheduler's manifest, without the flag of its configuration."""
    (deployment,) = documents(OWN / "scheduler.yaml")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [word for word in container["command"][1:] if not word.startswith("--config=")]


def manifests(mode: SchedulingMode, base: Path = BASE) -> list[dict[str, Any]]:
    """Every object of `deploy/` that this way needs, the namespace first.

    Args:
        mode: The way.
        base: `deploy/base`, of this tree or another.
    """
    paths = sorted(base.glob("*.yaml"), key=lambda path: path.name != "namespace.yaml")
    if mode is SchedulingMode.OWN_SCHEDULER:
        paths += [OWN / "rbac.yaml", OWN / "scheduler.yaml"]
    return [document for path in paths for document in documents(path)]


def with_own_scheduler(policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the policy's ConfigMap, with training pods on the second scheduler."""
    settings = yaml.safe_load(policy["data"][POLICY_KEY])
    settings["scheduling"] = {"schedulerName": OWN_SCHEDULER}
    return {**policy, "data": {POLICY_KEY: yaml.safe_dump(settings)}}


def documents(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a YAML file."""
    objects = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    return [dict(item) for item in objects if isinstance(item, Mapping)]


def _with_extender_at(configuration: dict[str, Any], url: str, tls: Path) -> dict[str, Any]:
    encoded = {
        field: base64.b64encode((tls / name).read_bytes()).decode()
        for field, name in _TLS_FILES.items()
    }
    for entry in configuration["extenders"]:
        entry["urlPrefix"] = url
        entry["tlsConfig"] = encoded
    return configuration
