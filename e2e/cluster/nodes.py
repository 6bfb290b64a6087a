"""Node objects that kwok plays, to be created like any other object; and how many nodes are ready."""

from collections.abc import Mapping
from typing import Any

from kube import decode, reading
from kube.api import Api
from kube.request import NODES

LABEL_TYPE = "type"
KWOK = "kwok"
"""Value of the label by which kwok finds its nodes; other nodes are left alone."""


def node(
    name: str,
    cpu: str = "18",
    memory: str = "96Gi",
    pods: int = 110,
    *,
    labels: Mapping[str, str] | None = None,
    extended: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns a v1 Node as JSON.

    Args:
        name: Its name and its hostname label.
        cpu: A Kubernetes quantity, as are `memory` and the values of `extended`.
        memory: See `cpu`.
        pods: How many pods it takes.
        labels: Added to the usual ones.
        extended: Extended resources, such as {"nvidia.com/gpu": "8"}.
    """
    resources = {"cpu": cpu, "memory": memory, "pods": str(pods), **(extended or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                LABEL_TYPE: KWOK,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                **(labels or {}),
            },
        },
        "status": {"allocatable": resources, "capacity": dict(resources)},
    }


def count_ready(api: Api) -> int:
    """Returns how many nodes are ready and have no taint."""
    nodes = [decode.node(item) for item in reading.list_all(api, NODES)]
    return sum(record.ready and not record.taints for record in nodes)
