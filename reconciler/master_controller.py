"""Manages the masters of jobs that request one: their objects, their reports, events about them.

The plan decides which pod hosts a master; everything else is here. Called by `reconciler.loop`.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from kube.api import Api
from policy import sidecar
from policy.cluster_state import ClusterState
from policy.names import MASTER_CONTAINER
from policy.snapshot import Job, Phase, Pod
from reconciler.events import Event
from reconciler.job_objects import JobEndpoints, JobObjects
from reconciler.master_poller import MasterPoller
from reconciler.master_reports import MasterReport
from reconciler.poll_schedule import PollTarget
from reconciler.uncommitted_annotations import UncommittedAnnotator

_NO_MASTER = JobEndpoints("", "")
SILENT_S = 60.0
"""A master that does not answer for this long gets an event."""
_STAMP_S = 1.0
"""Resolution of the times in pods and Jobs."""


@dataclass(slots=True)
class _Reported:
    """What events have already reported about a job."""

    succeeded: int
    """Succeeded trainers at the last event."""
    silent: bool = False


class MasterController:
    """Manages masters: their objects, polls and annotations. Used on the loop's thread alone."""

    def __init__(
        self,
        api: Api,
        cluster: ClusterState,
        *,
        changed: Callable[[], None],
        clock_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Starts nothing.

        Args:
            api: The API server.
            cluster: The state of the cluster, kept current by the loop.
            changed: Called on any thread when a master reports the end of its job, or another
                leader.
            clock_s: Seconds since the epoch.
            monotonic_s: Schedules the polls.
        """
        self._cluster = cluster
        self._job_objects = JobObjects(api)
        self._annotator = UncommittedAnnotator(api)
        self._poller = MasterPoller(api, changed=changed, clock_s=clock_s, monotonic_s=monotonic_s)
        self._reports: dict[str, MasterReport] = {}
        self._reported: dict[str, _Reported] = {}

    def start(self) -> None:
        """Starts to poll masters; may be called once."""
        self._poller.start()

    def stop(self) -> None:
        """Stops polling."""
        self._poller.stop()

    def pause(self) -> None:
        """Polls nobody until the next tick: this process must not act."""
        self._poller.set_targets({})

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._job_objects.forget(job)
        self._reported.pop(job.uid, None)

    def endpoints(self, job: Job) -> JobEndpoints | None:
        """Addresses of a job's master and servers; None until its objects exist."""
        return self._job_objects.endpoints(job) if job.master else _NO_MASTER

    def report(self, job: Job) -> MasterReport | None:
        """The newest report of a job's master."""
        return self._reports.get(job.uid)

    def reconcile(self, now_s: float, pool: Executor) -> list[Event]:
        """Runs one tick: creates missing objects, takes in reports; returns events about both."""
        jobs = [job for job in self._cluster.jobs.values() if _needs_master(job)]
        events = self._job_objects.ensure(jobs, now_s, pool)
        self._poller.set_targets({job.uid: target for job in jobs if (target := self._target(job))})
        self._reports = self._poller.reports()
        self._annotator.write(jobs, self._cluster, self._reports, now_s, pool)
        for job in jobs:
            events += self._events(job, now_s)
        return events

    def _target(self, job: Job) -> PollTarget | None:
        endpoints = self._job_objects.endpoints(job)
        if endpoints is None:
            return None
        host_pod = self._cluster.master_host(job)
        address = host_pod.address if host_pod is not None else ""
        name = sidecar.object_name(job.name)
        return PollTarget(job.namespace, name, address, endpoints.token, job.accounting.succeeded)

    def _events(self, job: Job, now_s: float) -> list[Event]:
        reported = self._reported.setdefault(job.uid, _Reported(job.accounting.succeeded))
        report = self._reports.get(job.uid)
        events = _early_exit_events(job, report, reported) if report is not None else []
        host_pod = self._cluster.master_host(job)
        if host_pod is not None:
            events += _silence_events(job, host_pod, report, reported, now_s)
        return events


def _early_exit_events(job: Job, report: MasterReport, reported: _Reported) -> list[Event]:
    """An event about trainers that succeeded while their master, polled since, still had work.

    A kubelet rounds the time of an end down: a poll in the same second may have been before it.
    """
    early_exits = job.accounting.succeeded - reported.succeeded
    is_older = report.at_s < job.accounting.last_failure_s + _STAMP_S
    if early_exits <= 0 or report.final or is_older:
        return []
    reported.succeeded = job.accounting.succeeded
    text = (
        f"{early_exits} trainers ended with exit code 0 while the master still has work; they are "
        "replaced after a back-off: a trainer must run until its master reports done"
    )
    return [Event(job, "TrainersEndedEarly", text, warning=True)]


def _silence_events(
    job: Job, host_pod: Pod, report: MasterReport | None, reported: _Reported, now_s: float
) -> list[Event]:
    """One event about a master that has not answered for `SILENT_S` although its pod runs."""
    answered_s = max(host_pod.started_s, report.at_s if report is not None else 0.0)
    silent = host_pod.phase is Phase.RUNNING and now_s - answered_s >= SILENT_S
    was_silent, reported.silent = reported.silent, silent
    if was_silent or not silent or (report is not None and report.final):
        return []
    text = (
        f"the master has not answered for {now_s - answered_s:.0f} s: see "
        f"kubectl -n {host_pod.namespace} logs {host_pod.name} -c {MASTER_CONTAINER}"
    )
    return [Event(job, "MasterSilent", text, warning=True)]


def _needs_master(job: Job) -> bool:
    return job.master and job.managed and not (job.error or job.over or job.deleting)
