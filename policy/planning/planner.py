"""The planner: how many trainers each job should have now, and which ones to create or release.

Pure: takes the cluster's state, a policy and a time, and returns a plan. The rules are in
`policy.planning.rules` and are applied in the order of their numbers (docs/decisions/0003). Each rule reads the
book and yields decisions (`policy.planning.decisions`). Each decision is recorded before the rule continues.
Planning always terminates: each pass of a loop creates or releases one of a bounded number of trainers, or
removes a job from its list.
"""

from policy.cluster.cluster_state import ClusterState
from policy.document.model import Policy
from policy.planning.book import Book
from policy.planning.decisions import Decisions
from policy.planning.plan import History, Plan
from policy.planning.rules import (
    admission,
    lending,
    limits,
    masters,
    servers,
    services,
    sharing,
    stability,
)


def plan(
    cluster: ClusterState, policy: Policy, now_s: float, history: History | None = None
) -> Plan:
    """Returns the actions to take now.

    Args:
        cluster: The cluster; it is not changed.
        policy: The active policy.
        now_s: Seconds since the epoch.
        history: Facts from earlier plans, such as reclaims, cool-downs and failed moves.

    Returns:
        The plan. Once it is carried out, a further plan finds nothing more to do.
    """
    book = Book(cluster, policy, now_s, history or History())
    for decision in _decisions(book):
        book.book(decision)
    return book.to_plan()


def _decisions(book: Book) -> Decisions[None]:
    """Yields the decisions of all rules; each is in the book before the next one is made."""
    # 1. Services first: release capacity for services that grow in place; reserve capacity for
    # waiting pods that outrank surplus.
    yield from services.serve(book)
    # 2. Limits: release trainers above a maximum or a quota, trainers of stopped jobs, and waiting
    # trainers that no scheduler takes any more.
    yield from limits.release(book)
    # 3. Parameter servers: replace the servers that running jobs have lost.
    yield from servers.maintain(book)
    # 4. Waiting trainers: keep the capacity for which they wait; release those that waited too long.
    yield from sharing.place_waiting(book)
    # 5. Admission: create all first trainers of a job together, or none.
    yield from admission.admit(book)
    # 6. Masters: replace a job's missing master.
    yield from masters.restore_masters(book)
    # 7. Sharing: add surplus trainers; return borrowed shares. Rules 8 and 9 wait until no more can be added.
    is_grown = yield from sharing.grow(book)
    yield from lending.return_shares(book)
    if is_grown:
        # 8. Allowed sizes: release trainers beyond an allowed size that are too few for the next one.
        yield from limits.release_to_allowed_size(book)
        # 9. Stability: move trainers between jobs for a clear gain.
        yield from stability.rebalance(book)
    # 10. Reserve: release surplus from nodes that an autoscaler may remove, and surplus above what
    # the policy keeps for services.
    yield from limits.keep_reserve(book)
    yield from lending.explain_minimums(book)
