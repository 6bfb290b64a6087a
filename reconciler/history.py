"""Recent events that the next plan considers: reclaimed nodes, services that releases helped."""

from collections.abc import Iterable, Mapping

from kube.state_feed import ObjectChange
from policy.plan import FailedMove, History, MoveKey, Plan, Release
from policy.reasons import Reason
from policy.snapshot import Pod
from reconciler.expectations import Expectations

_KEEP_RECLAIMED_S = 1800.0
"""Longer than the longest back-off of the services rule, so that its doubling is not lost."""


class RecentHistory:
    """The recent past as plans need it. Entries expire by age. Used on the loop's thread alone."""

    def __init__(self) -> None:
        self._cooling: dict[str, float] = {}
        self._reclaimed_for: dict[str, tuple[int, float]] = {}
        self._failed_moves: Mapping[MoveKey, FailedMove] = {}

    def observe_pods(
        self,
        changes: Mapping[str, ObjectChange[Pod]],
        expectations: Expectations,
        now_s: float,
        cool_down_s: float,
    ) -> None:
        """Starts the cool-down of nodes on which a training pod is evicted, but not by EDL."""
        for uid, change in changes.items():
            pod = change.new or change.last
            if pod is None or not pod.is_training or not pod.node:
                continue
            leaving = pod.disrupted and (pod.deleting or change.new is None)
            if leaving and not expectations.was_released(uid):
                self._cooling[pod.node] = now_s + cool_down_s

    def record_releases(
        self, releases: Iterable[Release], uids: Iterable[str], now_s: float, cool_down_s: float
    ) -> None:
        """Records releases for services, and starts the cool-down of the nodes they free.

        Args:
            releases: Trainers to be evicted, for whatever reason.
            uids: Service pods that capacity is released for.
            now_s: Seconds since the epoch.
            cool_down_s: How long no trainer is added to a freed node.
        """
        for uid in uids:
            times, _ = self._reclaimed_for.get(uid, (0, 0.0))
            self._reclaimed_for[uid] = (times + 1, now_s)
        for release in releases:
            if release.reason is Reason.SERVICES_FIRST:
                self._cooling[release.node] = now_s + cool_down_s

    def record_plan(self, plan: Plan) -> None:
        """Keeps the moves that failed: the next plan need not try them again at once."""
        self._failed_moves = plan.failed_moves

    def history(self, now_s: float) -> History:
        """The entries that have not expired at `now_s`."""
        self._cooling = {n: until_s for n, until_s in self._cooling.items() if until_s > now_s}
        self._reclaimed_for = {
            uid: (times, last_s)
            for uid, (times, last_s) in self._reclaimed_for.items()
            if last_s + _KEEP_RECLAIMED_S > now_s
        }
        return History(dict(self._cooling), dict(self._reclaimed_for), self._failed_moves)
