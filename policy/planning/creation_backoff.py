"""Back-off of one job whose new trainers come to nothing: refused, or never placed. Pure.

Its other trainers stay, and other jobs get the capacity meanwhile. After each pause one more
trainer is tried where room is free, and after a longer one at the expense of another job; the back-off
ends when one works.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from policy.backoff import pause_s
from policy.cluster.snapshot import Pod

_REFUSED_S = (1.0, 60.0)
"""First and longest pause after a refusal: a request that costs little."""
_UNPLACED_S = (10.0, 300.0)
"""After trainers that kube-scheduler did not place: each is a pod made in vain."""
_PARTIAL_S = (60.0, 960.0)
"""After a start of which only a part was created."""
_MOVE_S = (10.0, 3600.0)
"""Until another job ends a trainer for one more try: the room of that one would be in vain as well."""
_PER_POD_S = 30.0
"""Shortest pause for each pod made in vain: two of them a minute."""


@dataclass(frozen=True, slots=True)
class CreationBackoff:
    """A pause in which a job gets no more trainers, with its reason. Times are seconds since the epoch."""

    failures: int
    """Tries in a row that came to nothing."""
    last_s: float
    """Time of the last one."""
    until_s: float
    """Time of the next try."""
    trainers: int
    """Trainers that it had nevertheless: up to this number nothing is held back."""
    error: str = ""
    """The API server's words; "" where kube-scheduler did not place the trainers."""
    partial: bool = False
    """Whether only a part of the job's first pods was created; that part is taken back."""

    def is_over(self, live: Iterable[Pod], created_s: Callable[[Pod], float]) -> bool:
        """Whether more trainers than before have a node, one created after the last failure."""
        placed = [pod for pod in live if pod.node]
        is_news = any(created_s(pod) > self.last_s for pod in placed)
        return not self.error and is_news and len(placed) > self.trainers

    def allows_move(self, now_s: float) -> bool:
        """Whether the next try is worth a trainer of another job, where no room is free for it."""
        return now_s >= self.last_s + pause_s(*_MOVE_S, failures=self.failures)

    def after_vain(self, in_vain: int) -> "CreationBackoff":
        """The same with a longer pause, for trainers that are of no use to an allowed size."""
        return replace(self, until_s=max(self.until_s, self.last_s + in_vain * _PER_POD_S))


def current(
    backoffs: Mapping[str, CreationBackoff],
    live_by_uid: Mapping[str, Iterable[Pod]],
    created_s: Callable[[Pod], float],
) -> dict[str, CreationBackoff]:
    """Job uid -> its back-off, for the given jobs whose back-off is not over.

    Args:
        backoffs: Those until now, by job uid.
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
    """The back-off after the API server refused trainers.

    It starts anew for a job that had more before: a quota counts the pod until it has ended.

    Args:
        before: The back-off until now.
        error: The API server's words.
        trainers: Number of trainers that the job has.
        in_vain: Of a job that starts, the number of its trainers and parameter servers; without
            the refused trainers they are of no use.
        now_s: The time.
    """
    again = before is not None and before.error and before.trainers <= trainers
    failures = before.failures + 1 if before is not None and again else 1
    first_s, max_s = _PARTIAL_S if in_vain else _REFUSED_S
    wait_s = max(pause_s(first_s, max_s, failures), in_vain * _PER_POD_S)
    count = 0 if in_vain else trainers
    return CreationBackoff(failures, now_s, now_s + wait_s, count, error, partial=in_vain > 0)


def unplaced(before: CreationBackoff | None, *, trainers: int, now_s: float) -> CreationBackoff:
    """The back-off after kube-scheduler did not use the room of trainers; arguments as above."""
    failures = before.failures + 1 if before is not None and not before.error else 1
    return CreationBackoff(
        failures, now_s, now_s + pause_s(*_UNPLACED_S, failures=failures), trainers
    )
