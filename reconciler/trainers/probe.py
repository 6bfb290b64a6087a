"""Finds out how the API server changes or refuses a job's trainers, with a dry run of one creation.

Sidecar injectors, LimitRanges, RuntimeClasses, quotas, Pod Security and admission policies can change or refuse
a pod. The plan uses the resulting requests. A job is not started if its trainers would be refused, or if its
Services and similar objects are missing. Each version of a template is tried once, and again after some minutes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from kube import errors, podspec, request
from kube.api import Api
from kube.reading import call
from policy.backoff import pause_s
from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.live_trainers import LiveTrainers
from policy.cluster.snapshot import Constraints, Job, Resources
from policy.names import Tier
from reconciler.manifests import trainer as trainer_manifests
from reconciler.quarantine import Quarantine, attempt
from reconciler.turns import in_turns
from runtime import clock

_IN_FLIGHT = 4
"""Concurrent dry runs: half of the writers, so that hanging webhooks do not block writes."""
_IN_FLIGHT_PER_NAMESPACE = 3
"""Concurrent dry runs of one namespace: fewer, so that a webhook that hangs for it leaves a slot for others."""
_PER_TICK = 32
_WAIT_S = 0.2
"""How long one tick waits for answers, which usually take milliseconds."""
_TIMEOUT_S = 5.0
_HOLD_S = 10.0
"""How long a job waits for its first answer before it starts without one."""
_REFRESH_S = 600.0
_FIRST_REFUSED_PAUSE_S = 1.0
_MAX_REFUSED_PAUSE_S = 60.0
"""Longest pause after the API server refused the pod."""
_FIRST_FAILED_PAUSE_S = 5.0
_MAX_FAILED_PAUSE_S = 300.0
"""Longest pause after the dry run itself failed, for example by a time-out."""


@dataclass(frozen=True, slots=True)
class TrainerShape:
    """The amounts that the scheduler and quotas count for one trainer."""

    requests: Resources
    limits: Resources
    constraints: Constraints


@dataclass(frozen=True, slots=True)
class _Applied:
    """The input of an update that put all findings into a job."""

    job: Job
    trainers: LiveTrainers
    lack: str | None

    def is_same(self, job: Job, trainers: LiveTrainers, lack: str | None) -> bool:
        """Returns whether an update with this input would change nothing."""
        return self.job is job and self.trainers is trainers and self.lack == lack


@dataclass(slots=True)
class _Finding:
    """The latest findings about the trainers of one job."""

    namespace: str
    template_json: bytes
    since_s: float
    asked_s: float = 0.0
    """Time of the latest answer."""
    answered: bool = False
    """Whether there has been an answer or a failed attempt."""
    failures: int = 0
    """Number of consecutive refusals or failures."""
    refusal: str = ""
    shape: TrainerShape | None = None
    """The amounts in the latest answer that was a pod; None before the first such answer."""
    newest_id: int = -1
    """Highest id of a trainer seen so far."""
    newest_requests: Resources = field(default_factory=dict)
    """Requests of the trainer with that id; empty once they are out of date."""
    newest_lives: bool = False
    """Whether a live trainer had `newest_requests` at the last check."""
    started: bool = False
    """Whether the job had trainers at the last check."""
    template: TrainerShape | None = None
    """The amounts in the template itself; None before it was read."""
    applied: _Applied | None = None
    """The input of the last update; None if an update is needed."""

    @property
    def due_s(self) -> float:
        """Time of the next dry run.

        After a refusal, a job with trainers has no early retry, because creating its trainers shows
        refusals anyway.
        """
        if not self.answered:
            return 0.0
        if self.refusal and not self.started:
            return self.asked_s + pause_s(
                _FIRST_REFUSED_PAUSE_S, _MAX_REFUSED_PAUSE_S, self.failures
            )
        if self.failures and not self.refusal:
            return self.asked_s + pause_s(_FIRST_FAILED_PAUSE_S, _MAX_FAILED_PAUSE_S, self.failures)
        return self.asked_s + _REFRESH_S

    def record(self, answer: TrainerShape | errors.KubeError, now_s: float) -> None:
        """Records an answer. Only a refusal of a job without trainers keeps the job from starting.

        A dry run that fails for another reason proves nothing. A refusal proves nothing if the job already
        has trainers, because these may have used up its quota.
        """
        self.asked_s, self.answered, self.applied = now_s, True, None
        if not self.newest_lives:
            self.newest_requests = {}
        if isinstance(answer, errors.KubeError):
            refused = errors.is_refusal(answer)
            self.failures = 0 if refused and self.started else self.failures + 1
            self.refusal = str(answer) if refused and not self.started else ""
            return
        self.failures, self.refusal = 0, ""
        if self.shape is not None and _is_smaller(answer.requests, self.shape.requests):
            self.newest_requests = {}
        self.shape = answer


class TrainerProbe:
    """Keeps the findings about all jobs. Used only on the loop's thread."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterState,
        pool: Executor,
        quarantine: Quarantine,
        lack: Callable[[Job], str | None] = lambda _: None,
    ) -> None:
        """Initializes the trainer probe.

        Args:
            api: Sends the dry runs.
            cluster: The cluster state, whose jobs are updated with the findings.
            pool: Runs the requests.
            quarantine: Receives jobs whose data causes errors.
            lack: Returns in one line which of the job's own objects could not be created, "" before the
                first attempt, or None if all exist. Without them no pod of the job is created.
        """
        self._quarantine = quarantine
        self._lack = lack
        self.wait_s = _WAIT_S
        """How long one tick waits for answers; later ones are read by the next tick."""
        self._api = api
        self._cluster = cluster
        self._pool = pool
        self._findings: dict[str, _Finding] = {}
        """Job uid -> its findings."""
        self._in_flight: dict[Future[TrainerShape | errors.KubeError], _Finding] = {}
        """Dry run in flight -> the findings to update."""

    @property
    def is_waiting(self) -> bool:
        """Whether dry runs are in flight, so that the next tick should be soon."""
        return bool(self._in_flight)

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._findings.pop(job.uid, None)

    def update(self, now_s: float, grace_s: int) -> None:
        """Sends the dry runs that are due, and updates the jobs of the cluster state with the findings.

        Args:
            now_s: Seconds since the epoch.
            grace_s: Upper limit for the termination grace period, from the policy.
        """
        jobs = [
            job
            for job in self._cluster.jobs.values()
            if job.managed and not (job.stopped or job.error)
        ]
        due: list[Job] = []
        for job in jobs:
            with self._quarantine.contain(job):
                due += [job] if self._is_due(job, now_s) else []
        # Namespaces take turns, and jobs without trainers come first, because they wait for the answer.
        ordered = sorted(in_turns(due), key=lambda job: bool(self._cluster.trainers(job)))
        self._ask(ordered[:_PER_TICK], now_s, grace_s)
        for job in jobs:
            with self._quarantine.contain(job):
                self._apply(job, self._findings[job.uid], now_s)

    def _is_due(self, job: Job, now_s: float) -> bool:
        finding = self._findings.get(job.uid)
        if finding is None or finding.template_json != job.template_json:
            finding = self._findings[job.uid] = _Finding(job.namespace, job.template_json, now_s)
        finding.template_json = job.template_json
        if any(asked is finding for asked in self._in_flight.values()):
            return False
        finding.started = bool(self._cluster.trainers(job))
        return now_s >= finding.due_s

    def _ask(self, jobs: list[Job], now_s: float, grace_s: int) -> None:
        """Sends dry runs, a few at a time, until all are answered or the time limit of the tick is reached."""
        queue = jobs[::-1]
        end_s = clock.monotonic_s() + self.wait_s
        self._collect(now_s)
        while queue or self._in_flight:
            while (job := self._next(queue)) is not None:
                future = self._pool.submit(self._send, job, grace_s)
                self._in_flight[future] = self._findings[job.uid]
            remaining_s = end_s - clock.monotonic_s()
            if remaining_s <= 0 or not jobs:
                return
            wait(self._in_flight, remaining_s, FIRST_COMPLETED)
            self._collect(now_s)

    def _next(self, queue: list[Job]) -> Job | None:
        """Takes the last job whose namespace has a free slot from the queue; returns None if there is none."""
        busy = Counter(finding.namespace for finding in self._in_flight.values())
        if busy.total() < _IN_FLIGHT:
            for position in reversed(range(len(queue))):
                if busy[queue[position].namespace] < _IN_FLIGHT_PER_NAMESPACE:
                    return queue.pop(position)
        return None

    def _send(self, job: Job, grace_s: int) -> TrainerShape | errors.KubeError:
        return attempt(lambda: _shape(call(self._api, _dry_run(job, grace_s))["spec"]))

    def _collect(self, now_s: float) -> None:
        for future in [future for future in self._in_flight if future.done()]:
            self._in_flight.pop(future).record(future.result(), now_s)

    def _apply(self, job: Job, finding: _Finding, now_s: float) -> None:
        """Updates a job with the findings, unless neither it nor its trainers have changed."""
        trainers = self._cluster.live_trainers(job)
        lack = self._lack(job)
        if finding.applied is not None and finding.applied.is_same(job, trainers, lack):
            return
        _see_newest(trainers, finding)
        template = finding.template = finding.template or _shape(_template_spec(job))
        shape = finding.shape or template
        held = not finding.answered and now_s - finding.since_s < _HOLD_S
        known = replace(
            job,
            requests=amounts.largest(template.requests, shape.requests, finding.newest_requests),
            limits=shape.limits,
            constraints=shape.constraints,
            refusal=lack or ("" if trainers.pods else finding.refusal),
            unprobed=lack == "" or (held and not trainers.pods),
        )
        if known != job:
            self._cluster.put_job(known)
        if not held:
            now = self._cluster.jobs[job.key]
            finding.applied = _Applied(now, self._cluster.live_trainers(now), lack)


