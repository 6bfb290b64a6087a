"""`python -m e2e.scale`: plain Kubernetes and EDL compared on many nodes."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.control_plane import ControlPlaneError
from e2e.measure import report
from e2e.measure.commands import add_output
from e2e.measure.processes import commit, machine
from e2e.scale import tables
from e2e.scale.figures import ScaleFigures
from e2e.scale.run import Scale, ScaleError, Variant, play
from e2e.signals import INTERRUPTED
from kube.errors import KubeError
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]
_DESCRIPTION = """58 jobs with 2 900 trainers in all, then a burst of 500 services, on many simulated
nodes: as plain ReplicaSets, with EDL and its extender, and with EDL alone. Prints pods a second, the
seconds of the burst, CPU seconds of all processes and writes for each trainer. CPU seconds can be
compared on a busy machine too, times only where nothing else runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the scenarios that the command line selects.

    Returns:
        0; 1 for a run that failed; 2 for a usage error; 130 when interrupted.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.nodes < 1:
        parser.error(f"--nodes is {arguments.nodes}: at least 1")
    console = Console()
    try:
        return _report(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped")
        return INTERRUPTED
    except (ClusterError, ControlPlaneError, ScaleError, KubeError, OSError) as error:
        Console(stderr=True).print(f"scale: {error}", style="red", highlight=False, markup=False)
        return 1


def _parser() -> Parser:
    parser = Parser(prog="python -m e2e.scale", description=_DESCRIPTION)
    parser.add_argument("--nodes", type=int, default=1000, help="how many nodes (default: 1000)")
    parser.add_argument(
        "--only",
        action="append",
        choices=[variant.name.lower() for variant in Variant],
        help="a variant to play, may be repeated (default: all)",
    )
    add_output(parser, "build/scale", "report and logs go")
    return parser


def _report(arguments: argparse.Namespace, console: Console) -> int:
    scale = Scale(arguments.nodes)
    output: Path = arguments.output
    binaries = build.ensure(build.cache_root(os.environ))
    document = {"machine": machine(), "commit": commit(_ROOT), "nodes": scale.nodes}
    runs: dict[str, ScaleFigures] = {}
    for variant in Variant:
        if arguments.only and variant.name.lower() not in arguments.only:
            continue
        console.print(f"{variant}: {scale.nodes} nodes, {scale.trainers} trainers")
        runs[variant.value] = play(binaries, output / variant.name.lower(), scale, variant)
        raw = {name: tables.raw(figures) for name, figures in runs.items()}
        report.write(output / "report.json", document | raw)
        console.print(tables.costs(runs))
    console.print(tables.writes(runs))
    console.print(tables.ended_watches(runs), soft_wrap=True)
    console.print(f"report {output / 'report.json'}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops everything, like Ctrl-C
    sys.exit(main())
