"""`python -m bench`: the benchmarks, their report and their table."""

import gc
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.benchmark import Result, Setting
from bench.catalogue import BENCHMARKS
from e2e.measure import report
from e2e.measure.commands import add_output, verdict
from e2e.measure.processes import commit, machine
from e2e.signals import INTERRUPTED
from runtime.command_line import Parser

FULL = ((100, 1_000, 5_000), 60)
QUICK = ((50, 200), 9)
"""Numbers of nodes, and repetitions of a short measurement."""

_ROOT = Path(__file__).parents[1]
_DESCRIPTION = """Measures on synthetic clusters of 100, 1 000 and 5 000 nodes (ten pods per node, a
job per five nodes) how long a plan, plans of odd clusters and the extender's responses take; then a master with sixteen
trainers, the overhead of the SDK, an all-reduce, and synchronous training while members change: its
pauses, loss curve and speed. `strangers` measures calls and probes of each server beside slow and silent connections (12 minutes).
Prints the results and writes build/bench/report.json. Takes 40 minutes; avoid other load meanwhile."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the benchmarks that the command line names.

    Returns:
        0; 1 if a run failed, or a criterion is missed with STRICT=1; 2 for a usage error; 130
        after an interrupt.
    """
    arguments = _parser().parse_args(argv)
    unknown = [name for name in arguments.names if name not in BENCHMARKS]
    complaints = Console(stderr=True)
    if unknown:
        text = f"bench: no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}"
        complaints.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
        return 2
    console = Console()
    try:
        results = _run(arguments.names or list(BENCHMARKS), console, quick=arguments.quick)
        return _report(arguments.output, results, console, quick=arguments.quick)
    except KeyboardInterrupt:
        console.print("interrupted: nothing was written")
        return INTERRUPTED
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        complaints.print(
            f"bench: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m bench",
        description=_DESCRIPTION,
        epilog="With STRICT=1 in the environment a missed criterion is a failure.",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"what to measure: {', '.join(BENCHMARKS)} (default: all)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="50 and 200 nodes, few repetitions, no criteria: checks that the benchmarks work",
    )
    add_output(parser, "build/bench", "the report goes")
    return parser


def _run(names: Sequence[str], console: Console, *, quick: bool) -> dict[str, Result]:
    sizes, rounds = QUICK if quick else FULL
    results = {}
    with console.status("starting") as status:

        def report_progress(text: str) -> None:
            if console.is_terminal:
                status.update(text)
            else:
                console.print(text, highlight=False)

        for name in dict.fromkeys(names):
            results[name] = BENCHMARKS[name](Setting(sizes, rounds, report_progress))
            gc.collect()  # garbage of one benchmark must not slow down the next
    if quick:
        return {name: _without_limits(result) for name, result in results.items()}
    return results


def _without_limits(result: Result) -> Result:
    return replace(
        result, criteria=tuple(replace(criterion, limit=None) for criterion in result.criteria)
    )


def _report(output: Path, results: dict[str, Result], console: Console, *, quick: bool) -> int:
    criteria = [criterion for result in results.values() for criterion in result.criteria]
    sizes = (QUICK if quick else FULL)[0]
    runs: dict[str, dict[str, Any]] = {
        name: {"nodes": list(sizes), "growth": result.growth, "raw": result.raw}
        for name, result in results.items()
    }
    document = report.document(
        machine=machine(), commit=commit(_ROOT), criteria=criteria, runs=runs
    )
    report.write(output / "report.json", document | {"quick": quick})
    for name, result in results.items():
        if result.growth:
            console.print(_growth_table(name, result, sizes))
    console.print(report.criterion_table(criteria, f"criteria, at {sizes[-1]} nodes"))
    console.print(f"report {output / 'report.json'}", soft_wrap=True)
    return verdict(criteria, console)


def _growth_table(name: str, result: Result, sizes: Sequence[int]) -> Table:
    table = Table(title=f"{name}: how it grows", title_justify="left")
    table.add_column("figure")
    for size in sizes:
        table.add_column(f"{size} nodes", justify="right")
    for figure, values in result.growth.items():
        table.add_row(
            figure, *(f"{value:,.3g}" if value < 1 else f"{value:,.1f}" for value in values)
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
