"""`python -m e2e.cluster`: build, start, look at and stop a local Kubernetes."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from rich.console import Console
from rich.table import Table

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import needs, python_image
from e2e.cluster.run import RunDirectory, SupervisorState
from e2e.cluster.toolchain import NODE
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import ConfigError, KubeError
from runtime.clock import epoch_s, monotonic_s
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]
_UP_S = 120.0
_POLL_S = 0.1
_IMAGE = "edl.local/python:1"
_TRY = f"""\
real nodes have the image {_IMAGE}: this Python, EDL's components and its SDK; try
  {{kubectl}} run hello --image={_IMAGE} --restart=Never \\
    --overrides='{{{{"spec": {{{{"nodeSelector": {{{{"type": "real"}}}}}}}}}}}}' -- -c 'print("hello")'
  {{kubectl}} logs hello"""
_EXAMPLES = """\
examples:
  python -m e2e.cluster up --nodes 20     build if needed, start in the background
  export KUBECONFIG=$(python -m e2e.cluster kubeconfig)
  python -m e2e.cluster down
  python -m e2e.cluster up --real-nodes 2 also nodes that run real containers (Linux, root)

The binaries and the running cluster lie in $EDL_CACHE (usually ~/.cache/edl). Nodes are
simulated by kwok; their pods run nothing, and the annotations
edl.training/kwok-run-time, kwok-fail-after and kwok-stop-time decide when they end.
"""


def main(words: list[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        return command(arguments)
    except (ClusterError, ConfigError, KubeError) as error:
        print(f"error: {error}", file=sys.stderr)
    except BrokenPipeError:  # `... | head`; nobody reads what Python would flush at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        print(f"error: {error} (files lie in {_cache()}, or where EDL_CACHE says)", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m e2e.cluster",
        description="A real Kubernetes control plane on this machine, without Docker.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int], text: str) -> Parser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(command=run)
        return command

    build_command = add(
        "build", _build, "build the binaries if they are not there (5 to 10 minutes, once)"
    )
    build_command.add_argument(
        "--real-nodes", action="store_true", help="also build the binaries of real nodes"
    )
    up = add("up", _up, "start a cluster in the background")
    up.add_argument("--nodes", type=_count, default=10, help="simulated nodes (default: 10)")
    up.add_argument(
        "--real-nodes", type=_count, default=0, help="nodes that run real containers (default: 0)"
    )
    add("down", _down, "stop the cluster")
    add(
        "status",
        _status,
        "show the cluster's processes, ports, age and nodes; exit code 1 if none runs",
    )
    add("kubeconfig", _kubeconfig, "print the path of the administrator's kubeconfig")
    return parser


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes, such as 10")
    return int(text)


def _cache() -> Path:
    return build.cache_root(os.environ)


def _place() -> RunDirectory:
    return RunDirectory(_cache() / "run")


def _running() -> SupervisorState:
    place = _place()
    state = place.read()
    if state is not None:
        return state
    if place.is_held:
        raise ClusterError("the cluster is just starting; try again in a moment")
    stale = " (the last one ended without `down`)" if place.state_file.exists() else ""
    raise ClusterError(f"no cluster runs{stale}; start one with `python -m e2e.cluster up`")


def _build(arguments: argparse.Namespace) -> int:
    if arguments.real_nodes:
        needs.find()
    print(build.ensure(_cache()).directory)
    if arguments.real_nodes:
        print(build.ensure(_cache(), kit=NODE).directory)
    return 0


def _up(arguments: argparse.Namespace) -> int:
    place = _place()
    state = place.read()
    if state is not None:
        print(f"it runs already: {state.url}")
        _explain(state)
        return 0
    options = ["--nodes", str(arguments.nodes)]
    if arguments.real_nodes:
        needs.find()
        build.ensure(_cache(), kit=NODE)
        image = python_image.build(place.directory / "python.tar", _IMAGE)
        options += ["--real-nodes", str(arguments.real_nodes), "--image", str(image)]
    build.ensure(_cache())
    if place.clear_stale():
        print("the last cluster ended without `down`; its state is cleared")
    print(f"starting (log: {place.log})")
    began_s = monotonic_s()
    state = _start(place, options)
    took_s = monotonic_s() - began_s
    print(f"Kubernetes {state.version} is up after {took_s:.1f} s: {state.url}")
    _explain(state)
    if arguments.real_nodes:
        print(_TRY.format(kubectl=state.kubectl))
    return 0


def _start(place: RunDirectory, options: list[str]) -> SupervisorState:
    place.directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "e2e.cluster.supervisor", str(place.directory)]
    with place.log.open("wb") as log:
        supervisor = subprocess.Popen(
            [*command, *options],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # it outlives this terminal
        )
    deadline_s = monotonic_s() + _UP_S
    while monotonic_s() < deadline_s:
        state = place.read()
        if state is not None:
            return state
        if supervisor.poll() is not None:
            raise ClusterError(f"{place.problem()} (supervisor's log: {place.log})")
        time.sleep(_POLL_S)
    supervisor.terminate()
    raise ClusterError(f"the cluster was not up within {_UP_S:.0f} s; see {place.log}")


def _explain(state: SupervisorState) -> None:
    print(f"  export KUBECONFIG={state.kubeconfig}")
    print(f"  {state.kubectl} get nodes")
    print("stop it with `python -m e2e.cluster down`")


def _down(_: argparse.Namespace) -> int:
    place = _place()
    if place.stop():
        print("stopped")
    elif place.clear_stale():
        print("no cluster runs; cleared the state of one that ended without `down`")
    else:
        print("no cluster runs")
    return 0


def _status(_: argparse.Namespace) -> int:
    state = _running()
    table = Table(title=f"Kubernetes {state.version} at {state.url}", title_justify="left")
    for column in ("process", "pid", "port", "state"):
        table.add_column(column, justify="right" if column in ("pid", "port") else "left")
    for component in state.components:
        life = (
            "runs" if component.exit_code is None else f"ended with exit code {component.exit_code}"
        )
        table.add_row(component.name, str(component.pid), str(component.port), life)
    Console().print(table)
    print(f"up for {_age(epoch_s() - state.started_s)}, {_nodes(Path(state.kubeconfig))}")
    return 0


def _kubeconfig(_: argparse.Namespace) -> int:
    print(_running().kubeconfig)
    return 0


def _nodes(kubeconfig: Path) -> str:
    client = Client(load(kubeconfig), user_agent="edl-e2e-cluster")
    try:
        page = orjson.loads(client.send(request.list_page(request.NODES, limit=1)))
    except KubeError as error:
        return f"nodes unknown ({error})"
    finally:
        client.close()
    count = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
    return f"{count} nodes"


def _age(seconds: float) -> str:
    minutes, rest_s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest_s} s"


if __name__ == "__main__":
    sys.exit(main())
