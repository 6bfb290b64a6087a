"""`python -m e2e.installation`: how fast EDL is installed, starts and is updated, as pods and as processes."""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from rich.console import Console

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import needs
from e2e.control_plane import ControlPlaneError
from e2e.demo.run import play
from e2e.demo.script import ScriptError
from e2e.demo.view import view
from e2e.environment import (
    Environment,
    IsolatedNamespace,
    isolated_namespace,
    played_nodes,
    send_nodes,
)
from e2e.faults import fill
from e2e.in_cluster import (
    COMPONENTS,
    FIRST_JOB_S,
    NAMESPACE,
    RELEASE,
    SINGLE_NODE,
    WAIT_S,
    BareCluster,
    bare_cluster,
    edl_beside_played_nodes,
    first_job,
    installed,
)
from e2e.measure import report
from e2e.measure.commands import add_output, verdict
from e2e.measure.criteria import Criterion, in_cluster_comparison
from e2e.measure.processes import commit, machine
from e2e.rollout import TWO_JOBS, Update, burst, bursts_during
from e2e.scheduling import SchedulingMode
from e2e.server_starts import READY_S, Start, restarted
from e2e.signals import INTERRUPTED
from e2e.waiting import until
from e2e.workload import FULL, QUICK, Scenario
from kube.errors import KubeError
from runtime import clock
from runtime.command_line import Parser

SLOWER = 1.5
"""How much longer a burst may take while all servers are replaced."""
_FAILURES = (AssertionError, ClusterError, ControlPlaneError, ScriptError, KubeError, OSError)
"""Each is one line for people."""
_STARTS = 3
_UPDATES = 3
_ROOT = Path(__file__).parents[1]
_DESCRIPTION = """Measures EDL as pods of its own image on real nodes, and prints each figure beside its
limit: the first elastic job after `kubectl apply -k` and after `helm install`, three starts of each
server (cluster, 4 minutes); bursts of services while all servers are replaced, three times, against
as many bursts without (update, 6 minutes); the demo with EDL as processes and then as pods (demo, 11
minutes). Needs root and containers, and a machine that does nothing else."""
Part = Callable[[Path, Scenario, Console], Iterator[Criterion]]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurements that the command line selects.

    Returns:
        0; 1 for a run that failed, or for a missed limit with STRICT=1; 2 for a usage error; 130 when interrupted.
    """
    arguments = _parser().parse_args(argv)
    console = Console()
    try:
        needs.find()
        return _report(arguments, console)
    except KeyboardInterrupt:
        console.print("interrupted: everything that was started is stopped")
        return INTERRUPTED
    except _FAILURES as error:
        text = f"installation: {error}"
        Console(stderr=True).print(text, style="red", highlight=False, markup=False)
        return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m e2e.installation",
        description=_DESCRIPTION,
        epilog="With STRICT=1 in the environment a missed limit is a failure.",
    )
    parser.add_argument(
        "--only", action="append", choices=[*_PARTS], help="a part, may be repeated (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="the demo in its small version")
    add_output(parser, "build/installation", "report and logs go")
    return parser


def _report(arguments: argparse.Namespace, console: Console) -> int:
    output: Path = arguments.output
    criteria: list[Criterion] = []
    loads: dict[str, float] = {}
    for name, measure in _PARTS.items():
        if arguments.only and name not in arguments.only:
            continue
        loads[name] = os.getloadavg()[0]
        console.print(f"{name}: the machine's load is {loads[name]:.1f} before it")
        for criterion in measure(output / name, QUICK if arguments.quick else FULL, console):
            criteria.append(criterion)  # a run that fails later has shown this
            console.print(f"  {criterion.name}: {criterion.value} {criterion.unit}")
            document = report.document(
                machine=machine(), commit=commit(_ROOT), criteria=criteria, runs={}
            )
            report.write(output / "report.json", document | {"load_before": loads})
    console.print(report.criterion_table(criteria, "installation"))
    console.print(f"report {output / 'report.json'}")
    return verdict(criteria, console)


def _cluster(directory: Path, _: Scenario, __: Console) -> Iterator[Criterion]:
    """First jobs by kustomize and by Helm, and starts of each server, on one real node."""
    directory.mkdir(parents=True, exist_ok=True)
    with bare_cluster(directory) as bare, installed(bare) as environment:
        bare.helm("version")  # builds it, if it is not there
        overlay = str(bare.overlay())

        def apply() -> None:
            bare.kubectl("apply", "-k", overlay)
            bare.wait_available()

        yield first_job_criterion("kustomize", _first_job(bare, environment, apply))
        for server in COMPONENTS:
            yield from starts(
                server, [restarted(bare, environment, server) for _ in range(_STARTS)]
            )
        bare.kubectl("-n", NAMESPACE, "delete", "job", "first")
        bare.kubectl("delete", "-k", overlay, "--timeout=120s")
        yield first_job_criterion("helm", _first_job(bare, environment, lambda: _helm(bare)))


def _helm(bare: BareCluster) -> None:
    """`helm install` as docs/install.md says, with the values of a single node."""
    words = ("--create-namespace", *SINGLE_NODE, "--wait", "--timeout=150s")
    bare.helm("install", *RELEASE, *words)


def _first_job(bare: BareCluster, environment: Environment, install: Callable[[], None]) -> float:
    """Seconds from the first command to an elastic job whose minimum runs."""
    namespace = IsolatedNamespace(environment, NAMESPACE)
    begun_s = clock.monotonic_s()
    install()
    bare.apply(first_job())
    until("the job runs", lambda: namespace.running("first"), lambda n: n >= 2, WAIT_S)
    return clock.monotonic_s() - begun_s


def first_job_criterion(way: str, seconds: float) -> Criterion:
    """The bar of the first job after an installation.

    Args:
        way: How it was installed.
        seconds: From the first command on.
    """
    return Criterion(f"first_job_{way}", seconds, "s", FIRST_JOB_S)


def starts(server: str, measured: Sequence[Start]) -> Iterator[Criterion]:
    """The bar of a server's starts: the longest counts."""
    longest_s = max(start.ready_s for start in measured)
    yield Criterion(f"{server}_ready_longest", longest_s, "s", READY_S)
    yield Criterion(f"{server}_ready_median", median(start.ready_s for start in measured), "s")
    yield Criterion(f"{server}_cpu_at_start", median(start.cpu_s for start in measured), "s")


