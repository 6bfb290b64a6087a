"""Learns what the API server makes of a job's trainers, by a dry run of one creation.

Admission may change a trainer or refuse it: sidecar injectors, LimitRanges, RuntimeClasses, quotas,
Pod Security, policies. The plan counts with what comes out, and a job whose trainer would be
refused is not started; nor is one that lacks objects of its own. Every generation of a template is
tried once, and again after some minutes.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
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
"""Dry runs at one time: half of the writers, so that hanging webhooks do not stop writes."""
_IN_FLIGHT_PER_NAMESPACE = 3
"""A webhook that hangs for one namespace leaves a slot for the others."""
_PER_TICK = 32
_WAIT_S = 0.2
"""Answers usually take milliseconds."""
_TIMEOUT_S = 5.0
_HOLD_S = 10.0
"""How long a job waits for its first answer before it starts without."""
_REFRESH_S = 600.0
_REFUSED_S = (1.0, 60.0)
_FAILED_S = (5.0, 300.0)
"""First and longest pause after a refusal, and after a dry run that failed itself."""


@dataclass(frozen=True, slots=True)
class TrainerShape:
    """The amounts that the scheduler and quotas count for one trainer."""

    requests: Resources
    limits: Resources
    constraints: Constraints


@dataclass(slots=True)
class _Finding:
    """The newest knowledge about the trainers of one job."""

    namespace: str
    template_json: bytes
    since_s: float
    asked_s: float = 0.0
    """When the newest answer came."""
    answered: bool = False
    """Whether any answer came, or a failure to get one."""
    failures: int = 0
    """Answers in a row that were refusals or failures."""
    refusal: str = ""
    shape: TrainerShape | None = None
    """From the newest answer that was a pod; None before the first."""
    newest: tuple[int, Resources] = (-1, {})
    """Highest id of a trainer that was seen, and its requests until they are out of date."""
    newest_lives: bool = False
    """Whether a live trainer had these requests when the job was last looked at."""
    started: bool = False
    """Whether the job had trainers when it was last looked at."""
    template: TrainerShape | None = None
    """What the template says itself; None before it has been read."""
    applied: tuple[Job, LiveTrainers, str | None] | None = None
    """The job, its trainers and what it lacks when nothing was left to put into the job."""

    @property
    def due_s(self) -> float:
        """When to ask again; of a job with trainers, their creations show refusals anyway."""
        if not self.answered:
            return 0.0
        if self.refusal and not self.started:
            return self.asked_s + pause_s(*_REFUSED_S, self.failures)
        if self.failures and not self.refusal:
            return self.asked_s + pause_s(*_FAILED_S, self.failures)
        return self.asked_s + _REFRESH_S

    def record(self, answer: TrainerShape | errors.KubeError, now_s: float) -> None:
        """Takes in an answer. A dry run that failed itself tells nothing and stops nothing.

        So does the refusal of one more trainer of a job that has some: it may fill its quota.
        """
        self.asked_s, self.answered, self.applied = now_s, True, None
        if not self.newest_lives:
            self.newest = self.newest[0], {}
        if isinstance(answer, errors.KubeError):
            refused = errors.is_refusal(answer)
            self.failures = 0 if refused and self.started else self.failures + 1
            self.refusal = str(answer) if refused and not self.started else ""
            return
        self.failures, self.refusal = 0, ""
        if self.shape is not None and _is_smaller(answer.requests, self.shape.requests):
            self.newest = self.newest[0], {}
        self.shape = answer


class TrainerProbe:
    """Keeps the findings of all jobs. Used on the loop's thread alone."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterState,
        pool: Executor,
        quarantine: Quarantine,
        lack: Callable[[Job], str | None] = lambda _: None,
    ) -> None:
        """Sends nothing yet.

        Args:
            api: Receives the dry runs.
            cluster: Its jobs get what is learned.
            pool: Runs the requests.
            quarantine: For jobs whose data leads to an error.
            lack: Which of a job's own objects cannot be created, in one line; "" while nobody has
                tried, None where it has all. Without them no pod of the job is created.
        """
        self._quarantine = quarantine
        self._lack = lack
        self.wait_s = _WAIT_S
        """How long one tick waits for answers; others come with the next."""
        self._api = api
        self._cluster = cluster
        self._pool = pool
        self._findings: dict[str, _Finding] = {}
        """Job uid -> what is known."""
        self._in_flight: dict[Future[TrainerShape | errors.KubeError], _Finding] = {}
        """Answer to come -> where it belongs."""

    @property
    def is_waiting(self) -> bool:
        """Whether answers are still to come, so that the next tick should be soon."""
        return bool(self._in_flight)

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._findings.pop(job.uid, None)

    def update(self, now_s: float, grace_s: int) -> None:
        """Sends the dry runs that are due, and puts what is known into the jobs of the cluster.

        Args:
            now_s: Seconds since the epoch.
            grace_s: The policy's cap on the termination grace.
        """
        jobs = [job for job in self._cluster.jobs.values() if _is_probed(job)]
        due: list[Job] = []
        for job in jobs:
            with self._quarantine.contain(job):
                due += [job] if self._is_due(job, now_s) else []
        self._ask(self._in_order(due)[:_PER_TICK], now_s, grace_s)
        for job in jobs:
            with self._quarantine.contain(job):
                self._apply(job, self._findings[job.uid], now_s)

    def _in_order(self, due: list[Job]) -> list[Job]:
        """Jobs that wait come first; among them, namespaces take turns."""
        return sorted(in_turns(due), key=lambda job: bool(self._cluster.trainers(job)))

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
        """Sends dry runs, a few at a time, until all are answered or the tick's time is over."""
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
        """Takes the last job from the queue for which a slot is free; None where there is none."""
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
        """Puts what is known into a job, unless neither it nor its trainers have changed."""
        trainers = self._cluster.live_trainers(job)
        lack = self._lack(job)
        applied_job, applied_trainers, applied_lack = finding.applied or (None, None, None)
        if applied_job is job and applied_trainers is trainers and applied_lack == lack:
            return
        _see_newest(trainers, finding)
        template = finding.template = finding.template or _shape(_template_spec(job))
        shape = finding.shape or template
        held = not finding.answered and now_s - finding.since_s < _HOLD_S
        known = replace(
            job,
            requests=amounts.largest(template.requests, shape.requests, finding.newest[1]),
            limits=shape.limits,
            constraints=shape.constraints,
            refusal=lack or ("" if trainers.pods else finding.refusal),
            unprobed=lack == "" or (held and not trainers.pods),
        )
        if known != job:
            self._cluster.put_job(known)
        if not held:
            now = self._cluster.jobs[job.key]
            finding.applied = now, self._cluster.live_trainers(now), lack


