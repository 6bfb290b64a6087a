"""`python -m e2e.demo`: the demo, its report and its picture."""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.control_plane import ControlPlaneError
from e2e.demo import picture
from e2e.demo.run import EDL_IN_CLUSTER, PLAIN, Run, play
from e2e.demo.script import ScriptError
from e2e.demo.view import view
from e2e.measure import report
from e2e.measure.criteria import Criterion, comparison, criteria, in_cluster_comparison
from e2e.measure.processes import commit, machine
from e2e.scheduling import SchedulingMode
from e2e.workload import FULL, QUICK, Scenario
from kube.errors import KubeError
from runtime import clock
from runtime.command_line import Parser
from runtime.signals import INTERRUPTED

_ROOT = Path(__file__).parents[2]
_KEYS = {PLAIN: "plain", EDL_IN_CLUSTER: "in_cluster"}
"""Name of a run -> its key in the report; others are "edl"."""
_DESCRIPTION = """Services and elastic training share a local Kubernetes of 133 simulated nodes.
Six training jobs grow into the capacity that 400 services leave free; then services go down to
100 and come back, 100 at a time, and trainers are evicted within seconds. Shows this live, then
prints the measured times and writes build/demo/report.json and build/demo/demo.png. Takes under
five minutes; the first run also builds Kubernetes (about seven minutes more)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Plays what the command line asks for.

    Returns:
        0; 1 for a run that failed, or for a missed criterion with STRICT=1; 130 when interrupted.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.in_cluster and arguments.scheduling != SchedulingMode.EXTENDER:
        parser.error("--in-cluster is for --scheduling extender alone")
    console = Console()
    try:
        return _demo(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped")
        return INTERRUPTED
    except (ClusterError, ControlPlaneError, ScriptError, KubeError, OSError) as error:
        Console(stderr=True).print(f"demo: {error}", style="red", highlight=False, markup=False)
        return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m e2e.demo",
        description=_DESCRIPTION,
        epilog="With STRICT=1 in the environment a missed criterion is a failure.",
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--plain",
        action="store_true",
        help="run the same load without EDL, with the priorities of Kubernetes only",
    )
    mode.add_argument(
        "--compare",
        action="store_true",
        help="run without EDL, then with it, and compare both (twice as long)",
    )
    mode.add_argument(
        "--in-cluster",
        action="store_true",
        help="run EDL as processes beside the cluster, then as pods in it, and compare both (twice as "
        "long; needs root, and containers)",
    )
    parser.add_argument(
        "--scheduling",
        choices=[mode.value for mode in SchedulingMode],
        default=SchedulingMode.EXTENDER,
        help="how trainers are scheduled: the extender in the cluster's scheduler (the default), "
        "that scheduler without it, or a scheduler of their own",
    )
    parser.add_argument(
        "--quick", action="store_true", help="12 nodes, 2 jobs and one burst: under a minute"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("build/demo"),
        metavar="DIR",
        help="where report, picture and logs go (default: build/demo)",
    )
    return parser


def _demo(arguments: argparse.Namespace, console: Console) -> int:
    scenario: Scenario = QUICK if arguments.quick else FULL
    output: Path = arguments.output
    binaries = build.ensure(build.cache_root(os.environ))
    begun_s = clock.monotonic_s()
    runs = []
    for mode, in_cluster in _modes(arguments):
        with view(console) as shown:
            logs = output / ("plain" if mode is None else "in-cluster" if in_cluster else "edl")
            runs.append(play(binaries, logs, scenario, shown, mode, in_cluster=in_cluster))
    runs.reverse()  # the run in question first, the one to compare with behind it
    _draw(output, scenario, runs)
    if len(runs) == 1:
        figures = replace(runs[0].figures, demo_s=clock.monotonic_s() - begun_s)
        runs = [replace(runs[0], figures=figures)]
    return _report(output, scenario, runs, console)


def _modes(arguments: argparse.Namespace) -> tuple[tuple[SchedulingMode | None, bool], ...]:
    """What is played, in this order: how, None for plain Kubernetes; and whether EDL is in the cluster."""
    if arguments.plain:
        return ((None, False),)
    if arguments.in_cluster:
        return ((SchedulingMode.EXTENDER, False), (SchedulingMode.EXTENDER, True))
    mode = SchedulingMode(arguments.scheduling)
    return ((None, False), (mode, False)) if arguments.compare else ((mode, False),)


def _draw(output: Path, scenario: Scenario, runs: Sequence[Run]) -> None:
    curves = {run.name: report.sampled(run.curves) for run in runs}
    cpu = sum(scenario.cpu_millis.values()) // 1000
    picture.draw(output / "demo.png", curves, nodes=len(scenario.cpu_millis), cpu=cpu)


def _report(output: Path, scenario: Scenario, runs: Sequence[Run], console: Console) -> int:
    results = _criteria(runs, short=scenario is QUICK)
    document = report.document(
        machine=machine(),
        commit=commit(_ROOT),
        criteria=results,
        runs={_KEYS.get(run.name, "edl"): report.run(run.figures, run.curves) for run in runs},
    )
    names = {"scenario": scenario.name, "mode": runs[0].name}
    report.write(output / "report.json", document | names)
    for run in runs:
        console.rule(run.name)
        console.print(report.plateau_table(run.figures, scenario.services))
        console.print(report.stage_table(run.figures))
        console.print(report.kill_table(run.figures))
    console.print(report.criterion_table(results, f"criteria: {runs[0].name}"))
    console.print(f"picture {output / 'demo.png'}, report {output / 'report.json'}")
    missed = [criterion.name for criterion in results if not criterion.holds]
    if missed:
        console.print(f"missed: {', '.join(missed)}", style="yellow", highlight=False)
    return 1 if missed and os.environ.get("STRICT") == "1" else 0


def _criteria(runs: Sequence[Run], *, short: bool) -> tuple[Criterion, ...]:
    results = criteria(runs[0].figures, short=short)
    if len(runs) > 1:
        is_plain = runs[1].name == PLAIN
        compare = comparison if is_plain else in_cluster_comparison
        results += compare(runs[0].figures, runs[1].figures)
    return results


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops everything, like Ctrl-C
    sys.exit(main())
