"""Creates and evicts trainer pods.

Every id is reserved in the job's accounting, on the API server, before its pod is created. The write
succeeds only if the accounting has not changed since it was read. So two reconcilers never create the
same trainer, and a pod name never stands for two ids.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from kube import decode, errors, request
from kube.reading import call
from policy.admission.views import PodView
from policy.cluster import trainer_accounting
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import is_surplus
from policy.cluster.snapshot import Job, Pod, TrainerAccounting
from policy.document.model import NodePool
from policy.names import Role, Tier
from policy.planning.plan import Create, Release
from policy.planning.recent_history import RecentHistory
from policy.reasons import Reason
from reconciler.controller_context import ControllerContext
from reconciler.jobs.status import WAITING
from reconciler.jobs.writer import JobWriter, is_lost_race
from reconciler.manifests import trainer as trainer_manifests
from reconciler.quarantine import attempt
from reconciler.trainers.budget_refusals import BudgetRefusals
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
"""Reasons for which a pod is deleted directly, bypassing PodDisruptionBudgets."""


@dataclass(frozen=True, slots=True)
class CreationResult:
    """The result of creating the planned trainers of one job and tier."""

    job: Job
    created: int
    tier: Tier
    error: str = ""
    """Why some trainers were not created, in one line; "" if all were created."""
    refused: bool = False
    """Whether the API server's rules refused these trainers; False for temporary failures."""


class MasterMissing(errors.KubeError):
    """Admission did not add the master to the pod that should host the master."""

    def __str__(self) -> str:
        """Returns only the message, without status and request."""
        return self.message


