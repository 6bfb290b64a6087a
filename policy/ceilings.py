"""How much training may take at most: load limits, quotas, allowed sizes.

The plan asks before every trainer it adds. Nothing here looks at nodes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from policy import amounts, quantity
from policy.decisions import NONE, Figures
from policy.index import Index
from policy.model import WEEKDAYS, Policy, Quota, Window
from policy.snapshot import Job, Resources


def active_window(policy: Policy, now: datetime) -> Window | None:
    """The first time window of the policy that holds at `now` (aware), or None."""
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
    """Resource -> the most that all pods together may request before training must not grow.

    max_load of the active window or of the reserve, less the headroom. Resources that the
    policy does not name, or allows whole, have no limit but the nodes.
    """
    window = active_window(policy, now)
    shares = window.max_load if window else policy.reserve.max_load
    limits = {n: int(total.get(n, 0) * share) for n, share in shares.items() if share < 1}
    for name, text in policy.reserve.headroom.items():
        kept = (
            total.get(name, 0) * int(text[:-1]) // 100
            if text.endswith("%")
            else quantity.parse(name, text)
        )
        limits[name] = max(0, limits.get(name, total.get(name, 0)) - kept)
    return limits


_NOTHING: Resources = {}
_LIMITS = "limits."
"""As core/v1 `ResourceQuota` writes it: limits.cpu."""


class Quotas:
    """What is left of each quota while a plan is made.

    Trainers count, and the parameter servers that EDL makes: services and fixed pods have
    ResourceQuota for that. Where a pod has no limit, its request counts as one.
    """

    def __init__(self, policy: Policy, index: Index) -> None:
        self._quotas = policy.quotas
        self._total = [_ceilings(quota) for quota in policy.quotas]
        self._left = [dict(total) for total in self._total]
        self._counted: dict[str, Resources] = {}
        """Job key -> what one trainer takes."""
        self._by_job: dict[str, list[dict[str, int]]] = {}
        """Job key -> those of `_left` that count it."""
        for job in index.jobs.values() if policy.quotas else ():
            self.take(job, len(index.trainers(job)), index.serving(job))

    def scope(self, job: Job) -> tuple[int, ...]:
        """Which quotas count a job."""
        return tuple(i for i, quota in enumerate(self._quotas) if _counts(quota, job))

    def _left_for(self, job: Job) -> list[dict[str, int]]:
        if not self._quotas:
            return []
        found = self._by_job.get(job.key)
        if found is None:
            pairs = zip(self._quotas, self._left, strict=True)
            found = [left for quota, left in pairs if _counts(quota, job)]
            self._by_job[job.key] = found
        return found

    def _one(self, job: Job) -> Resources:
        """What one trainer takes: requests by name, limits with the prefix of ResourceQuota."""
        if job.key not in self._counted:
            self._counted[job.key] = _with_limits(job.requests, job.limits)
        return self._counted[job.key]

    def _all(self, job: Job, count: int, servers: int) -> Resources:
        """What `count` trainers and `servers` parameter servers take."""
        taken = {name: amount * count for name, amount in self._one(job).items()}
        if servers and job.servers is not None:
            # Their memory's limit is what they request; of CPU they may use more.
            for name, amount in _with_limits(job.servers.requests, _NOTHING).items():
                taken[name] = taken.get(name, 0) + amount * servers
        return taken

    def allow(self, job: Job, count: int = 1, servers: int = 0) -> bool:
        """Whether so many more pods of `job` stay inside every quota that counts it."""
        found = self._left_for(job)
        if not found:
            return True
        asked = self._all(job, count, servers)
        return all(
            amount <= left[name] for left in found for name, amount in asked.items() if name in left
        )

    def lack(self, job: Job, count: int, servers: int = 0) -> Figures:
        """Which quota has no room for so many more pods of `job`, and by how much.

        With no pods at all: which one is overdrawn. Empty where none is in the way.
        """
        asked = self._all(job, count, servers)
        for quota, left, total in zip(self._quotas, self._left, self._total, strict=True):
            for name, amount in asked.items() if _counts(quota, job) else ():
                if name in left and amount > left[name]:
                    return _lack(quota, name, total[name], amount - left[name])
        return NONE

    def take(self, job: Job, count: int = 1, servers: int = 0) -> None:
        """Counts trainers and parameter servers (negative: gives them back)."""
        found = self._left_for(job)
        taken = self._all(job, count, servers) if found else _NOTHING
        for left in found:
            for name in left:
                left[name] -= taken.get(name, 0)

    def relieves(self, job: Job, count: int, giver: Job, servers: int = 0) -> bool:
        """Whether one trainer less of `giver` helps where so many pods of `job` are too many."""
        asked = self._all(job, count, servers)
        return any(
            amount > left.get(name, amount) and self._one(giver).get(name, 0) > 0
            for left in self._left_for(job)
            if any(left is other for other in self._left_for(giver))
            for name, amount in asked.items()
        )

    def exceeded(self, job: Job) -> bool:
        """Whether a quota that counts `job` is already overdrawn."""
        return any(
            left[name] < 0
            for left in self._left_for(job)
            for name in left
            if self._one(job).get(name, 0) > 0
        )


def _with_limits(requests: Resources, limits: Resources) -> Resources:
    every = {**requests, **limits}
    return {**requests, **{_LIMITS + name: amount for name, amount in every.items()}}


def _counts(quota: Quota, job: Job) -> bool:
    return job.queue == quota.queue or job.namespace == quota.namespace


def _ceilings(quota: Quota) -> dict[str, int]:
    limits = quantity.parse_all(quota.limits)
    return quantity.parse_all(quota.requests) | {_LIMITS + n: most for n, most in limits.items()}


def _lack(quota: Quota, name: str, total: int, missing: int) -> Figures:
    resource = name.removeprefix(_LIMITS)
    return {
        "scope": f"namespace {quota.namespace}" if quota.namespace else f"queue {quota.queue}",
        "resource": name,
        "limit": quantity.show(resource, total),
        "short": quantity.show(resource, missing),
    }


def next_size(policy: Policy, job: Job, trainers: int) -> int:
    """The smallest allowed number of trainers above `trainers`; `trainers` itself where none is."""
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
    """The allowed sizes of a job, ascending and with min among them, or None for all."""
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
    """What is requested in the whole cluster against the load limits, while a plan is made."""

    def __init__(self, limits: Mapping[str, int], used: Mapping[str, int]) -> None:
        self._limits = limits
        self._used = dict(used)
        self._leaving: dict[str, int] = {}

    def take(self, requests: Resources) -> None:
        """Counts a pod."""
        amounts.add(self._used, requests)

    def give(self, requests: Resources) -> None:
        """Uncounts a pod."""
        amounts.subtract(self._used, requests)

    def leave(self, requests: Resources) -> None:
        """Counts something as on its way out: in use now, but not later."""
        amounts.add(self._leaving, requests)

    def expect(self, requests: Resources) -> None:
        """Counts a pod that comes when others have left."""
        amounts.subtract(self._leaving, requests)

    def allow(self, requests: Resources, count: int = 1) -> bool:
        """Whether `count` more such pods stay inside every limit, now and beside those expected."""
        return all(
            max(self._used.get(name, 0), self._later(name)) + requests[name] * count <= limit
            for name, limit in self._limits.items()
            if requests.get(name, 0) > 0
        )

    def allow_later(self, requests: Resources, beside: Resources, count: int = 1) -> bool:
        """Whether `count` more such pods stay inside every limit when all that leaves has left.

        Args:
            requests: Of one pod.
            beside: What leaves too.
            count: How many.
        """
        return all(
            self._later(name) - beside.get(name, 0) + requests[name] * count <= limit
            for name, limit in self._limits.items()
            if requests.get(name, 0) > 0
        )

    def lack(self, requests: Resources, count: int) -> Figures:
        """The first limit that `count` more such pods would pass, and what is in use of it."""
        for name, limit in self._limits.items():
            used = max(self._used.get(name, 0), self._later(name))
            if requests.get(name, 0) > 0 and used + requests[name] * count > limit:
                return self._figures(name, used)
        return NONE

    def excess(self) -> Figures:
        """The first limit that is passed even when all that leaves has left."""
        over = self.over()
        return self._figures(over[0], self._later(over[0])) if over else NONE

    def _figures(self, name: str, used: int) -> Figures:
        limit = self._limits[name]
        return {
            "resource": name,
            "used": quantity.show(name, used),
            "limit": quantity.show(name, limit),
        }

    def over(self) -> tuple[str, ...]:
        """The resources whose limit is passed even when all that leaves has left, by name."""
        return tuple(sorted(n for n, limit in self._limits.items() if self._later(n) > limit))

    def _later(self, name: str) -> int:
        return self._used.get(name, 0) - self._leaving.get(name, 0)
