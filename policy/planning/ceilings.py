"""Upper limits on training: load limits, quotas, allowed sizes.

The plan checks them before every trainer it adds. They are cluster-wide; nodes do not matter here.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from policy import quantity
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.quota_amounts import LIMITS, of_pod, of_pods, with_limits
from policy.cluster.snapshot import Job, Pod, Resources
from policy.decisions import NONE, Figures
from policy.document.model import WEEKDAYS, Policy, Window
from policy.document.queue_model import Quota
from policy.planning.borrowing import Borrowing


def active_window(policy: Policy, now: datetime) -> Window | None:
    """The first time window of the policy that is open at `now` (aware), or None."""
    return next((window for window in policy.windows if _inside(window, now)), None)


def _inside(window: Window, now: datetime) -> bool:
    local = now.astimezone(ZoneInfo(window.time_zone))
    today, clock = WEEKDAYS[local.weekday()], local.time()
    if window.start < window.end:
        return today in window.days and window.start <= clock < window.end
    yesterday = WEEKDAYS[(local - timedelta(days=1)).weekday()]
    return (today in window.days and clock >= window.start) or (
        yesterday in window.days and clock < window.end
    )


def load_limits(policy: Policy, total: Resources, now: datetime) -> dict[str, int]:
    """Resource -> total requests of all pods above which training must not grow.

    This is maxLoad of the active window or of the reserve, less the headroom. Resources that the
    policy does not name, or allows entirely, are limited by the nodes alone.
    """
    window = active_window(policy, now)
    shares = window.max_load if window else policy.reserve.max_load
    limits = {n: int(total.get(n, 0) * share) for n, share in shares.items() if share < 1}
    for name, text in policy.reserve.headroom.items():
        headroom = (
            total.get(name, 0) * int(text[:-1]) // 100
            if text.endswith("%")
            else quantity.parse(name, text)
        )
        limits[name] = max(0, limits.get(name, total.get(name, 0)) - headroom)
    return limits


NOTHING: Resources = {}


class Quotas:
    """The unused part (balance) of each quota while a plan is made.

    Trainers and the parameter servers that EDL creates count, those that exist as they are;
    services and fixed pods have ResourceQuota for that.
    """

    def __init__(self, policy: Policy, cluster: ClusterState) -> None:
        self._quotas = policy.quotas
        self._total = [_ceilings(quota) for quota in policy.quotas]
        self._balances = [dict(total) for total in self._total]
        self._live_amounts = cluster.trainer_amounts
        self._per_trainer_by_job: dict[str, Resources] = {}
        """Job key -> amounts of one trainer."""
        self._balances_by_job: dict[str, list[dict[str, int]]] = {}
        """Job key -> those of `_balances` whose quota covers the job."""
        self.borrowing = Borrowing(policy.queues)
        for job in cluster.jobs.values() if policy.quotas or self.borrowing else ():
            servers = cluster.counted_servers(job)
            self._add(job, cluster.trainer_amounts(job), -1)
            self._add(job, of_pods(job, servers), -1)
            self.reserve(job, 0, cluster.server_count(job) - len(servers))

    def scope(self, job: Job) -> tuple[int | str, ...]:
        """Indices of the quotas that cover a job, and its queue where that lends and borrows."""
        scope = tuple(i for i, quota in enumerate(self._quotas) if _covers(quota, job))
        return (*scope, job.queue) if self.borrowing.covers(job.queue) else scope

    def _cover(self, job: Job) -> bool:
        """Whether any quota covers a job."""
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
        """Amounts of one trainer: requests by name, limits with the prefix of ResourceQuota."""
        if job.key not in self._per_trainer_by_job:
            self._per_trainer_by_job[job.key] = with_limits(job.requests, job.limits)
        return self._per_trainer_by_job[job.key]

    def _sum(self, job: Job, count: int, servers: int) -> Resources:
        """Amounts of `count` trainers and `servers` parameter servers."""
        needed = amounts.scaled(self._per_trainer(job), count)
        if servers and job.servers is not None:
            # EDL's own have their memory request as limit, and no limit of CPU.
            of_server = with_limits(job.servers.requests, job.servers.limits)
            needed = amounts.plus(needed, amounts.scaled(of_server, servers))
        return needed

    def allow(self, job: Job, count: int = 1, servers: int = 0) -> bool:
        """Whether this number of further pods of `job` stays inside every quota that covers it."""
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
        """How many of `count` further guaranteed trainers its queue's nominal quota allows."""
        if not self.borrowing.covers(job.queue):
            return count
        trainer, server = self._sum(job, 1, 0), self._sum(job, 0, servers)
        return self.borrowing.room_for_minimum(job.queue, trainer, count, server)

    def lack_for_minimum(self, job: Job, count: int, servers: int) -> Figures:
        """The resource of which these guaranteed pods exceed that quota, and by how much."""
        return self.borrowing.lack_for_minimum(job.queue, self._sum(job, count, servers))

    def borrows(self, job: Job, count: int) -> bool:
        """Whether `count` further trainers of a job would use more than their queue's own quota."""
        if not self.borrowing.covers(job.queue):
            return False
        return not self.borrowing.owns(job.queue, self._sum(job, count, 0))

    def lends(self, giver: Job, job: Job, freed: Resources) -> bool:
        """Whether the queue of `giver` may give so much to a job of another one that would borrow it.

        Only of what it borrows itself. One without a nominal quota borrows nothing and gives nothing:
        growth would give it back before any job borrows.
        """
        if giver.queue == job.queue:
            return True
        if not self.borrowing.covers(giver.queue):
            return False
        return self.borrowing.keeps_nominal(giver.queue, job.requests, freed)

    def lack(self, job: Job, count: int, servers: int = 0) -> Figures:
        """The first quota that these further pods of `job` would exceed, and by how much.

        With no pods at all: the first quota that is exceeded already. Empty where none is.
        """
        amounts_needed = dict.fromkeys(self._live_amounts(job), 0)
        amounts_needed |= self._sum(job, count, servers)
        for quota, balance, total in zip(self._quotas, self._balances, self._total, strict=True):
            for name, amount in amounts_needed.items() if _covers(quota, job) else ():
                if name in balance and amount > balance[name]:
                    return _lack(quota, name, total[name], amount - balance[name])
        return self.borrowing.lack(job.queue, amounts_needed)

    def reserve(self, job: Job, count: int = 1, servers: int = 0) -> None:
        """Counts trainers and parameter servers to come of `job` in every quota that covers it."""
        if self._cover(job):
            self._add(job, self._sum(job, count, servers), -1)

    def unreserve(self, job: Job, count: int = 1, servers: int = 0) -> None:
        """Undoes `reserve`."""
        self.reserve(job, -count, -servers)

    def release(self, job: Job, pods: Iterable[Pod]) -> None:
        """Counts live trainers of `job` as gone."""
        if self._cover(job):
            self._add(job, of_pods(job, pods), 1)

    @contextmanager
    def without(self, releases: Iterable[tuple[Job, Iterable[Pod]]]) -> Iterator[None]:
        """Counts live trainers of jobs as gone inside a `with` block, to see what that would allow."""
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
        """Whether releasing a trainer of `giver` helps against a quota that stops pods of `job`.

        Its trainers may have what new ones would not: admission gave it to them.
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
        """The first of a job's trainers that has some of what is exceeded in a quota over the job.

        What a trainer has may differ from the template: admission gave it more, or a resize in place.
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


