"""Everything that a plan depends on, as one value that can be stored and planned again elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from policy.cluster.cluster_state import ClusterState
from policy.cluster.first_seen import FirstSeen, OwnTimes
from policy.cluster.snapshot import Job, Snapshot
from policy.document.model import Policy
from policy.planning.plan import History, Plan
from policy.planning.planner import plan

_EMPTY = b"{}"


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The cluster at one time, the active policy, and the history of earlier plans."""

    at_s: float
    """The time of the plan, in seconds since the epoch."""
    snapshot: Snapshot = field(repr=False)
    policy: Policy = field(default_factory=Policy)
    history: History = field(default_factory=History, repr=False)
    own_times: Mapping[str, OwnTimes] | None = field(default=None, repr=False)
    """Pod uid -> when its changes were seen by the local clock; None if timestamps count (`FirstSeen`)."""

    @classmethod
    def of(
        cls, cluster: ClusterState, policy: Policy, now_s: float, history: History | None = None
    ) -> "PlanInput":
        """Returns the input of a plan for `cluster`: a copy whose records are sorted by name.

        Pod templates are left out, because no decision reads them and they may contain secrets.
        """
        jobs = (_without_templates(job) for _, job in sorted(cluster.jobs.items()))
        return cls(
            now_s,
            Snapshot(
                tuple(node for _, node in sorted(cluster.nodes.items())),
                tuple(sorted(cluster.pods.values(), key=lambda pod: (pod.key, pod.uid))),
                tuple(jobs),
            ),
            policy,
            history or History(),
            cluster.first_seen.times,
        )

    def cluster(self) -> ClusterState:
        """Returns a new cluster state with these records, counted by the rules of the policy."""
        state = ClusterState.of(self.snapshot, self.policy)
        state.first_seen = FirstSeen.of(self.own_times)
        return state

    def plan(self) -> Plan:
        """Returns the plan for this input."""
        return plan(self.cluster(), self.policy, self.at_s, self.history)


def _without_templates(job: Job) -> Job:
    """Returns the job with empty pod templates; they stay present, because their presence matters."""
    servers = job.servers
    if servers is not None and servers.template_json:
        servers = replace(servers, template_json=_EMPTY)
    master = _EMPTY if job.master_template_json else b""
    return replace(job, template_json=_EMPTY, master_template_json=master, servers=servers)
