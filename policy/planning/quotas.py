"""The quotas of namespaces and queues while a plan is made, and the unused amounts of each quota.

Quotas apply to the whole cluster; nodes play no part. The plan checks them before it adds a trainer.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from policy import quantity
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.quota_amounts import LIMITS, of_pod, of_pods, with_limits
from policy.cluster.snapshot import Job, Pod, Resources
from policy.decisions import Figures
from policy.document.model import Policy
from policy.document.queue_model import Quota
from policy.planning.borrowing import Borrowing


class Quotas:
    """The unused part (balance) of each quota while a plan is made.

    Trainers count, and the parameter servers that EDL creates; existing pods count with their own amounts.
    Services and other pods do not count: a ResourceQuota can limit them.
    """

    def __init__(self, policy: Policy, cluster: ClusterState) -> None:
        self._quotas = policy.quotas
        self._total = [_ceilings(quota) for quota in policy.quotas]
        self._balances = [dict(total) for total in self._total]
        self._live_amounts = cluster.trainer_amounts
        self._per_trainer_by_job: dict[str, Resources] = {}
        """Job key -> amounts of one trainer."""
        self._balances_by_job: dict[str, list[dict[str, int]]] = {}
        """Job key -> the balances of the quotas that cover the job."""
        self.borrowing = Borrowing(policy.queues)
        for job in cluster.jobs.values() if policy.quotas or self.borrowing else ():
            servers = cluster.counted_servers(job)
            self._add(job, cluster.trainer_amounts(job), -1)
            self._add(job, of_pods(job, servers), -1)
            self.reserve(job, 0, cluster.server_count(job) - len(servers))

    def scope(self, job: Job) -> tuple[int | str, ...]:
        """Returns the indices of the quotas that cover a job, and its queue if the queue lends and borrows."""
        scope = tuple(i for i, quota in enumerate(self._quotas) if _covers(quota, job))
        return (*scope, job.queue) if self.borrowing.covers(job.queue) else scope

    def _cover(self, job: Job) -> bool:
        """Returns whether any quota covers a job."""
        return bool(self._balances_for(job)) or self.borrowing.covers(job.queue)

    def _balances_for(self, job: Job) -> list[dict[str, int]]:
        if not self._quotas:
            return []
        balances = self._balances_by_job.get(job.key)
        if balances is None:
            pairs = zip(self._quotas, self._balances, strict=True)
            balances = [balance for quota, balance in pairs if _covers(quota, job)]
            self._balances_by_job[job.key] = balances
        return balances

    def _per_trainer(self, job: Job) -> Resources:
        """Returns the amounts of one trainer: requests by name, limits with the prefix of ResourceQuota."""
        if job.key not in self._per_trainer_by_job:
            self._per_trainer_by_job[job.key] = with_limits(job.requests, job.limits)
        return self._per_trainer_by_job[job.key]

    def _sum(self, job: Job, count: int, servers: int) -> Resources:
        """Returns the amounts of `count` trainers and `servers` parameter servers."""
        needed = amounts.scaled(self._per_trainer(job), count)
        if servers and job.servers is not None:
            # EDL's own servers have their memory request as the memory limit, and no CPU limit.
            of_server = with_limits(job.servers.requests, job.servers.limits)
            needed = amounts.plus(needed, amounts.scaled(of_server, servers))
        return needed

    def allow(self, job: Job, count: int = 1, servers: int = 0) -> bool:
        """Returns whether this number of further pods of `job` stays within every quota that covers it."""
        if not self._cover(job):
            return True
        amounts_needed = self._sum(job, count, servers)
        return self.borrowing.allows(job.queue, amounts_needed) and all(
            amount <= balance[name]
            for balance in self._balances_for(job)
            for name, amount in amounts_needed.items()
            if name in balance
        )

    def claim(self, job: Job, count: int, servers: int) -> None:
        """Counts guaranteed trainers and parameter servers against their queue's nominal quota."""
        if (count or servers) and self.borrowing.covers(job.queue):
            self.borrowing.claim(job.queue, self._sum(job, count, servers))

    def room_for_minimum(self, job: Job, count: int, servers: int) -> int:
        """Returns how many of `count` further guaranteed trainers its queue's nominal quota allows."""
        if not self.borrowing.covers(job.queue):
            return count
        trainer, server = self._sum(job, 1, 0), self._sum(job, 0, servers)
        return self.borrowing.room_for_minimum(job.queue, trainer, count, server)

    def lack_for_minimum(self, job: Job, count: int, servers: int) -> Figures:
        """Returns the resource in which these guaranteed pods exceed the nominal quota, and by how much."""
        return self.borrowing.lack_for_minimum(job.queue, self._sum(job, count, servers))

    def borrows(self, job: Job, count: int) -> bool:
        """Returns whether `count` further trainers of a job would use more than their queue's own quota."""
        if not self.borrowing.covers(job.queue):
            return False
        return not self.borrowing.owns(job.queue, self._sum(job, count, 0))

    def lends(self, giver: Job, job: Job, freed: Resources) -> bool:
        """Returns whether the queue of `giver` may release `freed` for a job whose queue would borrow it.

        A queue gives only borrowed amounts to another queue. A queue without a nominal quota borrows
        nothing and gives nothing: its jobs would grow again before any job borrows.
        """
        if giver.queue == job.queue:
            return True
        if not self.borrowing.covers(giver.queue):
            return False
        return self.borrowing.keeps_nominal(giver.queue, job.requests, freed)

    def lack(self, job: Job, count: int, servers: int = 0) -> Figures:
        """Returns the first quota that these further pods of `job` would exceed, and by how much.

        If both numbers are 0, the result is the first quota that is already exceeded. It is empty if there
        is no such quota.
        """
        amounts_needed = dict.fromkeys(self._live_amounts(job), 0)
        amounts_needed |= self._sum(job, count, servers)
        for quota, balance, total in zip(self._quotas, self._balances, self._total, strict=True):
            for name, amount in amounts_needed.items() if _covers(quota, job) else ():
                if name in balance and amount > balance[name]:
                    return _lack(quota, name, total[name], amount - balance[name])
        return self.borrowing.lack(job.queue, amounts_needed)

    def reserve(self, job: Job, count: int = 1, servers: int = 0) -> None:
        """Counts planned trainers and parameter servers of `job` in every quota that covers it."""
        if self._cover(job):
            self._add(job, self._sum(job, count, servers), -1)

    def unreserve(self, job: Job, count: int = 1, servers: int = 0) -> None:
        """Undoes `reserve`."""
        self.reserve(job, -count, -servers)

    def release(self, job: Job, pods: Iterable[Pod]) -> None:
        """Counts these live trainers of `job` as gone."""
        if self._cover(job):
            self._add(job, of_pods(job, pods), 1)

    @contextmanager
    def without(self, releases: Iterable[tuple[Job, Iterable[Pod]]]) -> Iterator[None]:
        """Counts live trainers of jobs as gone inside a `with` block, to check what that would allow."""
        gone = [(job, list(pods)) for job, pods in releases]
        for job, pods in gone:
            self.release(job, pods)
        try:
            yield
        finally:
            for job, pods in gone:
                if self._cover(job):
                    self._add(job, of_pods(job, pods), -1)

    def _add(self, job: Job, freed: Resources, sign: int) -> None:
        for balance in self._balances_for(job):
            for name in balance:
                balance[name] += sign * freed.get(name, 0)
        self.borrowing.count(job.queue, freed, -sign)

    def relieves(self, job: Job, count: int, giver: Job, servers: int = 0) -> bool:
        """Returns whether releasing a trainer of `giver` helps against a quota that stops pods of `job`.

        Live trainers may have amounts that admission added and that are not in the job's template.
        """
        amounts_needed = self._sum(job, count, servers)
        live, new = self._live_amounts(giver), self._per_trainer(giver)
        if self.borrowing and self.borrowing.relieves(
            job.queue, amounts_needed, giver.queue, amounts.plus(live, new)
        ):
            return True
        return any(
            amount > balance.get(name, amount) and (new.get(name, 0) > 0 or live.get(name, 0) > 0)
            for balance in self._balances_for(job)
            if any(balance is shared_balance for shared_balance in self._balances_for(giver))
            for name, amount in amounts_needed.items()
        )

    def exceeded(self, job: Job) -> bool:
        """Returns whether new trainers of `job` would use a quota that is already exceeded."""
        new = self._per_trainer(job)
        return any(new.get(name, 0) > 0 for name in self._exceeded(job))

    def reliever(self, job: Job, pods: Iterable[Pod]) -> Pod | None:
        """Returns the first of `pods` that uses a resource in which one of the job's quotas is exceeded.

        A pod's amounts may differ from the template, because of admission or an in-place resize.
        """
        exceeded = self._exceeded(job)
        if not exceeded:
            return None
        amounts_by_pod = ((pod, of_pod(job, pod)) for pod in pods)
        return next(
            (p for p, has in amounts_by_pod if any(has.get(n, 0) > 0 for n in exceeded)), None
        )

    def _exceeded(self, job: Job) -> list[str]:
        below = [n for balance in self._balances_for(job) for n in balance if balance[n] < 0]
        return below + self.borrowing.exceeded(job.queue)


def _covers(quota: Quota, job: Job) -> bool:
    return job.queue == quota.queue or job.namespace == quota.namespace


def _ceilings(quota: Quota) -> dict[str, int]:
    limits = quantity.parse_all(quota.limits)
    return quantity.parse_all(quota.requests) | {LIMITS + n: limit for n, limit in limits.items()}


def _lack(quota: Quota, name: str, total: int, missing: int) -> Figures:
    resource = name.removeprefix(LIMITS)
    return {
        "scope": f"namespace {quota.namespace}" if quota.namespace else f"queue {quota.queue}",
        "resource": name,
        "limit": quantity.show(resource, total),
        "short": quantity.show(resource, missing),
    }