def next_size(policy: Policy, job: Job, trainers: int) -> int:
    """The smallest allowed number of trainers above `trainers`, or `trainers` if there is none."""
    rule = _sizes(policy, job)
    upper = job.max_trainers
    if rule is None:
        return min(trainers + 1, max(upper, trainers))
    return next((size for size in rule if trainers < size <= upper), trainers)


def floor_size(policy: Policy, job: Job, trainers: int) -> int:
    """The largest allowed number of trainers at or below `trainers`, never below min."""
    rule = _sizes(policy, job)
    capped = min(trainers, job.max_trainers)
    if rule is None or capped <= job.min_trainers:
        return capped
    return max((size for size in rule if size <= capped), default=job.min_trainers)


def _sizes(policy: Policy, job: Job) -> tuple[int, ...] | None:
    """The allowed sizes of a job, ascending and with min among them, or None for all.

    Where job and policy restrict them, those that both allow.
    """
    allowed = _allowed_by_policy(policy, job)
    if not job.sizes:
        return allowed
    low, upper = job.min_trainers, job.max_trainers
    own = {low} | {size for size in job.sizes if low < size <= upper}
    return tuple(sorted(own if allowed is None else own.intersection(allowed)))


def _allowed_by_policy(policy: Policy, job: Job) -> tuple[int, ...] | None:
    """The sizes that the policy allows a job, its minimum among them, or None for all."""
    for rule in policy.sizes:
        if not any(fnmatchcase(job.namespace, pattern) for pattern in rule.namespaces):
            continue
        upper = job.max_trainers
        if rule.allowed:
            sizes = set(rule.allowed)
        elif rule.powers_of_two:
            sizes = {1 << bit for bit in range(upper.bit_length())}
        else:
            sizes = set(range(rule.step, upper + 1, rule.step))
        return tuple(
            sorted({job.min_trainers} | {s for s in sizes if job.min_trainers < s <= upper})
        )
    return None


