"""A real Karpenter beside a local cluster with nodes simulated by kwok.

    with karpenter(environment, directory, cpu=18) as autoscaler:
        ...

The NodePool has no nodes at first and adds some for pending pods; it removes empty ones.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from edl.local.ports import free_ports

from e2e.cluster import build
from e2e.cluster.nodes import KWOK, LABEL_TYPE
from e2e.cluster.process import Process
from e2e.cluster.toolchain import KARPENTER
from e2e.environment import Environment
from e2e.waiting import until
from kube import request
from kube.errors import KubeError
from kube.request import CUSTOMRESOURCEDEFINITIONS, Resource

NODECLAIMS = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
_NODEPOOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
_NODECLASSES = Resource(
    "karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses", "KWOKNodeClass", namespaced=False
)
_CRDS_S, _STOP_S = 30.0, 5.0
_CAPACITY_TYPE, _ON_DEMAND = "karpenter.sh/capacity-type", "on-demand"


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """A running Karpenter."""

    environment: Environment
    log: Path

    def node_claims(self) -> list[str]:
        """Names of the nodes that it has asked its provider for and not given back."""
        page = self.environment.send(request.list_page(NODECLAIMS, limit=0))
        return sorted(claim["metadata"]["name"] for claim in page["items"])

    def give_back(self, node_claim: str) -> None:
        """Has a node drained and removed, as an administrator does it."""
        self.environment.send(request.delete(NODECLAIMS, None, node_claim))


@contextmanager
def karpenter(environment: Environment, directory: Path, cpu: int) -> Iterator[Autoscaler]:
    """Runs Karpenter with one NodePool for the duration of the block.

    Args:
        environment: The cluster.
        directory: Gets its log and configuration.
        cpu: Of each node that it adds.
    """
    binaries = build.ensure(build.cache_root(os.environ), kit=KARPENTER)
    documents = subprocess.run(
        [str(binaries.path("karpenter-crds"))], capture_output=True, text=True, check=True
    )
    for document in yaml.safe_load_all(documents.stdout):
        environment.send(request.create(CUSTOMRESOURCEDEFINITIONS, None, document))
    instance_types = directory / "instance-types.json"
    instance_types.write_text(json.dumps([_instance_type(cpu)]))
    metrics, health = free_ports(2)
    variables = {
        "KUBECONFIG": str(environment.cluster.admin),
        "DISABLE_LEADER_ELECTION": "true",
        "SYSTEM_NAMESPACE": "kube-system",
        "METRICS_PORT": str(metrics),
        "HEALTH_PROBE_PORT": str(health),
        "INSTANCE_TYPES_FILE_PATH": str(instance_types),
    }
    objects = [(_NODECLASSES, _node_class()), (_NODEPOOLS, _node_pool())]
    until("its objects exist", lambda: _create(environment, objects), lambda n: not n, _CRDS_S)
    log = directory / "karpenter.log"
    process = Process(
        "karpenter", [str(binaries.path("karpenter"))], log, env=os.environ | variables
    )
    try:
        yield Autoscaler(environment, log)
        assert process.exit_code is None, process.last_lines()
    finally:
        process.terminate()
        if not process.wait(_STOP_S):
            process.kill()


def _create(environment: Environment, objects: list[tuple[Resource, dict[str, Any]]]) -> int:
    """Creates objects in order; returns how many are left: definitions are served after a moment."""
    with suppress(KubeError):
        while objects:
            resource, body = objects[0]
            environment.send(request.create(resource, None, body))
            del objects[0]
    return len(objects)


def _instance_type(cpu: int) -> dict[str, Any]:
    offered = [
        {"key": _CAPACITY_TYPE, "operator": "In", "values": [_ON_DEMAND]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
    ]
    return {
        "name": "played",
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": offered}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": str(cpu),
            "memory": "96Gi",
            "pods": "110",
            "ephemeral-storage": "100Gi",
        },
    }


def _node_class() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "played"},
    }


def _node_pool() -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "played"},
        "spec": {
            "template": {
                "metadata": {"labels": {LABEL_TYPE: KWOK}},
                "spec": {
                    "nodeClassRef": {
                        "group": "karpenter.kwok.sh",
                        "kind": "KWOKNodeClass",
                        "name": "played",
                    },
                    "requirements": [
                        {"key": _CAPACITY_TYPE, "operator": "In", "values": [_ON_DEMAND]}
                    ],
                    "expireAfter": "Never",
                },
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5s"},
            "limits": {"cpu": "1000"},
        },
    }
