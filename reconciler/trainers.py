"""Makes trainers and lets them go: the writes that change how many there are.

Every id is entered in the job's books, on the API server, before its pod is made; the write
names the books it was decided on, so two reconcilers can never make the same trainer, and a
pod name stands for one id for ever.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kube import decode, errors, request
from kube.client import Api
from policy import books, sidecar
from policy.index import Index
from policy.names import Tier
from policy.planning import Release
from policy.reasons import Reason
from policy.snapshot import Books, Job, Pod
from reconciler import pods
from reconciler.actions import MakeTrainers
from reconciler.expectations import Expectations
from reconciler.jobs import JobWriter
from reconciler.provider import Provision
from runtime.logs import keys

log = logging.getLogger(__name__)

_FIRST_HOLD_S = 1.0
_LAST_HOLD_S = 60.0
_TIMEOUT_S = 10.0
_PLAINLY = (Reason.JOB_STOPPED, Reason.MASTER_MOVES, Reason.SERVER_MOVES)
"""Reasons for which budgets are not asked."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of making trainers of one job."""

    job: Job
    made: int
    tier: Tier
    reason: Reason
    error: str = ""
    """Why not all were made; one line."""


class MasterMissing(errors.KubeError):
    """Admission did not add the master to the pod that was to carry it."""

    def __str__(self) -> str:
        """One line."""
        return self.message


