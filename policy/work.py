"""One plan in the making: what the rules read and write, and nothing of the rules themselves."""

from datetime import UTC, datetime

from policy import amounts, ceilings
from policy.index import Index, is_surplus
from policy.model import FairnessBy, Policy
from policy.names import Tier
from policy.placement import Packing
from policy.planning import Create, History, JobPlan, Plan, Release
from policy.reasons import Reason
from policy.room import Room
from policy.snapshot import Job, Phase, Pod
from policy.victims import loss

_REASON_OF = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}


class Share:
    """One job while the plan is made."""

    def __init__(self, job: Job, live: list[Pod], *, ending: bool) -> None:
        self.job = job
        self.live = sorted(live, key=loss)
        """Its trainers that remain, the least loss first."""
        self.absent = 0 if job.managed else max(0, job.parallelism - len(live))
        """Trainers that the built-in controller has been told to make and has not made yet."""
        self.found = len(live) + self.absent
        self.stranded = 0
        """Guaranteed trainers on cordoned nodes: replaced ahead of the drain that will come."""
        self.ending = ending
        """A trainer succeeded: the work is done, nothing is made any more."""
        self.creates = {Tier.GUARANTEED: 0, Tier.SURPLUS: 0}
        self.expected = 0
        """Trainers that room will take which others are about to leave."""
        self.reason = Reason.AT_MAX
        self.detail = ""

    @property
    def count(self) -> int:
        """Trainers after this plan."""
        return len(self.live) + self.absent + sum(self.creates.values())

    @property
    def guaranteed(self) -> int:
        """Live trainers of the guaranteed tier."""
        return sum(1 for pod in self.live if pod.tier is Tier.GUARANTEED)

    @property
    def surplus(self) -> list[Pod]:
        """Live trainers of the surplus tier, the least loss first."""
        return [pod for pod in self.live if is_surplus(pod)]

    @property
    def stopped(self) -> bool:
        """Whether it should have no trainers at all."""
        return self.job.suspended or self.job.deleting or self.job.over

    @property
    def grows(self) -> bool:
        """Whether trainers may be made for it."""
        return not (self.stopped or self.ending or self.job.error)

    @property
    def admitted(self) -> bool:
        """Whether it has started, so that it may have more than its minimum."""
        return self.grows and self.count >= self.job.min_trainers

    def set(self, reason: Reason, detail: str = "") -> None:
        """Says why it has what it has; the last word counts."""
        self.reason, self.detail = reason, detail


class Work:
    """The state of one plan. Mutable, used by one plan only."""

    def __init__(self, index: Index, policy: Policy, now_s: float, history: History) -> None:
        self.index = index
        self.policy = policy
        self.now_s = now_s
        self.history = history
        self.packing = packing(index)
        self.room = Room(index, self.packing, policy.node_pools)
        self.shares = [
            _share(index, job)
            for _, job in sorted(index.jobs.items())
            if not policy.protects(job.namespace)
        ]
        for share in self.shares:
            if not share.job.managed:
                self._count_plain_surplus(share)
        self.quotas = ceilings.Quotas(policy, index)
        now = datetime.fromtimestamp(now_s, UTC)
        limits = ceilings.load_limits(policy, index.allocatable, now)
        self.load = ceilings.Load(limits, index.total_used())
        for leaving in self.room.coming.values():
            self.load.leave(leaving)
        self.cooling = frozenset(n for n, until in history.cooling.items() if until > now_s)
        self.burst = False
        """Whether services wait for room that only leaving pods can give."""
        self.helped: set[str] = set()
        self.promised: set[str] = set()
        """uids of waiting trainers for which room is taken."""
        self._releases: list[Release] = []

    def _count_plain_surplus(self, share: Share) -> None:
        """Pods of the built-in controller carry no tier, so the room has not seen them yet."""
        for pod in share.surplus:
            if pod.node in self.room.now:
                amounts.add(self.room.surplus.setdefault(pod.node, {}), pod.requests)

    @property
    def trainers(self) -> int:
        """Trainers of all jobs after this plan."""
        return sum(share.count for share in self.shares)

    @property
    def moves(self) -> int:
        """How many trainers may be moved at one time."""
        return max(1, int(self.policy.stability.max_moves * self.trainers))

    def measure(self, share: Share, trainers: int) -> float:
        """What fairness makes equal: a job's weighted share if it had so many trainers."""
        weights = self.policy.fairness.queue_weights
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            weight = share.job.weight * weights.get(share.job.queue, 1)
            span = max(1, share.job.max_trainers - share.job.min_trainers)
            return (trainers - share.job.min_trainers) / span / weight
        return self.index.share(share.job, trainers, weights)

    def expected(self, share: Share, more: int = 0) -> float:
        """The measure once everything that is on its way has arrived."""
        return self.measure(share, share.count + share.expected + more)

    def take(self, job: Job, node: str) -> None:
        """Counts a new trainer of `job` on `node`, everywhere."""
        self.room.take(node, job.requests)
        self.quotas.take(job)
        self.load.take(job.requests)

    def untake(self, job: Job, node: str) -> None:
        """Undoes `take`."""
        self.room.give(node, job.requests)
        self.quotas.take(job, -1)
        self.load.give(job.requests)

    def expect(self, share: Share, node: str) -> None:
        """Counts a trainer that a job gets on `node` as soon as others have left."""
        self.room.take(node, share.job.requests)
        self.load.expect(share.job.requests)
        self.quotas.take(share.job)
        share.expected += 1

    def release(self, share: Share, pod: Pod, reason: Reason, detail: str) -> None:
        """Lets a live trainer go. Its room is not free before it is gone."""
        share.live.remove(pod)
        self.quotas.take(share.job, -1)
        self.room.leave(pod)
        if pod.node in self.room.now or pod.uid in self.promised:
            self.load.leave(pod.requests)
        self._releases.append(
            Release(share.job.key, pod.uid, pod.namespace, pod.name, pod.node, reason, detail)
        )

    def result(self) -> Plan:
        """The finished plan."""
        return Plan(
            jobs=tuple(
                JobPlan(
                    key=share.job.key,
                    live=share.found,
                    target=share.count,
                    reason=share.reason,
                    detail=share.detail,
                    share=self.measure(share, share.count),
                )
                for share in self.shares
            ),
            creates=tuple(
                Create(share.job.key, tier, count, _REASON_OF[tier])
                for share in self.shares
                for tier, count in share.creates.items()
                if count
            ),
            releases=tuple(self._releases),
            helped=frozenset(self.helped),
        )


def packing(index: Index) -> Packing:
    """The packing for the trainer shapes in use, most wanted first."""
    wanted = sorted(
        (job for job in index.jobs.values() if not job.over and not job.error),
        key=lambda job: (-job.max_trainers, sorted(job.requests.items())),
    )
    return Packing(job.requests for job in wanted)


def _share(index: Index, job: Job) -> Share:
    ending = job.books.succeeded > 0 or any(
        pod.phase is Phase.SUCCEEDED and pod.owner_uid == job.uid
        for pod in index.members.get(job.key, {}).values()
    )
    share = Share(job, index.trainers(job), ending=ending and job.managed)
    share.stranded = sum(
        1
        for pod in share.live
        if pod.tier is Tier.GUARANTEED
        and pod.node in index.nodes
        and index.nodes[pod.node].unschedulable
    )
    return share
