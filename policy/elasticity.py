"""The plan: how many trainers each job should have now, which are made and which give way.

Pure: an index, a policy and a time in, a plan out. The rules are in `policy.rules`, one module
each; rule 7, placement per node and resource, is `policy.room`, and rule 8, victims of least
loss, `policy.victims`. A plan always ends: each loop makes or takes one of a bounded number
of trainers, or strikes a job from its list.
"""

from policy.index import Index
from policy.model import Policy
from policy.planning import History, Plan
from policy.rules import admission, limits, masters, servers, services, sharing, stability
from policy.work import Work


def plan(index: Index, policy: Policy, now_s: float, history: History | None = None) -> Plan:
    """What to do now.

    Args:
        index: The cluster; not changed.
        policy: The active policy.
        now_s: Seconds since the epoch.
        history: What happened lately.

    Returns:
        A plan. Applied, and planned again on the outcome, nothing more is to be done.
    """
    work = Work(index, policy, now_s, history or History())
    services.place(work)
    limits.trim(work)
    servers.keep(work)
    sharing.settle_waiting(work)
    admission.admit(work)
    masters.restore(work)
    if sharing.grow(work):
        limits.settle_sizes(work)
        stability.rebalance(work)
    limits.restore_reserve(work)
    return work.result()