def _is_probed(job: Job) -> bool:
    return job.managed and not (job.stopped or job.error)


def _template_spec(job: Job) -> Mapping[str, Any]:
    template: Mapping[str, Any] = job.template
    return template.get("spec") or {}


def _shape(spec: Mapping[str, Any]) -> TrainerShape:
    return TrainerShape(podspec.requests(spec), podspec.limits(spec), podspec.constraints(spec))


def _see_newest(trainers: LiveTrainers, finding: _Finding) -> None:
    """Records the newest trainer's requests, unless it hosts the master, which makes it larger."""
    others = [pod for pod in trainers.pods if not pod.master]
    for pod in others:
        if pod.trainer_id > finding.newest[0]:
            finding.newest = (pod.trainer_id, pod.requests)
    finding.newest_lives = any(pod.requests == finding.newest[1] for pod in others)


def _is_smaller(requests: Resources, before: Resources) -> bool:
    """Whether a trainer requests less of a resource than before."""
    return any(requests.get(name, 0) < amount for name, amount in before.items())


def _dry_run(job: Job, grace_s: int) -> request.Request:
    tier = Tier.GUARANTEED if job.min_trainers else Tier.SURPLUS
    body = trainer_manifests.pod(job, job.accounting.next_id, tier, "", grace_s)
    created = request.create(request.PODS, job.namespace, body, dry_run=True)
    return replace(created, timeout_s=_TIMEOUT_S)
