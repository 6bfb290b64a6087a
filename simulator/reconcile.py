"""The reconciler's rhythm around the plan: gather changes, plan, write, and again.

What it remembers between plans is what `reconciler.history` keeps. What one plan leaves to the next
waits here for the next change or tick.
"""

from collections.abc import Mapping
from functools import partial

from policy.elasticity import plan
from policy.model import Policy
from policy.mutation import EDL_CLASSES
from policy.names import CLASS_GUARANTEED, CLASS_SURPLUS, Role, Tier
from policy.planning import Futile, History, Plan, Wish
from policy.reasons import Reason
from policy.snapshot import Job, Pod
from simulator.cluster import Change, Cluster, Why
from simulator.timing import Timing

_CLASSES = {
    Tier.GUARANTEED: EDL_CLASSES[CLASS_GUARANTEED],
    Tier.SURPLUS: EDL_CLASSES[CLASS_SURPLUS],
}


class Reconciler:
    """One round at a time; the next not before the writes of this one are done."""

    def __init__(self, cluster: Cluster, policy: Policy, timing: Timing) -> None:
        self._cluster = cluster
        self._policy = policy
        self._timing = timing
        self._asked = False
        """A round is due already."""
        self._free_s = 0.0
        """When the writes of the last round are done."""
        self._ids = 0
        self._cooling: dict[str, float] = {}
        self._helped: dict[str, tuple[int, float]] = {}
        self._futile: Mapping[Wish, Futile] = {}
        cluster.watch_pods(self._changed)
        cluster.watch_jobs(lambda _: self._wake())
        cluster.clock.after(timing.tick_s, self._tick)

    def _changed(self, change: Change) -> None:
        if change.why is Why.PREEMPTED and change.pod.node:
            self._cool(change.pod.node)
        self._wake()

    def _tick(self) -> None:
        self._wake()
        self._cluster.clock.after(self._timing.tick_s, self._tick)

    def _wake(self) -> None:
        if not self._asked:
            self._asked = True
            clock = self._cluster.clock
            clock.at(max(clock.now_s, self._free_s) + self._timing.gather_s, self._round)

    def _round(self) -> None:
        self._asked = False
        now_s = self._cluster.clock.now_s
        self._cooling = {node: until for node, until in self._cooling.items() if until > now_s}
        history = History(dict(self._cooling), dict(self._helped), self._futile)
        made = plan(self._cluster.index, self._policy, now_s, history)
        self._futile = made.futile
        for uid in made.helped:
            self._helped[uid] = (self._helped.get(uid, (0, 0.0))[0] + 1, now_s)
        self._free_s = self._write(made, now_s + self._timing.plan_s)

    def _write(self, made: Plan, time_s: float) -> float:
        """Has the plan carried out from `time_s` on; when that is done."""
        clock = self._cluster.clock
        for release in made.releases:
            time_s += self._timing.write_s
            if release.reason is Reason.SERVICES_FIRST:
                self._cool(release.node)
            clock.at(time_s, partial(self._cluster.stop, release.uid, Why.EVICTED))
        for create in made.creates:
            for node in create.nodes:
                time_s += self._timing.write_s
                pod = self._trainer(self._cluster.index.jobs[create.job], create.tier, node)
                clock.at(time_s, partial(self._cluster.create, pod))
        return time_s

    def _cool(self, node: str) -> None:
        until_s = self._cluster.clock.now_s + self._policy.stability.cool_down_seconds
        self._cooling[node] = until_s

    def _trainer(self, job: Job, tier: Tier, node: str) -> Pod:
        self._ids += 1
        named = _CLASSES[tier]
        return Pod(
            namespace=job.namespace,
            name=f"{job.name}-trainer-{self._ids}",
            uid=f"{job.uid}-{self._ids:06}",
            requests=job.requests,
            priority=named.value,
            preempts=named.preemption_policy != "Never",
            owner_uid=job.uid,
            job=job.name,
            role=Role.TRAINER,
            tier=tier,
            trainer_id=self._ids,
            planned=node,
            constraints=job.constraints,
        )
