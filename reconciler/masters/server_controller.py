"""Creates and deletes parameter servers as planned, and reports those that are not ready.

The plan decides which servers are missing and where they run. A lost pod is created again under the same
name at once, with a growing back-off if it is lost repeatedly. The kubelet restarts a process that exits.
Called by `reconciler.loop`.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from kube import errors, request
from policy.cluster.snapshot import Job, Pod, ServerSpec
from policy.names import SERVER_CONTAINER, Role, server_name
from policy.planning.plan import Plan, ReleaseServer
from reconciler.controller_context import ControllerContext
from reconciler.expectations import PATIENCE_S
from reconciler.manifests import server as server_manifests
from reconciler.masters.job_objects import JobEndpoints
from reconciler.quarantine import attempt
from reconciler.records.events import Event
from runtime.backoff import Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

SILENT_S = 60.0
"""A server that has not been ready for this long gets an event."""
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
CALM_S = 300.0
"""Losses further apart than this do not increase the back-off."""
_NO_IMAGE = ".image: Required"
"""Part of the API server's error for a pod to which admission has added no image."""


@dataclass(frozen=True, slots=True)
class _ServerRequest:
    """A parameter server to create now."""

    job: Job
    spec: ServerSpec
    number: int
    node: str
    endpoints: JobEndpoints


@dataclass(slots=True)
class _NotReady:
    """The time since which a server has not been ready, and whether an event has reported it."""

    since_s: float
    reported: bool = False


