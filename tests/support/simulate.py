"""A small pure cluster that carries out plans, with an ideal kube-scheduler.

Creations become waiting pods; the scheduler binds them, services first, where they fragment
capacity least, and preempts through `policy.planning.victims`; released pods end within one cycle. Time
moves only from cycle to cycle, far enough that all delays of the policy are over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.placement import Packing, admits
from policy.cluster.snapshot import Job, Node, Phase, Pod, Snapshot
from policy.document.model import Policy
from policy.names import Tier
from policy.planning.demand import DemandHistory
from policy.planning.plan import Create, History, Plan, ReleaseServer
from policy.planning.planner import plan
from policy.planning.victims import Candidate, choose
from tests.support.builders import NOW_S, server, trainer

ROUND_S = 30.0


class Cluster:
    """Nodes, jobs and pods, and the number of trainers stopped so far."""

    def __init__(
        self, nodes: Sequence[Node], jobs: Sequence[Job] = (), pods: Sequence[Pod] = ()
    ) -> None:
        self.nodes = tuple(nodes)
        self.jobs = {job.key: job for job in jobs}
        self.pods = {pod.uid: pod for pod in pods}
        self.now_s = NOW_S
        self.stopped = 0
        self._next_id = 1000
        self._reclaimed_for: dict[str, tuple[int, float]] = {}
        self._demands: Mapping[str, DemandHistory] = {}

    def state(self) -> ClusterState:
        """The cluster as decisions see it."""
        jobs = tuple(self.jobs.values())
        return ClusterState.of(Snapshot(self.nodes, tuple(self.pods.values()), jobs))

    def plan(self, policy: Policy) -> Plan:
        """The plan for the current state."""
        history = History(reclaimed_for=self._reclaimed_for, demands=self._demands)
        return plan(self.state(), policy, self.now_s, history)

    def round(self, policy: Policy) -> Plan:
        """Plans, applies the plan, schedules; removes pods that were being deleted before."""
        new_plan = self.plan(policy)
        leavers = {uid for uid, pod in self.pods.items() if pod.deleting}
        self.apply(new_plan)
        self.schedule(policy)
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid not in leavers}
        self.now_s += ROUND_S
        return new_plan

    def settle(self, policy: Policy, cycles: int) -> int:
        """Runs cycles until one changes nothing; returns the number of cycles before it.

        Raises:
            AssertionError: the cluster did not settle within `cycles`.
        """
        for number in range(cycles):
            before = self.pods.copy()
            if self.round(policy).empty and self.pods == before:
                return number
        raise AssertionError(f"not settled after {cycles} cycles: {self.plan(policy)}")

    def apply(self, new_plan: Plan) -> None:
        """Releases and creates trainers and parameter servers."""
        self._demands = new_plan.demands
        for release in new_plan.releases:
            self._release(release.uid)
        for uid in new_plan.reclaimed_for:
            self._reclaimed_for[uid] = (self._reclaimed_for.get(uid, (0, 0.0))[0] + 1, self.now_s)
        for create in new_plan.creates:
            self._create(create)
        for server_release in new_plan.server_releases:
            self._release_server(server_release)
        for create_servers in new_plan.server_creates:
            for number, node in zip(create_servers.numbers, create_servers.nodes, strict=True):
                owner = self.jobs[create_servers.job]
                pod = server(owner, number, created_s=self.now_s, planned=node)
                assert pod.uid not in self.pods, "a pod of that name is there"
                self.pods[pod.uid] = pod

    def _release_server(self, server_release: ReleaseServer) -> None:
        """Deletes a server; at once where its node is lost or it never started."""
        pod = self.pods.pop(server_release.uid)
        if pod.node and not (server_release.node_lost or pod.terminal):
            self.pods[server_release.uid] = replace(pod, deleting=True)

    def _release(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self.stopped += bool(pod.node)
        if pod.node:
            self.pods[uid] = replace(pod, deleting=True)

    def _create(self, create: Create) -> None:
        for node in create.nodes:
            self._next_id += 1
            owner = self.jobs[create.job]
            new_trainer = trainer(
                owner, self._next_id, tier=create.tier, created_s=self.now_s, planned=node
            )
            self.pods[new_trainer.uid] = new_trainer

    def schedule(self, policy: Policy) -> None:
        """Binds waiting pods in order of priority; a pod that fits nowhere preempts, or waits."""
        state = self.state()
        shapes = state.packing
        waiting = sorted(state.waiting.values(), key=lambda p: (-p.priority, p.created_s, p.uid))
        for pod in waiting:
            node = self._best(pod, state, shapes, policy)
            if node:
                self._put(state, self._started(pod, node))
            elif pod.preempts:
                self._preempt(pod, state, policy)

    def _started(self, pod: Pod, node: str) -> Pod:
        return replace(
            pod, node=node, nominated="", phase=Phase.RUNNING, ready=True, started_s=self.now_s
        )

    def _put(self, state: ClusterState, pod: Pod) -> None:
        state.put_pod(pod)
        self.pods[pod.uid] = pod

    @staticmethod
    def _best(pod: Pod, state: ClusterState, shapes: Packing, policy: Policy) -> str:
        """The node that kube-scheduler would choose by the extender's scores, or ""."""
        pools = policy.node_pools if pod.is_training else ()
        rated = []
        for name, node in state.nodes.items():
            free = free_beside(pod, name, state)
            if admits(node, pod.constraints, pools) is None and amounts.within(pod.requests, free):
                elsewhere = name != pod.planned
                rated.append((elsewhere, shapes.cost(pod.requests, free), name))
        return min(rated)[2] if rated else ""

    def _preempt(self, pod: Pod, state: ClusterState, policy: Policy) -> None:
        if pod.nominated and any(p.deleting for p in state.bound.get(pod.nominated, {}).values()):
            return
        proposals = list(self._proposals(pod, state, policy))
        chosen = choose(pod, proposals, state, weights=policy.fairness.queue_weights)
        if chosen is None:
            return
        for uid in chosen.uids:
            victim = self.pods[uid]
            self.stopped += victim.is_training and not victim.deleting
            self._put(state, replace(victim, deleting=True, disrupted=True))
        self._put(state, replace(pod, nominated=chosen.node))

    @staticmethod
    def _proposals(pod: Pod, state: ClusterState, policy: Policy) -> Iterable[Candidate]:
        """One candidate a node, as kube-scheduler makes them: all that is lower, then reprieves."""
        pools = policy.node_pools if pod.is_training else ()
        for name, node in state.nodes.items():
            if admits(node, pod.constraints, pools) is None:
                yield from propose(pod, name, state)

    def counts(self) -> dict[str, int]:
        """Job key -> live trainers."""
        state = self.state()
        return {key: len(state.trainers(job)) for key, job in self.jobs.items()}


