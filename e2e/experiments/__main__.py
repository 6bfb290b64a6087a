"""`python -m e2e.experiments`: the first experiment, collisions of two schedulers, and forecasts of policies."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.control_plane import ControlPlaneError
from e2e.demo.run import play
from e2e.demo.script import ScriptError
from e2e.demo.view import view
from e2e.experiments import collisions, forecast_run, forecasts, picture, tables
from e2e.experiments.forecast_run import ForecastError
from e2e.experiments.run import REAL, Experiment, in_virtual_time, of_real
from e2e.measure import report
from e2e.measure.commands import add_output, verdict
from e2e.measure.processes import commit, machine
from e2e.scheduling import SchedulingMode
from e2e.signals import INTERRUPTED
from e2e.workload import FIRST, FIRST_QUICK, Scenario
from kube.errors import KubeError
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[2]
_FAILURES = (ClusterError, ControlPlaneError, ScriptError, ForecastError, KubeError, OSError)
"""Each is one line for people."""
_FIRST = """The first experiment: twenty jobs of 2 to 60 trainers are submitted to 133 nodes, 10 s
apart, and run for 300 s; the nodes have capacity for 14 trainers of each job. Runs on a real control
plane (nine minutes; the first run also builds Kubernetes) and in virtual time (seconds), or only
one of the two. Writes report.json and first.png."""
_COLLISIONS = """How often the cluster's scheduler and one of training's own give the same room away at once:
again and again 120 services and a job come to 40 empty nodes in the same moment. Plays it on a real control
plane, with the extender in the cluster's scheduler and with two schedulers (fifteen seconds a
round and mode). Writes collisions.json."""

_FORECASTS = """What `kubectl edl plan --policy` says of another policy, beside what then happens, in random cases on one
real control plane: 3 to 6 nodes, 2 to 4 jobs, services, two policies. A case takes 4 to 20 seconds, as busy as the machine is.
Prints how far the forecasts were off, writes forecasts.json, and fails where fewer than 95 % of them are right
within one trainer for each job."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the experiments that the command line selects.

    Returns:
        0; 1 for a run that failed, for forecasts that were wrong too often, or for a missed criterion with
        STRICT=1; 130 when interrupted.
    """
    arguments = _parser().parse_args(argv)
    console = Console()
    try:
        run: Callable[[argparse.Namespace, Console], int] = arguments.run
        return run(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped")
        return INTERRUPTED
    except _FAILURES as error:
        text = f"experiments: {error}"
        Console(stderr=True).print(text, style="red", highlight=False, markup=False)
        return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m e2e.experiments",
        description="Experiments on a real local Kubernetes; `<experiment> --help` says more.",
        epilog="With STRICT=1 in the environment a missed criterion is a failure.",
    )
    commands = parser.add_subparsers(title="experiments", required=True, metavar="experiment")
    first = commands.add_parser("first", help="jobs alone on 133 nodes", description=_FIRST)
    first.set_defaults(run=_first)
    mode = first.add_mutually_exclusive_group()
    mode.add_argument("--virtual", action="store_true", help="in virtual time only")
    mode.add_argument("--real", action="store_true", help="on a real control plane only")
    first.add_argument("--quick", action="store_true", help="12 nodes and 4 jobs: under a minute")
    two = commands.add_parser("collisions", help="two schedulers at once", description=_COLLISIONS)
    two.set_defaults(run=_collisions)
    two.add_argument("--rounds", type=int, default=20, help="in each mode (default: 20)")
    policies = commands.add_parser(
        "forecasts", help="what comes of other policies", description=_FORECASTS
    )
    policies.set_defaults(run=_forecasts)
    policies.add_argument("--cases", type=_count, default=200, help="how many (default: 200)")
    policies.add_argument(
        "--from",
        dest="first",
        type=int,
        default=0,
        metavar="CASE",
        help="number and seed of the first case (default: 0)",
    )
    policies.add_argument(
        "--slow",
        action="store_true",
        help="pace plans as policies of users do: a minute a case",
    )
    for command in (first, two, policies):
        add_output(command, "build/experiments", "report, picture and logs go")
    return parser


def _collisions(arguments: argparse.Namespace, console: Console) -> int:
    output: Path = arguments.output
    binaries = build.ensure(build.cache_root(os.environ))
    outcomes = []
    for mode in (SchedulingMode.EXTENDER, SchedulingMode.OWN_SCHEDULER):
        with view(console) as shown:
            outcomes.append(collisions.play(binaries, output / mode, shown, mode, arguments.rounds))
    path = output / "collisions.json"
    runs = collisions.document(outcomes)
    document = report.document(machine=machine(), commit=commit(_ROOT), criteria=(), runs=runs)
    report.write(path, document)
    console.print(collisions.table(outcomes))
    console.print(f"report {path}")
    return 0


def _forecasts(arguments: argparse.Namespace, console: Console) -> int:
    output: Path = arguments.output
    binaries = build.ensure(build.cache_root(os.environ))
    numbers = range(arguments.first, arguments.first + arguments.cases)
    path = output / "forecasts.json"
    outcomes = []
    with view(console) as shown:
        for outcome in forecast_run.play(
            binaries, output / "forecasts", shown, numbers, quick=not arguments.slow
        ):
            outcomes.append(outcome)
            runs = {"forecasts": forecasts.summary(outcomes)}
            document = report.document(
                machine=machine(), commit=commit(_ROOT), criteria=(), runs=runs
            )
            report.write(path, document)
    console.print(forecasts.table(outcomes))
    share = forecasts.share_right(outcomes)
    right = sum(outcome.right for outcome in outcomes)
    console.print(f"{right} of {len(outcomes)} right within one trainer a job: {100 * share:.1f} %")
    console.print(f"report {path}")
    return 0 if share >= forecasts.GOOD_SHARE else 1


def _count(text: str) -> int:
    """Returns a number of cases, from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _runs(arguments: argparse.Namespace, scenario: Scenario, console: Console) -> list[Experiment]:
    runs = []
    if not arguments.virtual:
        binaries = build.ensure(build.cache_root(os.environ))
        with view(console) as shown:
            played = play(
                binaries, arguments.output / REAL, scenario, shown, SchedulingMode.EXTENDER
            )
        runs.append(of_real(played, scenario))
    if not arguments.real:
        console.print("playing it in virtual time")
        runs.append(in_virtual_time(scenario))
    return runs


def _first(arguments: argparse.Namespace, console: Console) -> int:
    scenario = FIRST_QUICK if arguments.quick else FIRST
    runs = _runs(arguments, scenario, console)
    criteria = [
        criterion for run in runs for criterion in run.criteria(short=scenario is FIRST_QUICK)
    ]
    output: Path = arguments.output
    title = f"{scenario.jobs} elastic jobs come to {len(scenario.cpu_millis)} nodes"
    path = output / "first.png"
    picture.draw(path, {run.name: report.sampled(run.curves) for run in runs}, title)
    document = report.document(
        machine=machine(),
        commit=commit(_ROOT),
        criteria=criteria,
        runs={run.name: tables.raw(run) for run in runs},
    )
    report.write(output / "report.json", document | {"scenario": scenario.name})
    for run in runs:
        console.rule(run.name)
        console.print(tables.arrivals(run))
        console.print(tables.times(run))
        console.print(report.kill_table(run.figures))
    console.print(report.criterion_table(criteria, "criteria"))
    console.print(f"picture {path}, report {output / 'report.json'}")
    return verdict(criteria, console)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops everything, like Ctrl-C
    sys.exit(main())