class ServerController:
    """Creates and deletes the pods of parameter servers, with a back-off for each server.

    Methods are called only on the loop's thread; requests run concurrently in `pool`.
    """

    def __init__(self, context: ControllerContext) -> None:
        """Initializes the server controller."""
        self._context = context
        self._cluster = context.cluster
        self._expectations = context.expectations
        self._pool = context.pool
        self._clock_s = context.clock_s
        self._backoffs = Backoffs[tuple[str, int]](FIRST_PAUSE_S, MAX_PAUSE_S, CALM_S)
        """(Job uid, index) -> the pause during which a server that was created is not created again."""
        self._delete_again_s: dict[str, float] = {}
        """Pod uid -> earliest time to request its deletion again."""
        self._not_ready: dict[tuple[str, int], _NotReady] = {}

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        for key in [key for key in self._backoffs if key[0] == job.uid]:
            self._backoffs.end(key)

    def apply(self, plan: Plan, grace_s: int) -> list[Event]:
        """Deletes and creates servers as planned; returns events about the results."""
        self._release(plan.server_releases)
        now_s = self._clock_s()
        due = [
            _ServerRequest(job, job.servers, number, node, endpoints)
            for create in plan.server_creates
            if (job := self._cluster.jobs[create.job]).servers is not None
            and (endpoints := self._context.endpoints(job)) is not None
            for number, node in zip(create.numbers, create.nodes, strict=True)
            if self._is_due(job, number, now_s)
        ]
        answers = self._pool.map(lambda server: self._create(server, grace_s), due)
        return self._record_answers(list(zip(due, answers, strict=True)))

    def check_readiness(self, now_s: float) -> list[Event]:
        """Returns events about servers that have not been ready for `SILENT_S`, one for each server."""
        events: list[Event] = []
        all_not_ready: dict[tuple[str, int], _NotReady] = {}
        for job in self._cluster.jobs.values():
            pods = {pod.server: pod for pod in self._cluster.servers_of(job) if not pod.deleting}
            for number in range(self._cluster.server_count(job)):
                pod = pods.get(number)
                if pod is not None and pod.ready:
                    continue
                key = (job.uid, number)
                not_ready = self._not_ready.get(key, _NotReady(now_s))
                all_not_ready[key] = not_ready
                if now_s - not_ready.since_s >= SILENT_S and not not_ready.reported:
                    not_ready.reported = True
                    events.append(_not_ready_event(job, number, pod, now_s - not_ready.since_s))
        self._not_ready = all_not_ready
        return events

    def _release(self, releases: Iterable[ReleaseServer]) -> None:
        now_s = self._clock_s()
        self._delete_again_s = {
            uid: until_s for uid, until_s in self._delete_again_s.items() if until_s > now_s
        }
        due = [release for release in releases if release.uid not in self._delete_again_s]
        for release, error in zip(due, self._pool.map(self._delete, due), strict=True):
            self._delete_again_s[release.uid] = now_s + PATIENCE_S
            deleted = error is None or isinstance(error, errors.NotFound | errors.Conflict)
            if deleted:
                self._expectations.expect_deletion(self._cluster, release.uid, now_s)
            log.info(
                "parameter server deleted" if deleted else "could not delete parameter server",
                extra=keys(
                    job=release.job, pod=release.pod, reason=release.reason, error=str(error or "")
                ),
            )

    def _delete(self, release: ReleaseServer) -> errors.KubeError | None:
        return self._context.delete(release, node_lost=release.node_lost)

    def _is_due(self, job: Job, number: int, now_s: float) -> bool:
        """Returns whether a server may be created now; if so, starts its next back-off."""
        key = (job.uid, number)
        if self._backoffs.is_waiting(key, now_s):
            return False
        self._backoffs.begin(key, now_s)
        return True

    def _create(self, server: _ServerRequest, grace_s: int) -> Pod | str:
        """Returns the created pod, or a one-line error. Runs on any thread."""
        answer = attempt(lambda: self._create_or_adopt(server, grace_s))
        return str(answer) if isinstance(answer, errors.KubeError) else answer

    def _create_or_adopt(self, server: _ServerRequest, grace_s: int) -> Pod | str:
        job = server.job
        body = server_manifests.pod(
            job,
            server.spec,
            server.number,
            server.node,
            grace_s,
            secret=server.endpoints.secret,
            role_pod=server.endpoints.role_pod(Role.PSERVER),
            scheduling=self._context.scheduling(),
        )
        try:
            return self._context.send_for_pod(request.create(request.PODS, job.namespace, body))
        except errors.AlreadyExists:
            return self._adopt(job, body["metadata"]["name"])
        except errors.KubeError as error:
            text = str(error)
            if _NO_IMAGE in text:
                return (
                    f"{body['metadata']['name']} has no image: EDL's webhook was unavailable, or "
                    "runs without --master-image"
                )
            return text

    def _adopt(self, job: Job, name: str) -> Pod | str:
        """Returns the existing pod if it belongs to this Job: it was created, but the response was lost."""
        try:
            existing = self._context.send_for_pod(request.get(request.PODS, job.namespace, name))
        except errors.KubeError as error:
            return str(error)
        if existing.owner_uid == job.uid:
            return existing
        return f"Pod {name} does not belong to this Job: delete it, or rename the Job"

    def _record_answers(self, answers: list[tuple[_ServerRequest, Pod | str]]) -> list[Event]:
        """Records the created pods; returns one event for each job and outcome."""
        created: dict[str, list[_ServerRequest]] = {}
        refused: dict[str, tuple[Job, str]] = {}
        for server, answer in answers:
            if isinstance(answer, Pod):
                self._expectations.expect_creation(self._cluster, answer, self._clock_s())
                created.setdefault(server.job.key, []).append(server)
            else:
                refused[server.job.key] = (server.job, answer)
                log.warning(
                    "could not create parameter server",
                    extra=keys(job=server.job.key, index=server.number, error=answer),
                )
        events = [
            Event(group[0].job, "ServersMade", _created_text([server.number for server in group]))
            for group in created.values()
        ]
        return events + [
            Event(job, "ServersRefused", text, warning=True) for job, text in refused.values()
        ]


def _created_text(numbers: list[int]) -> str:
    names = ", ".join(str(number) for number in sorted(numbers))
    return f"Created parameter server{'s' if len(numbers) > 1 else ''} {names}"


def _not_ready_event(job: Job, number: int, pod: Pod | None, silent_s: float) -> Event:
    subject = f"Parameter server {number} has not been ready for {silent_s:.0f} s"
    if pod is None:
        text = f"{subject}: it has no pod, because no node has capacity or its creation failed"
    elif not pod.node:
        name = server_name(job.name, number)
        text = f"{subject}: see kubectl -n {job.namespace} describe pod {name}"
    else:
        text = f"{subject}: see kubectl -n {job.namespace} logs {pod.name} -c {SERVER_CONTAINER}"
    return Event(job, "ServerSilent", text, warning=True)