class Load:
    """Total requests of the cluster, compared with the load limits, while a plan is made."""

    def __init__(self, limits: Mapping[str, int], used: Mapping[str, int]) -> None:
        self._limits = limits
        self._used = dict(used)
        self._leaving: dict[str, int] = {}

    def reserve(self, requests: Resources) -> None:
        """Adds a pod's requests."""
        amounts.add(self._used, requests)

    def unreserve(self, requests: Resources) -> None:
        """Undoes `reserve`."""
        amounts.subtract(self._used, requests)

    def add_leaving(self, requests: Resources) -> None:
        """Counts requests as leaving: in use now, but not later."""
        amounts.add(self._leaving, requests)

    def add_expected(self, requests: Resources) -> None:
        """Counts a pod that starts once leaving pods have ended."""
        amounts.subtract(self._leaving, requests)

    def allow(self, requests: Resources, count: int = 1) -> bool:
        """Whether `count` more such pods stay inside every limit, now and with expected pods."""
        return all(
            max(self._used.get(name, 0), self._later(name)) + requests[name] * count <= limit
            for name, limit in self._limits.items()
            if requests.get(name, 0) > 0
        )

    def allow_later(
        self,
        requests: Resources,
        freed: Resources,
        count: int = 1,
        claimed: Resources = NOTHING,
    ) -> bool:
        """Whether `count` more such pods stay inside every limit once all leaving pods have ended.

        Args:
            requests: Requests of one pod.
            freed: Requests of further pods that would be released.
            count: Number of pods.
            claimed: Requests of other pods that come before them.
        """
        return all(
            self._later(name) - freed.get(name, 0) + claimed.get(name, 0) + requests[name] * count
            <= limit
            for name, limit in self._limits.items()
            if requests.get(name, 0) > 0
        )

    def lack(self, requests: Resources, count: int) -> Figures:
        """The first limit that `count` more such pods would exceed, and the amount in use."""
        for name, limit in self._limits.items():
            used = max(self._used.get(name, 0), self._later(name))
            if requests.get(name, 0) > 0 and used + requests[name] * count > limit:
                return self._figures(name, used)
        return NONE

    def excess(self) -> Figures:
        """The first limit that is exceeded even once all leaving pods have ended."""
        exceeded = self.exceeded()
        return self._figures(exceeded[0], self._later(exceeded[0])) if exceeded else NONE

    def _figures(self, name: str, used: int) -> Figures:
        limit = self._limits[name]
        return {
            "resource": name,
            "used": quantity.show(name, used),
            "limit": quantity.show(name, limit),
        }

    def exceeded(self) -> tuple[str, ...]:
        """Names of the resources whose limit is exceeded even once all leaving pods have ended."""
        return tuple(sorted(n for n, limit in self._limits.items() if self._later(n) > limit))

    def _later(self, name: str) -> int:
        return self._used.get(name, 0) - self._leaving.get(name, 0)
