"""The sums and decisions of one planning cycle, which the rules in `policy.rules` read and write."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile

from policy import amounts, ceilings, creation_backoff, sidecar, vacancy
from policy.cluster_state import ClusterState, job_key
from policy.decisions import NONE, Figures
from policy.free_capacity import FreeCapacity, When
from policy.live_trainers import LiveTrainers, with_excess
from policy.model import FairnessBy, Policy
from policy.names import Tier
from policy.node_failures import AvoidedNodes
from policy.plan import (
    Create,
    CreateServers,
    FailedMove,
    History,
    JobPlan,
    MoveKey,
    Plan,
    Release,
    ReleaseServer,
)
from policy.reasons import Reason
from policy.snapshot import Constraints, Job, Pod, Resources
from policy.stranding import StrandingNodes, passing_taints

_REASON_OF = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}


class JobDraft:
    """The mutable draft of one job's plan: remaining trainers, planned creations, and the reason."""

    node_request: Create | None = None
    """Trainers to create though no node has room for them."""
    awaits_nodes: bool = False  # whether pods of it wait, or will, for an autoscaler to add nodes
    has_turn: bool = False  # whether it may request nodes now

    def __init__(
        self,
        job: Job,
        live_trainers: LiveTrainers,
        *,
        trainer_measure: float,
        stranded: int,
        masterless: bool = False,
        server_count: int = 0,
        servers_measure: float = 0.0,
    ) -> None:
        """Starts from the job as it is in the cluster, with nothing planned.

        Args:
            job: The job.
            live_trainers: Its trainers.
            trainer_measure: Fairness measure of one trainer; see `CycleState.measure`.
            stranded: Guaranteed trainers on nodes that are drained or lost, to be replaced.
            masterless: Whether it asked for a master and no pod hosts one.
            server_count: Parameter servers that count as the job's: all, or 0 before it starts.
            servers_measure: Fairness measure of all parameter servers that the job asks for.
        """
        self.job = job
        self.key = job.key
        self.live = list(live_trainers.pods)
        """Trainers that remain, in order of loss: surplus before guaranteed."""
        self.trainer_measure = trainer_measure
        self.server_count = server_count
        self._servers_measure = servers_measure
        self._surplus = live_trainers.surplus
        self._waiting = live_trainers.waiting > 0
        self.guaranteed = len(live_trainers.guaranteed)
        """Live trainers of the guaranteed tier."""
        self.absent = 0 if job.managed else max(0, job.parallelism - len(live_trainers.pods))
        """Trainers that the built-in controller should create and has not created yet."""
        self.initial_count = len(live_trainers.pods) + self.absent
        """Trainers before this plan."""
        self.count = self.initial_count
        """Trainers after this plan."""
        self.excess = live_trainers.excess  # as there
        self.stranded = stranded
        self.masterless = masterless
        """Whether its master is missing; the next guaranteed trainer will host it."""
        self.leaving = live_trainers.leaving
        self.ending = live_trainers.succeeded
        """A trainer succeeded, and there is no master to decide instead: no more creations."""
        self.creates: dict[Tier, list[str]] = {Tier.GUARANTEED: [], Tier.SURPLUS: []}
        """Tier -> nodes of the trainers to create."""
        self.server_creates: dict[int, str] = {}
        """Index -> node of a parameter server to create; "" for one that waits for a node."""
        self.expected_count = 0
        """Trainers for which capacity is reserved that leaving pods will free."""
        self.reason = Reason.AT_MAX
        self.figures: Figures = {"max": job.max_trainers}
        self.stopped = job.stopped
        """Whether it should have no trainers at all."""
        self.grows = not (self.stopped or self.ending or job.error)
        """Whether trainers may be created for it."""

    @property
    def servers_measure(self) -> float:
        """Fairness measure of its parameter servers."""
        return self._servers_measure if self.server_count else 0.0

    @property
    def servers_to_start(self) -> int:
        """Number of parameter servers that must be created with its first trainers."""
        server_spec = self.job.servers if self.job.managed else None
        return server_spec.count if server_spec is not None and not self.server_count else 0

    @property
    def surplus(self) -> list[Pod]:
        """Live trainers of the surplus tier, in order of loss."""
        return self.live[: self._surplus]

    @property
    def waiting(self) -> list[Pod]:
        """Surplus trainers that have no node yet."""
        if not self._waiting:
            return []
        return list(takewhile(lambda pod: not pod.node, self.surplus))

    def add_creates(self, tier: Tier, nodes: Sequence[str]) -> None:
        """Plans the creation of trainers, one on each node."""
        self.creates[tier] += nodes
        self.count += len(nodes)

    def cancel_absent(self, absent: int) -> None:
        """Takes back trainers that the built-in controller has not created yet."""
        self.absent -= absent
        self.count -= absent

    def remove(self, pod: Pod) -> None:
        """Removes a live trainer from the count."""
        self.count -= 1
        position = [trainer.uid for trainer in self.live].index(pod.uid)
        del self.live[position]
        if position < self._surplus:
            self._surplus -= 1
        else:
            self.guaranteed -= pod.tier is Tier.GUARANTEED

    def requests(self, *, first: bool) -> Resources:
        """Requests of a new trainer; the first guaranteed one also hosts a missing master."""
        if not (first and self.masterless):
            return self.job.requests
        with_master = dict(self.job.requests)
        amounts.add(with_master, sidecar.REQUESTS)
        return with_master

    @property
    def spare(self) -> list[Pod]:
        """Surplus trainers that may be released without taking the job below its minimum.

        In order of loss. Where guaranteed trainers are missing, surplus ones count towards the
        minimum.
        """
        return self.surplus[: max(0, self.count - self.job.min_trainers)]

    @property
    def admitted(self) -> bool:
        """Whether it has started, so that it may have more than its minimum."""
        return self.grows and self.count >= self.job.min_trainers and not self.awaits_nodes

    def set_reason(self, reason: Reason, figures: Figures = NONE) -> None:
        """Records why the job has its target; a later call overrides an earlier one."""
        self.reason, self.figures = reason, figures


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
        self.packing = cluster.packing
        self.capacity = FreeCapacity(cluster, policy, now_s)
        self.quotas = ceilings.Quotas(policy, cluster)
        self.drafts = self._new_drafts()
        now = datetime.fromtimestamp(now_s, UTC)
        self._usable = cluster.usable(policy.node_pools, now_s)
        limits = ceilings.load_limits(policy, self._usable.allocatable, now)
        self.load = ceilings.Load(limits, self._usable.in_use)
        for node in self.capacity.nodes_with(When.LATER):
            self.add_leaving_load(node, self.capacity.releasing(node))
        self.closed = vacancy.closed_nodes(cluster, policy, history, now_s)
        self.burst = False  # whether services wait for capacity that only leaving pods can free
        self.reclaimed_for: set[str] = set()
        """uids of service pods for which this plan releases trainers."""
        live_by_uid = {draft.job.uid: draft.live for draft in self.drafts}
        self.creation_backoffs = creation_backoff.current(history.creation_backoffs, live_by_uid)
        self.offered: dict[str, int] = {}  # as in `Plan`
        self.promised: dict[str, str] = {}
        """uid -> node of the waiting trainers for which capacity is reserved."""
        self.unschedulable_pods: list[Pod] = []
        """Waiting pods that fit on no node, even without surplus trainers."""
        self.released: set[str] = set()  # uids of trainers that this plan releases
        self.server_releases: list[ReleaseServer] = []  # parameter servers to delete
        self.short: set[str] = set()  # these two as in `Plan`
        self.gave_up: set[str] = set()
        self.failed_moves: dict[MoveKey, FailedMove] = {}
        """Moves for which no donor was found, in this plan or recently."""
        self.deferred = False  # whether moves were not tried and are left to the next plan
        self._releases: list[Release] = []
        self._largest: dict[Constraints, dict[str, int]] = {}
        self._by_key = {draft.key: draft for draft in self.drafts}
        self.unmanaged = [draft for draft in self.drafts if not draft.job.managed]
        """The jobs that the built-in controller runs."""

    def _new_drafts(self) -> list[JobDraft]:
        jobs = [job for _, job in sorted(self.cluster.jobs.items())]
        protected = {ns: self.policy.protects(ns) for ns in {job.namespace for job in jobs}}
        self.avoided_nodes = AvoidedNodes(self.cluster, self.policy.node_pools, self.now_s)
        stranding_nodes = StrandingNodes(self.cluster.nodes, self.now_s, self.history.tainted_since)
        drafts = []
        for submitted in jobs:
            if protected[submitted.namespace]:
                continue
            live_trainers = self.cluster.live_trainers(submitted)
            lasting = [p for p in live_trainers.guaranteed if not stranding_nodes.holds(p)]
            live_trainers = with_excess(submitted, live_trainers, lasting)
            job = self.avoided_nodes.avoiding(submitted)
            draft = JobDraft(
                job,
                live_trainers,
                trainer_measure=self._trainer_measure(job),
                stranded=sum(map(stranding_nodes.holds, live_trainers.guaranteed)),
                masterless=job.master and job.managed and self.cluster.master_host(job) is None,
                server_count=self.cluster.server_count(job),
                servers_measure=self._servers_measure(job),
            )
            drafts.append(draft)
            for pod in draft.surplus if draft.excess or not job.managed else ():
                if not job.managed or pod.uid in draft.excess:
                    self.capacity.add_reclaimable(pod)  # the sums lack it
            self.quotas.reserve(job, draft.absent)
        return drafts

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

    def largest(self, constraints: Constraints) -> Resources:
        """Resource -> largest allocatable amount of one node, among nodes open to such trainers.

        The first call for some constraints costs O(nodes); waiting jobs often share theirs.
        """
        most = self._largest.get(constraints)
        if most is None:
            most = self._largest[constraints] = {}
            for name in self.capacity.open_nodes(constraints, pooled=True):
                for resource, amount in self.cluster.nodes[name].allocatable.items():
                    if amount > most.get(resource, 0):
                        most[resource] = amount
        return most

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
            self.load.add_leaving(requests)

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
        self.quotas.unreserve(draft.job)
        self.capacity.add_leaving(pod)
        self.add_leaving_load(pod.node or self.promised.get(pod.uid, ""), pod.requests)
        self._releases.append(
            Release(draft.key, pod.uid, pod.namespace, pod.name, pod.node, reason, figures)
        )

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
            server_releases=tuple(self.server_releases),
            reclaimed_for=frozenset(self.reclaimed_for),
            offered=self.offered,
            short=frozenset(self.short),
            unneeded=vacancy.unneeded_nodes(self.cluster, self.policy),
            tainted=passing_taints(self.cluster.nodes),
            gave_up=frozenset(self.gave_up),
            failed_moves=self.failed_moves,
            avoided=self.avoided_nodes.by_job,
            creation_backoffs=self.creation_backoffs,
            deferred=self.deferred,
        )
