"""Schedules the polls of masters, and rejects answers of outdated targets. Pure.

Masters run in users' pods and may be slow or send large answers on purpose. So the number of open polls
and the bytes received are limited per namespace. Called by `reconciler.masters.poller`, on its thread.
"""

from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from runtime.backoff import Backoff

EVERY_S = 2.0
"""Minimum interval between two polls of one job."""
MAX_PAUSE_S = 30.0
"""Longest interval between two polls of a master that does not answer."""
MAX_STARTED = 10
"""Maximum number of polls started at once, which limits polls to 100 per second."""
_MAX_OPEN_OF_NAMESPACE = 16
"""Maximum number of open polls per namespace; 32 are allowed in all. A well-behaved master answers within
milliseconds."""
_BYTES_A_SECOND = 1 << 20
"""Bytes per second that the masters of one namespace may send. While a namespace is more than one second's worth
of bytes above this rate, its masters are not polled. Parsing one MiB of empty lists takes 50 to 80 ms, during
which the process does nothing else."""
_AHEAD_S = 1.0


@dataclass(frozen=True, slots=True)
class PollTarget:
    """The address of a job's master; when it changes, the master is polled at once."""

    namespace: str
    config_map: str
    address: str
    """IP address of the pod that hosts the master, or "" if there is none."""
    token: str
    generation: int = 0
    """Increases whenever a new report is expected."""

    def __repr__(self) -> str:
        """Returns the text without the token, which must not appear in logs."""
        return f"PollTarget({self.namespace}/{self.config_map} at {self.address!r})"


@dataclass(slots=True, eq=False)
class Poll:
    """The recurring poll of one job's master."""

    uid: str
    """uid of the job."""
    target: PollTarget
    at_s: float
    """Time of the next poll."""
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
        """Namespace -> the time at which the bytes it has sent so far will be within its rate."""

    def begin(
        self, targets: Mapping[str, PollTarget], now_s: float, free: int, over: Container[str]
    ) -> list[Poll]:
        """Starts the polls that are due, longest overdue first, within the limits per namespace.

        Args:
            targets: Job uid -> its master. Polls of other jobs are dropped.
            now_s: Time of a monotonic clock.
            free: Largest number of polls to start, besides the limit `MAX_STARTED`.
            over: uids of jobs whose final report has arrived; they are not polled again.
        """
        # Poll a changed target (another pod, another token) at once.
        for uid in self._polls.keys() - targets.keys():
            del self._polls[uid]
        for uid, target in targets.items():
            poll = self._polls.get(uid)
            if poll is None or poll.target != target:
                self._polls[uid] = Poll(uid, target, now_s)
        # A master never has two open polls, and namespaces above their rate are skipped.
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
        """Counts the bytes of an answer that a master in the namespace has sent."""
        from_s = max(now_s, self._paid_until_s.get(namespace, now_s))
        self._paid_until_s[namespace] = from_s + count / _BYTES_A_SECOND

    def _paused(self, now_s: float) -> Container[str]:
        """Returns the namespaces whose polls must wait; forgets namespaces that are within their rate."""
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
