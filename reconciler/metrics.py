"""The reconciler's metrics."""

from collections.abc import Iterable, Mapping

from kube.state_feed import ObjectChange
from policy.names import Tier
from policy.plan import Plan, Release
from policy.reasons import Reason
from policy.scheduling import Registration
from policy.snapshot import Pod
from reconciler.trainer_controller import CreationResult
from runtime.metrics import SLOW_BUCKETS_S, Metrics


class ReconcilerMetrics:
    """The counters, gauges and histograms of the control loop, which sets them."""

    def __init__(self, metrics: Metrics) -> None:
        self.planning = metrics.histogram("plan_seconds", "Time to make one plan.")
        self.ticks_failed = metrics.counter("rounds_failed_total", "Ticks that ended in an error.")
        self._created = metrics.counter(
            "trainers_created_total", "Trainer pods created.", ["tier"], [[t] for t in Tier]
        )
        self._refused = metrics.counter(
            "trainers_refused_total", "Creations that the API server refused."
        )
        self._released = metrics.counter(
            "trainers_released_total", "Trainers released, by reason.", ["reason"]
        )
        self._trainers = metrics.gauge("trainers", "Trainers wanted over all jobs.")
        self._jobs = metrics.gauge(
            "jobs", "Elastic jobs, by the reason for their number of trainers.", ["reason"]
        )
        self._avoided = metrics.gauge(
            "nodes_avoided", "Nodes that at least one job avoids, because trainers failed there."
        )
        self._leader = metrics.gauge("leader", "1 while this process leads.")
        self._age = metrics.gauge(
            "watch_age_seconds", "Time since the last message of the quietest watch."
        )
        self._registration = metrics.gauge(
            "extender_registration",
            "1 for what the scheduler's answer to a test pod says of the extender's entries.",
            ["state"],
        )
        self._reclaim = metrics.histogram(
            "reclaim_seconds",
            "Time from creation to binding of a pod that needed preemption, and no volume or place.",
            buckets=SLOW_BUCKETS_S,
        )
        self._nominated: set[str] = set()
        """uids of service pods that wait for preemption victims to end."""

    def observe_pods(self, changes: Mapping[str, ObjectChange[Pod]], now_s: float) -> None:
        """Measures how long services waited for preemption victims before they got a node."""
        for uid, change in changes.items():
            new = change.new
            if new is not None and not new.node and new.nominated and not new.is_training:
                if new.only_resources:  # others are also nominated while they wait for a volume
                    self._nominated.add(uid)
            elif uid in self._nominated:
                self._nominated.discard(uid)
                if new is not None and new.node:
                    self._reclaim.observe(max(0.0, now_s - new.created_s))

    def set_state(self, *, leads: bool, age_s: float) -> None:
        """Sets whether this process leads, and the age of its cluster state."""
        self._leader.set(int(leads))
        self._age.set(age_s)

    def set_registration(self, registration: Registration) -> None:
        """Sets whether the scheduler of trainers has the extender's entries."""
        for state in Registration:
            self._registration.labels(state).set(int(state is registration))

    def set_plan(self, plan: Plan) -> None:
        """Sets the gauges of the newest plan."""
        self._trainers.set(sum(job.target for job in plan.jobs))
        self._avoided.set(len({node for nodes in plan.avoided.values() for node in nodes}))
        jobs_by_reason: dict[Reason, int] = {}
        for job in plan.jobs:
            jobs_by_reason[job.reason] = jobs_by_reason.get(job.reason, 0) + 1
        self._jobs.clear()
        for reason, count in jobs_by_reason.items():
            self._jobs.labels(reason).set(count)

    def count_created(self, result: CreationResult) -> None:
        """Counts trainers that were created or refused."""
        self._created.labels(result.tier).inc(result.created)
        if result.error:
            self._refused.inc()

    def count_released(self, releases: Iterable[Release]) -> None:
        """Counts released trainers."""
        for release in releases:
            self._released.labels(release.reason).inc()
