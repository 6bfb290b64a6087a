"""The process behind `python -m e2e.cluster up`: runs the cluster until SIGTERM.

A program of its own, started by `__main__`; it ends the cluster on SIGTERM, and the cluster's
processes end with it in any case.
"""

import argparse
import os
import sys
import threading
from pathlib import Path

from e2e.cluster import build, toolchain
from e2e.cluster.components import COMPONENTS
from e2e.cluster.errors import ClusterError
from e2e.cluster.local import Cluster, running
from e2e.cluster.machine.configuration import KUBELET_PORT
from e2e.cluster.nodes import node
from e2e.cluster.run import Component, RunDirectory, SupervisorState
from e2e.signals import stop_event
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import KubeError
from runtime.clock import epoch_s
from runtime.command_line import Parser

_LOOK_S = 1.0


def main(words: list[str]) -> int:
    """Runs until SIGTERM; the exit code is 1 if the cluster did not start."""
    parser = Parser(prog="python -m e2e.cluster.supervisor")
    parser.add_argument("directory", type=Path, help="where state and files go")
    parser.add_argument("--nodes", type=int, default=0, help="how many simulated nodes to add")
    parser.add_argument("--real-nodes", type=int, default=0, help="how many real nodes to add")
    parser.add_argument("--image", type=Path, action="append", default=[], help="for real nodes")
    arguments = parser.parse_args(words)
    stopping = stop_event()
    place = RunDirectory(arguments.directory)
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


def _serve(place: RunDirectory, arguments: argparse.Namespace, stopping: threading.Event) -> None:
    binaries = build.ensure(build.cache_root(os.environ))
    with running(
        place.cluster,
        binaries=binaries,
        real_nodes=arguments.real_nodes,
        images=arguments.image,
    ) as cluster:
        _add_nodes(cluster, arguments.nodes)
        started_s = epoch_s()
        written: tuple[Component, ...] = ()
        while not stopping.wait(_LOOK_S if written else 0.0):
            components = _components(cluster)
            if components != written:
                place.write(_state(cluster, started_s, components))
                written = components
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
        Component(name, node.guard_pid, KUBELET_PORT, node.exit_code)
        for name, node in cluster.real_nodes.items()
    ]
    return tuple(parts)


def _state(
    cluster: Cluster, started_s: float, components: tuple[Component, ...]
) -> SupervisorState:
    return SupervisorState(
        supervisor=os.getpid(),
        started_s=started_s,
        url=cluster.url,
        kubeconfig=str(cluster.admin),
        kubectl=str(cluster.kubectl),
        version=toolchain.recipe().kubernetes,
        components=components,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