class TrainerController:
    """Creates and evicts trainer pods, with a back-off for each pod that cannot be evicted.

    Methods are called only on the loop's thread; requests run concurrently in the pool.
    """

    def __init__(self, context: ControllerContext, writer: JobWriter) -> None:
        """Initializes the trainer controller; `writer` writes the accounting."""
        self._context = context
        self._cluster = context.cluster
        self._expectations = context.expectations
        self._pool = context.pool
        self._clock_s = context.clock_s
        self._writer = writer
        self._spare: dict[str, list[int]] = {}
        """Job uid -> reserved ids whose pods the API server refused; later creations use these ids."""
        self._ahead: dict[str, list[int]] = {}
        """Job uid -> ids reserved ahead, in order, for which no pod has been requested."""
        self._backoffs = Backoffs[str](_FIRST_BACKOFF_S, _MAX_BACKOFF_S, calm_s=_MAX_BACKOFF_S)
        """Pod uid -> the pause during which no eviction of the pod is attempted."""
        self._budget_refusals = BudgetRefusals()
        self._evictions: dict[str, tuple[Release, Future[errors.KubeError | None]]] = {}
        """Pod uid -> its release and the eviction in flight."""

    def pending_ids(self, job: Job) -> frozenset[int]:
        """Returns reserved ids whose pods will be created in a later tick."""
        return frozenset(self._spare.get(job.uid, ())) | self.unused_ids(job)

    def unused_ids(self, job: Job) -> frozenset[int]:
        """Returns the pending ids for which no pod was ever requested, so that they may be given back."""
        ahead = self._ahead.get(job.uid)
        return frozenset(self._without_pod(job, ahead)) if ahead else frozenset()

    def forget_given_back(self, job: Job) -> None:
        """Drops reserved ids that the written accounting no longer contains."""
        self._ahead[job.uid] = sorted(self.unused_ids(job))

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._spare.pop(job.uid, None)
        self._ahead.pop(job.uid, None)

    def create(
        self,
        creates: Iterable[Create],
        grace_s: int,
        pools: tuple[NodePool, ...] = (),
        growing: Collection[str] = (),
    ) -> list[CreationResult]:
        """Reserves ids for all jobs, then creates the guaranteed pods, then the surplus pods.

        The pods of one tier are created concurrently. The ids of refused trainers are kept for the next
        attempt.

        Args:
            creates: The plan's creations.
            grace_s: Upper limit for the termination grace period, from the policy.
            pools: The policy's node pools.
            growing: Keys of the jobs that will soon get more trainers. The same write also reserves ids
                for these further trainers.
        """
        jobs = self._cluster.jobs
        endpoints = self._context.endpoints
        due = [create for create in creates if endpoints(jobs[create.job]) is not None]
        # Ids are reserved for all creations of a job in one write, guaranteed trainers first.
        due.sort(key=lambda create: create.tier is Tier.SURPLUS)
        ids, unwritten = self._take_ids(due, growing)
        reserved = [(i, number) for i, numbers in enumerate(ids) for number in numbers]
        created = [0] * len(due)
        refused: set[int] = set()
        problems = {
            i: f"could not write the Job's trainer accounting: {unwritten[create.job]}"
            for i, (create, numbers) in enumerate(zip(due, ids, strict=True))
            if create.job in unwritten and len(numbers) < create.count
        }
        # Count what was created. The ids of refused pods are kept for the next attempt, except for an id
        # whose name another pod has taken.
        answers = self._create_all(due, ids, grace_s, pools)
        for (i, number), answer in zip(reserved, answers, strict=True):
            job = self._cluster.jobs[due[i].job]
            if isinstance(answer, Pod):
                self._expectations.expect_creation(self._cluster, answer, self._clock_s())
                created[i] += 1
            elif isinstance(answer, MasterMissing):
                problems[i] = str(answer)  # the pod existed, so its id is used up
            elif not (isinstance(answer, errors.AlreadyExists) and self._is_taken(job, number)):
                self._spare.setdefault(job.uid, []).append(number)
                problems[i] = str(answer)
                refused |= {i} if errors.is_refusal(answer) else set()
        return [
            CreationResult(
                jobs[create.job],
                created[i],
                create.tier,
                error=problems.get(i, ""),
                refused=i in refused,
            )
            for i, create in enumerate(due)
        ]

    def _create_all(
        self,
        creates: list[Create],
        ids: list[list[int]],
        grace_s: int,
        pools: tuple[NodePool, ...],
    ) -> list[Pod | errors.KubeError]:
        """Returns the answer for each id, in order. Guaranteed pods are created before any surplus pod.

        Otherwise surplus pods could use up the namespace's ResourceQuota, and guaranteed pods be refused.
        """
        requests = [
            partial(
                self._request,
                create,
                trainer_id=number,
                node=node,
                grace_s=grace_s,
                pools=pools,
                first=number == first,
            )
            for create, numbers in zip(creates, ids, strict=True)
            for first in [min(numbers, default=0)]
            for number, node in zip(numbers, create.nodes, strict=False)
        ]
        minimums = sum(
            len(numbers)
            for create, numbers in zip(creates, ids, strict=True)
            if create.tier is not Tier.SURPLUS
        )
        answers = [*self._pool.map(self._create, requests[:minimums])]
        return [*answers, *self._pool.map(self._create, requests[minimums:])]

    def _request(
        self,
        create: Create,
        *,
        trainer_id: int,
        node: str,
        grace_s: int,
        pools: tuple[NodePool, ...],
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
            else trainer_manifests.endpoint_annotations(
                job, endpoints.address, endpoints.servers, endpoints.secret
            ),
            snapshot=endpoints.name if endpoints is not None and create.master and first else "",
            role_pod=None if endpoints is None else endpoints.role_pod(Role.TRAINER, trainer_id),
            node_request=create.node_request,
            scheduling=self._context.scheduling(),
            avoided_nodes=create.avoided_nodes,
            pools=pools,
            low_share=create.low_share,
        )
        return request.create(request.PODS, job.namespace, body)

    def _take_ids(
        self, creates: list[Create], growing: Collection[str]
    ) -> tuple[list[list[int]], dict[str, errors.KubeError]]:
        """Reserves ids on the API server and returns those of each creation; fewer if that write fails.

        Two creations of one job (for its two tiers) share one write. After a lost race, the next plan
        tries again; other errors are returned by job key.
        """
        ids: list[list[int]] = []
        missing: dict[str, int] = {}
        for create in creates:
            job = self._cluster.jobs[create.job]
            # The pod of a spare id may have been created after all, and may even have ended.
            spare = self._without_pod(job, self._spare.pop(job.uid, ()))
            taken = spare[: create.count]
            if spare[create.count :]:
                self._spare[job.uid] = spare[create.count :]
            ids.append(taken + self._take_ahead(job, create.count - len(taken)))
            missing[create.job] = missing.get(create.job, 0) + create.count - len(ids[-1])
        due = {key: count for key, count in missing.items() if count}
        new, failures = self._reserve(due, growing)
        for create, spare_ids in zip(creates, ids, strict=True):
            fresh = new.get(create.job, [])
            count = create.count - len(spare_ids)
            spare_ids.extend(fresh[:count])
            del fresh[:count]
        return ids, failures

    def _without_pod(self, job: Job, ids: Iterable[int]) -> list[int]:
        """Returns the reserved ids that are open and have no pod."""
        members = self._cluster.members.get(job.key, {}).values()
        present_ids = {pod.trainer_id for pod in members if pod.owner_uid == job.uid}
        open_ids = job.accounting.open
        return [number for number in ids if number in open_ids and number not in present_ids]

    def _take_ahead(self, job: Job, count: int) -> list[int]:
        """Returns up to `count` ids that were reserved ahead and are still in the job's accounting."""
        unused = sorted(self.unused_ids(job))
        if unused:
            self._ahead[job.uid] = unused[count:]
        return unused[:count]

    def _reserve(
        self, missing: dict[str, int], growing: Collection[str]
    ) -> tuple[dict[str, list[int]], dict[str, errors.KubeError]]:
        """Returns job key -> new ids if the accounting was written, and job key -> error if it was not."""
        opened: dict[str, tuple[TrainerAccounting, list[int]]] = {}
        for key, count in missing.items():
            job = self._cluster.jobs[key]
            open_count = len(job.accounting.open) + count
            ahead = trainer_accounting.ids_ahead(open_count, job.max_trainers - open_count)
            number = count + (ahead if key in growing else 0)
            accounting, ids = trainer_accounting.reserve(job.accounting, number)
            opened[key] = (accounting, list(ids))
        writes = [(self._cluster.jobs[key], accounting) for key, (accounting, _) in opened.items()]
        ids_by_job: dict[str, list[int]] = {}
        failures: dict[str, errors.KubeError] = {}
        errors_by_job = zip(opened, self._writer.write_accounting(writes, self._pool), strict=True)
        for key, error in errors_by_job:
            if error is None:
                new_ids = opened[key][1]
                ids_by_job[key] = new_ids[: missing[key]]
                self._ahead[self._cluster.jobs[key].uid] = new_ids[missing[key] :]
            elif not is_lost_race(error):
                failures[key] = error
        return ids_by_job, failures

    def _create(self, build: Callable[[], request.Request]) -> Pod | errors.KubeError:
        """Returns the created pod, or the error. Runs on any thread."""
        return attempt(lambda: self._with_master(call(self._context.api, build())))

    def _with_master(self, pod_object: Mapping[str, Any]) -> Pod | errors.KubeError:
        """Returns the created pod; a pod that should host the master but lacks it is deleted again.

        A pod can lack its master because admission fails open. A master cannot be added to an existing pod.
        """
        pod = decode.pod(pod_object)
        if pod.master or not PodView.parse(pod_object).hosts_master:
            return pod
        error = self._context.try_send(
            request.delete(request.PODS, pod.namespace, pod.name, uid=pod.uid)
        )
        if error is not None:
            log.warning(
                "could not delete a trainer created without its master sidecar",
                extra=keys(pod=pod.key, error=str(error)),
            )
        return MasterMissing(
            f"{pod.name} was created without the job's master: EDL's webhook was unavailable, or "
            "runs without --master-image"
        )

    def _is_taken(self, job: Job, trainer_id: int) -> bool:
        """Returns whether a pod already has the trainer's name, so that the id cannot be used.

        The pod may belong to this job, if the response to its creation was lost. It may also belong to a
        StatefulSet or to an earlier Job of the same name, and stay forever. In that case the accounting
        finds no pod for the id and closes the id, and the job gets another one.
        """
        name = trainer_manifests.pod_name(job, trainer_id)
        try:
            pod = self._context.send_for_pod(request.get(request.PODS, job.namespace, name))
        except errors.KubeError:
            return False
        if pod.owner_uid != job.uid:
            log.warning(
                "skipped a trainer id: another pod has its name",
                extra=keys(job=job.key, pod=pod.key, owner=pod.owner_uid),
            )
        return True

    def evict(self, releases: Iterable[Release]) -> list[Release]:
        """Starts evictions without waiting for them; returns all releases that have succeeded by now.

        An eviction can take seconds if the API server retries after a conflict, and the next plan must
        not wait for that. Evictions that a budget refuses are retried later.
        """
        for release in releases:
            if release.uid not in self._evictions and not self._backoffs.is_waiting(
                release.uid, self._clock_s()
            ):
                bypasses = release.reason in _BYPASS_BUDGET or self._is_kept_too_long(release.uid)
                self._expectations.expect_deletion(self._cluster, release.uid, self._clock_s())
                future = self._pool.submit(self._evict, release, bypasses_budget=bypasses)
                self._evictions[release.uid] = (release, future)
        return self.collect_evicted()

    def collect_evicted(self) -> list[Release]:
        """Returns the releases whose eviction has succeeded since the last call; cancels failed releases."""
        done = [uid for uid, (_, future) in self._evictions.items() if future.done()]
        evicted: list[Release] = []
        for uid in done:
            release, future = self._evictions.pop(uid)
            error = future.result()
            if error is None or isinstance(error, errors.NotFound | errors.Conflict):
                self._backoffs.end(uid)
                evicted.append(release)
                continue
            self._backoffs.begin(uid, self._clock_s())
            self._expectations.cancel_deletion(self._cluster, uid)
            if errors.is_of_budget(error):
                self._budget_refusals.record(uid, self._clock_s(), self._cluster.pods)
            log.warning(
                "could not release trainer",
                extra=keys(pod=f"{release.namespace}/{release.pod}", error=str(error)),
            )
        return evicted

    def _is_kept_too_long(self, uid: str) -> bool:
        """Returns whether budgets have kept a surplus trainer longer than allowed."""
        pod = self._cluster.pods.get(uid)
        is_over = self._budget_refusals.last_too_long(uid, self._clock_s())
        return is_over and pod is not None and is_surplus(pod)

    def _evict(self, release: Release, *, bypasses_budget: bool) -> errors.KubeError | None:
        """Evicts through the Eviction API, which honors budgets. Runs on any thread.

        A pod is deleted directly if its job has stopped, if no nodes came for its job's start, or if its
        job's own master or parameter server needs the capacity: the budget protects the job's minimum
        from others, not from itself. A surplus pod that budgets have kept for too long is also deleted directly.
        """
        if bypasses_budget:
            return self._context.delete(release, node_lost="lost_node" in release.figures)
        return self._context.try_send(
            request.evict(release.namespace, release.pod, uid=release.uid)
        )


