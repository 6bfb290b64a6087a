"""The plan: how many trainers each job should have now, which are made and which give way.

Eight rules in order (docs/decisions/0003): services first, reserve, ceilings, all-or-nothing
admission, weighted max-min sharing, stability, node-true placement, victims of least loss.
Pure: an index, a policy and a time in, a plan out. It always ends: each loop makes or takes a
trainer of a bounded number, or strikes a job from its list.
"""

from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

from policy import amounts, ceilings
from policy.index import Index, is_surplus
from policy.model import FairnessBy, Policy
from policy.names import Role, Tier
from policy.placement import Packing
from policy.planning import Create, History, JobPlan, Plan, Release
from policy.reasons import Reason
from policy.room import Room
from policy.snapshot import Job, Pod
from policy.victims import loss

_FIRST_BACKOFF_S = 10.0
_LAST_BACKOFF_S = 360.0
_HELP_AGAIN_S = 10.0
_LEAST_IN_FLIGHT = 8
_IN_FLIGHT = 0.04
"""Share of the trainers wanted that may wait for the scheduler at one time: no pile."""


def plan(index: Index, policy: Policy, now_s: float, history: History | None = None) -> Plan:
    """What to do now.

    Args:
        index: The cluster; not changed.
        policy: The active policy.
        now_s: Seconds since the epoch.
        history: What happened lately.

    Returns:
        A plan. Applied and planned again on the outcome, nothing more is to be done.
    """
    work = _Work(index, policy, now_s, history or History())
    work.place_services()
    work.trim()
    work.settle_waiting()
    work.admit()
    if work.grow():
        work.rebalance()
    work.restore_reserve()
    return work.result()


def packing(index: Index) -> Packing:
    """The packing for the trainer shapes in use, most wanted first."""
    wanted = sorted(
        (job for job in index.jobs.values() if not job.finished and not job.error),
        key=lambda job: (-job.max_trainers, sorted(job.requests.items())),
    )
    return Packing(job.requests for job in wanted)


def backoff_s(failures_in_row: int) -> float:
    """How long after the newest of so many failures no trainer is made: 10 s doubling to 6 min."""
    if failures_in_row < 1:
        return 0.0
    return min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2.0 ** min(failures_in_row - 1, 10))


class _Share:
    """One job while the plan is made."""

    def __init__(self, job: Job, live: list[Pod], ended: bool) -> None:
        self.job = job
        self.live = sorted(live, key=loss)
        """What remains, the least loss first."""
        self.found = len(live)
        self.ending = ended
        """A trainer succeeded: the work is done, nothing is made any more."""
        self.creates = {Tier.GUARANTEED: 0, Tier.SURPLUS: 0}
        self.expected = 0
        """Trainers that coming room will take, once it is free."""
        self.reason = Reason.AT_MAX
        self.detail = ""

    @property
    def count(self) -> int:
        """Trainers after this plan."""
        return len(self.live) + sum(self.creates.values())

    @property
    def guaranteed(self) -> int:
        return sum(1 for pod in self.live if pod.tier is Tier.GUARANTEED)

    @property
    def surplus(self) -> int:
        return sum(1 for pod in self.live if is_surplus(pod))

    @property
    def stopped(self) -> bool:
        """Whether it should have no trainers at all."""
        return self.job.suspended or self.job.deleting or self.job.finished

    @property
    def grows(self) -> bool:
        """Whether trainers may be made for it."""
        return not (self.stopped or self.ending or self.job.error)

    def set(self, reason: Reason, detail: str) -> None:
        self.reason, self.detail = reason, detail


