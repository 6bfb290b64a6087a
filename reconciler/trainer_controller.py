"""Creates and evicts trainer pods.

Every id is reserved in the job's accounting, on the API server, before its pod is created. The
write succeeds only on the accounting that was read, so two reconcilers never create the same
trainer, and a pod name never stands for two ids.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kube import decode, errors, request
from kube.api import Api
from policy import sidecar, trainer_accounting
from policy.cluster_state import ClusterState
from policy.names import Tier
from policy.plan import Create, Release
from policy.reasons import Reason
from policy.snapshot import Job, Pod, TrainerAccounting
from reconciler.expectations import Expectations
from reconciler.job_objects import JobEndpoints
from reconciler.job_writer import JobWriter
from reconciler.manifests import trainer as trainer_manifests
from runtime.logs import keys

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 1.0
_LAST_BACKOFF_S = 60.0
_TIMEOUT_S = 10.0
_BYPASS_BUDGET = (Reason.JOB_STOPPED, Reason.MASTER_MOVES, Reason.SERVER_MOVES)
"""Reasons to delete a pod directly, which no PodDisruptionBudget can prevent."""


@dataclass(frozen=True, slots=True)
class CreationResult:
    """The outcome of creating the planned trainers of one job and tier."""

    job: Job
    created: int
    tier: Tier
    reason: Reason
    error: str = ""
    """Why not all were created; one line."""


class MasterMissing(errors.KubeError):
    """Admission did not add the master to the pod that should host it."""

    def __str__(self) -> str:
        """The message alone, without status and request."""
        return self.message


class TrainerController:
    """Creates and evicts trainer pods, with a back-off for each job and pod.

    Methods are called on the loop's thread alone; requests run concurrently in `pool`.
    """

    def __init__(
        self,
        api: Api,
        state: ClusterState,
        *,
        expectations: Expectations,
        writer: JobWriter,
        pool: Executor,
        clock_s: Callable[[], float],
        endpoints: Callable[[Job], JobEndpoints | None],
    ) -> None:
        """Starts nothing.

        Args:
            api: Receives the requests.
            state: The cluster state of the loop.
            expectations: Records created and evicted pods.
            writer: Writes the accounting.
            pool: Runs the requests.
            clock_s: Seconds since the epoch.
            endpoints: Addresses of a job's master and servers; None while they are unknown, and
                then no trainer is created.
        """
        self._api = api
        self._state = state
        self._expectations = expectations
        self._writer = writer
        self._pool = pool
        self._clock_s = clock_s
        self._endpoints = endpoints
        self._spare: dict[str, list[int]] = {}
        """Job uid -> reserved ids whose pods the API server refused."""
        self._backoffs: dict[str, tuple[float, float]] = {}
        """Job or pod uid -> (until when nothing is tried, length of the next back-off)."""
        self._evictions: dict[str, tuple[Release, Future[errors.KubeError | None]]] = {}
        """Pod uid -> an eviction in flight."""

    def pending_ids(self, job: Job) -> frozenset[int]:
        """Reserved ids whose pods will be created in a later round."""
        return frozenset(self._spare.get(job.uid, ()))

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._spare.pop(job.uid, None)
        self._backoffs.pop(job.uid, None)

    def create(self, creates: Iterable[Create], grace_s: int) -> list[CreationResult]:
        """Reserves ids for all jobs, then creates all pods; both steps run concurrently.

        After a refusal the job is backed off, and its ids are kept for the next try.
        """
        due = [create for create in creates if self._is_due(self._state.jobs[create.job])]
        ids = self._take_ids(due)
        reserved = [(i, number) for i, numbers in enumerate(ids) for number in numbers]
        requests = [
            self._request(create, number, node, grace_s, first=number == min(numbers))
            for create, numbers in zip(due, ids, strict=True)
            for number, node in zip(numbers, create.nodes, strict=False)
        ]
        created = [0] * len(due)
        refusals: dict[int, errors.KubeError] = {}
        answers = self._pool.map(self._create, requests)
        for (i, number), answer in zip(reserved, answers, strict=True):
            job = self._state.jobs[due[i].job]
            if isinstance(answer, Pod):
                self._expectations.expect_creation(self._state, answer, self._clock_s())
                created[i] += 1
            elif isinstance(answer, MasterMissing):
                refusals[i] = answer  # the pod existed, so its id is used
            elif not (isinstance(answer, errors.AlreadyExists) and self._exists(job, number)):
                self._spare.setdefault(job.uid, []).append(number)
                refusals[i] = answer
        results = [self._result(due[i], created[i], refusals.get(i)) for i in range(len(due))]
        self._back_off_refused(results)
        return results

    def _result(
        self, create: Create, created: int, refusal: errors.KubeError | None
    ) -> CreationResult:
        job = self._state.jobs[create.job]
        error = "" if refusal is None else str(refusal)
        return CreationResult(job, created, create.tier, create.reason, error)

    def _back_off_refused(self, results: Iterable[CreationResult]) -> None:
        """Backs a job off once, whichever tiers were refused; success in all tiers resets it."""
        refused = {result.job.uid for result in results if result.error}
        for uid in refused:
            self._back_off(uid)
        for uid in {result.job.uid for result in results if result.created} - refused:
            self._backoffs.pop(uid, None)

    def _request(
        self, create: Create, trainer_id: int, node: str, grace_s: int, *, first: bool
    ) -> request.Request:
        job = self._state.jobs[create.job]
        endpoints = self._endpoints(job)
        body = trainer_manifests.pod(
            job,
            trainer_id,
            create.tier,
            node,
            grace_s,
            endpoints=None
            if endpoints is None
            else trainer_manifests.endpoint_annotations(job, endpoints.address, endpoints.servers),
            master=create.master and first,
        )
        return request.create(request.PODS, job.namespace, body)

    def _is_due(self, job: Job) -> bool:
        return not self._is_backed_off(job.uid) and self._endpoints(job) is not None

    def _take_ids(self, creates: list[Create]) -> list[list[int]]:
        """Ids for each creation, reserved on the API server; fewer where that write fails.

        Two creations of one job (two tiers) share one write.
        """
        ids: list[list[int]] = []
        missing: dict[str, int] = {}
        for create in creates:
            job = self._state.jobs[create.job]
            spare = self._unused(job)
            ids.append(spare[: create.count])
            if spare[create.count :]:
                self._spare[job.uid] = spare[create.count :]
            missing[create.job] = missing.get(create.job, 0) + create.count - len(ids[-1])
        new = self._reserve({key: count for key, count in missing.items() if count})
        for create, spare_ids in zip(creates, ids, strict=True):
            fresh = new.get(create.job, [])
            count = create.count - len(spare_ids)
            spare_ids.extend(fresh[:count])
            del fresh[:count]
        return ids

    def _unused(self, job: Job) -> list[int]:
        """Spare ids without those whose pod was created after all, and may even have ended."""
        members = self._state.members.get(job.key, {}).values()
        present_ids = {pod.trainer_id for pod in members if pod.owner_uid == job.uid}
        spare = self._spare.pop(job.uid, [])
        open_ids = job.accounting.open
        return [number for number in spare if number in open_ids and number not in present_ids]

    def _reserve(self, missing: dict[str, int]) -> dict[str, list[int]]:
        """Job key -> new ids, for the jobs whose accounting could be written."""
        opened: dict[str, tuple[TrainerAccounting, list[int]]] = {}
        for key, count in missing.items():
            accounting, ids = trainer_accounting.reserve(self._state.jobs[key].accounting, count)
            opened[key] = (accounting, list(ids))
        writes = [(self._state.jobs[key], accounting) for key, (accounting, _) in opened.items()]
        written = self._writer.write_accounting(writes, self._pool)
        return {key: ids for (key, (_, ids)), ok in zip(opened.items(), written, strict=True) if ok}

    def _create(self, create_request: request.Request) -> Pod | errors.KubeError:
        try:
            answer = self._api.send(replace(create_request, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            return error
        return self._with_master(orjson.loads(answer))

    def _with_master(self, pod_object: Mapping[str, Any]) -> Pod | errors.KubeError:
        """The created pod; one that should host the master and lacks it is deleted again.

        Admission fails open, and a master cannot be added later.
        """
        pod = decode.pod(pod_object)
        if not pod.master or sidecar.has_sidecar(pod_object):
            return pod
        delete_request = request.delete(request.PODS, pod.namespace, pod.name, uid=pod.uid)
        try:
            self._api.send(replace(delete_request, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            log.warning(
                "trainer without the master not deleted",
                extra=keys(pod=pod.key, error=str(error)),
            )
        return MasterMissing(
            f"{pod.name} was created without the job's master: EDL's webhook is away, or was "
            "started without --master-image"
        )

    def _exists(self, job: Job, trainer_id: int) -> bool:
        """Whether the existing pod belongs to this job, whose answer about it was lost."""
        name = trainer_manifests.pod_name(job, trainer_id)
        read_request = request.get(request.PODS, job.namespace, name)
        try:
            answer = self._api.send(replace(read_request, timeout_s=_TIMEOUT_S))
            pod = decode.pod(orjson.loads(answer))
        except errors.KubeError:
            return False
        return pod.owner_uid == job.uid

    def evict(self, releases: Iterable[Release]) -> list[Release]:
        """Starts evictions without waiting for them; returns all that have succeeded by now.

        An eviction can take seconds where the API server retries after a conflict, and the next
        plan must not wait for that. Evictions that a budget refuses are tried again later.
        """
        for release in releases:
            if release.uid not in self._evictions and not self._is_backed_off(release.uid):
                self._expectations.expect_deletion(self._state, release.uid, self._clock_s())
                self._evictions[release.uid] = (release, self._pool.submit(self._evict, release))
        return self.collect_evicted()

    def collect_evicted(self) -> list[Release]:
        """Releases whose eviction has succeeded since the last call; failed ones are cancelled."""
        done = [uid for uid, (_, future) in self._evictions.items() if future.done()]
        evicted: list[Release] = []
        for uid in done:
            release, future = self._evictions.pop(uid)
            error = future.result()
            if error is None or isinstance(error, errors.NotFound | errors.Conflict):
                self._backoffs.pop(uid, None)
                evicted.append(release)
                continue
            self._back_off(uid)
            self._expectations.cancel_deletion(self._state, uid)
            log.warning(
                "trainer not released",
                extra=keys(pod=f"{release.namespace}/{release.pod}", error=str(error)),
            )
        return evicted

    def _evict(self, release: Release) -> errors.KubeError | None:
        """Evicts through the Eviction API, which honours budgets; on any thread.

        Pods of a stopped job are deleted directly, and so is one whose capacity its own master or
        parameter server needs: the budget protects the job's minimum from others, not from itself.
        On a lost node the deletion has no grace period: no kubelet would confirm the end of the
        pod, and meanwhile the Service would send trainers to a dead master.
        """
        if release.reason in _BYPASS_BUDGET:
            lost = "lost_node" in release.figures
            api_request = request.delete(
                request.PODS,
                release.namespace,
                release.pod,
                uid=release.uid,
                grace_s=0 if lost else None,
            )
        else:
            api_request = request.evict(release.namespace, release.pod, uid=release.uid)
        try:
            self._api.send(replace(api_request, timeout_s=_TIMEOUT_S))
        except errors.KubeError as error:
            return error
        return None

    def _is_backed_off(self, uid: str) -> bool:
        return self._backoffs.get(uid, (0.0, 0.0))[0] > self._clock_s()

    def _back_off(self, uid: str) -> None:
        now_s = self._clock_s()
        _, delay_s = self._backoffs.get(uid, (0.0, _FIRST_BACKOFF_S))
        self._backoffs[uid] = (now_s + delay_s, min(_LAST_BACKOFF_S, delay_s * 2))
        for old in [u for u, (until_s, d) in self._backoffs.items() if until_s + d < now_s]:
            del self._backoffs[old]
