"""`python -m tests.fuzz`: random inputs for everything that reads what strangers write."""

import logging
import resource
import secrets
import sys
from collections.abc import Sequence

from runtime.clock import monotonic_s
from runtime.command_line import Parser
from tests.fuzz import run
from tests.fuzz.targets import TARGETS

_COUNT = 1000
_MEMORY_BYTES = 4 * 2**30
_PROGRESS_S = 15.0
_MAX_FINDINGS = 10
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
    arguments = parser.parse_args(argv)
    if arguments.count < 1 or arguments.first < 0:
        parser.error("--count is at least 1 and --first at least 0")
    seed = secrets.randbelow(_SEEDS) if arguments.seed is None else arguments.seed
    limit_memory()
    failed = False
    for name in arguments.target or TARGETS:
        numbers = range(arguments.first, arguments.first + arguments.count)
        failed |= _run_one(name, seed, numbers)
    return int(failed)


def limit_memory() -> None:
    """Makes too much memory an error of the input that takes it; and logs nothing."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))


def _run_one(name: str, seed: int, numbers: range) -> bool:
    """Runs one target; returns whether there are findings."""
    begun_s = told_s = monotonic_s()

    def report_progress(number: int) -> None:
        nonlocal told_s
        if monotonic_s() - told_s >= _PROGRESS_S:
            told_s = monotonic_s()
            _print(name, seed, number + 1 - numbers.start, told_s - begun_s)

    findings = 0
    for finding in run.run(name, TARGETS[name], seed, numbers, after=report_progress):
        findings += 1
        sys.stdout.write(f"{finding.error}{finding.replay}\n")
        if findings == _MAX_FINDINGS:
            sys.stdout.write(f"{name}: {findings} findings, the rest is not run\n")
            return True
    _print(name, seed, len(numbers), monotonic_s() - begun_s)
    return findings > 0


def _print(name: str, seed: int, count: int, seconds: float) -> None:
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    sys.stdout.write(f"{name}: {count} inputs, seed {seed}, {seconds:.0f} s, {mib} MiB\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