class _Work:
    """One plan in the making; the methods are its steps, in order."""

    def __init__(self, index: Index, policy: Policy, now_s: float, history: History) -> None:
        self._index = index
        self._policy = policy
        self._now_s = now_s
        self._history = history
        self._weights = policy.fairness.queue_weights
        self._room = Room(index, packing(index), policy.node_pools)
        self._shares = [
            _Share(job, index.trainers(job), _has_succeeded(index, job))
            for _, job in sorted(index.jobs.items())
            if job.managed
        ]
        self._quotas = ceilings.Quotas(policy, index)
        now = datetime.fromtimestamp(now_s, UTC)
        limits = ceilings.load_limits(policy, index.allocatable, now)
        self._load = ceilings.Load(limits, index.total_used())
        self._cooling = frozenset(n for n, until in history.cooling.items() if until > now_s)
        self._releases: list[Release] = []
        self._helped: set[str] = set()
        self._burst = False
        """Whether services wait for room that only leaving pods can give."""

    # --- 1. services first ------------------------------------------------------------------

    def place_services(self) -> None:
        """Counts waiting pods that outrank surplus as placed: nominated ones where they are."""
        waiting = sorted(
            (p for p in self._index.waiting.values() if not p.gated and not is_surplus(p)),
            key=lambda p: (-p.priority, p.created_s, p.key, p.uid),
        )
        hopeless: set[tuple[object, ...]] = set()
        for pod in waiting:
            if pod.nominated in self._room.now:
                self._room.take(pod.nominated, pod.requests)
                self._load.take(pod.requests)
                self._burst = True
                continue
            shape = (tuple(sorted(pod.requests.items())), pod.constraints)
            if shape not in hopeless and not self._place_service(pod):
                hopeless.add(shape)

    def _place_service(self, pod: Pod) -> bool:
        node, reclaims = self._room.place(
            pod.requests, pod.constraints, pooled=pod.role is Role.TRAINER
        )
        if not node:
            return False
        self._room.take(node, pod.requests)
        self._load.take(pod.requests)
        if reclaims:
            self._burst = True
            if pod.role is None and not pod.preempts:
                self._help(pod, node)
        return True

    def _help(self, pod: Pod, node: str) -> None:
        """Releases surplus for a service that kube-scheduler will not preempt for."""
        if self._now_s - self._history.helped.get(pod.uid, 0.0) < _HELP_AGAIN_S:
            return
        after = self._room.later(node)
        here = sorted((p for share in self._shares for p in share.live if p.node == node), key=loss)
        for victim in here:
            if all(amount >= 0 for amount in after.values()):
                break
            if is_surplus(victim) and victim.priority < pod.priority:
                amounts.add(after, victim.requests)
                self._release(self._share_of(victim), victim, Reason.SERVICES_FIRST, pod.key)
                self._helped.add(pod.uid)

    # --- 3. ceilings ------------------------------------------------------------------------

    def trim(self) -> None:
        """Releases what a job must not have: stopped, above max, above quota."""
        for share in self._shares:
            wanted = 0 if share.stopped else share.job.max_trainers
            reason = Reason.JOB_STOPPED if share.stopped else Reason.ABOVE_MAX
            for pod in share.live[: max(0, len(share.live) - wanted)]:
                self._release(share, pod, reason, f"{share.found} live, {wanted} wanted")
            while share.surplus and self._quotas.exceeded(share.job):
                self._release(share, share.live[0], Reason.QUOTA_REACHED, "quota overdrawn")

    # --- 7. trainers that wait for the scheduler ----------------------------------------------

    def settle_waiting(self) -> None:
        """Gives waiting surplus trainers their slots; takes those back that found none in time."""
        patience = self._policy.stability.withdraw_after_seconds
        for share in self._shares:
            for pod in [p for p in share.live if is_surplus(p) and not p.node]:
                node = self._room.slot(pod.requests, pod.constraints, self._cooling)
                if node:
                    self._room.take(node, pod.requests)
                    self._load.take(pod.requests)
                elif self._now_s - pod.created_s >= patience:
                    self._release(share, pod, Reason.NOT_SCHEDULED, "no node has room")

    # --- 4. admission ---------------------------------------------------------------------

    def admit(self) -> None:
        """Makes missing guaranteed trainers: a job's first ones all together or not at all."""
        for share in sorted(self._shares, key=lambda s: (s.job.created_s, s.job.key)):
            missing = share.job.min_trainers - share.guaranteed
            if not share.grows or missing <= 0 or self._backing_off(share):
                continue
            whole = not share.live
            placed = self._place_guaranteed(share, missing, whole=whole)
            share.creates[Tier.GUARANTEED] = placed

    def _place_guaranteed(self, share: _Share, missing: int, *, whole: bool) -> int:
        job = share.job
        nodes: list[str] = []
        for _ in range(missing):
            node = ""
            if self._quotas.allow(job):
                node, _reclaims = self._room.place(job.requests, job.constraints, pooled=True)
            if not node:
                self._explain_waiting(share, missing)
                break
            nodes.append(node)
            self._take(job, node)
        if whole and len(nodes) < missing:
            for node in nodes:
                self._untake(job, node)
            return 0
        return len(nodes)

    def _explain_waiting(self, share: _Share, missing: int) -> None:
        job = share.job
        if not self._quotas.allow(job):
            share.set(
                Reason.QUOTA_REACHED, f"quota leaves no room for {missing} guaranteed trainers"
            )
        elif self._fits_no_node(job):
            share.set(Reason.FITS_NO_NODE, "a trainer is larger than every node it may use")
        else:
            share.set(Reason.WAITING_FOR_ROOM, f"no room for {missing} guaranteed trainers")

    def _fits_no_node(self, job: Job) -> bool:
        return not any(
            amounts.within(job.requests, self._index.nodes[name].allocatable)
            for name in self._room.open_nodes(job.constraints, pooled=True)
        )

    # --- 5. sharing -----------------------------------------------------------------------

    def grow(self) -> bool:
        """Adds surplus trainers one by one, always to the job with the least share.

        Returns:
            False where more could be made, but enough are on their way for now.
        """
        in_flight = sum(
            1 for share in self._shares for p in share.live if is_surplus(p) and not p.node
        )
        wanted = sum(share.count for share in self._shares)
        allowed = max(_LEAST_IN_FLIGHT, int(_IN_FLIGHT * wanted)) - in_flight
        heap = [(*self._rank(share), i) for i, share in enumerate(self._shares)]
        heapify(heap)
        while heap:
            *_, i = heappop(heap)
            share = self._shares[i]
            step = self._next_step(share)
            if not step:
                continue
            if allowed < step and allowed < max(_LEAST_IN_FLIGHT, int(_IN_FLIGHT * wanted)):
                share.set(Reason.GROWING, "waits for trainers that are being scheduled")
                return False
            if self._add(share, step):
                allowed -= step
                heappush(heap, (*self._rank(share), i))
        return True

    def _rank(self, share: _Share) -> tuple[float, float, str]:
        """What max-min fairness makes equal, then ties: the share of its own wish, then the key."""
        return self._measure(share, share.count), self._fulfilment(share), share.job.key

    def _measure(self, share: _Share, trainers: int) -> float:
        if self._policy.fairness.by is FairnessBy.FULFILMENT:
            weight = share.job.weight * self._weights.get(share.job.queue, 1)
            span = max(1, share.job.max_trainers - share.job.min_trainers)
            return (trainers - share.job.min_trainers) / span / weight
        return self._index.share(share.job, trainers, self._weights)

    @staticmethod
    def _fulfilment(share: _Share) -> float:
        return share.count / share.job.max_trainers

    def _next_step(self, share: _Share) -> int:
        """How many trainers its next size needs, 0 with the reason where it must not grow."""
        job = share.job
        if share.stopped:
            share.set(Reason.SUSPENDED if job.suspended else Reason.ENDING, "")
        elif share.ending:
            share.set(Reason.ENDING, "a trainer finished the work")
        elif job.error:
            share.set(Reason.INVALID, job.error)
        elif share.count < job.min_trainers or self._backing_off(share):
            pass
        elif (step := ceilings.next_size(self._policy, job, share.count) - share.count) <= 0:
            at_max = share.count >= job.max_trainers
            share.set(Reason.AT_MAX if at_max else Reason.AT_CEILING, f"{share.count} trainers")
        elif not self._quotas.allow(job, step):
            share.set(Reason.QUOTA_REACHED, "a quota of its namespace or queue is used up")
        elif not self._load.allow(job.requests, step):
            share.set(Reason.RESERVE_HELD, "more would use what is kept free for services")
        else:
            return step
        return 0

    def _backing_off(self, share: _Share) -> bool:
        books = share.job.books
        wait_s = books.last_failure_s + backoff_s(books.failures_in_row) - self._now_s
        if wait_s <= 0:
            return False
        share.set(Reason.BACKING_OFF, f"{books.failures_in_row} failures in a row")
        return True

    def _add(self, share: _Share, step: int) -> bool:
        """Gives a job `step` more trainers, all or none."""
        job = share.job
        nodes: list[str] = []
        for _ in range(step):
            node = self._room.slot(job.requests, job.constraints, self._cooling)
            if not node:
                break
            nodes.append(node)
            self._take(job, node)
        if len(nodes) < step:
            for node in nodes:
                self._untake(job, node)
            share.set(Reason.NO_ROOM, "no node has room for one more trainer")
            return False
        share.creates[Tier.SURPLUS] += step
        return True

    # --- 6. stability -----------------------------------------------------------------------

    def rebalance(self) -> None:
        """Moves trainers from jobs with much to jobs with little, a few at a time.

        Not while services take capacity back: they decide what there is to share.
        """
        if self._burst:
            return
        self._expect_coming()
        leaving = sum(
            1
            for here in self._index.bound.values()
            for pod in here.values()
            if pod.deleting and is_surplus(pod)
        )
        total = sum(share.count for share in self._shares)
        moves = max(1, int(self._policy.stability.max_moves * total)) - leaving
        poor = [s for s in self._shares if s.reason is Reason.NO_ROOM and s.grows]
        while moves > 0 and poor:
            receiver = min(poor, key=lambda s: (self._expected(s), s.job.key))
            if self._move_to(receiver):
                moves -= 1
            else:
                poor.remove(receiver)

    def _expected(self, share: _Share, more: int = 0) -> float:
        return self._measure(share, share.count + share.expected + more)

    def _expect_coming(self) -> None:
        """Deals room that leaving pods will free to the jobs that wait for some."""
        later = {
            name: self._room.later(name)
            for name in sorted(self._room.coming)
            if name in self._room.now
        }
        open_to = [s for s in self._shares if s.reason is Reason.NO_ROOM]
        while open_to and later:
            share = min(open_to, key=lambda s: (self._expected(s), s.job.key))
            job = share.job
            node = next(
                (
                    name
                    for name in self._room.open_nodes(job.constraints, pooled=True)
                    if name in later and amounts.within(job.requests, later[name])
                ),
                "",
            )
            if not node or share.count + share.expected >= job.max_trainers:
                open_to.remove(share)
                continue
            amounts.subtract(later[node], job.requests)
            share.expected += 1

    def _move_to(self, receiver: _Share) -> bool:
        """Releases one trainer of a richer job where the receiver then fits; False where none."""
        job = receiver.job
        step = ceilings.next_size(self._policy, job, receiver.count) - receiver.count
        if step != 1 or receiver.count + receiver.expected >= job.max_trainers:
            return False
        open_nodes = frozenset(self._room.open_nodes(job.constraints, pooled=True)) - self._cooling
        donors = sorted(
            (s for s in self._shares if self._may_give(s, receiver)),
            key=lambda s: (-self._expected(s), s.job.key),
        )
        for donor in donors:
            for pod in donor.live:
                if is_surplus(pod) and self._movable(pod) and pod.node in open_nodes:
                    after = self._room.later(pod.node)
                    amounts.add(after, pod.requests)
                    if amounts.within(job.requests, after):
                        self._move(donor, pod, receiver)
                        return True
        return False

    def _may_give(self, donor: _Share, receiver: _Share) -> bool:
        """Whether a move makes the two more equal by more than the threshold, and is allowed."""
        if donor is receiver or not donor.surplus or donor.stopped:
            return False
        if ceilings.floor_size(self._policy, donor.job, donor.count - 1) != donor.count - 1:
            return False
        gain = self._policy.stability.gain_threshold
        slack = 1e-9
        return (
            self._expected(donor, -1) >= self._expected(receiver, +1) - slack
            and self._expected(donor) >= self._expected(receiver) * (1 + gain) - slack
        )

    def _movable(self, pod: Pod) -> bool:
        age_s = self._now_s - (pod.started_s or pod.created_s)
        return bool(pod.node) and age_s >= self._policy.stability.min_run_seconds

    def _move(self, donor: _Share, pod: Pod, receiver: _Share) -> None:
        detail = f"{receiver.job.key} has {receiver.count}, {donor.job.key} {donor.count}"
        self._release(donor, pod, Reason.FAIR_SHARE, detail)
        amounts.add(self._room.coming.setdefault(pod.node, {}), pod.requests)
        self._room.take(pod.node, receiver.job.requests)
        receiver.expected += 1

    # --- 2. reserve -------------------------------------------------------------------------

    def restore_reserve(self) -> None:
        """Releases surplus, a few at a time, while more is in use than the reserve allows."""
        total = sum(share.count for share in self._shares)
        moves = max(1, int(self._policy.stability.max_moves * total))
        for pod in self._index.pods.values():
            if pod.deleting and pod.node in self._room.now and not pod.terminal:
                self._load.give(pod.requests)
        while moves > 0 and (over := self._load.over()):
            rich = [
                s
                for s in self._shares
                if s.surplus and any(s.job.requests.get(name, 0) > 0 for name in over)
            ]
            if not rich:
                return
            share = max(rich, key=lambda s: (self._expected(s), s.job.key))
            victim = share.live[0]
            self._release(
                share, victim, Reason.RESERVE_RESTORED, f"over the limit of {', '.join(over)}"
            )
            self._load.give(victim.requests)
            moves -= 1

    # --- bookkeeping ----------------------------------------------------------------------

    def _take(self, job: Job, node: str) -> None:
        self._room.take(node, job.requests)
        self._quotas.take(job)
        self._load.take(job.requests)

    def _untake(self, job: Job, node: str) -> None:
        self._room.give(node, job.requests)
        self._quotas.take(job, -1)
        self._load.give(job.requests)

    def _share_of(self, pod: Pod) -> _Share:
        return next(share for share in self._shares if pod in share.live)

    def _release(self, share: _Share, pod: Pod, reason: Reason, detail: str) -> None:
        share.live.remove(pod)
        self._quotas.take(share.job, -1)
        self._releases.append(
            Release(share.job.key, pod.uid, pod.namespace, pod.name, pod.node, reason, detail)
        )

    def result(self) -> Plan:
        """The finished plan."""
        reasons = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}
        return Plan(
            jobs=tuple(
                JobPlan(
                    key=share.job.key,
                    live=share.found,
                    target=share.count,
                    reason=share.reason,
                    detail=share.detail,
                    share=self._measure(share, share.count),
                )
                for share in self._shares
            ),
            creates=tuple(
                Create(share.job.key, tier, count, reasons[tier])
                for share in self._shares
                for tier, count in share.creates.items()
                if count
            ),
            releases=tuple(self._releases),
            helped=frozenset(self._helped),
        )


def _has_succeeded(index: Index, job: Job) -> bool:
    return job.books.succeeded > 0 or any(
        pod.phase == "Succeeded" and pod.owner_uid == job.uid
        for pod in index.members.get(job.key, {}).values()
    )
