"""Creates and evicts trainer pods.

Every id is reserved in the job's accounting, on the API server, before its pod is created. The
write succeeds only on the accounting that was read, so two reconcilers never create the same
trainer, and a pod name never stands for two ids.
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import orjson

from kube import decode, errors, request
from policy import sidecar, trainer_accounting
from policy.model import NodePool
from policy.names import Tier
from policy.plan import Create, Release
from policy.reasons import Reason
from policy.snapshot import Job, Pod, TrainerAccounting
from reconciler.controller_context import ControllerContext
from reconciler.job_writer import JobWriter, is_lost_race
from reconciler.manifests import trainer as trainer_manifests
from runtime.backoff import Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0
_BYPASS_BUDGET = (
    Reason.JOB_STOPPED,
    Reason.MASTER_MOVES,
    Reason.SERVER_MOVES,
    Reason.NODES_NOT_ADDED,
    Reason.START_REFUSED,
)
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
    refused: bool = False
    """Whether the API server's rules are why, and not a failure that passes."""


class MasterMissing(errors.KubeError):
    """Admission did not add the master to the pod that should host it."""

    def __str__(self) -> str:
        """The message alone, without status and request."""
        return self.message


class TrainerController:
    """Creates and evicts trainer pods, with a back-off for each pod that cannot be evicted.

    Methods are called on the loop's thread alone; requests run concurrently in `pool`.
    """

    def __init__(self, context: ControllerContext, writer: JobWriter) -> None:
        """Starts nothing; `writer` writes the accounting."""
        self._context = context
        self._cluster = context.cluster
        self._expectations = context.expectations
        self._pool = context.pool
        self._clock_s = context.clock_s
        self._writer = writer
        self._spare: dict[str, list[int]] = {}
        """Job uid -> reserved ids whose pods the API server refused."""
        self._backoffs = Backoffs[str](_FIRST_BACKOFF_S, _MAX_BACKOFF_S, calm_s=_MAX_BACKOFF_S)
        """By pod uid: when no eviction is tried."""
        self._evictions: dict[str, tuple[Release, Future[errors.KubeError | None]]] = {}
        """Pod uid -> an eviction in flight."""

    def pending_ids(self, job: Job) -> frozenset[int]:
        """Reserved ids whose pods will be created in a later tick."""
        return frozenset(self._spare.get(job.uid, ()))

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._spare.pop(job.uid, None)

    def create(
        self, creates: Iterable[Create], grace_s: int, pools: tuple[NodePool, ...] = ()
    ) -> list[CreationResult]:
        """Reserves ids for all jobs, then creates all pods; both steps run concurrently.

        The ids of refused trainers are kept for the next try. `pools` are the policy's.
        """
        jobs = self._cluster.jobs
        due = [
            create for create in creates if self._context.endpoints(jobs[create.job]) is not None
        ]
        ids, unwritten = self._take_ids(due)
        reserved = [(i, number) for i, numbers in enumerate(ids) for number in numbers]
        requests = [
            self._request(create, number, node, grace_s, pools, first=number == min(numbers))
            for create, numbers in zip(due, ids, strict=True)
            for number, node in zip(numbers, create.nodes, strict=False)
        ]
        created = [0] * len(due)
        refused: set[int] = set()
        problems = {
            i: f"the Job's trainer accounting cannot be written: {unwritten[create.job]}"
            for i, (create, numbers) in enumerate(zip(due, ids, strict=True))
            if create.job in unwritten and len(numbers) < create.count
        }
        answers = self._pool.map(self._create, requests)
        for (i, number), answer in zip(reserved, answers, strict=True):
            job = self._cluster.jobs[due[i].job]
            if isinstance(answer, Pod):
                self._expectations.expect_creation(self._cluster, answer, self._clock_s())
                created[i] += 1
            elif isinstance(answer, MasterMissing):
                problems[i] = str(answer)  # the pod existed, so its id is used
            elif not (isinstance(answer, errors.AlreadyExists) and self._is_taken(job, number)):
                self._spare.setdefault(job.uid, []).append(number)
                problems[i] = str(answer)
                refused |= {i} if errors.is_refusal(answer) else set()
        return [
            CreationResult(
                jobs[create.job],
                created[i],
                create.tier,
                create.reason,
                error=problems.get(i, ""),
                refused=i in refused,
            )
            for i, create in enumerate(due)
        ]

    def _request(
        self,
        create: Create,
        trainer_id: int,
        node: str,
        grace_s: int,
        pools: tuple[NodePool, ...],
        *,
        first: bool,
    ) -> request.Request:
        job = self._cluster.jobs[create.job]
        endpoints = self._context.endpoints(job)
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
            node_request=create.node_request,
            scheduling=self._context.scheduling(),
            avoided_nodes=create.avoided_nodes,
            pools=pools,
        )
        return request.create(request.PODS, job.namespace, body)

    def _take_ids(
        self, creates: list[Create]
    ) -> tuple[list[list[int]], dict[str, errors.KubeError]]:
        """Ids for each creation, reserved on the API server; fewer where that write fails.

        Two creations of one job (two tiers) share one write. After a lost race, the next plan tries
        again; other failures are returned, by job key.
        """
        ids: list[list[int]] = []
        missing: dict[str, int] = {}
        for create in creates:
            job = self._cluster.jobs[create.job]
            spare = self._unused(job)
            ids.append(spare[: create.count])
            if spare[create.count :]:
                self._spare[job.uid] = spare[create.count :]
            missing[create.job] = missing.get(create.job, 0) + create.count - len(ids[-1])
        new, failures = self._reserve({key: count for key, count in missing.items() if count})
        for create, spare_ids in zip(creates, ids, strict=True):
            fresh = new.get(create.job, [])
            count = create.count - len(spare_ids)
            spare_ids.extend(fresh[:count])
            del fresh[:count]
        return ids, failures

    def _unused(self, job: Job) -> list[int]:
        """Spare ids without those whose pod was created after all, and may even have ended."""
        members = self._cluster.members.get(job.key, {}).values()
        present_ids = {pod.trainer_id for pod in members if pod.owner_uid == job.uid}
        spare = self._spare.pop(job.uid, [])
        open_ids = job.accounting.open
        return [number for number in spare if number in open_ids and number not in present_ids]

    def _reserve(
        self, missing: dict[str, int]
    ) -> tuple[dict[str, list[int]], dict[str, errors.KubeError]]:
        """Job key -> new ids where the accounting could be written; job key -> why it could not."""
        opened: dict[str, tuple[TrainerAccounting, list[int]]] = {}
        for key, count in missing.items():
            accounting, ids = trainer_accounting.reserve(self._cluster.jobs[key].accounting, count)
            opened[key] = (accounting, list(ids))
        writes = [(self._cluster.jobs[key], accounting) for key, (accounting, _) in opened.items()]
        ids_by_job: dict[str, list[int]] = {}
        failures: dict[str, errors.KubeError] = {}
        errors_by_job = zip(opened, self._writer.write_accounting(writes, self._pool), strict=True)
        for key, error in errors_by_job:
            if error is None:
                ids_by_job[key] = opened[key][1]
            elif not is_lost_race(error):
                failures[key] = error
        return ids_by_job, failures

    def _create(self, create_request: request.Request) -> Pod | errors.KubeError:
        try:
            answer = self._context.api.send(create_request)
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
        error = self._context.try_send(
            request.delete(request.PODS, pod.namespace, pod.name, uid=pod.uid)
        )
        if error is not None:
            log.warning(
                "trainer without the master not deleted",
                extra=keys(pod=pod.key, error=str(error)),
            )
        return MasterMissing(
            f"{pod.name} was created without the job's master: EDL's webhook is away, or was "
            "started without --master-image"
        )

    def _is_taken(self, job: Job, trainer_id: int) -> bool:
        """Whether a pod has the trainer's name, so that the id cannot be used any more.

        It is this job's, whose answer was lost, or a foreign one that may stay for ever: of an
        earlier Job of the name, or of a StatefulSet. In the second case the accounting finds no pod
        of the id and closes it, and the job gets another id.
        """
        name = trainer_manifests.pod_name(job, trainer_id)
        try:
            pod = self._context.send_for_pod(request.get(request.PODS, job.namespace, name))
        except errors.KubeError:
            return False
        if pod.owner_uid != job.uid:
            log.warning(
                "trainer id skipped: a foreign pod has the name",
                extra=keys(job=job.key, pod=pod.key, owner=pod.owner_uid),
            )
        return True

    def evict(self, releases: Iterable[Release]) -> list[Release]:
        """Starts evictions without waiting for them; returns all that have succeeded by now.

        An eviction can take seconds where the API server retries after a conflict, and the next
        plan must not wait for that. Evictions that a budget refuses are tried again later.
        """
        for release in releases:
            if release.uid not in self._evictions and not self._is_backed_off(release.uid):
                self._expectations.expect_deletion(self._cluster, release.uid, self._clock_s())
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
                self._backoffs.end(uid)
                evicted.append(release)
                continue
            self._back_off(uid)
            self._expectations.cancel_deletion(self._cluster, uid)
            log.warning(
                "trainer not released",
                extra=keys(pod=f"{release.namespace}/{release.pod}", error=str(error)),
            )
        return evicted

    def _evict(self, release: Release) -> errors.KubeError | None:
        """Evicts through the Eviction API, which honours budgets; on any thread.

        Pods of a stopped job are deleted directly, and so are those of a start for which no nodes
        came, and one whose capacity its own master or parameter server needs: the budget protects the
        job's minimum from others, not from itself.
        """
        if release.reason in _BYPASS_BUDGET:
            return self._context.delete(release, node_lost="lost_node" in release.figures)
        return self._context.try_send(
            request.evict(release.namespace, release.pod, uid=release.uid)
        )

    def _is_backed_off(self, uid: str) -> bool:
        return self._backoffs.is_waiting(uid, self._clock_s())

    def _back_off(self, uid: str) -> None:
        self._backoffs.begin(uid, self._clock_s())