def _update(directory: Path, _: Scenario, console: Console) -> Iterator[Criterion]:
    """Bursts during the replacement of all servers, and the same number without it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (
        edl_beside_played_nodes(directory, real_nodes=2) as bare,
        installed(bare) as environment,
    ):
        send_nodes(environment, played_nodes())
        with isolated_namespace(environment, "update") as namespace:
            fill(namespace, *TWO_JOBS.jobs)
            burst(namespace)  # the first one fills caches
            updates = [
                bursts_during(namespace, lambda: bare.restart(*COMPONENTS)) for _ in range(_UPDATES)
            ]
            count = sum(len(update.bursts_s) for update in updates)
            alone_s = [burst(namespace) for _ in range(count)]
            for job in TWO_JOBS.jobs:
                namespace.wait_exact(job)
    console.print(f"update: {count} bursts in {_UPDATES} updates, and {count} without")
    yield from update_criteria(alone_s, updates)


def update_criteria(alone_s: Sequence[float], updates: Sequence[Update]) -> Iterator[Criterion]:
    """The bars of bursts and admission while all servers are replaced.

    Args:
        alone_s: Seconds of as many bursts without an update.
        updates: What was measured in each.
    """
    during_s = [seconds for update in updates for seconds in update.bursts_s]
    yield Criterion("burst_without_update_median", median(alone_s), "s")
    yield Criterion("burst_without_update_longest", max(alone_s), "s")
    yield Criterion("burst_in_update_median", median(during_s), "s")
    yield Criterion("burst_in_update_longest", max(during_s), "s")
    ratio = median(during_s) / median(alone_s)
    yield Criterion("burst_in_update_over_without_median", ratio, "x", SLOWER)
    yield Criterion(
        "burst_in_update_over_without_longest", max(during_s) / max(alone_s), "x", SLOWER
    )
    yield Criterion("admissions_missed", float(sum(u.accepted for u in updates)), "", 0.0)
    yield Criterion("admissions_reviewed", float(sum(u.refused for u in updates)), "")


def _demo(directory: Path, scenario: Scenario, console: Console) -> Iterator[Criterion]:
    """The demo with EDL as processes beside the cluster, then as pods in it."""
    binaries = build.ensure(build.cache_root(os.environ))
    runs = []
    for in_cluster in (False, True):
        place = directory / ("in-cluster" if in_cluster else "beside")
        with view(console) as shown:
            mode = SchedulingMode.EXTENDER
            runs.append(play(binaries, place, scenario, shown, mode, in_cluster=in_cluster))
    beside, inside = (run.figures for run in runs)
    yield Criterion("demo_others_percent_beside", beside.others_percent, "%")
    yield from in_cluster_comparison(inside, beside)


_PARTS: Mapping[str, Part] = {"cluster": _cluster, "update": _update, "demo": _demo}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops everything, like Ctrl-C
    sys.exit(main())
