"""Manages the masters of jobs: creates their objects, polls them, and reports events about them.

Only the choice of the pod that hosts a master is made elsewhere, by the plan. Called by `reconciler.loop`.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from kube.api import Api
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, Phase, Pod
from policy.document.model import Policy
from policy.names import MASTER_CONTAINER
from reconciler.masters.job_objects import JobEndpoints, JobObjects
from reconciler.masters.poll_schedule import PollTarget
from reconciler.masters.poller import MasterPoller
from reconciler.masters.reports import MasterReport
from reconciler.quarantine import Quarantine
from reconciler.records.events import Event
from reconciler.trainers.uncommitted_annotations import UncommittedAnnotator

_NO_MASTER = JobEndpoints("", "")
SILENT_S = 60.0
"""A master that has not answered for this long gets an event."""
_STAMP_S = 1.0
"""Resolution of the times in pods and Jobs."""


@dataclass(slots=True)
class _Reported:
    """The facts about a job that events have already reported."""

    succeeded: int
    """Number of succeeded trainers at the last event."""
    silent: bool = False


class MasterController:
    """Manages masters: their objects, polls and annotations. Used only on the loop's thread."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterState,
        *,
        poll_api: Api,
        namespace: str,
        policy: Callable[[], Policy],
        changed: Callable[[], None],
        clock_s: Callable[[], float],
        monotonic_s: Callable[[], float],
        quarantine: Quarantine,
    ) -> None:
        """Initializes the master controller.

        Args:
            api: Sends the requests of the loop.
            cluster: The cluster state, which the loop keeps up to date.
            poll_api: Sends the requests of the polling threads.
            namespace: EDL's namespace.
            policy: Returns the policy in effect.
            changed: Called on any thread when a master reports the end of its job, or a new leader.
            clock_s: Returns the seconds since the epoch.
            monotonic_s: Schedules the polls.
            quarantine: Receives jobs whose data causes errors.
        """
        self._quarantine = quarantine
        self._cluster = cluster
        self._job_objects = JobObjects(api, namespace, lambda: policy().network_policies)
        self._annotator = UncommittedAnnotator(api)
        self._poller = MasterPoller(
            poll_api, changed=changed, clock_s=clock_s, monotonic_s=monotonic_s
        )
        self._reports: dict[str, MasterReport] = {}
        self._reported: dict[str, _Reported] = {}

    def start(self) -> None:
        """Starts to poll masters; may be called once."""
        self._poller.start()

    def stop(self) -> None:
        """Stops polling."""
        self._poller.stop()

    def pause(self) -> None:
        """Stops polling until the next tick, because this process must not act."""
        self._poller.set_targets({})

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._job_objects.forget(job)
        self._reported.pop(job.uid, None)

    def endpoints(self, job: Job) -> JobEndpoints | None:
        """Returns the addresses of a job's master and servers, or None until its objects exist."""
        return self._job_objects.endpoints(job) if _has_objects(job) else _NO_MASTER

    def lack(self, job: Job) -> str | None:
        """Returns what prevents the creation of a job's pods, as `JobObjects.lack` does, or None."""
        return self._job_objects.lack(job) if _has_objects(job) else None

    def report(self, job: Job) -> MasterReport | None:
        """Returns the newest report of a job's master."""
        return self._reports.get(job.uid)

    @property
    def has_deferred_jobs(self) -> bool:
        """Whether the objects of some jobs were deferred to the next tick, which should be soon."""
        return self._job_objects.has_deferred_jobs

    def reconcile(self, now_s: float, pool: Executor) -> list[Event]:
        """Runs one tick: creates missing objects and reads reports; returns events about both."""
        active = [job for job in self._cluster.jobs.values() if _is_active(job)]
        events = self._job_objects.ensure(filter(_has_objects, active), now_s, pool)
        jobs = [job for job in active if job.edl_master]
        self._poller.set_targets({job.uid: target for job in jobs if (target := self._target(job))})
        self._reports = self._poller.reports()
        self._annotator.write(jobs, self._cluster, self._reports, now_s, pool)
        for job in jobs:
            with self._quarantine.contain(job):
                events += self._events(job, now_s)
        return events

    def _target(self, job: Job) -> PollTarget | None:
        endpoints = self._job_objects.endpoints(job)
        if endpoints is None:
            return None
        host_pod = self._cluster.master_host(job)
        address = host_pod.address if host_pod is not None else ""
        return PollTarget(
            job.namespace, endpoints.name, address, endpoints.token, job.accounting.succeeded
        )

    def _silence(self, job: Job, host_pod: Pod, silent_s: float) -> Event:
        """Returns the event about a master that does not answer."""
        endpoints = self._job_objects.endpoints(job)
        if endpoints is not None and self._poller.refuses_token(job.uid):
            text = (
                f"The master's token differs from that in Secret {endpoints.secret}, so EDL cannot "
                "read its status. The job continues; EDL reads its end from its ConfigMap"
            )
        else:
            text = (
                f"The master has not answered for {silent_s:.0f} s: see kubectl "
                f"-n {host_pod.namespace} logs {host_pod.name} -c {MASTER_CONTAINER}"
            )
        return Event(job, "MasterSilent", text, warning=True)

    def _events(self, job: Job, now_s: float) -> list[Event]:
        reported = self._reported.setdefault(job.uid, _Reported(job.accounting.succeeded))
        report = self._reports.get(job.uid)
        events = _early_exit_events(job, report, reported) if report is not None else []
        host_pod = self._cluster.master_host(job)
        if host_pod is not None:
            started_s = self._cluster.first_seen.started_s(host_pod, now_s)
            host_pod = replace(host_pod, started_s=started_s)
            silent_s = _unreported_silence_s(host_pod, report, reported, now_s)
            events += [self._silence(job, host_pod, silent_s)] if silent_s else []
        return events


def _early_exit_events(job: Job, report: MasterReport, reported: _Reported) -> list[Event]:
    """Returns an event if trainers succeeded while their master still had work.

    A report counts only if it is later than these ends. Kubelets truncate the time of an end to seconds,
    so a poll within the same second may have been earlier.
    """
    early_exits = job.accounting.succeeded - reported.succeeded
    is_older = report.at_s < job.accounting.last_failure_s + _STAMP_S
    if early_exits <= 0 or report.final or is_older:
        return []
    reported.succeeded = job.accounting.succeeded
    text = (
        f"{early_exits} trainer{'' if early_exits == 1 else 's'} exited with code 0 before the "
        "master reported done. Trainers are replaced after a back-off; let them run until the "
        "master reports done"
    )
    return [Event(job, "TrainersEndedEarly", text, warning=True)]


def _unreported_silence_s(
    host_pod: Pod, report: MasterReport | None, reported: _Reported, now_s: float
) -> float:
    """Returns how long a master has not answered although its pod runs, or 0 if there is nothing to report.

    A silence is reported once, after `SILENT_S`.
    """
    silent_s = now_s - max(host_pod.started_s, report.at_s if report is not None else 0.0)
    silent = host_pod.phase is Phase.RUNNING and silent_s >= SILENT_S
    was_silent, reported.silent = reported.silent, silent
    is_over = report is not None and report.final
    return silent_s if silent and not was_silent and not is_over else 0.0


def _is_active(job: Job) -> bool:
    return job.managed and not (job.error or job.over or job.deleting)


def _has_objects(job: Job) -> bool:
    """Returns whether a job needs Services and similar objects, for a master or parameter servers."""
    return job.master or job.servers is not None
