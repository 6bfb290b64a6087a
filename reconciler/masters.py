"""Looks after the masters of jobs that asked for one: what they need, where they are, what they say.

Which pod carries a master is the plan's decision; here is everything else. Who calls:
`reconciler.loop`.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from kube.client import Api
from policy import sidecar
from policy.index import Index
from policy.names import MASTER_CONTAINER
from policy.snapshot import Job, Phase, Pod
from reconciler.commitments import Commitments
from reconciler.events import Event
from reconciler.polls import Polls
from reconciler.provider import Provider, Provision
from reconciler.turns import Target
from reconciler.words import Word

_NO_MASTER = Provision("", "")
SILENT_S = 60.0
"""A master that says nothing for so long is worth an event."""


@dataclass(slots=True)
class _Seen:
    """What was told of a job."""

    succeeded: int
    """Trainers that had ended well when somebody was last told."""
    silent: bool = False


class Masters:
    """Owned by the loop's thread."""

    def __init__(
        self,
        api: Api,
        index: Index,
        *,
        changed: Callable[[], None],
        clock_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Starts nothing.

        Args:
            api: The API server.
            index: The loop's own.
            changed: Called on any thread when a job turns out to be over, or to be led by another
                trainer.
            clock_s: Seconds since the epoch.
            monotonic_s: For waiting.
        """
        self._index = index
        self._provider = Provider(api)
        self._commitments = Commitments(api)
        self._polls = Polls(api, changed=changed, clock_s=clock_s, monotonic_s=monotonic_s)
        self._words: dict[str, Word] = {}
        self._seen: dict[str, _Seen] = {}

    def start(self) -> None:
        """Begins to ask masters; once only."""
        self._polls.start()

    def stop(self) -> None:
        """Asks no more."""
        self._polls.stop()

    def rest(self) -> None:
        """Asks nobody until the next round: this process must not act."""
        self._polls.follow({})

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        self._provider.forget(uid)
        self._seen.pop(uid, None)

    def provided(self, job: Job) -> Provision | None:
        """Where a job's trainers find their master and servers; None while that is not known."""
        return self._provider.of(job) if job.master else _NO_MASTER

    def word(self, job: Job) -> Word | None:
        """The newest word of a job's master."""
        return self._words.get(job.uid)

    def look(self, now_s: float, pool: Executor) -> list[Event]:
        """One round: makes what is missing, hears what masters say; what to tell people."""
        jobs = [job for job in self._index.jobs.values() if _wants(job)]
        events = self._provider.ensure(jobs, now_s, pool)
        self._polls.follow({job.uid: target for job in jobs if (target := self._target(job))})
        self._words = self._polls.words()
        self._commitments.write(jobs, self._index, self._words, now_s, pool)
        for job in jobs:
            events += self._news(job, now_s)
        return events

    def _target(self, job: Job) -> Target | None:
        made = self._provider.of(job)
        if made is None:
            return None
        carrier = self._index.carrier(job)
        address = carrier.address if carrier is not None else ""
        name = sidecar.object_name(job.name)
        return Target(job.namespace, name, address, made.token, job.books.succeeded)

    def _news(self, job: Job, now_s: float) -> list[Event]:
        seen = self._seen.setdefault(job.uid, _Seen(job.books.succeeded))
        word = self._words.get(job.uid)
        early = _early(job, word, seen) if word is not None else []
        carrier = self._index.carrier(job)
        return early if carrier is None else [*early, *_silence(job, carrier, word, seen, now_s)]


def _early(job: Job, word: Word, seen: _Seen) -> list[Event]:
    """Trainers that ended well while their master, asked since, still had work for them."""
    more = job.books.succeeded - seen.succeeded
    if more <= 0 or word.final or word.at_s <= job.books.last_failure_s:
        return []
    seen.succeeded = job.books.succeeded
    text = (
        f"{more} trainers ended with exit code 0 while the master still has work; they are "
        "replaced after a while: a trainer is to go on until its master says done"
    )
    return [Event(job, "TrainersEndedEarly", text, warning=True)]


def _silence(job: Job, carrier: Pod, word: Word | None, seen: _Seen, now_s: float) -> list[Event]:
    """Once, a master that has not answered for long although its pod runs."""
    heard_s = max(carrier.started_s, word.at_s if word is not None else 0.0)
    silent = carrier.phase is Phase.RUNNING and now_s - heard_s >= SILENT_S
    told, seen.silent = seen.silent, silent
    if told or not silent or (word is not None and word.final):
        return []
    text = (
        f"the master has not answered for {now_s - heard_s:.0f} s: see "
        f"kubectl -n {carrier.namespace} logs {carrier.name} -c {MASTER_CONTAINER}"
    )
    return [Event(job, "MasterSilent", text, warning=True)]


def _wants(job: Job) -> bool:
    return job.master and job.managed and not (job.error or job.over or job.deleting)
