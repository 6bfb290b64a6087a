"""The best there is, by full search and by solver, for plans to be compared with.

The optimum of a small cluster: of all numbers of trainers that give every job its minimum and
can be placed, those whose sorted vector of shares is lexicographically largest (max-min
fairness), and of these the one with most trainers.
"""

from collections.abc import Iterable, Sequence
from itertools import product

from policy.cluster import amounts
from policy.cluster.snapshot import Job, Node, Resources

Counts = tuple[int, ...]


def placeable(nodes: Sequence[Node], jobs: Sequence[Job]) -> set[Counts]:
    """All numbers of trainers, up to each job's max, for which a placement exists."""
    counts: set[Counts] = {(0,) * len(jobs)}
    for node in nodes:
        fillings = list(_fillings(node.allocatable, jobs))
        counts = {
            tuple(min(a + b, job.max_trainers) for a, b, job in zip(old, new, jobs, strict=True))
            for old in counts
            for new in fillings
        }
    return counts


def _fillings(free: Resources, jobs: Sequence[Job]) -> Iterable[Counts]:
    """Every mixture of trainers that one node takes."""
    most = [min(job.max_trainers, amounts.times(job.requests, free)) for job in jobs]
    for counts in product(*(range(limit + 1) for limit in most)):
        used: dict[str, int] = {}
        for count, job in zip(counts, jobs, strict=True):
            amounts.add(used, {name: amount * count for name, amount in job.requests.items()})
        if amounts.within(used, free):
            yield counts


def most_filled(free: Resources, shapes: Sequence[tuple[Resources, int]]) -> int:
    """The most that whole trainers can be worth on one node (CP-SAT).

    Args:
        free: Of the node.
        shapes: Requests of a trainer, and what one of them is worth.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - brings pandas, for one file of tests

    model = cp_model.CpModel()
    counts = [model.new_int_var(0, amounts.times(shape, free), "") for shape, _ in shapes]
    for name in {name for shape, _ in shapes for name in shape}:
        used = sum(n * shape.get(name, 0) for n, (shape, _) in zip(counts, shapes, strict=True))
        model.add(used <= max(0, free.get(name, 0)))
    model.maximize(sum(n * worth for n, (_, worth) in zip(counts, shapes, strict=True)))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if solver.solve(model) != cp_model.OPTIMAL:
        raise AssertionError("a knapsack of one node was not solved")
    return int(solver.objective_value)
