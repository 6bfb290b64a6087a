"""Moves of trainers from some jobs to another one, on the terms of the rule that makes the moves."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Protocol

from policy.cluster import amounts
from policy.cluster.cluster_state import job_key
from policy.cluster.live_trainers import is_surplus, loss
from policy.cluster.snapshot import Pod, Resources
from policy.decisions import Figures
from policy.planning import sizes
from policy.planning.book import Book
from policy.planning.decisions import Decisions, Expect, ReleaseTrainer
from policy.planning.free_capacity import When
from policy.planning.job_entry import JobEntry
from policy.planning.rules.sharing import free_slot
from policy.reasons import Reason


class MoveTerms(Protocol):
    """The terms on which other jobs give trainers to one job."""

    gives_more: bool
    """Whether small trainers on any node may also be released until quotas and reserve allow a large one."""

    def donors(self, donors: "Donors") -> dict[str, JobEntry]:
        """Returns job key -> job for the jobs that may give trainers, in the order in which they give."""

    def may_give(self, donor: JobEntry, given: int, freed: Resources) -> bool:
        """Returns whether a donor may give this number of trainers.

        Args:
            donor: The job that gives.
            given: Number of trainers that the donor gives in this move.
            freed: Amounts that all donors in its queue give in this move; empty if no queue lends.
        """

    def may_leave(self, pod: Pod) -> bool:
        """Returns whether this trainer may be given."""

    def explain(self, donor: JobEntry) -> tuple[Reason, Figures]:
        """Returns why a trainer of a donor is released."""


class Donors:
    """The jobs that have spare trainers, the largest share first."""

    def __init__(self, book: Book) -> None:
        self._book = book
        givers = (entry for entry in book.entries if entry.spare and not entry.stopped)
        self._ranked = {giver.key: self._rank(giver) for giver in givers}
        self._sorted = sorted(self._ranked.values())
        self._priorities = {entry.facts.priority for entry in book.entries}

    def _rank(self, entry: JobEntry) -> tuple[float, str, JobEntry]:
        return -self._book.expected_measure(entry), entry.key, entry

    def changed(self, entry: JobEntry) -> None:
        """Sorts a donor again after it has released trainers."""
        old = self._ranked.pop(entry.key)
        del self._sorted[bisect_left(self._sorted, old)]
        if entry.spare:
            self._ranked[entry.key] = self._rank(entry)
            insort(self._sorted, self._ranked[entry.key])

    def above(self, least: float, priority: int) -> dict[str, JobEntry]:
        """Returns job key -> donor, for donors with a lower priority or a measure of at least `least`.

        The lowest priority comes first, then the largest measure.
        """
        richest = [item[1:] for item in takewhile(lambda item: -item[0] >= least, self._sorted)]
        if self._priorities != {priority}:
            known = {key for key, _ in richest}
            others = (item[1:] for item in self._sorted if item[-1].facts.priority < priority)
            richest += [other for other in others if other[0] not in known]
            richest.sort(key=lambda item: item[1].facts.priority)
        return dict(richest)

    def all(self) -> list[JobEntry]:
        """Returns all donors, the largest measure first."""
        return [entry for *_, entry in self._sorted]


class Move:
    """A move: trainers of other jobs whose release lets one job reach its next allowed size.

    The constructor searches for these trainers; `decisions` makes the move.
    """

    def __init__(
        self,
        book: Book,
        receiver: JobEntry,
        donors: Donors,
        terms: MoveTerms,
        ruled_out_nodes: set[str],
    ) -> None:
        """Searches for the trainers to release.

        Args:
            book: The plan so far.
            receiver: The job that gets the trainers.
            donors: The jobs that may release trainers.
            terms: The terms on which the donors release trainers.
            ruled_out_nodes: Nodes that cannot help this move; the search adds nodes. They stay ruled out
                within a plan: receivers only become richer, so fewer and fewer jobs may give trainers.
        """
        self._book = book
        self._ruled_out_nodes = ruled_out_nodes
        self.nodes_examined = 0
        """Number of nodes examined."""
        self._receiver = receiver
        self._requests = receiver.job.requests
        self._step = book.next_step(receiver)
        self._terms = terms
        self._donors = terms.donors(donors)
        self._slots = _free_slots(book, receiver, self._step)
        """Nodes with free capacity for the receiver's new trainers, the cheapest last."""
        self._any_node_helps = bool(self._slots)
        """Whether the receiver lacks quota or load but no node, so that releases on any node help."""
        self._unlabelled = any(d.facts.excess or not d.job.managed for d in self._donors.values())
        """Whether some donors' surplus lacks the surplus label (guaranteed excess, built-in controller)."""
        self._suitable_nodes: set[str] = set()
        self._open = book.capacity.open_nodes(receiver.job.constraints, pooled=True)
        self._in_quota = book.quotas.allow(receiver.job, self._step)
        self._freed: dict[str, dict[str, int]] = {}
        self._victim_counts: Counter[str] = Counter()
        self._freed_by_queue: dict[str, dict[str, int]] = {}
        self._nodes: list[str] = []
        """Nodes where the receiver's new trainers would run."""
        self._node_counts: Counter[str] = Counter()
        self.victims: list[tuple[JobEntry, Pod]] = []
        """(donor, trainer) pairs to release."""
        self._victim_ids: set[int] = set()
        enough = self._step > 0 and any(self._take_from(donor) for donor in self._donors.values())
        self.possible = enough and (self._allowed() or (terms.gives_more and self._give_more()))

    def _take_from(self, donor: JobEntry) -> bool:
        """Adds those trainers of a donor that help; returns whether the move is complete."""
        relieves = self._in_quota or self._book.quotas.relieves(
            self._receiver.job, self._step, donor.job
        )
        for pods in self._victim_groups(donor) if relieves else ():
            self._consider(donor, pods)
            if len(self._nodes) == self._step:
                return True
        return False

    def _victim_groups(self, donor: JobEntry) -> Iterator[list[Pod]]:
        """Yields groups of trainers that a donor may release together: single trainers or whole steps."""
        ruled_out_nodes = self._ruled_out_nodes
        old_enough = (
            pod
            for pod in donor.spare
            if pod.node not in ruled_out_nodes
            and self._is_suitable(pod.node)
            and self._terms.may_leave(pod)
        )
        while True:
            remaining = donor.count - self._victim_counts[donor.key]
            step = remaining - sizes.floor_size(self._book.policy, donor.job, remaining - 1)
            if step < 1 or not self._may_give(donor, step):
                return
            if step == 1:
                yield from ([pod] for pod in old_enough if not self._is_victim(pod))
                return
            group = list(islice(old_enough, step))
            if len(group) < step:
                return
            yield group

    def _is_suitable(self, node: str) -> bool:
        """Returns whether the receiver would fit on a node if donors released all trainers that they may.

        Most nodes are unsuitable for a shape; each node is examined once.
        """
        if self._any_node_helps:
            return bool(node)
        if node not in self._suitable_nodes:
            self.nodes_examined += 1
            fits = self._fits_without_donors(node)
            (self._suitable_nodes if fits else self._ruled_out_nodes).add(node)
            return fits
        return True

    def _fits_without_donors(self, node: str) -> bool:
        book = self._book
        if node not in self._open or node in book.closed:
            return False
        if not amounts.within(self._requests, book.capacity.free_at(node, When.RECLAIMED)):
            return False
        if self._unlabelled:
            return True
        free = book.capacity.free_later(node)
        for pod in book.cluster.bound.get(node, {}).values():
            if is_surplus(pod) and not pod.deleting and pod.uid not in book.released:
                donor = self._donors.get(job_key(pod))
                if donor is not None and self._terms.may_leave(pod):
                    amounts.add(free, pod.requests)
        return amounts.within(self._requests, free)

    def _may_give(self, donor: JobEntry, count: int) -> bool:
        """Returns whether a donor may give `count` more trainers under the terms of the move."""
        given = self._victim_counts[donor.key] + count
        freed = self._freed_in_queue(donor, count)
        return donor is not self._receiver and self._terms.may_give(donor, given, freed)

    def _freed_in_queue(self, donor: JobEntry, count: int) -> Resources:
        """Returns the amounts that a donor's queue gives with `count` more trainers; empty if none lends."""
        if not self._book.quotas.borrowing:
            return {}
        freed = amounts.scaled(donor.job.requests, count)
        return amounts.plus(freed, self._freed_by_queue.get(donor.job.queue, {}))

    def _is_victim(self, pod: Pod) -> bool:
        return id(pod) in self._victim_ids

    def _consider(self, donor: JobEntry, pods: list[Pod]) -> None:
        """Adds trainers to the victims if their release lets a trainer of the receiver fit."""
        if any(self._is_victim(pod) for pod in pods) or not self._may_give(donor, len(pods)):
            return
        victims = [(donor, pod) for pod in pods]
        for pod in () if self._any_node_helps else pods:
            victims += self._victims_beside(pod, victims)
        self._count_victims(victims, 1)
        before = len(self._nodes)
        fewest_slots = len(self._slots) - len(pods)
        while len(self._nodes) < self._step and (node := self._next_node(pods, fewest_slots)):
            self._nodes.append(node)
            self._node_counts[node] += 1
        if len(self._nodes) == before:
            self._count_victims(victims, -1)

    def _victims_beside(
        self, pod: Pod, victims: list[tuple[JobEntry, Pod]]
    ) -> list[tuple[JobEntry, Pod]]:
        """Returns further small trainers on the node to release with `pod` so that a large one fits."""
        free = self._free_on(pod.node)
        chosen = {id(neighbour) for _, neighbour in victims}
        for _, neighbour in victims:
            if neighbour.node == pod.node:
                amounts.add(free, neighbour.requests)
        additional: list[tuple[JobEntry, Pod]] = []
        if amounts.within(self._requests, free):
            return additional
        for neighbour in sorted(self._book.cluster.bound[pod.node].values(), key=loss):
            owner = self._book.owner(neighbour) if is_surplus(neighbour) else None
            if owner is None or id(neighbour) in chosen or neighbour.uid in self._book.released:
                continue
            count = 1 + sum(entry is owner for entry, _ in [*victims, *additional])
            if self._is_victim(neighbour) or not self._gives_one(owner, neighbour, count):
                continue
            additional.append((owner, neighbour))
            amounts.add(free, neighbour.requests)
            if amounts.within(self._requests, free):
                return additional
        return []

    def _gives_one(self, owner: JobEntry, pod: Pod, count: int) -> bool:
        """Returns whether a job may release `count` trainers one by one, including `pod`."""
        remaining = owner.count - self._victim_counts[owner.key] - count
        return (
            not pod.deleting
            and self._terms.may_leave(pod)
            and remaining >= owner.covered_min
            and sizes.floor_size(self._book.policy, owner.job, remaining) == remaining
            and self._may_give(owner, count)
        )

    def _next_node(self, pods: list[Pod], fewest_slots: int) -> str:
        """Returns a node where one more trainer of the receiver fits now; "" for none.

        Args:
            pods: The trainers that leave for it.
            fewest_slots: Number of nodes with free capacity that must be left unused.
        """
        for pod in pods:
            usable = pod.node in self._open and pod.node not in self._book.closed
            if usable and amounts.within(self._requests, self._free_on(pod.node)):
                return pod.node
        while len(self._slots) > max(0, fewest_slots) and any(pod.node for pod in pods):
            node = self._slots.pop()
            if amounts.within(self._requests, self._free_on(node)):
                return node
        return ""

    def _free_on(self, node: str) -> dict[str, int]:
        free = self._book.capacity.free_later(node)
        amounts.add(free, self._freed.get(node, {}))
        for _ in range(self._node_counts[node]):
            amounts.subtract(free, self._requests)
        return free

    def _count_victims(self, victims: list[tuple[JobEntry, Pod]], sign: int) -> None:
        for donor, pod in victims:
            freed = self._freed.setdefault(pod.node, {})
            freed_in_queue = self._freed_by_queue.setdefault(donor.job.queue, {})
            for total in (freed, freed_in_queue):
                (amounts.add if sign > 0 else amounts.subtract)(total, pod.requests)
            self._victim_counts[donor.key] += sign
        ids = (id(pod) for _, pod in victims)
        if sign > 0:
            self.victims += victims
            self._victim_ids.update(ids)
        else:
            del self.victims[-len(victims) :]
            self._victim_ids.difference_update(ids)

    def _allowed(self, count: int | None = None) -> bool:
        """Returns whether quotas and reserve allow the move with its first `count` releases, or with all."""
        book, job = self._book, self._receiver.job
        freed: dict[str, int] = {}
        victims = self.victims[:count]
        for _, pod in victims:
            amounts.add(freed, pod.requests)
        with book.quotas.without((donor.job, [pod]) for donor, pod in victims):
            allowed = book.quotas.allow(job, self._step)
        return allowed and book.load.allow_later(job.requests, freed, self._step)

    def _give_more(self) -> bool:
        """Adds single trainers of donors until quotas and reserve allow the move; returns whether they do.

        It doubles the number of victims until they suffice, then drops unneeded ones, because each check
        has to count all victims.
        """
        further = (
            (donor, pod)
            for donor in self._donors.values()
            for pod in donor.spare
            if not self._is_victim(pod) and self._gives_one(donor, pod, 1)
        )
        while True:
            before = len(self.victims)
            for victim in islice(further, max(1, before)):
                self._count_victims([victim], 1)
            if len(self.victims) == before:
                return False
            if self._allowed():
                break
        counts = range(before + 1, len(self.victims))
        needed = before + 1 + bisect_left(counts, x=True, key=self._allowed)
        unneeded = self.victims[needed:]
        if unneeded:
            self._count_victims(unneeded, -1)
        return True

    def decisions(self) -> Decisions[None]:
        """Releases the donors' trainers and reserves their capacity for the receiver."""
        for donor, pod in self.victims:
            reason, figures = self._terms.explain(donor)
            yield ReleaseTrainer(donor.key, pod, reason, figures)
        moved = self._book.history.moved
        is_new = any(
            pod.uid not in moved for _, pod in self.victims
        )  # otherwise a disruption budget has refused an eviction
        yield Expect(self._receiver.key, tuple(self._nodes), self._step if is_new else 0)


def _free_slots(book: Book, receiver: JobEntry, count: int) -> list[str]:
    """Returns nodes for up to `count` more trainers of a job that only load or quota stops."""
    nodes = book.capacity.place_each(
        receiver.job.requests, count, lambda: free_slot(book, receiver)
    )
    return nodes[::-1]  # the cheapest is taken first