def free_beside(pod: Pod, name: str, state: ClusterState) -> dict[str, int]:
    """What is free for a pod beside those that were nominated to the node and rank as high."""
    free = state.free(name)
    for other in state.waiting.values():
        if other.nominated == name and other.priority >= pod.priority and other.uid != pod.uid:
            amounts.subtract(free, other.requests)
    return free


def propose(pod: Pod, name: str, state: ClusterState) -> list[Candidate]:
    """kube-scheduler's victims on one node: the least important pods whose going makes room.

    As DefaultPreemption does: take every pod of lower priority away, then give back, the most
    important first, what still fits beside the preemptor.
    """
    bound = state.bound.get(name, {}).values()
    lower = sorted(
        (other for other in bound if other.priority < pod.priority),
        key=lambda other: (-other.priority, other.started_s, other.uid),
    )
    free = free_beside(pod, name, state)
    for other in lower:
        amounts.add(free, other.requests)
    if not amounts.within(pod.requests, free):
        return []
    victims: list[Pod] = []
    for other in lower:
        amounts.subtract(free, other.requests)
        if not amounts.within(pod.requests, free):
            amounts.add(free, other.requests)
            victims.append(other)
    violations = sum(other.tier is Tier.GUARANTEED for other in victims)
    return [Candidate(name, tuple(v.uid for v in victims), violations)] if victims else []
