"""Remembers how long PodDisruptionBudgets have refused evictions of trainers (decision 0044)."""

from collections.abc import Collection

_PATIENCE_S = 30.0
"""How long budgets may keep a surplus trainer."""
_CALM_S = 300.0
"""A refusal older than this no longer counts."""


class BudgetRefusals:
    """The times of the first and the last refusal for each existing pod."""

    def __init__(self) -> None:
        self._times: dict[str, tuple[float, float]] = {}

    def record(self, uid: str, now_s: float, pods: Collection[str]) -> None:
        """Records a refusal; forgets pods that do not exist any more."""
        first_s, last_s = self._times.get(uid, (now_s, now_s))
        self._times[uid] = (now_s if now_s - last_s > _CALM_S else first_s), now_s
        if len(self._times) > len(pods):
            self._times = {
                pod_uid: times for pod_uid, times in self._times.items() if pod_uid in pods
            }

    def last_too_long(self, uid: str, now_s: float) -> bool:
        """Returns whether budgets have kept a pod longer than they may keep surplus trainers."""
        if uid not in self._times:
            return False
        first_s, last_s = self._times[uid]
        return now_s - last_s <= _CALM_S and now_s - first_s >= _PATIENCE_S
