"""A gang: the trainers and parameter servers with which a job starts, and nodes for all of them. Rule 5."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from policy.cluster.snapshot import Pod
from policy.decisions import Figure
from policy.planning.book import Book
from policy.planning.decisions import Blocked
from policy.planning.job_entry import JobEntry
from policy.planning.rules import admission_order, node_requests, placements, receivers, servers
from policy.planning.rules.placements import Placement
from policy.planning.rules.trial import Trial
from policy.reasons import Reason


class Gang:
    """The missing trainers of a job's minimum, its first parameter servers, and nodes for all of them.

    The constructor searches for the nodes; it changes nothing in the book.
    """

    def __init__(
        self,
        book: Book,
        entry: JobEntry,
        missing: int,
        held: admission_order.Held,
        *,
        has_turn: bool,
    ) -> None:
        """Searches for nodes; for a starting job it finds nodes for all trainers or for none.

        Args:
            book: The plan so far.
            entry: The job.
            missing: Number of trainers that the job lacks.
            held: The nodes that are held for older jobs.
            has_turn: Whether the job may request nodes now.
        """
        self._book = book
        self._entry = entry
        self._missing = missing
        self._closed = held.closed_to(entry)
        self._has_turn = has_turn
        self.trainers: list[Placement] = []
        self.servers: list[Placement] = []
        self.blocked: Blocked | None = None
        """Why some trainers cannot be created; None if all can."""
        self.is_waived = False
        """Whether some trainers need nodes that the job avoids."""
        self.victims = self._quota_victims()
        """(donor, trainer) pairs of the surplus to release so that the quotas allow the trainers."""
        all_or_none = bool(self.victims) or not entry.live
        with Trial(book) as trial:
            placeable = self._place(trial, all_or_none=all_or_none)
            if placeable < missing and self.blocked is None:
                lack = self._lack(missing - placeable)
                self.blocked = admission_order.explained(book, held, entry, lack)
        if placeable < missing and all_or_none:
            self.trainers, self.servers, self.victims = [], [], []

    def _place(self, trial: Trial, *, all_or_none: bool) -> int:
        """Places servers and trainers; returns the number of trainers that can start."""
        book, entry = self._book, self._entry
        with book.quotas.without((donor.job, [pod]) for donor, pod in self.victims):
            placed = servers.place_initial(book, trial, entry, self._missing, self._closed)
            if isinstance(placed, Blocked):
                self.blocked = placed
            if placed is None or isinstance(placed, Blocked):
                return 0
            self.servers = placed
            placeable = self._placeable()
            if placeable < self._missing and all_or_none:
                trial.count(entry.job, placeable, 0)
                return placeable
            self._place_trainers(trial)
            return len(self.trainers)

    def _placeable(self) -> int:
        """Returns an upper bound for the missing trainers that free capacity and quotas allow.

        With this bound, plans do not place a minimum that can never start, such as ten thousand trainers,
        only to undo the placements.
        """
        job, quotas = self._entry.job, self._book.quotas
        numbers = range(1, 1 + min(self._missing, self._slots()))
        return bisect_left(numbers, True, key=lambda count: not quotas.allow(job, count))

    def _slots(self) -> int:
        """Returns how many trainers fit on nodes; an upper bound if the job lacks its master."""
        entry, capacity = self._entry, self._book.capacity
        constraints = self._book.cluster.jobs[entry.key].constraints  # including avoided nodes
        needs = (entry.job.requests, entry.requests(first=True))
        slots = [capacity.slots(n, constraints, self._closed, pooled=True) for n in needs]
        return slots[0] if slots[1] else 0

    def _place_trainers(self, trial: Trial) -> None:
        """Places as many of the missing trainers as fit.

        Nodes that the job avoids are used only if no other node fits and no autoscaler may still add
        nodes for the trainers. The job itself may have caused the failure there, and a second failure
        costs less than a minimum that keeps waiting.
        """
        book, entry, job = self._book, self._entry, self._entry.job
        constraints, submitted = job.constraints, book.cluster.jobs[entry.key].constraints
        gains = placements.count_gains(self.servers)
        while len(self.trainers) < self._missing and book.quotas.allow(job):
            requests = entry.requests(first=not self.trainers)
            placement = trial.place(requests, constraints, self._closed, pooled=True)
            if placement is None:
                is_last = constraints == submitted
                if is_last or node_requests.may_come(book, entry, has_turn=self._has_turn):
                    return
                self.is_waived = True
                constraints = submitted
                continue
            gains += not placement.is_free
            refused = receivers.refusal(entry, gains, minimum=True)
            if refused and not placement.is_free:
                self.blocked = refused
                return
            self.trainers.append(placement)
            trial.count(job, 1, 0)

    def _quota_victims(self) -> list[tuple[JobEntry, Pod]]:
        """Finds surplus to release so that the quotas allow the missing trainers, richest jobs first.

        All of the job's own surplus may be released, because guaranteed trainers replace it.

        Returns:
            (donor, trainer) pairs. The list is empty if nothing must be released, if there is no capacity
            for the trainers, if even all surplus frees too little, or if other jobs must not give now.
        """
        book, quotas = self._book, self._book.quotas
        job, server_count = self._entry.job, self._entry.servers_to_start
        if quotas.allow(job, self._missing, server_count) or self._slots() < self._missing:
            return []
        candidates = {e.key: e.surplus if e.job is job else e.spare for e in book.entries}
        if not self._all_relieve(candidates):
            return []
        victims: list[tuple[JobEntry, Pod]] = []
        with ExitStack() as gone:
            while not quotas.allow(job, self._missing, server_count):
                donors = self._donors(candidates)
                if not donors:  # the remaining surplus does not relieve the quotas
                    return []
                counts = Counter(donor.key for donor, _ in victims)
                donor = max(donors, key=lambda e: (book.measure(e, e.count - counts[e.key]), e.key))
                victims.append((donor, candidates[donor.key].pop(0)))
                gone.enter_context(quotas.without([(donor.job, [victims[-1][1]])]))
        others = sum(donor is not self._entry for donor, _ in victims)
        self.blocked = receivers.refusal(self._entry, others, minimum=True)
        return [] if self.blocked else victims

    def _donors(self, candidates: Mapping[str, Sequence[Pod]]) -> list[JobEntry]:
        """Returns the jobs that have candidates and whose releases relieve the quotas."""
        job, server_count = self._entry.job, self._entry.servers_to_start
        return [
            donor
            for donor in self._book.entries
            if candidates[donor.key]
            and self._book.quotas.relieves(job, self._missing, donor.job, server_count)
        ]

    def _all_relieve(self, candidates: Mapping[str, Sequence[Pod]]) -> bool:
        """Returns whether the quotas would allow the trainers if all candidates were released.

        Choosing victims one by one takes long; this check avoids it if even all candidates are too few.
        """
        quotas, entry = self._book.quotas, self._entry
        with quotas.without((d.job, candidates[d.key]) for d in self._donors(candidates)):
            return quotas.allow(entry.job, self._missing, entry.servers_to_start)

    def _lack(self, missing: int) -> Blocked:
        """Returns what a job lacks for its missing trainers: quota, or capacity on nodes."""
        book, entry = self._book, self._entry
        job, needs = entry.job, entry.requests(first=True)
        server_count = entry.servers_to_start - len(self.servers)
        if not book.quotas.allow(job, missing if server_count else 1, server_count):
            lack = book.quotas.lack(job, missing, server_count)
            return Blocked(Reason.QUOTA_REACHED, {**lack, "missing": missing})
        if job.servers is not None and server_count:
            server_figures: dict[str, Figure] = {
                "servers": server_count,
                "needs": job.servers.requests,
            }
            return Blocked(Reason.WAITING_FOR_ROOM, server_figures)
        constraints = book.cluster.jobs[entry.key].constraints  # including avoided nodes
        pools = book.policy.node_pools
        slots = book.capacity.slots(needs, constraints, pooled=True)
        if slots or book.cluster.fits_empty_node(needs, constraints, pools):
            return Blocked(Reason.WAITING_FOR_ROOM, {"missing": missing, "needs": needs})
        names = book.capacity.open_nodes(constraints, pooled=True)
        figures: dict[str, Figure] = {"needs": needs, "nodes": len(names)}
        if names:
            largest, needed = (
                book.cluster.largest(constraints, pools),
                sorted(needs.keys() - {"pods"}),
            )
            figures["largest"] = {name: largest.get(name, 0) for name in needed}
        return Blocked(Reason.FITS_NO_NODE, figures)
