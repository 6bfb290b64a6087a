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
from e2e.demo.run import EDL_IN_CLUSTER, EDL_OVERCOMMIT, PLAIN, Run, play
from e2e.demo.script import ScriptError
from e2e.demo.view import view
from e2e.measure import report
from e2e.measure.commands import add_output, verdict
from e2e.measure.criteria import (
    Criterion,
    comparison,
    criteria,
    in_cluster_comparison,
    overcommit_comparison,
)
from e2e.measure.processes import commit, machine
from e2e.scheduling import SchedulingMode
from e2e.signals import INTERRUPTED
from e2e.workload import FULL, QUICK, Scenario, overcommitted
from kube.errors import KubeError
from runtime import clock
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]
_KEYS = {PLAIN: "plain", EDL_IN_CLUSTER: "in_cluster", EDL_OVERCOMMIT: "overcommit"}
"""Name of a run -> its key in the report; others are "edl"."""
_MAX_RATIO = 3.0
_DESCRIPTION = """Services and elastic training share a local Kubernetes of 133 simulated nodes.
Six training jobs grow into the capacity that 400 services leave free; then services go down to
100 and come back, 100 at a time, and trainers are evicted within seconds. Shows this live, then
prints the measured times and writes build/demo/report.json and build/demo/demo.png. Takes under
five minutes; the first run also builds Kubernetes (about seven minutes more)."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the scenarios that the command line selects.

    Returns:
        0; 1 for a run that failed, or for a missed criterion with STRICT=1; 130 when interrupted.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.in_cluster and arguments.scheduling != SchedulingMode.EXTENDER:
        parser.error("--in-cluster is for --scheduling extender alone")
    if arguments.overcommit and arguments.scheduling != SchedulingMode.EXTENDER:
        parser.error("--overcommit is for --scheduling extender alone")
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
    mode.add_argument(
        "--overcommit",
        type=_ratio,
        metavar="RATIO",
        help="run as always, then with trainers that request their CPU limit divided by RATIO (1 to 3), "
        "under a quota on limits, and compare both (twice as long)",
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
    add_output(parser, "build/demo", "report, picture and logs go")
    return parser


def _ratio(text: str) -> float:
    """Returns a ratio of overcommit.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 1.0 < ratio <= _MAX_RATIO:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40}: write a number above 1 and at most {_MAX_RATIO:g}, such as 1.5"
        )
    return ratio


def _demo(arguments: argparse.Namespace, console: Console) -> int:
    scenario: Scenario = QUICK if arguments.quick else FULL
    output: Path = arguments.output
    binaries = build.ensure(build.cache_root(os.environ))
    begun_s = clock.monotonic_s()
    runs = []
    for played, mode, in_cluster in _plays(arguments, scenario):
        with view(console) as shown:
            logs = output / _folder(played, mode, in_cluster=in_cluster)
            runs.append(play(binaries, logs, played, shown, mode, in_cluster=in_cluster))
    runs.reverse()  # the run in question first, the one to compare with behind it
    _draw(output, scenario, runs)
    if len(runs) == 1:
        figures = replace(runs[0].figures, demo_s=clock.monotonic_s() - begun_s)
        runs = [replace(runs[0], figures=figures)]
    return _report(output, scenario, runs, console, arguments)


def _plays(
    arguments: argparse.Namespace, scenario: Scenario
) -> tuple[tuple[Scenario, SchedulingMode | None, bool], ...]:
    """What is played, in this order: what; how, None for plain Kubernetes; whether EDL is in the cluster."""
    plain, mode = (scenario, None, False), SchedulingMode(arguments.scheduling)
    if arguments.plain:
        return (plain,)
    with_edl = (scenario, mode, False)
    if arguments.in_cluster:
        return (with_edl, (scenario, mode, True))
    if arguments.overcommit:
        return (with_edl, (overcommitted(scenario, arguments.overcommit), mode, False))
    return (plain, with_edl) if arguments.compare else (with_edl,)


def _folder(scenario: Scenario, mode: SchedulingMode | None, *, in_cluster: bool) -> str:
    """Returns the folder of a run's logs."""
    if mode is None:
        return "plain"
    if in_cluster:
        return "in-cluster"
    return "edl" if scenario.overcommit == 1.0 else "overcommit"


def _draw(output: Path, scenario: Scenario, runs: Sequence[Run]) -> None:
    curves = {run.name: report.sampled(run.curves) for run in runs}
    cpu = sum(scenario.cpu_millis.values()) // 1000
    picture.draw(output / "demo.png", curves, nodes=len(scenario.cpu_millis), cpu=cpu)


def _report(
    output: Path,
    scenario: Scenario,
    runs: Sequence[Run],
    console: Console,
    arguments: argparse.Namespace,
) -> int:
    results = _criteria(runs, scenario, arguments)
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
    return verdict(results, console)


def _criteria(
    runs: Sequence[Run], scenario: Scenario, arguments: argparse.Namespace
) -> tuple[Criterion, ...]:
    results = criteria(runs[0].figures, short=scenario is QUICK)
    if arguments.overcommit:
        ratio: float = arguments.overcommit
        quota_cpu = overcommitted(scenario, ratio).limits_quota_cpu
        results += overcommit_comparison(runs[0].figures, runs[1].figures, ratio, quota_cpu)
    elif len(runs) > 1:
        is_plain = runs[1].name == PLAIN
        compare = comparison if is_plain else in_cluster_comparison
        results += compare(runs[0].figures, runs[1].figures)
    return results


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops everything, like Ctrl-C
    sys.exit(main())
