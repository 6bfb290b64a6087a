"""`python -m tests.fuzz`: random inputs for everything that reads what strangers write."""

import os
import secrets
import sys
from collections.abc import Sequence

from runtime.clock import monotonic_s
from runtime.command_line import Parser
from tests.fuzz import parts
from tests.fuzz.targets import TARGETS

_COUNT = 1000
_PROGRESS_S = 15.0
_SEEDS = 10_000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0; 1 if there are findings; 2 for a usage error.
    """
    parser = Parser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="all by default")
    parser.add_argument("--seed", type=int, help="a random one by default")
    parser.add_argument("--count", type=int, default=_COUNT, help="inputs for each target")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args(argv)
    if arguments.count < 1 or arguments.first < 0 or arguments.jobs < 1:
        parser.error("--count and --jobs are at least 1, and --first at least 0")
    seed = secrets.randbelow(_SEEDS) if arguments.seed is None else arguments.seed
    failed = False
    for name in arguments.target or TARGETS:
        numbers = range(arguments.first, arguments.first + arguments.count)
        failed |= _run_target(name, seed, numbers, arguments.jobs)
    return int(failed)


def _run_target(name: str, seed: int, numbers: range, jobs: int) -> bool:
    """Runs one target; returns whether there are findings."""
    begun_s = told_s = monotonic_s()
    count = findings = mib = 0
    for part, found, part_mib in parts.run(name, seed, numbers, jobs):
        count, findings, mib = count + len(part), findings + len(found), max(mib, part_mib)
        for finding in found:
            sys.stdout.write(f"{finding.error}{finding.replay}\n")
        if findings >= parts.MAX_FINDINGS:
            sys.stdout.write(f"{name}: {findings} findings, the rest is not run\n")
            return True
        if monotonic_s() - told_s >= _PROGRESS_S and count < len(numbers):
            told_s = monotonic_s()
            _print(name, seed, count, told_s - begun_s, mib)
    _print(name, seed, count, monotonic_s() - begun_s, mib)
    return findings > 0


def _print(name: str, seed: int, count: int, seconds: float, mib: int) -> None:
    sys.stdout.write(f"{name}: {count} inputs, seed {seed}, {seconds:.0f} s, {mib} MiB\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
