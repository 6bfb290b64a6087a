"""The load of the cluster, and the limits above which training must not grow: reserve, headroom and time windows.

The limits apply to the whole cluster; nodes play no part. The plan checks them before it adds a trainer.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from policy import quantity
from policy.cluster import amounts
from policy.cluster.snapshot import Resources
from policy.decisions import NONE, Figures
from policy.document.model import WEEKDAYS, Policy, Window

_NOTHING: Resources = {}


def active_window(policy: Policy, now: datetime) -> Window | None:
    """Returns the policy's first time window that is open at `now` (with a time zone), or None."""
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
    """Returns resource -> total requests of all pods above which training must not grow.

    The limit is maxLoad of the active window, or else of the reserve, minus the headroom. Resources that
    the policy does not name, or whose whole amount it allows, are limited only by the nodes.
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


class Load:
    """The load limits, and the requests of all pods during a plan: now, and once leaving pods have ended."""

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
        """Counts requests as leaving: they are in use now, but not later."""
        amounts.add(self._leaving, requests)

    def add_expected(self, requests: Resources) -> None:
        """Adds the requests of a pod that will start once leaving pods have ended."""
        amounts.subtract(self._leaving, requests)

    def allow(self, requests: Resources, count: int = 1) -> bool:
        """Returns whether `count` more such pods stay within every limit, both now and with expected pods."""
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
        claimed: Resources = _NOTHING,
    ) -> bool:
        """Returns whether `count` more such pods stay within every limit once all leaving pods have ended.

        Args:
            requests: Requests of one pod.
            freed: Requests of pods that would be released in addition.
            count: Number of pods.
            claimed: Requests of other pods that would start before these pods.
        """
        return all(
            self._later(name) - freed.get(name, 0) + claimed.get(name, 0) + requests[name] * count
            <= limit
            for name, limit in self._limits.items()
            if requests.get(name, 0) > 0
        )

    def lack(self, requests: Resources, count: int) -> Figures:
        """Returns the first limit that `count` more such pods would exceed, and the amount in use."""
        for name, limit in self._limits.items():
            used = max(self._used.get(name, 0), self._later(name))
            if requests.get(name, 0) > 0 and used + requests[name] * count > limit:
                return self._figures(name, used)
        return NONE

    def excess(self) -> Figures:
        """Returns the first limit that is exceeded even once all leaving pods have ended."""
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
        """Returns the resources whose limit is exceeded even once all leaving pods have ended."""
        return tuple(sorted(n for n, limit in self._limits.items() if self._later(n) > limit))

    def _later(self, name: str) -> int:
        return self._used.get(name, 0) - self._leaving.get(name, 0)
