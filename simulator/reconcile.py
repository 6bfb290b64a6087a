"""The simulated reconciler's loop: gather changes, plan, write, repeat.

Between plans it keeps the same history as `reconciler.history`. Moves that a plan defers wait
here for the next change or tick.
"""

from collections.abc import Mapping
from functools import partial

from policy.model import Policy
from policy.mutation import EDL_CLASSES
from policy.names import CLASS_GUARANTEED, CLASS_SURPLUS, Role, Tier
from policy.plan import FailedMove, History, MoveKey, Plan
from policy.planner import plan
from policy.reasons import Reason
from policy.snapshot import Job, Pod
from simulator.cluster import DisruptionReason, PodChange, SimulatedCluster
from simulator.timing import Timing

_CLASSES = {
    Tier.GUARANTEED: EDL_CLASSES[CLASS_GUARANTEED],
    Tier.SURPLUS: EDL_CLASSES[CLASS_SURPLUS],
}


class SimulatedReconciler:
    """The loop around the planner; a round starts only after the writes of the previous one."""

    def __init__(self, cluster: SimulatedCluster, policy: Policy, timing: Timing) -> None:
        self._cluster = cluster
        self._policy = policy
        self._timing = timing
        self._round_due = False
        """Whether a round is scheduled already."""
        self._free_s = 0.0
        """Time at which the writes of the last round are done."""
        self._ids = 0
        self._cooling: dict[str, float] = {}
        self._reclaimed_for: dict[str, tuple[int, float]] = {}
        self._failed_moves: Mapping[MoveKey, FailedMove] = {}
        cluster.watch_pods(self._changed)
        cluster.watch_jobs(lambda _: self._wake())
        cluster.clock.after(timing.tick_s, self._tick)

    def _changed(self, change: PodChange) -> None:
        if change.disruption is DisruptionReason.PREEMPTED and change.pod.node:
            self._start_cooling(change.pod.node)
        self._wake()

    def _tick(self) -> None:
        self._wake()
        self._cluster.clock.after(self._timing.tick_s, self._tick)

    def _wake(self) -> None:
        if not self._round_due:
            self._round_due = True
            clock = self._cluster.clock
            clock.at(max(clock.now_s, self._free_s) + self._timing.gather_s, self._round)

    def _round(self) -> None:
        self._round_due = False
        now_s = self._cluster.clock.now_s
        self._cooling = {node: until for node, until in self._cooling.items() if until > now_s}
        history = History(dict(self._cooling), dict(self._reclaimed_for), self._failed_moves)
        new_plan = plan(self._cluster.state, self._policy, now_s, history)
        self._failed_moves = new_plan.failed_moves
        for uid in new_plan.reclaimed_for:
            self._reclaimed_for[uid] = (self._reclaimed_for.get(uid, (0, 0.0))[0] + 1, now_s)
        self._free_s = self._write(new_plan, now_s + self._timing.plan_s)

    def _write(self, new_plan: Plan, time_s: float) -> float:
        """Schedules the plan's writes from `time_s` on; returns the time of the last one."""
        clock = self._cluster.clock
        for release in new_plan.releases:
            time_s += self._timing.write_s
            if release.reason is Reason.SERVICES_FIRST:
                self._start_cooling(release.node)
            clock.at(time_s, partial(self._cluster.stop, release.uid, DisruptionReason.EVICTED))
        for create in new_plan.creates:
            for node in create.nodes:
                time_s += self._timing.write_s
                pod = self._trainer(self._cluster.state.jobs[create.job], create.tier, node)
                clock.at(time_s, partial(self._cluster.create, pod))
        return time_s

    def _start_cooling(self, node: str) -> None:
        until_s = self._cluster.clock.now_s + self._policy.stability.cool_down_seconds
        self._cooling[node] = until_s

    def _trainer(self, job: Job, tier: Tier, node: str) -> Pod:
        self._ids += 1
        priority_class = _CLASSES[tier]
        return Pod(
            namespace=job.namespace,
            name=f"{job.name}-trainer-{self._ids}",
            uid=f"{job.uid}-{self._ids:06}",
            requests=job.requests,
            priority=priority_class.value,
            preempts=priority_class.preemption_policy != "Never",
            owner_uid=job.uid,
            job=job.name,
            role=Role.TRAINER,
            tier=tier,
            trainer_id=self._ids,
            planned=node,
            constraints=job.constraints,
        )
