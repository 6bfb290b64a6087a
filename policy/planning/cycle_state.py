"""The sums and decisions of one planning cycle, which the rules in `policy.planning.rules` read and write."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property, partial

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState, job_key
from policy.cluster.live_trainers import LiveTrainers, not_to_replace, with_excess, with_minimum
from policy.cluster.snapshot import Job, Pod, Resources
from policy.decisions import Figures
from policy.document.model import FairnessBy, Policy
from policy.names import Tier
from policy.planning import ceilings, covered_minimums, creation_backoff, demand, vacancy
from policy.planning.free_capacity import FreeCapacity, When
from policy.planning.job_draft import JobDraft
from policy.planning.node_failures import AvoidedNodes
from policy.planning.plan import (
    Create,
    CreateServers,
    FailedMove,
    History,
    JobPlan,
    Line,
    MoveKey,
    Plan,
    Release,
    ReleaseServer,
)
from policy.planning.stranding import StrandingNodes, passing_taints
from policy.reasons import Reason

_EQUAL = (False, 0)
_LOW_SHARE = 0.5
"""Fraction of the largest share up to which a job has little."""
_REASON_OF = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}


class CycleState:
    """The state of one planning cycle: inputs, accounting so far, and decisions so far.

    Mutable and never reused; `to_plan` gives the frozen result.
    """

    def __init__(
        self, cluster: ClusterState, policy: Policy, now_s: float, history: History
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.now_s = now_s
        self.history = history
        self.capacity = FreeCapacity(cluster, policy, now_s)
        self.quotas = ceilings.Quotas(policy, cluster)
        self._missing_nodes = cluster.missing_nodes
        self.drafts = self._new_drafts()
        now = datetime.fromtimestamp(now_s, UTC)
        self._usable = cluster.usable(policy.node_pools, now_s)
        limits = ceilings.load_limits(policy, self._usable.allocatable, now)
        self.load = ceilings.Load(limits, self._usable.in_use)
        for node in self.capacity.nodes_with(When.LATER):
            self.add_leaving_load(node, self.capacity.releasing(node))
        self.closed = vacancy.closed_nodes(cluster, policy, history, now_s)
        self.burst = False  # whether services wait for capacity that only leaving pods can free
        self.reclaimed_for: set[str] = set()  # uids of services for which this plan releases
        live, before = {d.job.uid: d.live for d in self.drafts}, history.creation_backoffs
        created_s = partial(cluster.first_seen.created_s, now_s=now_s)
        self.creation_backoffs = creation_backoff.current(before, live, created_s)
        self.offered: dict[str, int] = {}  # as in `Plan`
        self.promised: dict[str, str] = {}  # uid -> node, of waiting trainers with a reservation
        self.unschedulable_pods: list[Pod] = []  # that fit on no node, even without surplus
        self.released: set[str] = set()  # uids of trainers that this plan releases
        self._server_releases: list[ReleaseServer] = []
        self.quota_reliefs: set[str] = set()  # these three as in `Plan`
        self.awaiting_quota: dict[str, str] = {}  # namespace -> key of the job that has its surplus
        self.short: set[str] = set()
        self.gave_up: set[str] = set()
        self.line = Line()
        self.failed_moves: dict[MoveKey, FailedMove] = {}  # no donor was found now or recently
        self.deferred = False  # whether moves were not tried and are left to the next plan
        self._releases: list[Release] = []
        self._by_key = {draft.key: draft for draft in self.drafts}
        # Node -> surplus trainers there of jobs that the built-in controller runs.
        self.unmanaged_surplus: dict[str, list[tuple[JobDraft, Pod]]] = {}
        for draft in self.drafts:
            for pod in () if draft.job.managed else draft.surplus:
                self.unmanaged_surplus.setdefault(pod.node, []).append((draft, pod))
        self.has_excess = any(draft.excess for draft in self.drafts)

    def _new_drafts(self) -> list[JobDraft]:
        jobs = [job for _, job in sorted(self.cluster.jobs.items())]
        protected = {ns: self.policy.protects(ns) for ns in {job.namespace for job in jobs}}
        self.avoided_nodes = AvoidedNodes(self.cluster, self.policy.node_pools, self.now_s)
        missing = self._missing_nodes
        stranding_nodes = StrandingNodes(
            self.cluster.restricted, self.now_s, self.history.tainted_since, missing
        )
        self.gone_nodes = stranding_nodes.gone
        claimed = covered_minimums.claim(self.quotas, self.cluster, stranding_nodes.holds)
        priorities = {queue.name: queue.priority for queue in self.policy.queues}
        histories, now_s = self.history.demands, self.now_s
        self._has_standings = bool(self.quotas.borrowing) or any(priorities.values())
        drafts = []
        for submitted in jobs:
            if protected[submitted.namespace]:
                continue
            live_trainers = self.cluster.live_trainers(submitted)
            lasting = not_to_replace(submitted, live_trainers, stranding_nodes.holds)
            if missing:  # a replacement stays, not the pod of a deleted node
                lasting.sort(key=lambda pod: pod.node not in missing)
            covered_min = self._covered_min(submitted, live_trainers, claimed)
            live_trainers = with_minimum(submitted, live_trainers, covered_min)
            live_trainers = with_excess(submitted, live_trainers, lasting)
            job = self.avoided_nodes.avoiding(submitted)
            draft = JobDraft(
                job,
                live_trainers,
                demand_history=demand.observe(
                    histories.get(job.uid), job, len(live_trainers.pods), now_s
                ),
                trainer_measure=self._trainer_measure(job),
                stranded=sum(map(stranding_nodes.holds, live_trainers.guaranteed)),
                masterless=job.master and job.managed and self.cluster.master_host(job) is None,
                server_count=self.cluster.server_count(job),
                servers_measure=self._servers_measure(job),
            )
            draft.priority = priorities.get(job.queue, 0)
            draft.covered_min = covered_min
            draft.claimed = claimed.get(job.key, 0)
            drafts.append(draft)
            for pod in draft.surplus if draft.excess or not job.managed else ():
                if not job.managed or pod.uid in draft.excess:
                    self.capacity.add_reclaimable(pod)  # the sums lack it
            self.quotas.reserve(job, draft.absent)
        return drafts

    def _covered_min(self, job: Job, live: LiveTrainers, claimed: Mapping[str, int]) -> int:
        """As `JobDraft.covered_min`, before this plan creates anything."""
        if not live.pods or job.key not in claimed:
            return job.min_trainers
        count = claimed[job.key]
        return count + self.quotas.room_for_minimum(job, job.min_trainers - count, 0)

    def _trainer_measure(self, job: Job) -> float:
        """Fairness measure of one trainer."""
        weights = self.policy.fairness.queue_weights
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            span = max(1, job.max_trainers - job.min_trainers)
            return 1 / span / (job.weight * weights.get(job.queue, 1))
        return self.cluster.share(job, 1, weights)

    def _servers_measure(self, job: Job) -> float:
        """Fairness measure of the parameter servers; fulfilment counts trainers only."""
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            return 0.0
        return self.cluster.servers_share(job, self.policy.fairness.queue_weights)

    @property
    def trainers(self) -> int:
        """Trainers of all jobs after this plan."""
        return sum(draft.count for draft in self.drafts)

    @property
    def moves(self) -> int:
        """Number of trainers that may be on the move at one time."""
        return max(1, int(self.policy.stability.max_moves * self.trainers))

    def measure(self, draft: JobDraft, trainers: int) -> float:
        """The measure that fairness equalises, for a job with this number of trainers.

        The weighted dominant share, or the weighted fulfilment (0 at the job's minimum).
        """
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            trainers -= draft.job.min_trainers
        return trainers * draft.trainer_measure + draft.servers_measure

    def standing(self, draft: JobDraft) -> tuple[bool, int]:
        """Sort key of jobs before their measure: own quota before borrowed one, then priority."""
        if not self._has_standings:
            return _EQUAL
        expected_count = draft.count + draft.expected_count
        step = ceilings.next_size(self.policy, draft.job, expected_count) - expected_count
        return self.quotas.borrows(draft.job, max(1, step)), -draft.priority

    def expected_measure(self, draft: JobDraft, additional: int = 0) -> float:
        """The measure once the expected trainers, and `additional` ones, have started."""
        return self.measure(draft, draft.count + draft.expected_count + additional)

    def owner(self, trainer: Pod) -> JobDraft | None:
        """The job that owns this trainer; None where an earlier Job of the same name owned it."""
        draft = self._by_key.get(job_key(trainer))
        return draft if draft is not None and draft.job.uid == trainer.owner_uid else None

    def reserve(self, job: Job, node: str, requests: Resources | None = None) -> None:
        """Reserves node capacity, quota and load for a new trainer.

        Args:
            job: The trainer's job.
            node: Node of the trainer.
            requests: Its requests, where they exceed those of the job's other trainers.
        """
        self.quotas.reserve(job)
        self.reserve_place(node, job.requests if requests is None else requests)

    def unreserve(self, job: Job, node: str, requests: Resources | None = None) -> None:
        """Undoes `reserve`."""
        self.quotas.unreserve(job)
        self.unreserve_place(node, job.requests if requests is None else requests)

    def reserve_place(self, node: str, requests: Resources) -> None:
        """Reserves node capacity for any pod, and load where trainers may use the node."""
        self.capacity.reserve(node, requests)
        if node in self._usable:
            self.load.reserve(requests)

    def unreserve_place(self, node: str, requests: Resources) -> None:
        """Undoes `reserve_place`."""
        self.capacity.unreserve(node, requests)
        if node in self._usable:
            self.load.unreserve(requests)

    def add_leaving_load(self, node: str, requests: Resources) -> None:
        """Counts load as leaving where trainers may use the node."""
        if node in self._usable:
            allocatable = self.cluster.nodes[node].allocatable  # no more than that is in use there
            self.load.add_leaving(amounts.at_most(requests, allocatable))

    def add_expected(self, draft: JobDraft, node: str) -> None:
        """Reserves capacity on `node` for a trainer that starts once leaving pods have ended."""
        self.capacity.reserve(node, draft.job.requests)
        self.load.add_expected(draft.job.requests)
        self.quotas.reserve(draft.job)
        draft.expected_count += 1

    def release(self, draft: JobDraft, pod: Pod, reason: Reason, figures: Figures) -> None:
        """Releases a live trainer. Its capacity becomes free only when the pod has ended."""
        draft.remove(pod)
        self.released.add(pod.uid)
        self.quotas.release(draft.job, [pod])
        self.capacity.add_leaving(pod)
        self.add_leaving_load(pod.node or self.promised.get(pod.uid, ""), pod.requests)
        self._releases.append(
            Release(draft.key, pod.uid, pod.namespace, pod.name, pod.node, reason, figures)
        )

    def release_server(
        self, draft: JobDraft, pod: Pod, reason: Reason, *, node_lost: bool = False
    ) -> None:
        """Deletes a parameter server."""
        self._server_releases.append(
            ReleaseServer(draft.key, pod.uid, pod.namespace, pod.name, reason, node_lost)
        )

    def waited_s(self, pod: Pod) -> float:
        """How long ago a pod was created."""
        return self.now_s - self.cluster.first_seen.created_s(pod, self.now_s)

    def _has_low_share(self, draft: JobDraft) -> bool:
        """Whether a job's new surplus should outlast that of others (docs/decisions/0072).

        Only where kube-scheduler does not ask the extender, which knows the shares: it preempts the
        youngest trainers of the lowest priority, and these are those of the job that came last.
        """
        if self.history.scheduling.marks(draft.job.scheduler):
            return False
        return self.measure(draft, draft.count) <= _LOW_SHARE * self._largest_measure

    @cached_property
    def _largest_measure(self) -> float:
        """The largest measure of a job after this plan; asked for once the plan is made."""
        return max(self.measure(draft, draft.count) for draft in self.drafts)

    def to_plan(self) -> Plan:
        """The finished plan."""
        return Plan(
            jobs=tuple(
                JobPlan(
                    key=draft.key,
                    live=draft.initial_count,
                    target=draft.count,
                    reason=draft.reason,
                    figures=draft.figures,
                    share=self.measure(draft, draft.count),
                    uncovered=draft.uncovered,
                )
                for draft in self.drafts
            ),
            creates=tuple(
                Create(
                    draft.key,
                    tier,
                    tuple(nodes),
                    _REASON_OF[tier],
                    master=draft.masterless and tier is Tier.GUARANTEED,
                    avoided_nodes=self.avoided_nodes.names(draft.job, tier),
                    low_share=tier is Tier.SURPLUS and self._has_low_share(draft),
                )
                for draft in self.drafts
                for tier, nodes in draft.creates.items()
                if nodes
            )
            + tuple(draft.node_request for draft in self.drafts if draft.node_request),
            releases=tuple(self._releases),
            server_creates=tuple(
                CreateServers(
                    draft.key, tuple(draft.server_creates), tuple(draft.server_creates.values())
                )
                for draft in self.drafts
                if draft.server_creates
            ),
            server_releases=tuple(self._server_releases),
            reclaimed_for=frozenset(self.reclaimed_for),
            offered=self.offered,
            short=frozenset(self.short),
            quota_reliefs=frozenset(self.quota_reliefs),
            unneeded=vacancy.unneeded_nodes(self.cluster, self.policy),
            tainted=passing_taints(self.cluster.restricted, self._missing_nodes),
            gave_up=frozenset(self.gave_up),
            failed_moves=self.failed_moves,
            moved=frozenset(self.history.moved & self.cluster.pods.keys()).union(
                r.uid for r in self._releases if r.reason is Reason.FAIR_SHARE
            ),
            avoided=self.avoided_nodes.by_job,
            creation_backoffs=self.creation_backoffs,
            demands={
                draft.job.uid: draft.demand_history.after(draft.gains) for draft in self.drafts
            },
            gains={draft.job.uid: draft.gains for draft in self.drafts if draft.gains},
            line=self.line,
            deferred=self.deferred,
        )
