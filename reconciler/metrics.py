"""The reconciler's metrics."""

from collections.abc import Iterable, Mapping

from kube.object_change import ObjectChange
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.document.model import ReclaimCause
from policy.names import Tier
from policy.planning.plan import Plan, Release
from policy.reasons import RELEASES
from policy.scheduling import Registration
from reconciler.jobs.metrics import ClusterMetrics, JobMetrics
from reconciler.records import service_starts
from reconciler.records.losses import Loss, Losses
from reconciler.records.objective import BURN_SPANS_S, ObjectiveStanding
from reconciler.records.service_starts import ServiceStart, ServiceStarts
from reconciler.trainers.controller import CreationResult
from runtime.metrics import SLOW_BUCKETS_S, Metrics


class ReconcilerMetrics:
    """The counters, gauges and histograms of the control loop."""

    def __init__(self, metrics: Metrics, named_jobs: int = 50) -> None:
        """Registers the metrics.

        Args:
            metrics: The process's metrics.
            named_jobs: Largest number of jobs exported by name.
        """
        self._leads = False
        self._jobs = JobMetrics(metrics, named_jobs)
        self._cluster = ClusterMetrics(metrics)
        self._add_services(metrics)
        self._add_objective(metrics)
        self._losses = Losses()
        self._lost = metrics.counter(
            "lost_seconds_total",
            "Seconds of training lost with trainers, as reported by masters.",
            ["cause"],
        )
        self.planning = metrics.histogram("plan_seconds", "Time to make one plan.")
        self.ticks_failed = metrics.counter("rounds_failed_total", "Ticks that ended in an error.")
        self._created = metrics.counter(
            "trainers_created_total", "Trainer pods created.", ["tier"], [[t] for t in Tier]
        )
        self._refused = metrics.counter(
            "trainers_refused_total", "Creations that the API server refused."
        )
        self._released = metrics.counter(
            "trainers_released_total",
            "Trainers released, by reason.",
            ["reason"],
            [[reason] for reason in RELEASES],
        )
        self._avoided = metrics.gauge(
            "nodes_avoided", "Nodes that at least one job avoids because trainers failed there."
        )
        self._quarantined = metrics.gauge(
            "jobs_quarantined", "Jobs left out of planning because EDL failed on their data."
        )
        self._quarantines = metrics.scraped_totals(
            {
                "job_quarantines_total": "Times that a job was left out of planning.",
                "pod_quarantines_total": "Times that a service pod was left out of planning.",
            }
        )
        self._leader = metrics.gauge("leader", "1 while this process leads.")
        self._age = metrics.gauge(
            "watch_age_seconds", "Time since the last message of the quietest watch."
        )
        self._registration = metrics.gauge(
            "extender_registration",
            "1 for the state of the extender's entries in kube-scheduler, found with a test pod.",
            ["state"],
        )

    def _add_services(self, metrics: Metrics) -> None:
        self.service_starts = ServiceStarts()
        """The services that are not running yet."""
        self._start_time = metrics.histogram(
            "service_start_seconds",
            "Time from a service pod's creation until its containers run, by what it waited for.",
            ["cause"],
            SLOW_BUCKETS_S,
        )
        for cause in ReclaimCause:
            self._start_time.labels(cause)
        self._waiting = metrics.gauge("services_waiting", "Service pods without a node.")
        self._starved = metrics.gauge(
            "starved_service_seconds",
            "Wait of the oldest service that would fit if surplus trainers left; 0 for none.",
        )
        self._reclaim = metrics.histogram(
            "reclaim_seconds",
            "Time from creation to binding of a pod that needed preemption, and no volume or place.",
            buckets=SLOW_BUCKETS_S,
        )
        self._nominated: set[str] = set()
        """uids of service pods that wait for their preemption victims to terminate."""

    def _add_objective(self, metrics: Metrics) -> None:
        self._objective_services = metrics.counter(
            "reclaim_objective_services_total",
            "Services that count for the policy's reclaim objective, by whether they kept it.",
            ["result"],
            [["kept"], ["missed"]],
        )
        self._objective_share = metrics.gauge(
            "reclaim_objective_ratio",
            "Share of services that the objective requires to start in time; 0 for none.",
        )
        self._objective_limit = metrics.gauge(
            "reclaim_objective_seconds",
            "Time within which the objective requires services to run; 0 for none.",
        )
        self._objective_budget = metrics.gauge(
            "reclaim_objective_budget_left_ratio",
            "Part of the objective's budget left in its window; below 0, the objective is missed.",
        )
        self._objective_burn = metrics.gauge(
            "reclaim_objective_burn_rate",
            "Burn rate of the budget; 1 uses it up in exactly one window.",
            ["span"],
        )

    def observe_pods(
        self, changes: Mapping[str, ObjectChange[Pod]], now_s: float
    ) -> tuple[list[ServiceStart], list[Loss]]:
        """Measures how long services waited, and how much training is lost with trainers that are leaving.

        All replicas process the changes, so that any of them can take over; only the leader counts them.

        Returns:
            The services that have started to run, and the trainers that have started to leave.
        """
        starts = self.service_starts.observe(changes, now_s)
        losses = self._losses.observe(changes)
        if self._leads:
            for start in starts:
                self._start_time.labels(start.cause).observe(start.seconds)
            for loss in losses:
                self._lost.labels(loss.cause).inc(loss.seconds)
        self._observe_reclaims(changes, now_s)
        return starts, losses

    def _observe_reclaims(self, changes: Mapping[str, ObjectChange[Pod]], now_s: float) -> None:
        """Measures how long services waited for preemption victims before they got a node."""
        for uid, change in changes.items():
            new = change.new
            if new is not None and not new.node and new.nominated and not new.is_training:
                if (
                    new.only_resources
                ):  # pods that wait for a volume are nominated for other reasons
                    self._nominated.add(uid)
            elif uid in self._nominated:
                self._nominated.discard(uid)
                if new is not None and new.node and self._leads:
                    self._reclaim.observe(max(0.0, now_s - new.created_s))

    def set_state(self, *, leads: bool, age_s: float) -> None:
        """Sets whether this process leads, and how old its cluster state is."""
        if self._leads and not leads:
            self._jobs.clear()
            self._cluster.clear()
            self._waiting.set(0)
            self._starved.set(0)
        self._leads = leads
        self._leader.set(int(leads))
        self._age.set(age_s)

    def set_registration(self, registration: Registration) -> None:
        """Sets whether the trainers' scheduler is configured with the extender."""
        for state in Registration:
            self._registration.labels(state).set(int(state is registration))

    def set_plan(self, plan: Plan, cluster: ClusterState, now_s: float) -> None:
        """Sets the gauges of the newest plan and of its cluster."""
        self._jobs.set_plan(plan, cluster, now_s)
        self._cluster.set_cluster(cluster)
        self._avoided.set(len({node for nodes in plan.avoided.values() for node in nodes}))
        self.service_starts.note_released(plan.reclaimed_for, now_s)
        self._losses.note(plan.releases)
        services = service_starts.waiting(cluster)
        self._waiting.set(len(services))
        self._starved.set(service_starts.longest_starved_s(services, cluster, now_s))

    def count_objective(self, kept: int, missed: int) -> None:
        """Counts services that met or missed the reclaim objective."""
        self._objective_services.labels("kept").inc(kept)
        self._objective_services.labels("missed").inc(missed)

    def set_objective(self, standing: ObjectiveStanding | None) -> None:
        """Sets the standing of the reclaim objective; None if the policy defines none."""
        objective = standing.objective if standing else None
        self._objective_share.set(objective.share if objective else 0.0)
        self._objective_limit.set(objective.seconds if objective else 0.0)
        self._objective_budget.set(standing.budget_left if standing else 0.0)
        for span in BURN_SPANS_S:
            self._objective_burn.labels(span).set(standing.burn[span] if standing else 0.0)

    def set_quarantined(self, jobs: int, totals: Mapping[str, int]) -> None:
        """Sets the number of jobs in quarantine, and the total number of quarantines by kind."""
        self._quarantined.set(jobs)
        for kind, total in totals.items():
            self._quarantines[f"{kind}_quarantines_total"] = total

    def count_created(self, result: CreationResult) -> None:
        """Counts trainers that were created or refused."""
        self._created.labels(result.tier).inc(result.created)
        if result.error:
            self._refused.inc()

    def count_released(self, releases: Iterable[Release]) -> None:
        """Counts released trainers."""
        for release in releases:
            self._released.labels(release.reason).inc()
