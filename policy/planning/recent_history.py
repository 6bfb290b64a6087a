"""The recent past that the next plan needs: cooling nodes, reclaims, failed moves. Pure.

The reconciler and its simulation keep a `RecentHistory`; the extender needs only `CoolDowns`.
"""

from collections import deque
from collections.abc import Mapping
from itertools import islice

from policy.planning.creation_backoff import CreationBackoff, refused
from policy.planning.demand import DemandHistory
from policy.planning.plan import FailedMove, History, Line, MoveKey, Plan
from policy.planning.stranding import TaintKey
from policy.reasons import Reason
from policy.scheduling import UNMARKED, Scheduling

_KEEP_PLACED_S = 5.0
_MAX_PLACED = 50
"""Most plans that the pace is computed from; plans are at least a tenth of a second apart."""
_WINDOW_S = 0.5
"""Shorter spans say little about the pace: pods of the last plan may still be being created at the next."""
_MIN_INTERVAL_S, _MAX_INTERVAL_S = 0.3, 1.0
"""Bounds of the assumed time between plans. If plans come faster, pods wait for longer than one plan. If
they come more slowly, more trainers would wait, and services would wait behind them."""
_AHEAD = 1.5
_KEEP_RECLAIMED_S = 1800.0
"""How long a release for a service is remembered: longer than the longest delay between such releases, so
that the doubling of the delays is not forgotten."""
_KEEP_RELIEF_S = 7200.0
"""How long a release because of a ResourceQuota is remembered: longer than the longest pause between them."""
_KEEP_VAIN_S = 7200.0
"""How long a failed request for nodes is remembered: longer than the longest pause between requests."""
_SAME_REQUEST_S = 240.0
"""Shorter than the shortest pause between requests. A second withdrawal within this time belongs to the
same request: the first attempt to withdraw it failed."""


