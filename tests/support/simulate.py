"""A tiny pure cluster that does what a plan says, with an ideal kube-scheduler beside it.

Creations become waiting pods; the scheduler binds them, services first, where they spoil least
and preempts through `policy.victims`; pods that are let go end within one round. Time moves
only from round to round, far enough that every patience of the policy is over.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from policy import amounts
from policy.elasticity import plan
from policy.index import Index
from policy.model import Policy
from policy.names import Tier
from policy.placement import Packing, admits
from policy.planning import Create, History, Plan, Retire
from policy.snapshot import Job, Node, Phase, Pod, Snapshot
from policy.victims import Candidate, choose
from tests.support.builders import NOW_S, server, trainer

ROUND_S = 30.0


class Cluster:
    """Nodes, jobs and pods, and how many trainers have been stopped so far."""

    def __init__(
        self, nodes: Sequence[Node], jobs: Sequence[Job] = (), pods: Sequence[Pod] = ()
    ) -> None:
        self.nodes = tuple(nodes)
        self.jobs = {job.key: job for job in jobs}
        self.pods = {pod.uid: pod for pod in pods}
        self.now_s = NOW_S
        self.stopped = 0
        self._made = 1000
        self._helped: dict[str, tuple[int, float]] = {}

    def index(self) -> Index:
        """The cluster as the core sees it."""
        jobs = tuple(self.jobs.values())
        return Index.of(Snapshot(self.nodes, tuple(self.pods.values()), jobs))

    def plan(self, policy: Policy) -> Plan:
        """What is to be done now."""
        return plan(self.index(), policy, self.now_s, History(helped=self._helped))

    def round(self, policy: Policy) -> Plan:
        """Plans, applies the plan, schedules; pods that left all the while are gone at its end."""
        made = self.plan(policy)
        leavers = {uid for uid, pod in self.pods.items() if pod.deleting}
        self.apply(made)
        self.schedule(policy)
        self.pods = {uid: pod for uid, pod in self.pods.items() if uid not in leavers}
        self.now_s += ROUND_S
        return made

    def settle(self, policy: Policy, rounds: int) -> int:
        """Plays rounds until one changes nothing at all; how many came before it.

        Raises:
            AssertionError: so many rounds were not enough.
        """
        for number in range(rounds):
            before = self.pods.copy()
            if self.round(policy).empty and self.pods == before:
                return number
        raise AssertionError(f"not settled after {rounds} rounds: {self.plan(policy)}")

    def apply(self, made: Plan) -> None:
        """Lets trainers go and makes new ones."""
        for release in made.releases:
            self._let_go(release.uid)
        for uid in made.helped:
            self._helped[uid] = (self._helped.get(uid, (0, 0.0))[0] + 1, self.now_s)
        for create in made.creates:
            self._make(create)
        for retire in made.retires:
            self._retire(retire)
        for serve in made.serves:
            for number, node in zip(serve.numbers, serve.nodes, strict=True):
                owner = self.jobs[serve.job]
                pod = server(owner, number, created_s=self.now_s, planned=node)
                assert pod.uid not in self.pods, "a pod of that name is there"
                self.pods[pod.uid] = pod

    def _retire(self, retire: Retire) -> None:
        """Once nobody would confirm its end, or it never began, it is gone at once."""
        pod = self.pods.pop(retire.uid)
        if pod.node and not (retire.lost or pod.terminal):
            self.pods[retire.uid] = replace(pod, deleting=True)

    def _let_go(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self.stopped += bool(pod.node)
        if pod.node:
            self.pods[uid] = replace(pod, deleting=True)

    def _make(self, create: Create) -> None:
        for node in create.nodes:
            self._made += 1
            owner = self.jobs[create.job]
            made = trainer(owner, self._made, tier=create.tier, created_s=self.now_s, planned=node)
            self.pods[made.uid] = made

    def schedule(self, policy: Policy) -> None:
        """Binds waiting pods in order of priority; what fits nowhere preempts, or waits on."""
        index = self.index()
        shapes = index.packing
        waiting = sorted(index.waiting.values(), key=lambda p: (-p.priority, p.created_s, p.uid))
        for pod in waiting:
            where = self._best(pod, index, shapes, policy)
            if where:
                self._put(index, self._started(pod, where))
            elif pod.preempts:
                self._preempt(pod, index, policy)

    def _started(self, pod: Pod, where: str) -> Pod:
        return replace(
            pod, node=where, nominated="", phase=Phase.RUNNING, ready=True, started_s=self.now_s
        )

    def _put(self, index: Index, pod: Pod) -> None:
        index.put_pod(pod)
        self.pods[pod.uid] = pod

    @staticmethod
    def _best(pod: Pod, index: Index, shapes: Packing, policy: Policy) -> str:
        """The node that kube-scheduler would choose by the extender's scores, or ""."""
        pools = policy.node_pools if pod.is_training else ()
        rated = []
        for name, node in index.nodes.items():
            free = free_beside(pod, name, index)
            if admits(node, pod.constraints, pools) is None and amounts.within(pod.requests, free):
                elsewhere = name != pod.planned
                rated.append((elsewhere, shapes.cost(pod.requests, free), name))
        return min(rated)[2] if rated else ""

    def _preempt(self, pod: Pod, index: Index, policy: Policy) -> None:
        if pod.nominated and any(p.deleting for p in index.bound.get(pod.nominated, {}).values()):
            return
        found = list(self._proposals(pod, index, policy))
        chosen = choose(pod, found, index, weights=policy.fairness.queue_weights)
        if chosen is None:
            return
        for uid in chosen.uids:
            victim = self.pods[uid]
            self.stopped += victim.is_training and not victim.deleting
            self._put(index, replace(victim, deleting=True, disrupted=True))
        self._put(index, replace(pod, nominated=chosen.node))

    @staticmethod
    def _proposals(pod: Pod, index: Index, policy: Policy) -> Iterable[Candidate]:
        """One candidate a node, as kube-scheduler makes them: all that is lower, then reprieves."""
        pools = policy.node_pools if pod.is_training else ()
        for name, node in index.nodes.items():
            if admits(node, pod.constraints, pools) is None:
                yield from propose(pod, name, index)

    def counts(self) -> dict[str, int]:
        """Job key -> live trainers."""
        index = self.index()
        return {key: len(index.trainers(job)) for key, job in self.jobs.items()}


def free_beside(pod: Pod, name: str, index: Index) -> dict[str, int]:
    """What is free for a pod beside those that were nominated to the node and rank as high."""
    free = index.free(name)
    for other in index.waiting.values():
        if other.nominated == name and other.priority >= pod.priority and other.uid != pod.uid:
            amounts.subtract(free, other.requests)
    return free


def propose(pod: Pod, name: str, index: Index) -> list[Candidate]:
    """kube-scheduler's victims on one node: the least important pods whose going makes room.

    As DefaultPreemption does: take every pod of lower priority away, then give back, the most
    important first, what still fits beside the preemptor.
    """
    here = index.bound.get(name, {}).values()
    lower = sorted(
        (other for other in here if other.priority < pod.priority),
        key=lambda other: (-other.priority, other.started_s, other.uid),
    )
    free = free_beside(pod, name, index)
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
