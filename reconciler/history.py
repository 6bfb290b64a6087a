"""What lately happened and a plan should know: nodes that gave capacity back, services helped."""

from collections.abc import Iterable, Mapping

from kube.live import Change
from policy.planning import Futile, History, Plan, Release, Wish
from policy.reasons import Reason
from policy.snapshot import Pod
from reconciler.expectations import Expectations

_KEEP_HELPED_S = 1800.0
"""Longer than the longest patience of the services rule, so that its doubling is not lost."""


class Recent:
    """Owned by the loop's thread; forgets by itself."""

    def __init__(self) -> None:
        self._cooling: dict[str, float] = {}
        self._helped: dict[str, tuple[int, float]] = {}
        self._futile: Mapping[Wish, Futile] = {}

    def note(
        self,
        changes: Mapping[str, Change[Pod]],
        expectations: Expectations,
        now_s: float,
        cool_down_s: float,
    ) -> None:
        """A training pod that somebody else takes away makes its node cool down."""
        for uid, change in changes.items():
            pod = change.new or change.last
            if pod is None or not pod.is_training or not pod.node:
                continue
            leaving = pod.disrupted and (pod.deleting or change.new is None)
            if leaving and not expectations.was_released(uid):
                self._cooling[pod.node] = now_s + cool_down_s

    def made_room(
        self, went: Iterable[Release], uids: Iterable[str], now_s: float, cool_down_s: float
    ) -> None:
        """Trainers were released for services: `uids` waited, and the nodes are theirs now."""
        for uid in uids:
            times, _ = self._helped.get(uid, (0, 0.0))
            self._helped[uid] = (times + 1, now_s)
        for release in went:
            if release.reason is Reason.SERVICES_FIRST:
                self._cooling[release.node] = now_s + cool_down_s

    def planned(self, made: Plan) -> None:
        """Keeps what the next plan need not look into at once."""
        self._futile = made.futile

    def history(self, now_s: float) -> History:
        """What still counts at `now_s`."""
        self._cooling = {n: until for n, until in self._cooling.items() if until > now_s}
        self._helped = {
            uid: help_ for uid, help_ in self._helped.items() if help_[1] + _KEEP_HELPED_S > now_s
        }
        return History(dict(self._cooling), dict(self._helped), self._futile)
