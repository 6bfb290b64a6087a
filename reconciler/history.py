"""What lately happened and a plan should know: nodes that gave capacity back, services helped."""

from collections.abc import Iterable, Mapping

from kube.live import Change
from policy.planning import History
from policy.snapshot import Pod
from reconciler.expectations import Expectations

_KEEP_HELPED_S = 60.0


class Recent:
    """Owned by the loop's thread; forgets by itself."""

    def __init__(self) -> None:
        self._cooling: dict[str, float] = {}
        self._helped: dict[str, float] = {}

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

    def helped(self, uids: Iterable[str], now_s: float) -> None:
        """Trainers were released for these service pods."""
        self._helped.update(dict.fromkeys(uids, now_s))

    def history(self, now_s: float) -> History:
        """What still counts at `now_s`."""
        self._cooling = {n: until for n, until in self._cooling.items() if until > now_s}
        self._helped = {u: at for u, at in self._helped.items() if at + _KEEP_HELPED_S > now_s}
        return History(dict(self._cooling), dict(self._helped))
