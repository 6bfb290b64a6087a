"""The simulated loop of the reconciler: gathers changes, plans, writes, and repeats.

Actions that a plan defers wait for the next change or tick.
"""

from collections.abc import Callable
from functools import partial

from policy.cluster.snapshot import Pod
from policy.document.model import Policy
from policy.names import Role
from policy.planning.plan import Create, Plan
from policy.planning.plan_input import PlanInput
from policy.planning.planner import plan
from policy.planning.recent_history import RecentHistory
from policy.priority_classes import EDL_CLASSES
from policy.scheduling import Scheduling
from simulator.cluster import DisruptionReason, PodChange, SimulatedCluster
from simulator.timing import Timing

Observer = Callable[[PlanInput, Plan], None]
"""Receives the input of each plan, and the plan."""


class SimulatedReconciler:
    """The loop around the planner; a tick starts only after the writes of the previous one."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        policy: Policy,
        timing: Timing,
        observe: Observer | None = None,
        *,
        extender: bool = True,
    ) -> None:
        self._scheduling = Scheduling(marked=extender)
        self._observe = observe
        self._cluster = cluster
        self._policy = policy
        self._timing = timing
        self._tick_due = False
        """Whether a tick is scheduled already."""
        self._free_s = 0.0
        """Time at which the writes of the last tick are finished."""
        self._ids = 0
        self._placed = 0
        """Trainers placed on a node since the last tick."""
        self._history = RecentHistory()
        cluster.watch_pods(self._changed)
        cluster.watch_jobs(lambda _: self._wake())
        cluster.clock.after(timing.tick_s, self._wake_regularly)

    def follow(self, policy: Policy) -> None:
        """Follows another policy from now on."""
        self._policy = policy
        self._wake()

    def _changed(self, change: PodChange) -> None:
        if change.disruption is DisruptionReason.PREEMPTED and change.pod.node:
            cool_down_s = self._policy.stability.cool_down_seconds
            self._history.cool_downs.start(change.pod.node, change.at_s, cool_down_s)
        waited = change.old is not None and not change.old.node
        if waited and change.pod.node and change.pod.role is Role.TRAINER:
            self._placed += 1
        self._wake()

    def _wake_regularly(self) -> None:
        self._wake()
        self._cluster.clock.after(self._timing.tick_s, self._wake_regularly)

    def _wake(self) -> None:
        if not self._tick_due:
            self._tick_due = True
            clock = self._cluster.clock
            clock.at(max(clock.now_s, self._free_s) + self._timing.gather_s, self._tick)

    def _tick(self) -> None:
        self._tick_due = False
        now_s = self._cluster.clock.now_s
        self._history.pace.record(self._placed, now_s)
        self._placed = 0
        history = self._history.history(now_s, self._scheduling)
        new_plan = plan(self._cluster.state, self._policy, now_s, history)
        if self._observe is not None:
            self._observe(PlanInput.of(self._cluster.state, self._policy, now_s, history), new_plan)
        self._history.record(new_plan, now_s, self._policy.stability.cool_down_seconds)
        self._free_s = self._write(new_plan, now_s + self._timing.plan_s)

    def _write(self, new_plan: Plan, time_s: float) -> float:
        """Schedules the plan's writes from `time_s` on; returns the time of the last one."""
        clock = self._cluster.clock
        for release in new_plan.releases:
            time_s += self._timing.write_s
            clock.at(time_s, partial(self._cluster.stop, release.uid, DisruptionReason.EVICTED))
        for create in new_plan.creates:
            for node in create.nodes:
                time_s += self._timing.write_s
                pod = self._trainer(create, node)
                clock.at(time_s, partial(self._cluster.create, pod))
        return time_s

    def _trainer(self, create: Create, node: str) -> Pod:
        self._ids += 1
        job = self._cluster.state.jobs[create.job]
        priority_class = EDL_CLASSES[create.priority_class]
        return Pod(
            namespace=job.namespace,
            name=f"{job.name}-trainer-{self._ids}",
            uid=f"{job.uid}-{self._ids:06}",
            requests=job.requests,
            limits=job.limits,
            priority=priority_class.value,
            preempts=priority_class.preemption_policy != "Never",
            owner_uid=job.uid,
            job=job.name,
            role=Role.TRAINER,
            tier=create.tier,
            trainer_id=self._ids,
            planned=node,
            constraints=job.constraints,
        )
