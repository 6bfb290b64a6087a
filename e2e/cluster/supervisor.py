"""The process behind `python -m e2e.cluster up`: holds the cluster until it is told to stop.

A program of its own, started by `__main__`; it ends the cluster on SIGTERM, and the cluster's
processes end with it in any case.
"""

import argparse
import os
import sys
import threading
from pathlib import Path

from e2e.cluster import build, kits
from e2e.cluster.components import COMPONENTS
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster, running
from e2e.cluster.machine.configuration import KUBELET_PORT
from e2e.cluster.nodes import node
from e2e.cluster.run import Component, Place, State
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from runtime.clock import epoch_s
from runtime.stop import on_signals

_LOOK_S = 1.0


def main(words: list[str]) -> int:
    """Runs until SIGTERM; the exit code is 1 if the cluster did not start."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster.supervisor")
    parser.add_argument("directory", type=Path, help="where state and files go")
    parser.add_argument("--nodes", type=int, default=0, help="how many simulated nodes to add")
    parser.add_argument("--real-nodes", type=int, default=0, help="how many real nodes to add")
    parser.add_argument("--image", type=Path, action="append", default=[], help="for real nodes")
    arguments = parser.parse_args(words)
    stopping = on_signals()
    place = Place(arguments.directory)
    if place.hold() is None:  # else held until this process ends
        print(
            "a cluster runs or starts already; see `python -m e2e.cluster status`", file=sys.stderr
        )
        return 1
    try:
        _serve(place, arguments, stopping)
    except (ClusterError, KubeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(place: Place, arguments: argparse.Namespace, stopping: threading.Event) -> None:
    binaries = build.ensure(build.cache_root(os.environ))
    with running(
        place.cluster,
        binaries=binaries,
        real_nodes=arguments.real_nodes,
        images=arguments.image,
    ) as cluster:
        _add_nodes(cluster, arguments.nodes)
        started_s = epoch_s()
        known: tuple[Component, ...] = ()
        while not stopping.wait(_LOOK_S if known else 0.0):
            components = _components(cluster)
            if components != known:
                place.write(_state(cluster, started_s, components))
                known = components
    place.state_file.unlink(missing_ok=True)


def _add_nodes(cluster: Cluster, count: int) -> None:
    client = Client(load(cluster.admin), user_agent="edl-e2e-cluster")
    try:
        for number in range(count):
            client.send(request.create(request.NODES, None, node(f"node-{number:03}")))
    finally:
        client.close()


def _components(cluster: Cluster) -> tuple[Component, ...]:
    parts = [
        Component(name, cluster.pid(name), cluster.ports.by_name[name], cluster.exit_code(name))
        for name in COMPONENTS
    ]
    parts += [
        Component(name, node.keeper, KUBELET_PORT, node.exit_code)
        for name, node in cluster.real_nodes.items()
    ]
    return tuple(parts)


def _state(cluster: Cluster, started_s: float, components: tuple[Component, ...]) -> State:
    return State(
        supervisor=os.getpid(),
        started_s=started_s,
        url=cluster.url,
        kubeconfig=str(cluster.admin),
        kubectl=str(cluster.kubectl),
        version=kits.recipe().kubernetes,
        components=components,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