def record_creations(
    results: Iterable[CreationResult], history: RecentHistory, cluster: ClusterState, now_s: float
) -> None:
    """Records once per job whether the API server accepted its new trainers.

    The next plan reads this (`policy.planning.creation_backoff`).

    Args:
        results: All results of one plan, one for each job and tier.
        history: Receives the records.
        cluster: The cluster state, which already contains the created trainers.
        now_s: Seconds since the epoch.
    """
    results_by_job: dict[str, list[CreationResult]] = {}
    for result in results:
        results_by_job.setdefault(result.job.uid, []).append(result)
    for uid, of_job in results_by_job.items():
        created = sum(result.created for result in of_job)
        job = of_job[0].job
        trainers = len(cluster.trainers(job))
        incomplete = any(result.refused for result in of_job if result.tier is Tier.GUARANTEED)
        error = next((result.error for result in of_job if result.error), "")
        starts = trainers == created or not _had_minimum(job)
        if error or created:
            # If only a part of a starting job's minimum was accepted, the pods created so far are useless:
            # the plan removes them, and the back-off grows with their number.
            in_vain = 0
            if incomplete and starts and trainers < job.min_trainers:
                in_vain = trainers + len(cluster.servers_of(job))
            if not created and any(result.tier is Tier.GUARANTEED for result in of_job):
                history.cancel_gains(uid)
            history.record_creation(uid, error, trainers=trainers, in_vain=in_vain, now_s=now_s)


def _had_minimum(job: Job) -> bool:
    """Returns whether a job has had its minimum at some time since its start, according to its status.

    A job that has been waiting ever since it started has never had its minimum.
    """
    status = job.status
    waits_s = [c.time_s for c in status.conditions if c.type == WAITING and c.status == "True"]
    return status.start_s > 0 and not any(at_s <= status.start_s for at_s in waits_s)
