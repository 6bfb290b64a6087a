"""How many trainers must be stopped because jobs arrive: from the scenario alone (pure).

Every arrival changes the fair shares: the room the newcomer's own support pods leave is divided
among one job more. How much of that must become stopped trainers depends on how fair one is in
between, so there are three counts, each the work of a policy that uses all room at all times:

- `exact`: max-min shares to the trainer at every arrival, which is fairer than anybody asks for;
- `tolerant`: as fair as a given Jain's index whenever the next job comes, and no fairer;
- `once`: every newcomer gets at once what it will have in the end, and no job ever grows before
  it shrinks. That takes knowing all jobs to come, and leaves newcomers far below the others, so
  it is a bound for any policy and a measure for none.

The reserve that a policy keeps free is not part of the scenario: bounds are what nodes hold.
"""

from collections.abc import Sequence
from itertools import pairwise

from e2e.measure.figures import jain
from e2e.workload import MASTER_CPU_MILLIS, PSERVER_CPU_MILLIS, TRAINER_CPU_MILLIS, Scenario


def bounds(scenario: Scenario, free_millis: Sequence[int] | None = None) -> tuple[int, ...]:
    """Returns the most trainers that fit together with all other pods, after each arrival.

    No more than all jobs want; than the best packing of trainers and parameter servers on the
    nodes allows; than the sum of all CPU allows beside system pods and masters, which are small
    enough to go between. CPU only: memory is never scarce in this workload.

    Args:
        scenario: What comes to which nodes.
        free_millis: Free CPU of each node beside system pods; None places them best.
    """
    nodes = list(scenario.cpu_millis.values()) if free_millis is None else free_millis
    packed = _packed(nodes, scenario.jobs * scenario.pservers)
    free = sum(nodes) - (scenario.system_cpu_millis if free_millis is None else 0)
    support = scenario.pservers * PSERVER_CPU_MILLIS + MASTER_CPU_MILLIS
    return tuple(
        min(
            jobs * scenario.max_trainers,
            packed[jobs * scenario.pservers],
            max(0, free - jobs * support) // TRAINER_CPU_MILLIS,
        )
        for jobs in range(1, scenario.jobs + 1)
    )


def _packed(nodes: Sequence[int], pservers: int) -> list[int]:
    """Returns the most trainers on all nodes together with 0, 1, 2, ... parameter servers.

    Dynamic programming over nodes: O(nodes * pservers * pservers of one node). More parameter
    servers than there is room for leave room for no trainer.
    """
    most: list[int] = [0, *[-sum(nodes)] * pservers]
    for millis in nodes:
        choices = [
            (beside, (millis - beside * PSERVER_CPU_MILLIS) // TRAINER_CPU_MILLIS)
            for beside in range(millis // PSERVER_CPU_MILLIS + 1)
        ]
        most = [
            max(
                most[placed - beside] + trainers for beside, trainers in choices if beside <= placed
            )
            for placed in range(pservers + 1)
        ]
    return [max(0, trainers) for trainers in most]


def exact(totals: Sequence[int]) -> int:
    """Trainers stopped where shares are max-min fair to the trainer at every arrival."""
    return _stopped([_equal(totals, jobs) for jobs in range(1, len(totals) + 1)])


def once(totals: Sequence[int]) -> int:
    """Returns the number of stopped trainers if every job gets its final share at once."""
    final = _equal(totals, len(totals))
    return max(total - sum(final[: i + 1]) for i, total in enumerate(totals))


def tolerant(totals: Sequence[int], least: int, index: float) -> int:
    """Trainers stopped where Jain's index is at least `index` whenever the next job comes.

    The newcomer gets as little as that allows, the others give way from the top. A convex
    relaxation of the problem shows that no policy needs 1.5 % less in the first experiment.

    Args:
        totals: Of all jobs, after each arrival.
        least: The minimum of a job.
        index: Where whole trainers cannot be as fair as that, the fairest is taken.
    """
    history: list[list[int]] = []
    shares: list[int] = []
    for total in totals:
        shares = _least_fair(shares, total, least, index)
        history.append(shares)
    return _stopped(history)


def _least_fair(shares: Sequence[int], total: int, least: int, index: float) -> list[int]:
    """Returns the shares in which a newcomer has as little as `index` allows, or else the fairest."""
    equal = -(-total // (len(shares) + 1))
    best: list[int] = []
    for new in range(min(least, equal), equal + 1):
        after = _welcome(shares, total, new)
        if jain(after) >= index:
            return after
        if not best or jain(after) > jain(best):
            best = after
    return best


def _welcome(shares: Sequence[int], total: int, new: int) -> list[int]:
    """Returns the shares when a newcomer gets `new`; all room is used, the richest give, the poorest get."""
    after = [*shares, min(new, total)]
    while sum(after) > total:
        richest = max(range(len(shares)), key=lambda i: after[i])
        after[richest] -= 1
    while sum(after) < total:
        poorest = min(range(len(after)), key=lambda i: after[i])
        after[poorest] += 1
    return after


def _equal(totals: Sequence[int], jobs: int) -> list[int]:
    """Returns the max-min shares of a number of jobs; the remainder goes to the oldest."""
    share, remainder = divmod(totals[jobs - 1], jobs)
    return [share + (number < remainder) for number in range(jobs)]


def _stopped(history: Sequence[Sequence[int]]) -> int:
    """All decreases of all jobs."""
    return sum(
        max(0, had - has)
        for before, after in pairwise(history)
        for had, has in zip(before, after, strict=False)  # the newcomer had nothing
    )
