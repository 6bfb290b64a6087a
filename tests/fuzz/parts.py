"""Runs the inputs of a fuzz target in parts, on several processes."""

import gc
import logging
import multiprocessing
import resource
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from tests.fuzz import run as inputs
from tests.fuzz.run import Finding
from tests.fuzz.targets import TARGETS

PART = 250
"""Inputs that a process runs before it tells what it has found."""
MAX_FINDINGS = 10
_MEMORY_BYTES = 4 * 2**30


def run(
    name: str, seed: int, numbers: range, jobs: int
) -> Iterator[tuple[range, list[Finding], int]]:
    """Runs inputs of a target on some processes.

    Yields:
        Parts of the numbers in any order, each with its findings and the most memory, in MiB, that its
        process has had.
    """
    starts = range(numbers.start, numbers.stop, PART)
    parts = (range(start, min(start + PART, numbers.stop)) for start in starts)
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
    findings = list(islice(inputs.run(name, TARGETS[name], seed, part), MAX_FINDINGS))
    return part, findings, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def limit_memory() -> None:
    """Makes too much memory an error of the input that takes it; and logs nothing."""
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    gc.freeze()  # what is imported lives as long as the process