class Trainers:
    """Owned by the loop's thread; the calls themselves run side by side in `pool`."""

    def __init__(
        self,
        api: Api,
        index: Index,
        *,
        expectations: Expectations,
        writer: JobWriter,
        pool: Executor,
        clock_s: Callable[[], float],
        provided: Callable[[Job], Provision | None],
    ) -> None:
        """Starts nothing.

        Args:
            api: Where writes go.
            index: The loop's own.
            expectations: Learn what was done.
            writer: Of the books.
            pool: Where calls run.
            clock_s: Seconds since the epoch.
            provided: Where a job's trainers find their master and servers; None while that is not
                known, and then none is made.
        """
        self._api = api
        self._index = index
        self._expectations = expectations
        self._writer = writer
        self._pool = pool
        self._clock_s = clock_s
        self._provided = provided
        self._spare: dict[str, list[int]] = {}
        """Job uid -> ids that are in the books and whose pods the API server refused."""
        self._holds: dict[str, tuple[float, float]] = {}
        """Job or pod uid -> (until when nothing is tried, how long the next hold is)."""
        self._leaving: dict[str, tuple[Release, Future[errors.KubeError | None]]] = {}
        """Pod uid -> an eviction that is under way."""

    def coming(self, job: Job) -> frozenset[int]:
        """Ids in the books that wait for a next try."""
        return frozenset(self._spare.get(job.uid, ()))

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        self._spare.pop(uid, None)
        self._holds.pop(uid, None)

    def make(self, actions: Iterable[MakeTrainers], grace_s: int) -> list[Outcome]:
        """Enters ids in the books of all jobs, then creates all pods, each side by side.

        After a refusal a job is held back for a while; its ids are kept for the next try.
        """
        due = [action for action in actions if self._is_due(self._index.jobs[action.job])]
        ids = self._take_ids(due)
        wanted = [(i, number) for i, numbers in enumerate(ids) for number in numbers]
        asked = [
            self._request(action, number, node, grace_s, first=number == min(numbers))
            for action, numbers in zip(due, ids, strict=True)
            for number, node in zip(numbers, action.nodes, strict=False)
        ]
        made = [0] * len(due)
        refusals: dict[int, errors.KubeError] = {}
        for (i, number), answer in zip(wanted, self._pool.map(self._create, asked), strict=True):
            job = self._index.jobs[due[i].job]
            if isinstance(answer, Pod):
                self._expectations.made(self._index, answer, self._clock_s())
                made[i] += 1
            elif isinstance(answer, MasterMissing):
                refusals[i] = answer  # its id is used up: the pod was there
            elif not (isinstance(answer, errors.AlreadyExists) and self._exists(job, number)):
                self._spare.setdefault(job.uid, []).append(number)
                refusals[i] = answer
        outcomes = [self._outcome(due[i], made[i], refusals.get(i)) for i in range(len(due))]
        self._hold_refused(outcomes)
        return outcomes

    def _outcome(
        self, action: MakeTrainers, made: int, refusal: errors.KubeError | None
    ) -> Outcome:
        job = self._index.jobs[action.job]
        error = "" if refusal is None else str(refusal)
        return Outcome(job, made, action.tier, action.reason, error)

    def _hold_refused(self, outcomes: Iterable[Outcome]) -> None:
        """Holds a job back once, whichever of its tiers was refused; success in all ends it."""
        refused = {outcome.job.uid for outcome in outcomes if outcome.error}
        for uid in refused:
            self._hold(uid)
        for uid in {outcome.job.uid for outcome in outcomes if outcome.made} - refused:
            self._holds.pop(uid, None)

    def _request(
        self, action: MakeTrainers, trainer_id: int, node: str, grace_s: int, *, first: bool
    ) -> request.Request:
        job = self._index.jobs[action.job]
        known = self._provided(job)
        body = pods.trainer(
            job,
            trainer_id,
            action.tier,
            node,
            grace_s,
            told=pods.told(job, known.address, known.servers) if known is not None else None,
            master=action.master and first,
        )
        return request.create(request.PODS, job.namespace, body)

    def _is_due(self, job: Job) -> bool:
        return not self._held(job.uid) and self._provided(job) is not None

    def _take_ids(self, actions: list[MakeTrainers]) -> list[list[int]]:
        """For each action as many ids, in the books on the API server; none where that write fails.

        Two actions of one job (two tiers) share one write.
        """
        ids: list[list[int]] = []
        missing: dict[str, int] = {}
        for action in actions:
            job = self._index.jobs[action.job]
            spare = self._unused(job)
            ids.append(spare[: action.count])
            if spare[action.count :]:
                self._spare[job.uid] = spare[action.count :]
            missing[action.job] = missing.get(action.job, 0) + action.count - len(ids[-1])
        new = self._reserve({key: count for key, count in missing.items() if count})
        for action, taken in zip(actions, ids, strict=True):
            fresh = new.get(action.job, [])
            count = action.count - len(taken)
            taken.extend(fresh[:count])
            del fresh[:count]
        return ids

    def _unused(self, job: Job) -> list[int]:
        """Spare ids, without those whose pod came after all: it may even have ended by now."""
        members = self._index.members.get(job.key, {}).values()
        there = {pod.trainer_id for pod in members if pod.owner_uid == job.uid}
        spare = self._spare.pop(job.uid, [])
        return [number for number in spare if number in job.books.open and number not in there]

    def _reserve(self, missing: dict[str, int]) -> dict[str, list[int]]:
        """Job key -> new ids, where the books could be written."""
        opened: dict[str, tuple[Books, list[int]]] = {}
        for key, count in missing.items():
            entered, ids = books.reserve(self._index.jobs[key].books, count)
            opened[key] = (entered, list(ids))
        writes = [(self._index.jobs[key], entered) for key, (entered, _) in opened.items()]
        written = self._writer.write_books(writes, self._pool)
        return {key: ids for (key, (_, ids)), ok in zip(opened.items(), written, strict=True) if ok}

    def _create(self, asked: request.Request) -> Pod | errors.KubeError:
        try:
            answer = self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            return error
        return self._with_master(orjson.loads(answer))

    def _with_master(self, made: Mapping[str, Any]) -> Pod | errors.KubeError:
        """The pod that was made; one that was to get a master and did not is taken back.

        Admission fails open, and a master cannot be added later.
        """
        pod = decode.pod(made)
        if not pod.master or sidecar.carried(made):
            return pod
        taken_back = request.delete(request.PODS, pod.namespace, pod.name, uid=pod.uid)
        try:
            self._api.send(replace(taken_back, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            log.warning(
                "trainer without its master stays", extra=keys(pod=pod.key, error=str(error))
            )
        return MasterMissing(
            f"{pod.name} came without the job's master: EDL's webhook is away, or was started "
            "without --master-image"
        )

    def _exists(self, job: Job, trainer_id: int) -> bool:
        """Whether the pod that is there already is this job's own, made by a lost answer."""
        asked = request.get(request.PODS, job.namespace, pods.name(job, trainer_id))
        try:
            pod = decode.pod(orjson.loads(self._api.send(replace(asked, timeout_s=_TIMEOUT_S))))
        except errors.KubeError:
            return False
        return pod.owner_uid == job.uid

    def let_go(self, releases: Iterable[Release]) -> list[Release]:
        """Begins to evict trainers and does not wait; which of all begun so far have gone.

        An eviction can take seconds where the API server meets a conflict and sleeps on it, and
        the next plan must not wait for that. What a budget refuses is tried again later.
        """
        for release in releases:
            if release.uid not in self._leaving and not self._held(release.uid):
                self._expectations.released(self._index, release.uid, self._clock_s())
                self._leaving[release.uid] = (release, self._pool.submit(self._evict, release))
        return self.collect()

    def collect(self) -> list[Release]:
        """The trainers whose eviction ended well since the last look; others are put back."""
        done = [uid for uid, (_, future) in self._leaving.items() if future.done()]
        went: list[Release] = []
        for uid in done:
            release, future = self._leaving.pop(uid)
            error = future.result()
            if error is None or isinstance(error, errors.NotFound | errors.Conflict):
                self._holds.pop(uid, None)
                went.append(release)
                continue
            self._hold(uid)
            self._expectations.kept(self._index, uid)
            log.warning(
                "trainer not released",
                extra=keys(pod=f"{release.namespace}/{release.pod}", error=str(error)),
            )
        return went

    def _evict(self, release: Release) -> errors.KubeError | None:
        """Through the Eviction API, which honours budgets.

        The pods of a stopped job just go, and so does one that its own master or parameter server
        needs the room of: the budget keeps the job's minimum from others, not from itself. Nobody
        on a lost node would confirm its end, and meanwhile the Service would send trainers to a
        dead master.
        """
        if release.reason in _PLAINLY:
            lost = "lost_node" in release.figures
            asked = request.delete(
                request.PODS,
                release.namespace,
                release.pod,
                uid=release.uid,
                grace_s=0 if lost else None,
            )
        else:
            asked = request.evict(release.namespace, release.pod, uid=release.uid)
        try:
            self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            return error
        return None

    def _held(self, uid: str) -> bool:
        return self._holds.get(uid, (0.0, 0.0))[0] > self._clock_s()

    def _hold(self, uid: str) -> None:
        _, delay_s = self._holds.get(uid, (0.0, _FIRST_HOLD_S))
        self._holds[uid] = (self._clock_s() + delay_s, min(_LAST_HOLD_S, delay_s * 2))
        for old in [u for u, (until, d) in self._holds.items() if until + d < self._clock_s()]:
            del self._holds[old]
