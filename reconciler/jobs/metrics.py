"""Metrics of jobs, and of the cluster's capacity and use."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from policy.cluster.cluster_state import ClusterState
from policy.cluster.usage_report import CPU, MEMORY, MILLI, devices, uses
from policy.planning.plan import Plan
from policy.reasons import Reason
from reconciler.jobs import figures as job_figures
from reconciler.jobs.figures import JobFigures, StartedJobs
from runtime.metrics import Metrics, Samples


@dataclass(frozen=True, slots=True)
class _PlanFigures:
    """Values of one plan, replaced as a whole so that a scrape never mixes two plans."""

    trainers: int = 0
    jobs: Samples = field(default_factory=dict)
    below: Samples = field(default_factory=dict)
    by_name: Mapping[tuple[str, str], JobFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _ClusterFigures:
    """Values of the cluster, by use."""

    nodes: Samples = field(default_factory=dict)
    cores: Samples = field(default_factory=dict)
    memory: Samples = field(default_factory=dict)
    limits: Samples = field(default_factory=dict)
    devices: Samples = field(default_factory=dict)


class JobMetrics:
    """Gauges of the newest plan: jobs by reason, and the oldest jobs by name."""

    def __init__(self, metrics: Metrics, named_jobs: int) -> None:
        """Registers the metrics.

        Args:
            metrics: The process's metrics.
            named_jobs: Largest number of jobs exported by name.
        """
        self._named_jobs = named_jobs
        self._started = StartedJobs()
        self._figures = _PlanFigures()
        metrics.values(
            "trainers",
            "Trainers wanted over all jobs.",
            (),
            lambda: {(): self._figures.trainers},
        )
        metrics.values(
            "jobs",
            "Elastic jobs, by the reason for their number of trainers.",
            ["reason"],
            lambda: self._figures.jobs,
        )
        metrics.values(
            "jobs_below_min",
            "Jobs that had their minimum and now run fewer trainers, by the plan's reason.",
            ["reason"],
            lambda: self._figures.below,
        )
        metrics.total(
            "unmanaged_jobs_total",
            "Jobs that the built-in controller runs, because the webhook was unavailable at their creation.",
            lambda: self._started.unmanaged_total,
        )
        self._add_named(metrics)

    def _add_named(self, metrics: Metrics) -> None:
        meanings: dict[str, tuple[str, Callable[[JobFigures], float]]] = {
            "job_running_trainers": ("Trainers that run", lambda job: job.running),
            "job_wanted_trainers": ("Trainers wanted by the plan", lambda job: job.target),
            "job_min_trainers": ("Minimum of trainers", lambda job: job.minimum),
            "job_share_ratio": ("Weighted dominant share of the cluster", lambda job: job.share),
        }
        for name, (meaning, read) in meanings.items():
            metrics.values(
                name,
                f"{meaning}, of the oldest jobs by name, of the others as one job named other.",
                ["namespace", "job"],
                partial(self._of_jobs, read),
            )

    def set_plan(self, plan: Plan, cluster: ClusterState, now_s: float) -> None:
        """Exports the newest plan."""
        self._figures = _PlanFigures(
            sum(job.target for job in plan.jobs),
            _by_reason(Counter(job.reason for job in plan.jobs)),
            _by_reason(self._started.below_minimum(plan.jobs, cluster, now_s)),
            job_figures.by_name(plan.jobs, cluster, self._named_jobs),
        )

    def clear(self) -> None:
        """Drops the plan's values, because another process makes plans now."""
        self._figures = _PlanFigures()

    def _of_jobs(self, read: Callable[[JobFigures], float]) -> Samples:
        return {names: read(figures) for names, figures in self._figures.by_name.items()}


class ClusterMetrics:
    """Gauges of the nodes' capacity and of the requests of training pods and services."""

    def __init__(self, metrics: Metrics) -> None:
        self._figures = _ClusterFigures()
        metrics.values("nodes", "Nodes of the cluster.", (), lambda: self._figures.nodes)
        metrics.values(
            "cpu_cores",
            "CPU that nodes have, and that bound pods request.",
            ["use"],
            lambda: self._figures.cores,
        )
        metrics.values(
            "memory_bytes",
            "Memory that nodes have, and that bound pods request.",
            ["use"],
            lambda: self._figures.memory,
        )
        metrics.values(
            "training_limits",
            "CPU cores and bytes of memory that bound training pods may use: their limits, or requests.",
            ["resource"],
            lambda: self._figures.limits,
        )
        metrics.values(
            "devices",
            "Other resources of nodes, at most 8, and requests for them.",
            ["resource", "use"],
            lambda: self._figures.devices,
        )

    def set_cluster(self, cluster: ClusterState) -> None:
        """Exports the newest cluster state."""
        amounts, names = uses(cluster), devices(cluster)
        self._figures = _ClusterFigures(
            {(): len(cluster.nodes)},
            {(use,): of.get(CPU, 0) / MILLI for use, of in amounts.items()},
            {(use,): of.get(MEMORY, 0) for use, of in amounts.items()},
            {
                (CPU,): cluster.usage.training_limits.get(CPU, 0) / MILLI,
                (MEMORY,): cluster.usage.training_limits.get(MEMORY, 0),
            },
            {(name, use): of.get(name, 0) for use, of in amounts.items() for name in names},
        )

    def clear(self) -> None:
        """Drops the values, which only the leader exports."""
        self._figures = _ClusterFigures()


def _by_reason(counts: Mapping[Reason, int]) -> Samples:
    return {(str(reason),): count for reason, count in counts.items()}