def _template_spec(job: Job) -> Mapping[str, Any]:
    template: Mapping[str, Any] = job.template
    return template.get("spec") or {}


def _shape(spec: Mapping[str, Any]) -> TrainerShape:
    return TrainerShape(podspec.requests(spec), podspec.limits(spec), podspec.constraints(spec))


def _see_newest(trainers: LiveTrainers, finding: _Finding) -> None:
    """Records the newest trainer's requests, except for the master's host, whose requests are larger."""
    others = [pod for pod in trainers.pods if not pod.master]
    for pod in others:
        if pod.trainer_id > finding.newest_id:
            finding.newest_id = pod.trainer_id
            finding.newest_requests = pod.requests
    finding.newest_lives = any(pod.requests == finding.newest_requests for pod in others)


def _is_smaller(requests: Resources, before: Resources) -> bool:
    """Returns whether a trainer requests less of some resource than before."""
    return any(requests.get(name, 0) < amount for name, amount in before.items())


def _dry_run(job: Job, grace_s: int) -> request.Request:
    tier = Tier.GUARANTEED if job.min_trainers else Tier.SURPLUS
    body = trainer_manifests.pod(job, job.accounting.next_id, tier, "", grace_s)
    created = request.create(request.PODS, job.namespace, body, dry_run=True)
    return replace(created, timeout_s=_TIMEOUT_S)
