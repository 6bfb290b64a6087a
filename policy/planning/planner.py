"""The planner: how many trainers each job should have now, and which to create or release.

Pure: takes the cluster's state, a policy and a time, and returns a plan. The rules are in
`policy.planning.rules` and are applied in the order of their numbers (docs/decisions/0003). All of them place
pods with `policy.planning.free_capacity` and choose victims with `policy.planning.victims`. Planning always terminates:
each loop creates or releases one of a bounded number of trainers, or removes a job from its list.
"""

from policy.cluster.cluster_state import ClusterState
from policy.document.model import Policy
from policy.planning.cycle_state import CycleState
from policy.planning.plan import History, Plan
from policy.planning.rules import (
    admission,
    lending,
    limits,
    masters,
    scheduling,
    servers,
    services,
    sharing,
    stability,
)


def plan(
    cluster: ClusterState, policy: Policy, now_s: float, history: History | None = None
) -> Plan:
    """What to do now.

    Args:
        cluster: The cluster; it is not changed.
        policy: The active policy.
        now_s: Seconds since the epoch.
        history: Recent reclaims, cool-downs and failed moves.

    Returns:
        The plan. Planning again on its outcome gives nothing more to do.
    """
    state = CycleState(cluster, policy, now_s, history or History())
    # 1. Services first: make room for those that grow in place; reserve capacity for waiting pods
    # that outrank surplus.
    services.serve_resizes(state)
    services.reserve_places(state)
    # 2. Limits: release trainers above a maximum or a quota, those of stopped jobs, and waiting
    # ones that no scheduler takes any more.
    limits.release_excess(state)
    scheduling.replace_outdated(state)
    # 3. Parameter servers: replace those that running jobs have lost.
    servers.maintain(state)
    # 4. Waiting trainers: keep the capacity they wait for, withdraw those that waited too long.
    sharing.place_waiting(state)
    # 5. Admission: create the first trainers of a job, all or none.
    admission.admit(state)
    lending.release_uncovered(state)
    # 6. Masters: give a job its master back.
    masters.restore_masters(state)
    # 7. Sharing: add surplus trainers; return borrowed shares. Rules 8 and 9 wait until no more can be added.
    is_grown = sharing.grow(state)
    lending.return_shares(state)
    if is_grown:
        # 8. Allowed sizes: release trainers that are too few for the next size.
        limits.release_to_allowed_size(state)
        # 9. Stability: move trainers between jobs for a clear gain.
        stability.rebalance(state)
    # 10. Reserve: release surplus from nodes that an autoscaler may remove, and surplus above what
    # the policy keeps for services.
    limits.vacate_nodes(state)
    limits.restore_reserve(state)
    lending.explain_minimums(state)
    return state.to_plan()
