"""The book of one plan: capacity, quotas, load and jobs after the decisions made so far.

Rules read the book and yield decisions. `Book.book` records each decision, and nothing else changes the
book. It consists of `policy.planning.free_capacity` for capacity, `policy.planning.quotas` for quotas,
`policy.planning.load` for load, and `policy.planning.job_entry` for each job's trainers and servers.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import assert_never

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState, job_key
from policy.cluster.live_trainers import LiveTrainers, not_to_replace, with_excess, with_minimum
from policy.cluster.snapshot import Job, Pod, Resources
from policy.document.model import FairnessBy, Policy
from policy.names import Tier
from policy.planning import (
    covered_minimums,
    creation_backoff,
    decisions,
    demand,
    plan,
    sizes,
    vacancy,
)
from policy.planning.decisions import Creation, Decision, Ending, Note, NoteOfJob, OnNode
from policy.planning.free_capacity import FreeCapacity, When
from policy.planning.job_entry import JobEntry, JobFacts
from policy.planning.load import Load, load_limits
from policy.planning.node_failures import AvoidedNodes
from policy.planning.quotas import Quotas
from policy.planning.stranding import StrandingNodes, passing_taints
from policy.reasons import Reason

_EQUAL = (False, 0)
_LOW_SHARE = 0.5
"""A job has a low share if its share is at most this fraction of the largest one."""
_REASON_OF = {Tier.GUARANTEED: Reason.GUARANTEED, Tier.SURPLUS: Reason.SURPLUS}


class Book:
    """The state of one plan. Rules read it, only `book` changes it, and `to_plan` returns the result."""

    def __init__(
        self, cluster: ClusterState, policy: Policy, now_s: float, history: plan.History
    ) -> None:
        """Opens the book with the cluster as it is; `now_s` is in seconds since the epoch."""
        self.cluster = cluster
        self.policy = policy
        self.now_s = now_s
        self.history = history
        self.capacity = FreeCapacity(cluster, policy, now_s)
        self.quotas = Quotas(policy, cluster)
        self._missing_nodes = cluster.missing_nodes
        self.avoided_nodes = AvoidedNodes(cluster, policy.node_pools, now_s)
        self._stranding_nodes = StrandingNodes(
            cluster.restricted, now_s, history.tainted_since, self._missing_nodes
        )
        self.gone_nodes = self._stranding_nodes.gone
        self.closed = vacancy.closed_nodes(cluster, policy, history, now_s)
        """Nodes where this plan adds no surplus."""
        priorities = {queue.name: queue.priority for queue in policy.queues}
        self._has_standings = bool(self.quotas.borrowing) or any(priorities.values())
        self.entries = [JobEntry(facts) for facts in self._facts(priorities)]
        self._by_key = {entry.key: entry for entry in self.entries}
        self.has_excess = any(entry.facts.excess for entry in self.entries)
        self.unmanaged_surplus: dict[str, list[tuple[JobEntry, Pod]]] = {}
        """Node -> its surplus trainers that belong to jobs of the built-in controller."""
        self._count_what_sums_lack()
        self._usable = cluster.usable(policy.node_pools, now_s)
        now = datetime.fromtimestamp(now_s, UTC)
        limits = load_limits(policy, self._usable.allocatable, now)
        self.load = Load(limits, self._usable.in_use)
        for node in self.capacity.nodes_with(When.LATER):
            self._add_leaving_load(node, self.capacity.releasing(node))
        self.creation_backoffs = creation_backoff.current(
            history.creation_backoffs,
            {entry.job.uid: entry.live for entry in self.entries},
            partial(cluster.first_seen.created_s, now_s=now_s),
        )
        """Job uid -> its back-off."""
        self.burst = False
        """Whether services wait for capacity that only leaving pods can free."""
        self.promised: dict[str, str] = {}
        """uid of a waiting trainer -> node where capacity is reserved for it."""
        self.unschedulable_pods: list[Pod] = []
        """Waiting pods that fit on no node, even without surplus."""
        self.released: set[str] = set()
        """uids of trainers that this plan releases."""
        self.awaiting_quota: dict[str, str] = {}
        """Namespace -> key of the job whose minimum must start before the namespace gets more surplus."""
        self.gave_up: set[str] = set()
        """uids of jobs whose request for nodes this plan withdraws, because no node came in time."""
        self._releases: list[plan.Release] = []
        self._server_releases: list[plan.ReleaseServer] = []
        self._reclaimed_for: set[str] = set()
        self._quota_reliefs: set[str] = set()
        self._offered: dict[str, int] = {}
        self._short: set[str] = set()
        self._line = plan.Line()
        self._failed_moves: dict[plan.MoveKey, plan.FailedMove] = {}
        self._is_deferred = False

    def _facts(self, priorities: Mapping[str, int]) -> list[JobFacts]:
        """Returns the jobs that EDL may plan, in order of their keys."""
        jobs = [job for _, job in sorted(self.cluster.jobs.items())]
        protected = {ns: self.policy.protects(ns) for ns in {job.namespace for job in jobs}}
        claimed = covered_minimums.claim(self.quotas, self.cluster, self._stranding_nodes.holds)
        return [
            self._facts_of(job, claimed, priorities.get(job.queue, 0))
            for job in jobs
            if not protected[job.namespace]
        ]

    def _facts_of(self, submitted: Job, claimed: Mapping[str, int], priority: int) -> JobFacts:
        is_stranded = self._stranding_nodes.holds
        live = self.cluster.live_trainers(submitted)
        lasting = not_to_replace(submitted, live, is_stranded)
        if self._missing_nodes:  # the replacement stays, not the pod on the deleted node
            lasting.sort(key=lambda pod: pod.node not in self._missing_nodes)
        covered_min = self._covered_min(submitted, live, claimed)
        live = with_excess(submitted, with_minimum(submitted, live, covered_min), lasting)
        job = self.avoided_nodes.avoiding(submitted)
        before = self.history.demands.get(job.uid)
        return JobFacts(
            job=job,
            live=live,
            demand_history=demand.observe(before, job, len(live.pods), self.now_s),
            trainer_measure=self._trainer_measure(job),
            servers_measure=self._servers_measure(job),
            server_count=self.cluster.server_count(job),
            stranded=sum(map(is_stranded, live.guaranteed)),
            masterless=job.master and job.managed and self.cluster.master_host(job) is None,
            priority=priority,
            covered_min=covered_min,
            claimed=claimed.get(job.key, 0),
        )

    def _covered_min(self, job: Job, live: LiveTrainers, claimed: Mapping[str, int]) -> int:
        """Returns `JobFacts.covered_min` of a job."""
        if not live.pods or job.key not in claimed:
            return job.min_trainers
        count = claimed[job.key]
        return count + self.quotas.room_for_minimum(job, job.min_trainers - count, 0)

    def _trainer_measure(self, job: Job) -> float:
        """Returns the fairness measure of one trainer."""
        weights = self.policy.fairness.queue_weights
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            span = max(1, job.max_trainers - job.min_trainers)
            return 1 / span / (job.weight * weights.get(job.queue, 1))
        return self.cluster.share(job, 1, weights)

    def _servers_measure(self, job: Job) -> float:
        """Returns the fairness measure of the parameter servers; fulfilment counts only trainers."""
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            return 0.0
        return self.cluster.servers_share(job, self.policy.fairness.queue_weights)

    def _count_what_sums_lack(self) -> None:
        """Counts trainers that are missing in the cluster's sums, or that the sums do not count as surplus."""
        for entry in self.entries:
            excess, managed = entry.facts.excess, entry.job.managed
            for pod in entry.surplus if excess or not managed else ():
                if not managed:
                    self.unmanaged_surplus.setdefault(pod.node, []).append((entry, pod))
                if not managed or pod.uid in excess:
                    self.capacity.add_reclaimable(pod)
            self.quotas.reserve(entry.job, entry.absent)

    # What rules read.

    @property
    def trainers(self) -> int:
        """Number of trainers of all jobs after this plan."""
        return sum(entry.count for entry in self.entries)

    @property
    def moves(self) -> int:
        """Number of trainers that may be moving between jobs at the same time."""
        return max(1, int(self.policy.stability.max_moves * self.trainers))

    def measure(self, entry: JobEntry, trainers: int) -> float:
        """Returns the measure that fairness equalises, for a job with this number of trainers.

        The measure is the weighted dominant share or the weighted fulfilment, which is 0 at the job's
        minimum.
        """
        if self.policy.fairness.by is FairnessBy.FULFILMENT:
            trainers -= entry.job.min_trainers
        return trainers * entry.facts.trainer_measure + entry.servers_measure

    def expected_measure(self, entry: JobEntry, additional: int = 0) -> float:
        """Returns the measure once the expected trainers, and `additional` ones, have started."""
        return self.measure(entry, entry.count + entry.expected_count + additional)

    def next_step(self, entry: JobEntry) -> int:
        """Returns how many trainers a job lacks, after the expected ones, to its next size; 0 for none."""
        expected_count = entry.count + entry.expected_count
        return sizes.next_size(self.policy, entry.job, expected_count) - expected_count

    def standing(self, entry: JobEntry) -> tuple[bool, int]:
        """Returns a key that precedes a job's measure in order: own before borrowed quota, then priority."""
        if not self._has_standings:
            return _EQUAL
        step = max(1, self.next_step(entry))
        return self.quotas.borrows(entry.job, step), -entry.facts.priority

    def owner(self, trainer: Pod) -> JobEntry | None:
        """Returns the job that owns this trainer; None if an earlier Job of the same name owned it."""
        entry = self._by_key.get(job_key(trainer))
        return entry if entry is not None and entry.job.uid == trainer.owner_uid else None

    def waited_s(self, pod: Pod) -> float:
        """Returns for how long a pod has existed."""
        return self.now_s - self.cluster.first_seen.created_s(pod, self.now_s)

    # What decisions change.

    def book(self, decision: Decision) -> None:
        """Records one decision."""
        if isinstance(decision, OnNode):
            self._change_node(decision)
        elif isinstance(decision, Creation):
            self._create(self._by_key[decision.job], decision)
        elif isinstance(decision, Ending):
            self._end(self._by_key[decision.job], decision)
        else:
            self._note(decision)

    def _change_node(self, decision: OnNode) -> None:
        node, requests = decision.node, decision.requests
        match decision:
            case decisions.Reserve():
                self.capacity.reserve(node, requests)
                if decision.in_load and node in self._usable:
                    self.load.reserve(requests)
                if decision.trainer:
                    self.promised[decision.trainer] = node
                self.burst = self.burst or decision.is_burst
            case decisions.Unreserve():
                self.capacity.unreserve(node, requests)
                if node in self._usable:
                    self.load.unreserve(requests)
            case decisions.Preempt():
                self._add_leaving_load(node, requests)
            case _:
                assert_never(decision)

    def _add_leaving_load(self, node: str, requests: Resources) -> None:
        """Counts requests as leaving load, if trainers may use the node."""
        if node in self._usable:
            allocatable = self.cluster.nodes[node].allocatable  # the node's use is capped at it
            self.load.add_leaving(amounts.at_most(requests, allocatable))

    def _create(self, entry: JobEntry, decision: Creation) -> None:
        match decision:
            case decisions.CreateTrainers(_, tier, nodes, gains):
                entry.creates[tier] += nodes
                entry.count += len(nodes)
                entry.gains += gains
                self.quotas.reserve(entry.job, len(nodes))
            case decisions.Expect(_, nodes, gains):
                entry.expected_count += len(nodes)
                entry.gains += gains
                self.quotas.reserve(entry.job, len(nodes))
                for node in nodes:
                    self.capacity.reserve(node, entry.job.requests)
                    self.load.add_expected(entry.job.requests)
            case decisions.AddServers(_, server_nodes, is_start):
                self._create_servers(entry, server_nodes, is_start=is_start)
            case decisions.RequestNodes(_, create, servers):
                entry.node_request = create
                entry.count += create.count
                entry.awaits_nodes = True
                self.quotas.reserve(entry.job, create.count)
                self._create_servers(entry, dict.fromkeys(range(servers), ""), is_start=True)
            case _:
                assert_never(decision)

    def _create_servers(self, entry: JobEntry, nodes: Mapping[int, str], *, is_start: bool) -> None:
        entry.server_creates.update(nodes)
        if is_start:
            entry.server_count += len(nodes)
            self.quotas.reserve(entry.job, 0, len(nodes))

    def _end(self, entry: JobEntry, decision: Ending) -> None:
        match decision:
            case decisions.ReleaseTrainer():
                self._release(entry, decision)
            case decisions.DeleteServer(key, pod, reason, is_lost):
                self._server_releases.append(
                    plan.ReleaseServer(key, pod.uid, pod.namespace, pod.name, reason, is_lost)
                )
            case decisions.CancelAbsent(_, count):
                entry.absent -= count
                entry.count -= count
                self.quotas.unreserve(entry.job, count)
            case _:
                assert_never(decision)

    def _release(self, entry: JobEntry, decision: decisions.ReleaseTrainer) -> None:
        """Counts a trainer as leaving. Its capacity becomes free only when the pod has ended."""
        pod = decision.pod
        entry.remove(pod)
        entry.masterless = entry.masterless or decision.takes_master
        self.released.add(pod.uid)
        self.quotas.release(entry.job, [pod])
        self.capacity.add_leaving(pod)
        self._add_leaving_load(pod.node or self.promised.get(pod.uid, ""), pod.requests)
        reason, figures = decision.reason, decision.figures
        self._releases.append(
            plan.Release(entry.key, pod.uid, pod.namespace, pod.name, pod.node, reason, figures)
        )
        if decision.service:
            self._reclaimed_for.add(decision.service)

    def _note(self, decision: Note) -> None:
        match decision:
            case decisions.Explain(key, blocked):
                self._by_key[key].blocked = blocked
            case decisions.Leave(pods):
                self.unschedulable_pods += pods
            case decisions.Remember():
                self._remember(decision)
            case _:
                self._note_of_job(self._by_key[decision.job], decision)

    def _note_of_job(self, entry: JobEntry, decision: NoteOfJob) -> None:
        match decision:
            case decisions.AwaitNodes():
                entry.awaits_nodes = True
            case decisions.Pause(_, waiting):
                entry.paused = True
                entry.blocked = decisions.Blocked(Reason.GROWING, {"waiting": waiting})
            case decisions.Claim(_, trainers, server_count):
                self.quotas.claim(entry.job, trainers, server_count)
            case decisions.Uncover(_, count):
                entry.covered_min -= count
            case decisions.BackOff(_, backoff):
                self.creation_backoffs[entry.job.uid] = backoff
            case decisions.WaiveAvoidance():
                self.avoided_nodes.waive(entry.key)
            case decisions.HoldQuota(_, is_relief):
                self.awaiting_quota[entry.job.namespace] = entry.key
                if is_relief:
                    self._quota_reliefs.add(entry.job.uid)
            case _:
                assert_never(decision)

    def _remember(self, notes: decisions.Remember) -> None:
        self.gave_up |= notes.gave_up
        self._offered |= notes.offered
        self._short |= notes.short
        self._line = notes.line or self._line
        self._failed_moves |= notes.failed_moves
        self._is_deferred = self._is_deferred or notes.is_deferred

    # The result.

    def _has_low_share(self, entry: JobEntry) -> bool:
        """Returns whether a job's new surplus should outlast other jobs' surplus (docs/decisions/0072).

        This matters only if kube-scheduler does not ask the extender, which knows the shares. Without the
        extender, kube-scheduler preempts the youngest trainers of the lowest priority, which belong to
        the job that came last.
        """
        if self.history.scheduling.marks(entry.job.scheduler):
            return False
        return self.measure(entry, entry.count) <= _LOW_SHARE * self._largest_measure

    @cached_property
    def _largest_measure(self) -> float:
        """The largest measure of any job after this plan; read only when all decisions are made."""
        return max(self.measure(entry, entry.count) for entry in self.entries)

    def to_plan(self) -> plan.Plan:
        """Returns the finished plan."""
        return plan.Plan(
            jobs=tuple(
                plan.JobPlan(
                    key=entry.key,
                    live=entry.facts.count,
                    target=entry.count,
                    reason=entry.reason,
                    figures=entry.blocked.figures,
                    share=self.measure(entry, entry.count),
                    uncovered=entry.uncovered,
                )
                for entry in self.entries
            ),
            creates=tuple(
                plan.Create(
                    entry.key,
                    tier,
                    tuple(nodes),
                    _REASON_OF[tier],
                    master=entry.masterless and tier is Tier.GUARANTEED,
                    avoided_nodes=self.avoided_nodes.names(entry.job, tier),
                    low_share=tier is Tier.SURPLUS and self._has_low_share(entry),
                )
                for entry in self.entries
                for tier, nodes in entry.creates.items()
                if nodes
            )
            + tuple(entry.node_request for entry in self.entries if entry.node_request),
            releases=tuple(self._releases),
            server_creates=tuple(
                plan.CreateServers(
                    entry.key, tuple(entry.server_creates), tuple(entry.server_creates.values())
                )
                for entry in self.entries
                if entry.server_creates
            ),
            server_releases=tuple(self._server_releases),
            reclaimed_for=frozenset(self._reclaimed_for),
            offered=self._offered,
            short=frozenset(self._short),
            quota_reliefs=frozenset(self._quota_reliefs),
            unneeded=vacancy.unneeded_nodes(self.cluster, self.policy),
            tainted=passing_taints(self.cluster.restricted, self._missing_nodes),
            gave_up=frozenset(self.gave_up),
            failed_moves=self._failed_moves,
            moved=frozenset(self.history.moved & self.cluster.pods.keys()).union(
                r.uid for r in self._releases if r.reason is Reason.FAIR_SHARE
            ),
            avoided=self.avoided_nodes.by_job,
            creation_backoffs=self.creation_backoffs,
            demands={
                entry.job.uid: entry.facts.demand_history.after(entry.gains)
                for entry in self.entries
            },
            gains={entry.job.uid: entry.gains for entry in self.entries if entry.gains},
            line=self._line,
            deferred=self._is_deferred,
        )
