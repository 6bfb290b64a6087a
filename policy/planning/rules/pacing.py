"""How many surplus trainers may wait for kube-scheduler, and how namespaces share that number.

The job with the smallest share grows first. If even many of its trainers make only a small share, the same
job stays first for long, while kube-scheduler places only a limited number of pods a second. So each
namespace gets a part of the number. In further rounds, unused parts go to the namespaces that need more,
and in the last round to the jobs with the smallest share. A job that waits for its next turn keeps its
claim: richer jobs use their part only if enough capacity for the claim remains.
"""

from collections import Counter
from math import ceil, log2

from policy.cluster import amounts
from policy.cluster.snapshot import Constraints, Job, Resources
from policy.names import Tier
from policy.planning.book import Book
from policy.planning.free_capacity import When
from policy.planning.job_entry import JobEntry
from policy.planning.rules import creation_backoffs

_MIN_IN_FLIGHT = 8
_IN_FLIGHT = 0.04
"""Fraction of all target trainers that may wait for the scheduler at the same time (8 always may).

If kube-scheduler is faster, as many trainers may wait as it places until the next plan (`PlacementPace`).
"""
_LAST_ROUND = 8
"""The number of a plan's last round; the first round is 0."""
_LEVELS = 4
"""A job's share is rounded up to a power of 2 ** (1 / _LEVELS); claims are summed up to that share."""
_MAX_SHAPES = 32
"""Number of shapes whose claims are compared with the free capacity; others only count in the sum."""


