"""The reconciler's metrics."""

from collections.abc import Iterable, Mapping

from kube.live import Change
from policy.names import Tier
from policy.planning import Plan, Release
from policy.reasons import Reason
from policy.snapshot import Pod
from reconciler.trainers import Outcome
from runtime.metrics import SLOW_BUCKETS_S, Metrics


class Meters:
    """Counters and gauges, set by the loop."""

    def __init__(self, metrics: Metrics) -> None:
        self.planning = metrics.histogram("plan_seconds", "Time to make one plan.")
        self.failed = metrics.counter("rounds_failed_total", "Rounds that ended in an error.")
        self._created = metrics.counter(
            "trainers_made_total", "Trainer pods created.", ["tier"], [[t] for t in Tier]
        )
        self._refused = metrics.counter(
            "trainers_refused_total", "Creations that the API server refused."
        )
        self._released = metrics.counter(
            "trainers_released_total", "Trainers let go, by reason.", ["reason"]
        )
        self._trainers = metrics.gauge("trainers_count", "Trainers wanted over all jobs.")
        self._jobs = metrics.gauge(
            "jobs_count", "Elastic jobs, by why they have what they have.", ["reason"]
        )
        self._leader = metrics.gauge("leader_count", "1 while this process leads.")
        self._age = metrics.gauge(
            "watch_age_seconds", "Time since the quietest watch was heard of."
        )
        self._reclaim = metrics.histogram(
            "reclaim_seconds",
            "From the creation of a pod that needed preemption to its node.",
            buckets=SLOW_BUCKETS_S,
        )
        self._nominated: set[str] = set()
        """uids of services that wait for victims to leave."""

    def note(self, changes: Mapping[str, Change[Pod]], now_s: float) -> None:
        """Times services that got a node after waiting for victims."""
        for uid, change in changes.items():
            new = change.new
            if new is not None and not new.node and new.nominated and not new.is_training:
                self._nominated.add(uid)
            elif uid in self._nominated:
                self._nominated.discard(uid)
                if new is not None and new.node:
                    self._reclaim.observe(max(0.0, now_s - new.created_s))

    def state(self, *, leads: bool, age_s: float) -> None:
        """Whether it leads, and how old what it knows is."""
        self._leader.set(int(leads))
        self._age.set(age_s)

    def planned(self, plan: Plan) -> None:
        """What the newest plan wants."""
        self._trainers.set(sum(job.target for job in plan.jobs))
        by: dict[Reason, int] = {}
        for job in plan.jobs:
            by[job.reason] = by.get(job.reason, 0) + 1
        self._jobs.clear()
        for reason, count in by.items():
            self._jobs.labels(reason).set(count)

    def made(self, outcome: Outcome) -> None:
        """Trainers that were created, or refused."""
        self._created.labels(outcome.tier).inc(outcome.made)
        if outcome.error:
            self._refused.inc()

    def released(self, went: Iterable[Release]) -> None:
        """Trainers that were let go."""
        for release in went:
            self._released.labels(release.reason).inc()
