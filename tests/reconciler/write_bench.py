"""One elastic Job, and what writes to it."""

from kube import decode, request
from kube.request import JOBS
from policy.cluster import trainer_accounting
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Job, TrainerAccounting
from policy.names import Tier
from policy.planning.plan import Create
from policy.reasons import Reason
from policy.scheduling import UNMARKED
from reconciler.controller_context import ControllerContext
from reconciler.expectations import Expectations
from reconciler.jobs.writer import JobWriter
from reconciler.masters.job_objects import JobEndpoints
from reconciler.trainers.controller import TrainerController
from tests.reconciler import objects
from tests.reconciler.server import Clock, Instant
from tests.reconciler.waiting import Writers

OPENED, IDS = trainer_accounting.reserve(TrainerAccounting(), 2)


class Bench:
    """One Job, and what writes to it."""

    def __init__(self, pool: Writers) -> None:
        self.pool = pool
        self.clock = Clock()
        self.api = Instant(self.clock)
        self.index = ClusterState()
        self.api.ask(request.create(JOBS, "ml", objects.job("net")))
        self.index.put_job(self.job())
        self.writer = JobWriter(self.api, self.index)
        context = ControllerContext(
            self.api,
            self.index,
            Expectations(),
            pool,
            self.clock.seconds,
            endpoints=lambda _: JobEndpoints("", ""),
            scheduling=lambda: UNMARKED,
        )
        self.trainers = TrainerController(context, self.writer)

    def job(self) -> Job:
        """The Job on the API server."""
        decoded = decode.job(self.api.ask(request.get(JOBS, "ml", "net")))
        assert decoded is not None
        return decoded

    @property
    def known(self) -> Job:
        """The Job in the index."""
        return self.index.jobs["ml/net"]

    def make_classes(self) -> None:
        """Creates the PriorityClasses, without which the API server refuses all trainers."""
        for name in ("edl-guaranteed", "edl-surplus"):
            priority_class = {"metadata": {"name": name}, "value": -8, "preemptionPolicy": "Never"}
            self.api.ask(request.create(request.PRIORITYCLASSES, None, priority_class))

    def make(self, *counts: int) -> list[int]:
        """Makes guaranteed and surplus trainers; how many there were of each."""
        creates = [
            Create("ml/net", tier, ("n0",) * count, Reason.SURPLUS)
            for tier, count in zip((Tier.GUARANTEED, Tier.SURPLUS), counts, strict=False)
        ]
        return [result.created for result in self.trainers.create(creates, 10)]
