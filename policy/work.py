"""One plan in the making: what the rules read and write, and nothing of the rules themselves."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile

from policy import amounts, ceilings, sidecar
from policy.crew import Crew
from policy.decisions import NONE, Figures
from policy.index import Index, job_key
from policy.model import FairnessBy, Policy
from policy.names import Tier
from policy.planning import Create, Futile, History, JobPlan, Plan, Release, Retire, Serve, Wish
from policy.reasons import Reason
from policy.room import Room, When
from policy.snapshot import Constraints, Job, Pod, Resources

_REASON_OF = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}


class Share:
    """One job while the plan is made."""

    def __init__(
        self,
        job: Job,
        crew: Crew,
        *,
        unit: float,
        stranded: int,
        headless: bool = False,
        serving: int = 0,
        base: float = 0.0,
    ) -> None:
        """A job as it is found.

        Args:
            job: Whose share.
            crew: Its trainers.
            unit: What fairness counts for one trainer more; see `Work.measure`.
            stranded: Guaranteed trainers on cordoned nodes.
            headless: Whether it asked for a master and no pod carries one.
            serving: Parameter servers that count as its.
            base: What fairness counts for all those it asks for.
        """
        self.job = job
        self.key = job.key
        self.live = list(crew.live)
        """Its trainers that remain, the least loss first: surplus before guaranteed."""
        self.unit = unit
        self.serving = serving
        """Parameter servers that count as its: all that it asks for, or none before it starts."""
        self._base = base
        self._surplus = crew.surplus
        self._waiting = crew.waiting > 0
        self.guaranteed = len(crew.guaranteed)
        """Live trainers of the guaranteed tier."""
        self.absent = 0 if job.managed else max(0, job.parallelism - len(crew.live))
        """Trainers that the built-in controller has been told to make and has not made yet."""
        self.found = len(crew.live) + self.absent
        self.count = self.found
        """Trainers after this plan."""
        self.stranded = stranded
        """Guaranteed trainers on cordoned nodes: replaced ahead of the drain that will come."""
        self.headless = headless
        """It lacks its master, which comes with its next guaranteed trainer."""
        succeeded = crew.succeeded or (job.books.succeeded > 0 and not job.master)
        self.ending = job.managed and succeeded
        """A trainer succeeded and no master knows better: nothing is made any more."""
        self.creates: dict[Tier, list[str]] = {Tier.GUARANTEED: [], Tier.SURPLUS: []}
        """Tier -> the nodes of trainers that are to be made."""
        self.serves: dict[int, str] = {}
        """Index -> the node of a parameter server that is to be made."""
        self.expected = 0
        """Trainers that room will take which others are about to leave."""
        self.reason = Reason.AT_MAX
        self.figures: Figures = {"max": job.max_trainers}
        self.stopped = job.stopped
        """Whether it should have no trainers at all."""
        self.grows = not (self.stopped or self.ending or job.error)
        """Whether trainers may be made for it."""

    @property
    def base(self) -> float:
        """What fairness counts for its parameter servers."""
        return self._base if self.serving else 0.0

    @property
    def unserved(self) -> int:
        """How many parameter servers it must start with."""
        wanted = self.job.servers if self.job.managed else None
        return wanted.count if wanted is not None and not self.serving else 0

    @property
    def surplus(self) -> list[Pod]:
        """Live trainers of the surplus tier, the least loss first."""
        return self.live[: self._surplus]

    @property
    def waiting(self) -> list[Pod]:
        """Those of them that have no node yet."""
        if not self._waiting:
            return []
        return list(takewhile(lambda pod: not pod.node, self.surplus))

    def make(self, tier: Tier, nodes: Sequence[str]) -> None:
        """Counts trainers that are to be made, one for each node."""
        self.creates[tier] += nodes
        self.count += len(nodes)

    def forgo(self, absent: int) -> None:
        """Counts trainers that the built-in controller need not make."""
        self.absent -= absent
        self.count -= absent

    def lose(self, pod: Pod) -> None:
        """Counts a live trainer as gone."""
        self.count -= 1
        place = [other.uid for other in self.live].index(pod.uid)
        del self.live[place]
        if place < self._surplus:
            self._surplus -= 1
        else:
            self.guaranteed -= pod.tier is Tier.GUARANTEED

    def requests(self, *, first: bool) -> Resources:
        """What a new trainer asks for; the first guaranteed one brings the master that is missing."""
        if not (first and self.headless):
            return self.job.requests
        both = dict(self.job.requests)
        amounts.add(both, sidecar.REQUESTS)
        return both

    @property
    def spare(self) -> list[Pod]:
        """Surplus that may go without taking the job below its minimum, the least loss first.

        Where guaranteed trainers are missing, surplus stands in for them.
        """
        return self.surplus[: max(0, self.count - self.job.min_trainers)]

    @property
    def admitted(self) -> bool:
        """Whether it has started, so that it may have more than its minimum."""
        return self.grows and self.count >= self.job.min_trainers

    def set(self, reason: Reason, figures: Figures = NONE) -> None:
        """Says why it has what it has; the last word counts."""
        self.reason, self.figures = reason, figures


class Work:
    """The state of one plan. Mutable, used by one plan only."""

    def __init__(self, index: Index, policy: Policy, now_s: float, history: History) -> None:
        self.index = index
        self.policy = policy
        self.now_s = now_s
        self.history = history
        self.packing = index.packing
        self.room = Room(index, policy.node_pools)
        self.shares = self._open_shares()
        self.quotas = ceilings.Quotas(policy, index)
        for share in self.shares:
            self.quotas.take(share.job, share.absent)
        now = datetime.fromtimestamp(now_s, UTC)
        limits = ceilings.load_limits(policy, index.allocatable, now)
        self.load = ceilings.Load(limits, index.total_used())
        for node in self.room.nodes_with(When.LATER):
            self.load.leave(index.coming[node])
        self.cooling = frozenset(n for n, until in history.cooling.items() if until > now_s)
        self.burst = False
        """Whether services wait for room that only leaving pods can give."""
        self.helped: set[str] = set()
        self.promised: set[str] = set()
        """uids of waiting trainers for which room is taken."""
        self.roomless: list[Pod] = []
        """Waiting pods that fit nowhere, even without surplus."""
        self.released: set[str] = set()
        """uids of trainers that this plan lets go."""
        self.retires: list[Retire] = []
        """Parameter servers that are to be deleted."""
        self.futile: dict[Wish, Futile] = {}
        """Moves that came to nothing, in this plan or lately."""
        self.postponed = False
        self._releases: list[Release] = []
        self._largest: dict[Constraints, dict[str, int]] = {}
        self._by_key = {share.key: share for share in self.shares}

    def _open_shares(self) -> list[Share]:
        jobs = [job for _, job in sorted(self.index.jobs.items())]
        protected = {ns: self.policy.protects(ns) for ns in {job.namespace for job in jobs}}
        cordoned = frozenset(n for n, node in self.index.nodes.items() if node.unschedulable)
        shares = []
        for job in jobs:
            if protected[job.namespace]:
                continue
            crew = self.index.crew(job)
            stranded = sum(1 for pod in crew.guaranteed if pod.node in cordoned) if cordoned else 0
            headless = job.master and job.managed and self.index.carrier(job) is None
            share = Share(
                job,
                crew,
                unit=self._unit(job),
                stranded=stranded,
                headless=headless,
                serving=self.index.serving(job),
                base=self._base(job),
            )
            shares.append(share)
            if not job.managed:
                # Pods of the built-in controller carry no tier, so the index counts none.
                for pod in share.surplus:
                    self.room.reclaimable(pod)
        return shares

    def _unit(self, job: Job) -> float:
        """What one trainer adds to the measure."""
        weights = self.policy.fairness.queue_weights
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            span = max(1, job.max_trainers - job.min_trainers)
            return 1 / span / (job.weight * weights.get(job.queue, 1))
        return self.index.share(job, 1, weights)

    def _base(self, job: Job) -> float:
        """What the parameter servers add to the measure; fulfilment is about trainers alone."""
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            return 0.0
        return self.index.servers_share(job, self.policy.fairness.queue_weights)

    def largest(self, constraints: Constraints) -> Resources:
        """The most of each resource that one node has, of those open to such trainers.

        O(nodes) for the first who asks; jobs that wait often have the same constraints.
        """
        found = self._largest.get(constraints)
        if found is None:
            found = self._largest[constraints] = {}
            for name in self.room.open_nodes(constraints, pooled=True):
                for resource, amount in self.index.nodes[name].allocatable.items():
                    if amount > found.get(resource, 0):
                        found[resource] = amount
        return found

    @property
    def trainers(self) -> int:
        """Trainers of all jobs after this plan."""
        return sum(share.count for share in self.shares)

    @property
    def moves(self) -> int:
        """How many trainers may be moved at one time."""
        return max(1, int(self.policy.stability.max_moves * self.trainers))

    def measure(self, share: Share, trainers: int) -> float:
        """What fairness makes equal, if a job had so many trainers.

        Its weighted dominant share, or its weighted fulfilment (0 at its minimum).
        """
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            trainers -= share.job.min_trainers
        return trainers * share.unit + share.base

    def expected(self, share: Share, more: int = 0) -> float:
        """The measure once everything that is on its way has arrived."""
        return self.measure(share, share.count + share.expected + more)

    def owner(self, trainer: Pod) -> Share | None:
        """The job whose trainer this is, None where it is not of this very Job object."""
        share = self._by_key.get(job_key(trainer))
        return share if share is not None and share.job.uid == trainer.owner_uid else None

    def take(self, job: Job, node: str, requests: Resources | None = None) -> None:
        """Counts a new trainer of `job` on `node`, everywhere.

        Args:
            job: Whose.
            node: Where.
            requests: What it asks for, where that is more than others of the job.
        """
        wanted = job.requests if requests is None else requests
        self.room.take(node, wanted)
        self.quotas.take(job)
        self.load.take(wanted)

    def untake(self, job: Job, node: str, requests: Resources | None = None) -> None:
        """Undoes `take`."""
        wanted = job.requests if requests is None else requests
        self.room.give(node, wanted)
        self.quotas.take(job, -1)
        self.load.give(wanted)

    def expect(self, share: Share, node: str) -> None:
        """Counts a trainer that a job gets on `node` as soon as others have left."""
        self.room.take(node, share.job.requests)
        self.load.expect(share.job.requests)
        self.quotas.take(share.job)
        share.expected += 1

    def release(self, share: Share, pod: Pod, reason: Reason, figures: Figures) -> None:
        """Lets a live trainer go. Its room is not free before it is gone."""
        share.lose(pod)
        self.released.add(pod.uid)
        self.quotas.take(share.job, -1)
        self.room.leave(pod)
        if pod.node in self.index.nodes or pod.uid in self.promised:
            self.load.leave(pod.requests)
        self._releases.append(
            Release(share.key, pod.uid, pod.namespace, pod.name, pod.node, reason, figures)
        )

    def result(self) -> Plan:
        """The finished plan."""
        return Plan(
            jobs=tuple(
                JobPlan(
                    key=share.key,
                    live=share.found,
                    target=share.count,
                    reason=share.reason,
                    figures=share.figures,
                    share=self.measure(share, share.count),
                )
                for share in self.shares
            ),
            creates=tuple(
                Create(
                    share.key,
                    tier,
                    tuple(nodes),
                    _REASON_OF[tier],
                    master=share.headless and tier is Tier.GUARANTEED,
                )
                for share in self.shares
                for tier, nodes in share.creates.items()
                if nodes
            ),
            releases=tuple(self._releases),
            serves=tuple(
                Serve(share.key, tuple(share.serves), tuple(share.serves.values()))
                for share in self.shares
                if share.serves
            ),
            retires=tuple(self.retires),
            helped=frozenset(self.helped),
            futile=self.futile,
            postponed=self.postponed,
        )