class CoolDowns:
    """The nodes that just gave capacity back. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def start(self, node: str, now_s: float, cool_down_s: float) -> None:
        """Starts the cool-down of a node, or starts it again."""
        self._until_s[node] = now_s + cool_down_s

    def cooling(self, now_s: float) -> Mapping[str, float]:
        """Returns node -> end of its cool-down, and forgets cool-downs that have ended."""
        self._until_s = {node: end_s for node, end_s in self._until_s.items() if end_s > now_s}
        return self._until_s


class PlacementPace:
    """The pace at which kube-scheduler places trainers. Times are seconds on any one clock."""

    def __init__(self) -> None:
        self._placed: deque[tuple[float, int]] = deque(maxlen=_MAX_PLACED)
        """(time of a plan, number of trainers placed since the previous plan), the oldest first."""

    def record(self, count: int, now_s: float) -> None:
        """Records, before a plan, how many trainers were placed since the last call."""
        self._placed.append((now_s, count))

    def until_next_plan(self, now_s: float) -> int:
        """Returns 1.5 times the number of trainers that kube-scheduler can place until the next plan.

        The factor makes the number grow from plan to plan until kube-scheduler always has a trainer to
        place. The time until the next plan is assumed to be the time between the last two plans. The pace
        is the best one within `_KEEP_PLACED_S`, because times without plans or without capacity say
        nothing about the scheduler.
        """
        while self._placed and not now_s - _KEEP_PLACED_S < self._placed[0][0] <= now_s:
            self._placed.popleft()
        if len(self._placed) < 2:  # noqa: PLR2004 - an interval has two ends
            return 0
        interval_s = self._placed[-1][0] - self._placed[-2][0]
        interval_s = min(max(interval_s, _MIN_INTERVAL_S), _MAX_INTERVAL_S)
        return int(_AHEAD * self._best_pace() * interval_s)

    def _best_pace(self) -> float:
        """Returns the largest number of placed trainers per second over any span of at least `_WINDOW_S`."""
        best, first, count = 0.0, 0, 0
        for end_s, placed in islice(self._placed, 1, None):
            count += placed
            while end_s - self._placed[first + 1][0] >= _WINDOW_S:
                first += 1
                count -= self._placed[first][1]
            best = max(best, count / max(end_s - self._placed[first][0], _WINDOW_S))
        return best


class RecentHistory:
    """The part of earlier plans' outcomes that the next plan considers. Entries expire by age."""

    def __init__(self) -> None:
        self.cool_downs = CoolDowns()
        self.pace = PlacementPace()
        self._reclaimed_for: dict[str, tuple[int, float]] = {}
        self._failed_moves: Mapping[MoveKey, FailedMove] = {}
        self._moved: frozenset[str] = frozenset()
        self._offered: dict[str, tuple[float, int]] = {}
        self._quota_reliefs: dict[str, tuple[int, float]] = {}
        self._short_since: dict[str, float] = {}
        self._vain_requests: dict[str, tuple[int, float]] = {}
        self._unneeded_since: dict[str, float] = {}
        self._tainted_since: dict[TaintKey, float] | None = None
        self._creation_backoffs: dict[str, CreationBackoff] = {}
        self._demands: Mapping[str, DemandHistory] = {}
        self._gains: Mapping[str, int] = {}
        self._line = Line()

    @classmethod
    def of(cls, history: History) -> "RecentHistory":
        """Returns a recent history that continues `history`; only the pace of placements is lost."""
        recent = cls()
        for node, until_s in history.cooling.items():
            recent.cool_downs.start(node, until_s, 0.0)
        recent._reclaimed_for = dict(history.reclaimed_for)
        recent._failed_moves, recent._moved = history.failed_moves, history.moved
        recent._offered = dict(history.offered)
        recent._quota_reliefs = dict(history.quota_reliefs)
        recent._short_since = dict(history.short_since)
        recent._vain_requests = dict(history.vain_requests)
        recent._unneeded_since = dict(history.unneeded_since)
        tainted = history.tainted_since
        recent._tainted_since = None if tainted is None else dict(tainted)
        recent._creation_backoffs = dict(history.creation_backoffs)
        recent._demands, recent._line = history.demands, history.line
        return recent

    def record(self, plan: Plan, now_s: float, cool_down_s: float) -> None:
        """Records a plan that is about to be executed.

        Args:
            plan: The plan. Its releases for services start the cool-down of their nodes. Its failed moves
                are not tried again at once, and its moves count until their trainers have ended.
            now_s: Seconds since the epoch.
            cool_down_s: How long no trainer is added to a node that gave capacity back.
        """
        self._failed_moves, self._moved = plan.failed_moves, plan.moved
        self._demands, self._gains, self._line = plan.demands, plan.gains, plan.line
        self._creation_backoffs = dict(plan.creation_backoffs)
        self._offered = {
            owner: self._next_offer(owner, waiting, now_s)
            for owner, waiting in plan.offered.items()
        }
        self._short_since = {uid: self._short_since.get(uid, now_s) for uid in plan.short}
        self._unneeded_since = {
            node: self._unneeded_since.get(node, now_s) for node in plan.unneeded
        }
        before = self._tainted_since
        self._tainted_since = {
            key: 0.0 if before is None else before.get(key, now_s) for key in plan.tainted
        }
        for uid in plan.gave_up:
            number, last_s = self._vain_requests.get(uid, (0, 0.0))
            if now_s - last_s >= _SAME_REQUEST_S:
                self._vain_requests[uid] = (number + 1, now_s)
        for uid in plan.quota_reliefs:
            number, _ = self._quota_reliefs.get(uid, (0, 0.0))
            self._quota_reliefs[uid] = (number + 1, now_s)
        for uid in plan.reclaimed_for:
            times, _ = self._reclaimed_for.get(uid, (0, 0.0))
            self._reclaimed_for[uid] = (times + 1, now_s)
        for release in plan.releases:
            if release.reason is Reason.SERVICES_FIRST:
                self.cool_downs.start(release.node, now_s, cool_down_s)

    def record_creation(
        self, uid: str, error: str, *, trainers: int, in_vain: int, now_s: float
    ) -> None:
        """Records the result of creating trainers; a success ends the back-off after refusals.

        Args:
            uid: uid of the job.
            error: The API server's message; "" if all trainers were created.
            trainers: Number of trainers that the job has now.
            in_vain: Number of wasted pods; see `creation_backoff.refused`.
            now_s: Seconds since the epoch.
        """
        before = self._creation_backoffs.get(uid)
        if error:
            self._creation_backoffs[uid] = refused(
                before, error, trainers=trainers, in_vain=in_vain, now_s=now_s
            )
        elif before is not None and before.error:
            del self._creation_backoffs[uid]

    def cancel_gains(self, uid: str) -> None:
        """Records that no trainer of a job could be created, so that the last plan's gains do not count."""
        demand_history = self._demands.get(uid)
        if demand_history is not None:
            without_gains = demand_history.after(-self._gains.get(uid, 0))
            self._demands = {**self._demands, uid: without_gains}

    def history(self, now_s: float, scheduling: Scheduling = UNMARKED) -> History:
        """Returns the entries that have not expired at `now_s`, with the current scheduling."""
        self._reclaimed_for = {
            uid: (times, last_s)
            for uid, (times, last_s) in self._reclaimed_for.items()
            if last_s + _KEEP_RECLAIMED_S > now_s
        }
        self._vain_requests = {
            uid: (number, last_s)
            for uid, (number, last_s) in self._vain_requests.items()
            if last_s + _KEEP_VAIN_S > now_s
        }
        self._quota_reliefs = {
            uid: (number, last_s)
            for uid, (number, last_s) in self._quota_reliefs.items()
            if last_s + _KEEP_RELIEF_S > now_s
        }
        return History(
            cooling=dict(self.cool_downs.cooling(now_s)),
            reclaimed_for=dict(self._reclaimed_for),
            failed_moves=self._failed_moves,
            moved=self._moved,
            offered=self._offered,
            quota_reliefs=dict(self._quota_reliefs),
            short_since=self._short_since,
            vain_requests=dict(self._vain_requests),
            scheduling=scheduling,
            unneeded_since=self._unneeded_since,
            tainted_since=self._tainted_since,
            creation_backoffs=dict(self._creation_backoffs),
            demands=self._demands,
            line=self._line,
            placeable=self.pace.until_next_plan(now_s),
        )

    def _next_offer(self, owner: str, waiting: int, now_s: float) -> tuple[float, int]:
        """Returns an owner's entry in `History.offered`; its time starts anew whenever fewer pods wait."""
        since_s, before = self._offered.get(owner, (now_s, waiting))
        return (now_s if waiting < before else since_s), waiting
