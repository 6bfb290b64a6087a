"""The placement of a server's replicas by deploy/base: on different nodes, for all kinds of nodes."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from e2e import scheduling
from e2e.cluster.local import Cluster, running
from e2e.cluster.nodes import count_ready, node
from e2e.waiting import until
from kube import request
from kube.client import Client
from kube.config import load
from kube.request import DEPLOYMENTS, NODES, PODS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

BASE = Path(__file__).parents[1] / "deploy" / "base"
NAMESPACE = "default"
ZONE = "topology.kubernetes.io/zone"
NODES_OF: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "without zones": {"large": ("64", ""), "small": ("1", "")},
    "in two zones": {"a-1": ("64", "a"), "a-2": ("64", "a"), "b-1": ("1", "b")},
}
"""Name -> (CPU, zone) of the nodes; by what is free alone, each pod would go to the largest."""
APART = {"without zones": {"large", "small"}, "in two zones": {"a", "b"}}
_START_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without nodes."""
    with running(tmp_path_factory.mktemp("replicas")) as started:
        yield started


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Client]:
    """An administrator of nodes that no other test uses."""
    with contextlib.closing(Client(load(cluster.admin))) as client:
        yield client
        for kind, namespace in ((DEPLOYMENTS, NAMESPACE), (NODES, None)):
            for item in _items(client, kind, namespace):
                client.send(request.delete(kind, namespace, item["metadata"]["name"]))
        until("no node", lambda: len(_items(client, NODES, None)), lambda n: n == 0, _START_S)


def _items(api: Client, kind: request.Resource, namespace: str | None) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = orjson.loads(api.send(request.list_page(kind, namespace)))[
        "items"
    ]
    return items


def _deployment(server: str) -> dict[str, Any]:
    """Returns the server's Deployment, of pods that need no rights and no volumes."""
    documents = scheduling.documents(BASE / f"{server}.yaml")
    (deployment,) = (item for item in documents if item["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    resources = pod["containers"][0]["resources"]
    main = {"name": "main", "image": "none", "resources": resources}
    kept = {key: pod[key] for key in ("topologySpreadConstraints", "affinity")}
    deployment["spec"]["template"]["spec"] = {**kept, "containers": [main]}
    deployment["metadata"]["namespace"] = NAMESPACE
    return deployment


@pytest.mark.parametrize("server", ["webhook", "reconciler"])
@pytest.mark.parametrize("kind", NODES_OF)
def test_replicas_are_apart(api: Client, server: str, kind: str) -> None:
    """On two nodes though one has all the room, and in two zones where nodes have a zone."""
    nodes = NODES_OF[kind]
    for name, (cpu, zone) in nodes.items():
        labels = {ZONE: zone} if zone else {}
        api.send(request.create(NODES, None, node(name, cpu, labels=labels)))
    until("nodes are ready", lambda: count_ready(api), lambda n: n == len(nodes), _START_S)

    api.send(request.create(DEPLOYMENTS, NAMESPACE, _deployment(server)))

    def places() -> list[str]:
        pods = [
            pod
            for pod in _items(api, PODS, NAMESPACE)
            if pod["metadata"]["labels"]["app.kubernetes.io/name"] == f"edl-{server}"
        ]
        names = [pod["spec"].get("nodeName", "") for pod in pods]
        return [nodes[name][1] or name for name in names if name in nodes]

    both = until("both have a node", places, lambda names: len(names) == 2, _START_S)
    assert set(both) == APART[kind]
