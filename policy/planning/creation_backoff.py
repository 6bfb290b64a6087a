"""The back-off of a job whose new trainers are refused or never placed. Pure.

The job's other trainers stay, and other jobs get the capacity meanwhile. After each pause the job tries
one more trainer on free capacity; after a longer pause it tries one at the expense of another job. The
back-off ends when a trainer gets a node.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod

_REFUSED_S = (1.0, 60.0)
"""First and longest pause after a refusal by the API server: such a request costs little."""
_UNPLACED_S = (10.0, 300.0)
"""First and longest pause after trainers that kube-scheduler did not place: each one cost a pod."""
_PARTIAL_S = (60.0, 960.0)
"""First and longest pause after a start whose pods were only partly created."""
_MOVE_S = (10.0, 3600.0)
"""First and longest time until another job releases a trainer for the next attempt, perhaps for nothing."""
_PER_POD_S = 30.0
"""Shortest pause for each wasted pod: at most two pods a minute are wasted."""


@dataclass(frozen=True, slots=True)
class CreationBackoff:
    """A pause in which a job gets no more trainers, and the reason. Times are seconds since the epoch."""

    failures: int
    """Number of failed attempts in a row."""
    last_s: float
    """Time of the last failed attempt."""
    until_s: float
    """Time of the next attempt."""
    trainers: int
    """Number of trainers that the job had at the failure; up to this number it may create trainers freely."""
    error: str = ""
    """The API server's message; "" if kube-scheduler did not place the trainers."""
    partial: bool = False
    """Whether only some of the job's first pods were created; these are deleted again."""

    def is_over(self, live: Iterable[Pod], created_s: Callable[[Pod], float]) -> bool:
        """Returns whether more trainers than before have a node, one of them newer than the last failure."""
        placed = [pod for pod in live if pod.node]
        is_news = any(created_s(pod) > self.last_s for pod in placed)
        return not self.error and is_news and len(placed) > self.trainers

    def allows_move(self, now_s: float) -> bool:
        """Returns whether another job may lose a trainer for the next attempt, if no capacity is free."""
        return now_s >= self.last_s + pause_s(*_MOVE_S, failures=self.failures)

    def after_vain(self, in_vain: int) -> "CreationBackoff":
        """Returns the back-off with a longer pause for wasted trainers, too few for an allowed size."""
        return replace(self, until_s=max(self.until_s, self.last_s + in_vain * _PER_POD_S))


def current(
    backoffs: Mapping[str, CreationBackoff],
    live_by_uid: Mapping[str, Iterable[Pod]],
    created_s: Callable[[Pod], float],
) -> dict[str, CreationBackoff]:
    """Returns job uid -> back-off, for the given jobs whose back-off is not over.

    Args:
        backoffs: The back-offs so far, by job uid.
        live_by_uid: Job uid -> its live trainers.
        created_s: When a pod was created, by the clock of the back-offs.
    """
    return {
        uid: backoff
        for uid, backoff in backoffs.items()
        if uid in live_by_uid and not backoff.is_over(live_by_uid[uid], created_s)
    }


def refused(
    before: CreationBackoff | None, error: str, *, trainers: int, in_vain: int, now_s: float
) -> CreationBackoff:
    """Returns the back-off after the API server refused trainers.

    The back-off starts anew if the job had more trainers before: its leaving pods may have caused the
    refusal, because a quota counts a pod until it has ended.

    Args:
        before: The back-off so far.
        error: The API server's message.
        trainers: Number of trainers that the job has.
        in_vain: Number of trainers and parameter servers that a starting job has created; without the
            refused trainers they are wasted. 0 for a job that runs.
        now_s: The time.
    """
    again = before is not None and before.error and before.trainers <= trainers
    failures = before.failures + 1 if before is not None and again else 1
    first_s, max_s = _PARTIAL_S if in_vain else _REFUSED_S
    wait_s = max(pause_s(first_s, max_s, failures), in_vain * _PER_POD_S)
    count = 0 if in_vain else trainers
    return CreationBackoff(failures, now_s, now_s + wait_s, count, error, partial=in_vain > 0)


def unplaced(before: CreationBackoff | None, *, trainers: int, now_s: float) -> CreationBackoff:
    """Returns the back-off after kube-scheduler did not place trainers; arguments as for `refused`."""
    failures = before.failures + 1 if before is not None and not before.error else 1
    return CreationBackoff(
        failures, now_s, now_s + pause_s(*_UNPLACED_S, failures=failures), trainers
    )
