"""Schedules the polls of masters, and rejects answers of outdated targets. Pure.

Masters are programs of users, which may be slow and verbose on purpose. So the masters of one namespace have a
part of the polls that are open at one time, and of what is received.

Called by `reconciler.masters.poller`, on its thread.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from runtime.backoff import Backoff

EVERY_S = 2.0
"""Minimum interval between two polls of one job."""
MAX_PAUSE_S = 30.0
"""The longest interval between two polls of a master that does not answer."""
MAX_STARTED = 10
"""Polls started at one time: at most 100 a second in all."""
_MAX_OPEN_OF_NAMESPACE = 16
"""Polls of one namespace that are open at one time, of 32 in all; an honest master answers within milliseconds."""
_BYTES_A_SECOND = 1 << 20
"""What the masters of one namespace answer; those that are ahead by more than a second of it wait. To parse a MiB of
empty lists takes 50 to 80 ms, in which nothing else of the process runs."""
_AHEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class PollTarget:
    """The master of a job as polls reach it; a changed target is polled at once."""

    namespace: str
    config_map: str
    address: str
    """IP address of the pod that hosts the master; "" where there is none."""
    token: str
    generation: int = 0
    """Grows whenever a new report is expected."""

    def __repr__(self) -> str:
        """The text without the token, which must not appear in logs."""
        return f"PollTarget({self.namespace}/{self.config_map} at {self.address!r})"


@dataclass(slots=True, eq=False)
class Poll:
    """The repeated poll of one target of one job."""

    uid: str
    """uid of the job."""
    target: PollTarget
    at_s: float
    """When it is polled next."""
    pause_s: float = EVERY_S
    backoff: Backoff = field(default_factory=lambda: Backoff(2 * EVERY_S, MAX_PAUSE_S))
    """The intervals while the master does not answer."""
    open: bool = False
    """Whether a request is in flight."""


class PollSchedule:
    """The polls of all jobs, with a back-off for masters that do not answer."""

    def __init__(self) -> None:
        self._polls: dict[str, Poll] = {}
        self._paid_until_s: dict[str, float] = {}
        """Namespace -> when its masters have answered no more than they may."""

    def begin(
        self, targets: Mapping[str, PollTarget], now_s: float, free: int, over: Container[str]
    ) -> list[Poll]:
        """Starts the polls that are due, those that have waited longest first, within the parts of their namespaces.

        Args:
            targets: Job uid -> its master. Jobs that are not in it are dropped.
            now_s: Time of a monotonic clock.
            free: How many polls may be started, at most `MAX_STARTED`.
            over: Uids of jobs whose final report has arrived: they are not polled again.
        """
        for uid in self._polls.keys() - targets.keys():
            del self._polls[uid]
        for uid, target in targets.items():
            poll = self._polls.get(uid)
            if poll is None or poll.target != target:
                self._polls[uid] = Poll(uid, target, now_s)
        paused = self._paused(now_s)
        due = [
            poll
            for poll in self._polls.values()
            if poll.at_s <= now_s
            and not (poll.open or poll.uid in over or poll.target.namespace in paused)
        ]
        due.sort(key=lambda poll: poll.at_s)
        open_counts = Counter(poll.target.namespace for poll in self._polls.values() if poll.open)
        started: list[Poll] = []
        for poll in due:
            namespace = poll.target.namespace
            if (
                len(started) < min(MAX_STARTED, free)
                and open_counts[namespace] < _MAX_OPEN_OF_NAMESPACE
            ):
                poll.open = True
                open_counts[namespace] += 1
                started.append(poll)
        return started

    def charge(self, namespace: str, count: int, now_s: float) -> None:
        """Notes that a master of a namespace has answered so many bytes."""
        from_s = max(now_s, self._paid_until_s.get(namespace, now_s))
        self._paid_until_s[namespace] = from_s + count / _BYTES_A_SECOND

    def _paused(self, now_s: float) -> Container[str]:
        """The namespaces whose masters have answered more than they may; those without a backlog are forgotten."""
        self._paid_until_s = {
            namespace: until_s
            for namespace, until_s in self._paid_until_s.items()
            if until_s > now_s
        }
        return {
            namespace
            for namespace, until_s in self._paid_until_s.items()
            if until_s > now_s + _AHEAD_S
        }

    def end(self, poll: Poll, now_s: float, *, answered: bool) -> bool:
        """Ends a poll; returns whether its target is still current, so that the answer counts.

        Args:
            poll: A poll that `begin` returned.
            now_s: Time of a monotonic clock.
            answered: Whether the master itself answered; if not, the interval doubles.
        """
        poll.open = False
        if answered:
            poll.backoff.reset()
        poll.pause_s = EVERY_S if answered else poll.backoff.next_s()
        poll.at_s = now_s + poll.pause_s
        return self._polls.get(poll.uid) is poll