class Pacing:
    """The trainers without a node in one plan, and the jobs that wait for their next turn."""

    def __init__(self, book: Book) -> None:
        """Counts the trainers that already wait for kube-scheduler, and starts the first round."""
        self._book = book
        share = int(_IN_FLIGHT * book.trainers)
        self.budget = max(_MIN_IN_FLIGHT, share, book.history.placeable)
        """Number of trainers of all jobs that may wait for kube-scheduler."""
        self.waiting = 0
        """Number of trainers of all jobs that wait for kube-scheduler."""
        self._used = Counter[str]()
        """Namespace -> number of its jobs' trainers that wait for kube-scheduler."""
        for entry in book.entries:
            count = _about_to_be_placed(book, entry)
            self._used[entry.job.namespace] += count
            self.waiting += count
        namespaces = {
            entry.job.namespace
            for entry in book.entries
            if entry.grows and entry.count < entry.job.max_trainers
        }
        self._is_shared = len(namespaces) > 1
        self._round = 0
        self._limits = dict.fromkeys(namespaces, max(1, self.budget // max(1, len(namespaces))))
        """Namespace -> number of its trainers that may wait for kube-scheduler in this round."""
        self._before = self.waiting
        """The value of `waiting` when the round began."""
        self._claims = _Claims(book)
        self.paused: list[JobEntry] = []
        """Jobs that wait for their next turn, in the order in which they were paused."""
        self.owner_waits = False
        """Whether a paused job lacks part of its queue's own quota; until it has that, no queue borrows."""
        self.is_full = False
        """Whether no job gets further trainers in this plan."""
        self.holds_moves = False
        """Whether some job has not had its part yet, so that it is unknown which jobs lack capacity."""

    def add(self, entry: JobEntry, step: int) -> None:
        """Counts trainers that the plan creates."""
        self._used[entry.job.namespace] += step
        self.waiting += step
        self._claims.take(entry, step)

    def allows(self, entry: JobEntry, step: int) -> bool:
        """Returns whether a job may create `step` trainers in this round.

        A step that is larger than a part, or than the whole budget, is allowed while none of that part or
        budget is used. If the whole budget does not suffice for a step, no smaller step overtakes it.
        """
        namespace = entry.job.namespace
        limit = self._limits.get(namespace, self.budget)
        is_turn = not self._is_shared or _fits(self._used[namespace], step, limit)
        if is_turn and not _fits(self.waiting, step, self.budget):
            self.is_full = True
            self.holds_moves = self._round == 0
        return is_turn and not self.is_full and self._claims.leave(entry, step)

    def pause(self, entry: JobEntry) -> None:
        """Lets a job wait for its next turn; its claim has precedence over richer jobs."""
        self.paused.append(entry)
        self._claims.add(entry)
        lends = self._book.quotas.borrowing.covers(entry.job.queue)
        self.owner_waits = self.owner_waits or (lends and not self._book.standing(entry)[0])

    def next_round(self) -> list[JobEntry]:
        """Starts a round with larger parts and returns its jobs: the paused ones, if budget is unused.

        After a round without creations comes the last one, in which the jobs with the smallest share get
        the rest.
        """
        unused = self.budget - self.waiting
        if not self.paused or self.is_full or unused <= 0 or self._round == _LAST_ROUND:
            return []
        entries, self.paused = self.paused, []
        namespaces = {entry.job.namespace for entry in entries}
        self._round += 1
        if self.waiting == self._before or len(namespaces) == 1 or unused < len(namespaces):
            self._round = _LAST_ROUND
        part = unused if self._round == _LAST_ROUND else unused // len(namespaces)
        self._limits = {namespace: self._used[namespace] + part for namespace in namespaces}
        self._before = self.waiting
        self._claims.clear()
        self.owner_waits = False
        return entries


def own_in_flight(entry: JobEntry) -> int:
    """Returns how many surplus trainers of a job have no node, even if kube-scheduler cannot place them."""
    return len(entry.waiting) + len(entry.creates[Tier.SURPLUS])


def _about_to_be_placed(book: Book, entry: JobEntry) -> int:
    """Returns the number of a job's surplus trainers that kube-scheduler is about to place.

    Trainers that it cannot place count only for their own job (`own_in_flight`).
    """
    return sum(not creation_backoffs.is_stuck(book, entry, pod) for pod in entry.waiting)


def _fits(used: int, step: int, limit: int) -> bool:
    return used + min(step, limit) <= limit


class _Claims:
    """The trainers that paused jobs would still get before a richer job, compared with the free capacity.

    For each shape, free capacity counts in whole trainers, because smaller pieces do not help. It is
    measured in the resource of which a trainer of the shape takes the largest share.
    """

    def __init__(self, book: Book) -> None:
        self._book = book
        self._taken: dict[str, int] = {}
        """Requests of the trainers that this plan creates."""
        self._rooms: dict[_Shape, tuple[str, int]] = {}
        """Shape -> (that resource, its amount in all trainers of the shape that fit at the beginning)."""
        self._entries: list[JobEntry] = []
        self._level: int | None = None
        """The share up to which claims are summed, as an exponent of 2 ** (1 / _LEVELS)."""
        self._priority = 0
        """The priority of the job for which claims are summed."""
        self._sum: dict[str, int] = {}
        """Requests of all claimed trainers."""
        self._counts = Counter[_Shape]()
        """Shape -> number of claimed trainers, for the first `_MAX_SHAPES` shapes."""

    def clear(self) -> None:
        """Drops all claims."""
        self._entries, self._level = [], None

    def add(self, entry: JobEntry) -> None:
        """Adds a job that waits for its turn."""
        self._entries.append(entry)
        if self._level is not None:
            self._add(entry, self._level)

    def take(self, entry: JobEntry, step: int) -> None:
        """Counts trainers that the plan creates."""
        amounts.add(self._taken, amounts.scaled(entry.job.requests, step))

    def leave(self, entry: JobEntry, step: int) -> bool:
        """Returns whether capacity remains for `step` trainers of a job beside the claims of poorer jobs.

        Poorer jobs claim the trainers that they would get until they reach the job's share.
        """
        measure = self._book.expected_measure(entry)
        if not self._entries or measure <= 0:
            return True
        level = ceil(_LEVELS * log2(measure))
        if (level, entry.facts.priority) != (self._level, self._priority):
            self._level, self._sum, self._counts = level, {}, Counter()
            self._priority = entry.facts.priority
            for claimant in self._entries:
                self._add(claimant, level)
        requests = entry.job.requests
        return self._book.load.allow_later(requests, {}, step, self._sum) and all(
            self._leaves_places(shape, count, amounts.scaled(requests, step))
            for shape, count in self._counts.items()
            if shape[1] == entry.job.constraints.shared
        )

    def _leaves_places(self, shape: "_Shape", count: int, requests: Resources) -> bool:
        resource, room = self._rooms[shape]
        claim = dict(shape[0])[resource] * count
        return self._taken.get(resource, 0) + requests.get(resource, 0) + claim <= room

    def _add(self, claimant: JobEntry, level: int) -> None:
        """Adds a job's claim; a job of higher priority claims all trainers up to its maximum."""
        lacking = 2 ** (level / _LEVELS) - self._book.expected_measure(claimant)
        job, count = claimant.job, claimant.job.max_trainers - claimant.count
        if claimant.facts.trainer_measure > 0 and claimant.facts.priority <= self._priority:
            count = min(count, max(0, ceil(lacking / claimant.facts.trainer_measure)))
        if not any(job.requests.values()):
            return
        amounts.add(self._sum, amounts.scaled(job.requests, count))
        shape = tuple(sorted(job.requests.items())), job.constraints.shared
        if shape in self._counts or len(self._counts) < _MAX_SHAPES:
            if shape not in self._rooms:
                self._rooms[shape] = self._room(job)
            self._counts[shape] += count

    def _room(self, job: Job) -> tuple[str, int]:
        book, total = self._book, self._book.cluster.allocatable
        resource = max(job.requests, key=lambda n: job.requests[n] / max(1, total.get(n, 0)))
        slots = book.capacity.slots(
            job.requests, job.constraints, book.closed, pooled=True, when=When.LATER
        )
        return resource, slots * job.requests[resource] + self._taken.get(resource, 0)


_Shape = tuple[tuple[tuple[str, int], ...], Constraints]
