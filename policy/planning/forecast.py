"""Forecasts the effect of a policy: carries out plan after plan, with an ideal kube-scheduler. Pure.

A single plan adds a few trainers and waits for them. A forecast repeats plans until nothing changes any
more, while services and jobs stay the same. Its time steps are longer than the delays between plans, so a
forecast shows the result but not how long it takes.
"""

from dataclasses import replace

from policy.cluster.first_seen import FirstSeen
from policy.cluster.placement import CHEAPEST
from policy.cluster.snapshot import Job, Phase, Pod, ServerSpec
from policy.document.model import Policy
from policy.names import CLASS_SUPPORT, Role, Tier
from policy.planning import preemption
from policy.planning.plan import Create, CreateServers, Plan
from policy.planning.plan_input import PlanInput
from policy.planning.planner import plan
from policy.planning.recent_history import RecentHistory
from policy.planning.victims import choose
from policy.priority_classes import EDL_CLASSES

STEP_S = 30.0
MAX_STEPS = 200
"""Two hours of simulated time: a cluster that has not settled by then never does."""


class Forecast:
    """A copy of a cluster that simulates the near future."""

    def __init__(self, plan_input: PlanInput, policy: Policy | None = None) -> None:
        """Starts from a plan's input; `policy` replaces the input's policy."""
        self.policy = policy or plan_input.policy
        self.now_s = plan_input.at_s
        self.cluster = replace(plan_input, policy=self.policy).cluster()
        self.cluster.first_seen = FirstSeen()  # new pods have the forecast's times
        self.stopped: dict[str, int] = {}
        """Job key -> number of its trainers that were stopped while they had a node."""
        self._recent = RecentHistory.of(plan_input.history)
        self._scheduling = plan_input.history.scheduling
        backoffs = plan_input.history.creation_backoffs
        self._refused = {uid: backoff.error for uid, backoff in backoffs.items() if backoff.error}
        self._created = 0

    def settle(self, steps: int = MAX_STEPS) -> Plan:
        """Steps until two steps in a row change nothing, at most `steps` times; returns the last plan.

        One step without changes is not enough: trainers may be too young to be moved, and nodes may be
        cooling down. Time is advanced past both before the second step.
        """
        stability = self.policy.stability
        resting = False
        while True:
            new_plan, changed = self.step()
            steps -= 1
            rests = not (changed or new_plan.deferred)
            if (rests and resting) or steps <= 0:
                return new_plan
            if rests:
                self.now_s += max(stability.min_run_seconds, stability.cool_down_seconds)
            resting = rests

    def step(self) -> tuple[Plan, bool]:
        """Plans, carries out the plan, schedules pods; returns the plan and whether any pod has changed."""
        before = dict(self.cluster.pods)
        history = self._recent.history(self.now_s, self._scheduling)
        new_plan = plan(self.cluster, self.policy, self.now_s, history)
        self._recent.record(new_plan, self.now_s, self.policy.stability.cool_down_seconds)
        for uid in list(self.cluster.leaving):
            self.cluster.drop_pod(uid)
        released = [release.uid for release in new_plan.releases]
        for uid in (*released, *(release.uid for release in new_plan.server_releases)):
            self._stop(uid)
        for create in new_plan.creates:
            self._create(create)
        for servers in new_plan.server_creates:
            self._create_servers(servers)
        self._schedule()
        self.now_s += STEP_S
        return new_plan, self.cluster.pods != before

    def end(self, key: str) -> None:
        """Ends a job, and removes its pods."""
        job = self.cluster.jobs[key]
        pods = [*self.cluster.trainers(job), *self.cluster.servers_of(job)]
        self.cluster.drop_job(key)
        for pod in pods:
            self.cluster.drop_pod(pod.uid)

    def _stop(self, uid: str) -> None:
        pod = self.cluster.pods[uid]
        self.cluster.drop_pod(uid)
        if pod.node and pod.role is Role.TRAINER and not pod.deleting:
            key = f"{pod.namespace}/{pod.job}"
            self.stopped[key] = self.stopped.get(key, 0) + 1

    def _create(self, create: Create) -> None:
        job = self.cluster.jobs[create.job]
        if job.uid in self._refused:  # a forecast cannot know when the refusals end
            self._recent.record_creation(
                job.uid,
                self._refused[job.uid],
                trainers=len(self.cluster.trainers(job)),
                in_vain=0,
                now_s=self.now_s,
            )
            return
        for number, node in enumerate(create.nodes):
            pod = self._new_pod(job, create.tier, create.priority_class, node)
            self.cluster.put_pod(
                replace(
                    pod,
                    role=Role.TRAINER,
                    trainer_id=job.accounting.next_id + self._created if job.managed else -1,
                    master=create.master and number == 0,
                    node_request=create.node_request,
                )
            )

    def _create_servers(self, servers: CreateServers) -> None:
        job = self.cluster.jobs[servers.job]
        spec = job.servers or ServerSpec(0, {})
        for number, node in zip(servers.numbers, servers.nodes, strict=True):
            self.cluster.put_pod(
                replace(
                    self._new_pod(job, Tier.SUPPORT, CLASS_SUPPORT, node),
                    role=Role.PSERVER,
                    server=number,
                    requests=spec.requests,
                    limits=spec.limits,
                    constraints=job.server_constraints,
                )
            )

    def _new_pod(self, job: Job, tier: Tier, class_name: str, node: str) -> Pod:
        self._created += 1
        priority_class = EDL_CLASSES[class_name]
        return Pod(
            namespace=job.namespace,
            name=f"{job.name}-new-{self._created}",
            uid=f"{job.uid}-new-{self._created}",
            requests=job.requests,
            limits=job.limits,
            priority=priority_class.value,
            preempts=priority_class.preemption_policy != "Never",
            created_s=self.now_s,
            owner_uid=job.uid,
            job=job.name,
            tier=tier,
            planned=node,
            constraints=job.constraints,
            scheduler=self._scheduling.scheduler_of(job.scheduler),
            marked=self._scheduling.marks(job.scheduler),
        )

    def _schedule(self) -> None:
        """Binds waiting pods in order of priority; a pod that fits nowhere preempts others or waits."""
        waiting = sorted(
            self.cluster.waiting.values(), key=lambda pod: (-pod.priority, pod.created_s, pod.uid)
        )
        for pod in waiting:
            if pod.uid not in self.cluster.waiting or pod.gated:
                continue
            node = self._best_node(pod) or self._preempt(pod)
            if node:
                started = replace(pod, node=node, nominated="", phase=Phase.RUNNING, ready=True)
                self.cluster.put_pod(replace(started, started_s=self.now_s))

    def _best_node(self, pod: Pod) -> str:
        """Returns the node that kube-scheduler chooses by the extender's costs; "" if the pod fits nowhere."""
        pools = self.policy.node_pools if pod.is_training else ()
        costs = dict(self.cluster.fits(pod.requests, pod.constraints, pools).costs)
        if pod.planned in costs:
            costs[pod.planned] = CHEAPEST
        return min(costs, key=lambda name: (costs[name], name), default="")

    def _preempt(self, pod: Pod) -> str:
        """Ends the pods that a pod preempts; returns their node, or "" if it cannot preempt."""
        if not pod.preempts:
            return ""
        proposals = preemption.propose(pod, self.cluster, self.policy.node_pools)
        weights = self.policy.fairness.queue_weights
        candidate = choose(pod, proposals, self.cluster, weights=weights)
        if candidate is None:
            return ""
        for uid in candidate.uids:
            self._stop(uid)
        return candidate.node
