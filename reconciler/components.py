"""Creates the components of the control loop and connects them."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from kube.api import Api
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job
from policy.document.model import Policy
from reconciler.controller_context import ControllerContext
from reconciler.expectations import Expectations
from reconciler.jobs.tracker import JobTracker
from reconciler.jobs.writer import JobWriter
from reconciler.masters.controller import MasterController
from reconciler.masters.server_controller import ServerController
from reconciler.quarantine import Quarantine
from reconciler.scheduler_checker import SchedulerChecker
from reconciler.system_objects import SystemObjects
from reconciler.trainers.controller import TrainerController
from reconciler.trainers.probe import TrainerProbe
from runtime import clock


@dataclass(frozen=True, slots=True)
class Clocks:
    """The clocks that the loop and its components read."""

    epoch_s: Callable[[], float] = clock.epoch_s
    monotonic_s: Callable[[], float] = clock.monotonic_s


class JobScoped(Protocol):
    """A component that keeps state per job."""

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""


@dataclass(frozen=True, slots=True)
class Components:
    """The components, all writing through one API client.

    Attributes:
        expectations: Creations and deletions that the watches have not shown yet.
        writer: Writes accounting and status of Jobs.
        masters: Creates the objects of masters and polls masters.
        trainers: Creates and evicts trainers.
        servers: Creates and deletes parameter servers.
        job_tracker: Keeps accounting and status of Jobs.
        system_objects: Keeps priority classes and disruption budgets.
        scheduler_checker: Knows whether the scheduler has the extender's entries.
        probe: Finds out, by dry runs, how the API server changes trainer pods or why it refuses them.
        quarantine: Excludes jobs from planning while their data causes errors.
    """

    expectations: Expectations
    writer: JobWriter
    masters: MasterController
    trainers: TrainerController
    servers: ServerController
    job_tracker: JobTracker
    system_objects: SystemObjects
    scheduler_checker: SchedulerChecker
    probe: TrainerProbe
    quarantine: Quarantine

    @property
    def job_scoped(self) -> tuple[JobScoped, ...]:
        """The components that keep state per job."""
        return (
            self.job_tracker,
            self.trainers,
            self.system_objects,
            self.masters,
            self.servers,
            self.probe,
            self.quarantine,
        )


def connect(
    api: Api,
    cluster: ClusterState,
    pool: Executor,
    clocks: Clocks,
    on_change: Callable[[], None],
    *,
    poll_api: Api,
    namespace: str,
    policy: Callable[[], Policy],
) -> Components:
    """Creates the components without starting any thread.

    Args:
        api: Receives reads and writes.
        cluster: The cluster state, which the loop keeps up to date.
        pool: Runs concurrent writes.
        clocks: The clocks of the process.
        on_change: Called when a master reports something new, or a scheduler check makes progress.
        poll_api: Receives the requests of the threads that poll masters.
        namespace: EDL's namespace.
        policy: Returns the policy in effect.
    """
    expectations = Expectations()
    writer = JobWriter(api, cluster)
    quarantine = Quarantine(cluster)
    masters = MasterController(
        api,
        cluster,
        poll_api=poll_api,
        namespace=namespace,
        policy=policy,
        changed=on_change,
        clock_s=clocks.epoch_s,
        monotonic_s=clocks.monotonic_s,
        quarantine=quarantine,
    )
    checker = SchedulerChecker(api, namespace, cluster, pool, policy=policy, on_change=on_change)
    context = ControllerContext(
        api=api,
        cluster=cluster,
        expectations=expectations,
        pool=pool,
        clock_s=clocks.epoch_s,
        endpoints=masters.endpoints,
        scheduling=lambda: checker.scheduling,
    )
    trainers = TrainerController(context, writer)
    servers = ServerController(context)
    tracker = JobTracker(
        cluster,
        expectations,
        writer,
        reserved=trainers,
        master_report=masters.report,
        quarantine=quarantine,
    )
    return Components(
        expectations,
        writer,
        masters,
        trainers,
        servers,
        tracker,
        SystemObjects(api, pool),
        checker,
        TrainerProbe(api, cluster, pool, quarantine, masters.lack),
        quarantine,
    )
