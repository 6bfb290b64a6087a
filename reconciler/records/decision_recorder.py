"""Records the decisions about each job, with figures that the plan itself does not compute.

Rules record the figures that they have at hand. If no node has capacity, the record also names the node
that comes closest to fitting a trainer. Finding this node means examining every open node, so it is done only
for changed decisions, and for at most `_MAX_LOOKUPS` nodes per tick.
"""

from collections import OrderedDict

from policy.cluster.cluster_state import ClusterState
from policy.cluster.placement import closest_fit
from policy.cluster.snapshot import Constraints, Job
from policy.decisions import NONE, Decision, Figures
from policy.document.model import NodePool
from policy.planning.plan import JobPlan, Plan, Release
from policy.reasons import Reason
from reconciler.quarantine import Quarantine
from reconciler.records import plan_reports
from reconciler.records.inbox import RecordInbox
from reconciler.trainers.controller import CreationResult

_MAX_LOOKUPS = 2_000
"""Maximum number of nodes examined in one tick, which takes a few milliseconds. Records of further jobs get no
figures of nodes."""

_UPDATE_S = 60.0
"""Minimum interval between records that differ only in figures, so that they do not displace other records."""
_MAX_SUBJECTS = 256
"""Maximum number of pods and nodes per job whose last decision is remembered; the newest are kept."""

_TrainerShape = tuple[tuple[tuple[str, int], ...], Constraints, frozenset[str]]
"""Requests and constraints of a trainer, and the nodes it avoids; equal shapes have the same closest node."""


class DecisionRecorder:
    """Puts each new decision into the inbox of the decision log. Used only on the loop's thread."""

    def __init__(self, quarantine: Quarantine, inbox: RecordInbox) -> None:
        """Initializes the decision recorder.

        Args:
            quarantine: Receives jobs whose data causes errors.
            inbox: Receives the decisions.
        """
        self._quarantine = quarantine
        self._inbox = inbox
        self._plans: dict[str, JobPlan] = {}
        self._recorded: dict[str, OrderedDict[str, Decision]] = {}
        """Job key -> subject (a pod, a node or the job itself) -> the last recorded decision about it."""

    def record(
        self, plan: Plan, cluster: ClusterState, pools: tuple[NodePool, ...], now_s: float
    ) -> None:
        """Records the decision about each job whose reason, figures or numbers have changed."""
        lookups = _ClosestFits(cluster, pools)
        for job_plan in plan.jobs:
            last = self._plans.get(job_plan.key)
            if last is None or _differs(last, job_plan):
                job = cluster.jobs[job_plan.key]
                with self._quarantine.contain(job):
                    node_figures = NONE
                    if job_plan.reason is Reason.NO_ROOM:
                        avoided = frozenset(plan.avoided.get(job_plan.key, ()))
                        node_figures = lookups.figures(job, avoided)
                    decision = plan_reports.job_decision(job_plan, node_figures, now_s)
                    self._inbox.put_current(job_plan.key, decision)
        self._plans = {job_plan.key: job_plan for job_plan in plan.jobs}
        if self._inbox.jobs is None:
            self._inbox.jobs = frozenset(self._plans)
        for key, decision in plan_reports.avoidance_decisions(plan, now_s):
            self._record(key, decision)

    def record_release(self, release: Release, now_s: float) -> None:
        """Records why a trainer was evicted."""
        self._record(release.job, plan_reports.release_decision(release, now_s))

    def record_creation(self, result: CreationResult, now_s: float) -> None:
        """Records why trainers were not created."""
        if result.error:
            refusal = plan_reports.refusal_decision(result, now_s)
            self._record(result.job.key, refusal)

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job, whose name may be used again."""
        self._recorded.pop(job.key, None)
        if (
            self._plans.pop(job.key, None) is not None
        ):  # else another process has recorded this job, and also records its deletion
            self._inbox.put_gone(job.key)

    def stand_by(self) -> None:
        """Forgets the recorded decisions, because another process records now."""
        self._plans = {}
        self._recorded = {}

    def _record(self, job: str, decision: Decision) -> None:
        """Records a release, a refusal or an avoided node, unless it repeats the last such decision."""
        recorded = self._recorded.setdefault(job, OrderedDict())
        last = recorded.get(decision.about)
        if last is not None and _repeats(last, decision):
            return
        recorded[decision.about] = decision
        recorded.move_to_end(decision.about)
        if len(recorded) > _MAX_SUBJECTS:
            recorded.popitem(last=False)
        self._inbox.put_decision(job, decision)


def _differs(old: JobPlan, new: JobPlan) -> bool:
    """Returns whether anything differs apart from the share, which changes with every node."""
    return (old.reason, old.live, old.target, old.figures) != (
        new.reason,
        new.live,
        new.target,
        new.figures,
    )


def _repeats(last: Decision, new: Decision) -> bool:
    """Returns whether a decision need not be recorded, because it repeats the last one about its subject.

    A repetition has the same code and target, and either equal figures or a time less than `_UPDATE_S` later.
    """
    if (last.code, last.figures.get("target")) != (new.code, new.figures.get("target")):
        return False
    return last.figures == new.figures or new.at_s - last.at_s < _UPDATE_S


class _ClosestFits:
    """Caches, for one tick, the node closest to fitting each trainer shape."""

    def __init__(self, cluster: ClusterState, pools: tuple[NodePool, ...]) -> None:
        self._cluster = cluster
        self._pools = pools
        self._lookups_left = _MAX_LOOKUPS
        self._figures: dict[_TrainerShape, Figures] = {}

    def figures(self, job: Job, avoided: frozenset[str]) -> Figures:
        """Returns figures of the node closest to fitting a trainer, or none once all lookups are used up."""
        shape = (tuple(sorted(job.requests.items())), job.constraints, avoided)
        figures = self._figures.get(shape)
        if figures is None and self._lookups_left > 0:
            open_nodes = self._cluster.open_nodes(job.constraints, self._pools)
            self._lookups_left -= len(open_nodes)
            if avoided:
                open_nodes = [name for name in open_nodes if name not in avoided]
            figures = closest_fit(job.requests, open_nodes, self._cluster.available)
            self._figures[shape] = figures
        return figures or NONE
