"""`python -m tests.fuzz`: random inputs for everything that reads what strangers write."""

import gc
import logging
import multiprocessing
import os
import resource
import secrets
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from runtime.clock import monotonic_s
from runtime.command_line import Parser
from tests.fuzz import run
from tests.fuzz.run import Finding
from tests.fuzz.targets import TARGETS

_COUNT = 1000
_MEMORY_BYTES = 4 * 2**30
_PROGRESS_S = 15.0
_MAX_FINDINGS = 10
_SEEDS = 10_000
_PART = 250
"""Inputs that a process runs before it tells what it has found."""


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


def limit_memory() -> None:
    """Makes too much memory an error of the input that takes it; and logs nothing."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.freeze()  # what is imported lives as long as the process


def _run_target(name: str, seed: int, numbers: range, jobs: int) -> bool:
    """Runs one target; returns whether there are findings."""
    begun_s = told_s = monotonic_s()
    count = findings = mib = 0
    for part, found, part_mib in _run_parts(name, seed, numbers, jobs):
        count, findings, mib = count + len(part), findings + len(found), max(mib, part_mib)
        for finding in found:
            sys.stdout.write(f"{finding.error}{finding.replay}\n")
        if findings >= _MAX_FINDINGS:
            sys.stdout.write(f"{name}: {findings} findings, the rest is not run\n")
            return True
        if monotonic_s() - told_s >= _PROGRESS_S and count < len(numbers):
            told_s = monotonic_s()
            _print(name, seed, count, told_s - begun_s, mib)
    _print(name, seed, count, monotonic_s() - begun_s, mib)
    return findings > 0


def _run_parts(
    name: str, seed: int, numbers: range, jobs: int
) -> Iterator[tuple[range, list[Finding], int]]:
    """Yields parts of the numbers with their findings and the memory of their process, in any order."""
    starts = range(numbers.start, numbers.stop, _PART)
    parts = (range(start, min(start + _PART, numbers.stop)) for start in starts)
    if jobs == 1 or len(starts) == 1:
        limit_memory()
        yield from (run_part(name, seed, part) for part in parts)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=limit_memory)
    try:
        begun: set[Future[tuple[range, list[Finding], int]]]
        begun = {pool.submit(run_part, name, seed, part) for part in islice(parts, 2 * jobs)}
        while begun:
            ended, begun = wait(begun, return_when=FIRST_COMPLETED)
            begun |= {pool.submit(run_part, name, seed, part) for part in islice(parts, len(ended))}
            yield from (future.result() for future in ended)
    finally:
        pool.shutdown(cancel_futures=True)


def run_part(name: str, seed: int, part: range) -> tuple[range, list[Finding], int]:
    """Runs some inputs of a target on the main thread of this process.

    Returns:
        Their numbers, the findings, and the most memory that this process has had, in MiB.
    """
    findings = list(islice(run.run(name, TARGETS[name], seed, part), _MAX_FINDINGS))
    return part, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _print(name: str, seed: int, count: int, seconds: float, mib: int) -> None:
    sys.stdout.write(f"{name}: {count} inputs, seed {seed}, {seconds:.0f} s, {mib} MiB\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
