"""The extender's answers, as pure functions of the request and the cluster's state.

Reasons are constant codes. If their text changed, kube-scheduler would patch the pod each time, which would
queue the pod again and cause another request (measured: 2 847 requests in 20 s instead of 2).
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from policy.cluster import amounts
from policy.cluster.cluster_state import ClusterState
from policy.cluster.horizon import Horizon
from policy.cluster.live_trainers import is_surplus
from policy.cluster.placement import CHEAPEST, in_pools, score
from policy.cluster.snapshot import Pod
from policy.decisions import Decision, Figure, sentence
from policy.document.model import Policy
from policy.names import Role
from policy.planning.victims import Candidate, Promise, narrow
from policy.reasons import Reason
from runtime.logs import keys

log = logging.getLogger(__name__)

_MAX_NODES_NAMED = 3
"""Number of nodes that a record names for a reason; further nodes are only counted."""


@dataclass(frozen=True, slots=True)
class View:
    """The state of the cluster for one answer."""

    cluster: ClusterState
    promises: tuple[Promise, ...]
    """Promises of capacity to pods that are not bound yet."""
    cooling: Mapping[str, float]
    """Node -> end of its cool-down."""
    now_s: float
    """The current time of the clock of `cooling`."""


@dataclass(frozen=True, slots=True)
class FilterVerdict:
    """The answer to a filter request; each requested node is in at most one of the three fields."""

    passed: list[str]
    """Nodes that may be used; if the planned node is among them, only that one, to avoid scoring others."""
    failed: dict[str, str]
    """Node -> reason, if preemption can still help there."""
    unresolvable: dict[str, str]
    """Node -> reason, if preemption cannot help there."""


def filter_nodes(pod: Pod, names: Iterable[str], view: View, policy: Policy) -> FilterVerdict:
    """Returns which of the nodes in `names` a training pod may use.

    The function runs after the in-tree filters, so it checks only what they cannot know: node pools,
    capacity promised to services, and nodes that have just given capacity back. For pods that outrank
    surplus, only the node pools count.

    If a trainer's planned node passes, it is the only node returned. It would get the best score anyway, and
    with a single node kube-scheduler need not score hundreds of nodes or send a second request.

    A cool-down applies only while a pod of higher priority is waiting. On an idle cluster, no event would
    queue the rejected pod again after the cool-down, and the pod would wait for minutes.
    """
    verdict = FilterVerdict([], {}, {})
    pools = policy.node_pools if pod.role is Role.TRAINER else ()
    cluster = view.cluster
    promised_amounts = promised(cluster, view.promises, pod.priority) if is_surplus(pod) else {}
    cooling_nodes = view.cooling if is_surplus(pod) and _outranked(pod, cluster) else {}
    for name in names:
        node = cluster.nodes.get(name)
        if node is None:
            verdict.failed[name] = Reason.NODE_UNKNOWN
        elif not in_pools(node, pools):
            verdict.unresolvable[name] = Reason.NODE_POOL
        elif cooling_nodes.get(name, 0.0) > view.now_s:
            verdict.failed[name] = Reason.NODE_COOLING_DOWN
        elif name in promised_amounts and not cluster.fits_beside(
            pod.requests, name, promised_amounts[name]
        ):
            verdict.failed[name] = Reason.NODE_PROMISED
        else:
            verdict.passed.append(name)
    if pod.role is Role.TRAINER and pod.planned in verdict.passed:
        return replace(verdict, passed=[pod.planned])
    return verdict


def rejections(
    pod: Pod, rejected: Mapping[str, str], view: View, at_s: float
) -> Iterator[Decision]:
    """Yields why nodes were rejected for a pod: a decision for each reason, with figures of a few nodes.

    Args:
        pod: The pod of the request.
        rejected: Node -> reason, from `filter_nodes`.
        view: The view given to `filter_nodes`.
        at_s: Time of the decisions, in seconds since the epoch.
    """
    promised_amounts = promised(view.cluster, view.promises, pod.priority) if rejected else {}
    by_reason: dict[str, list[str]] = {}
    for name, reason in rejected.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in sorted(by_reason.items()):
        figures: dict[str, Figure] = {"nodes": len(names)}
        for name in names[:_MAX_NODES_NAMED]:
            figures[name] = ""
            if reason == Reason.NODE_PROMISED:
                figures_of_node = {
                    "free": view.cluster.free(name),
                    "promised": promised_amounts[name],
                    "needs": pod.requests,
                }
                figures[name] = sentence(Reason.NODE_PROMISED, figures_of_node)
            elif reason == Reason.NODE_COOLING_DOWN:
                cooldown_figures = {"left_s": round(view.cooling[name] - view.now_s, 1)}
                figures[name] = sentence(Reason.NODE_COOLING_DOWN, cooldown_figures)
        yield Decision(f"pod {pod.key}", Reason(reason), figures, at_s)


def _outranked(pod: Pod, cluster: ClusterState) -> bool:
    """Returns whether a pod of higher priority waits for a node."""
    return any(
        other.priority > pod.priority and not other.gated for other in cluster.waiting.values()
    )


def promised(
    cluster: ClusterState, promises: Iterable[Promise], priority: int
) -> dict[str, dict[str, int]]:
    """Returns node -> amounts promised there to pods of higher priority that are not bound yet."""
    promised_amounts: dict[str, dict[str, int]] = {}
    nominated_uids: set[str] = set()
    for pod in cluster.waiting.values():
        if pod.nominated and pod.priority > priority:
            amounts.add(promised_amounts.setdefault(pod.nominated, {}), pod.requests)
            nominated_uids.add(pod.uid)
    for promise in promises:
        if promise.priority > priority and promise.uid not in nominated_uids:
            amounts.add(promised_amounts.setdefault(promise.node, {}), promise.requests)
    return promised_amounts


def prioritize(pod: Pod, names: Collection[str], cluster: ClusterState) -> dict[str, int]:
    """Returns node -> score from 0 to 10: 10 fragments capacity the least, 0 means the pod does not fit.

    The plan uses the same costs. A trainer's planned node ranks above all others, because capacity that
    the plan reserved for one pod size must not go to another size.
    """
    priced = cluster.fits(pod.requests, pod.constraints).costs
    costs = {name: priced[name] for name in names if name in priced}
    if pod.planned in costs:
        costs[pod.planned] = CHEAPEST
    return dict.fromkeys(names, 0) | score(costs)


def preempt(
    pod: Pod, candidates: tuple[Candidate, ...], view: View, policy: Policy, at_s: float
) -> tuple[Candidate, ...]:
    """Returns the candidates that kube-scheduler may choose from; see `policy.planning.victims.narrow`.

    A candidate whose data causes an error is returned unchanged; the other candidates are narrowed.

    Args:
        pod: The preemptor.
        candidates: kube-scheduler's proposals.
        view: The state of the cluster.
        policy: The policy in effect.
        at_s: Seconds since the epoch.
    """
    horizon = Horizon.of(at_s, policy.tiers.grace_seconds)
    weights = policy.fairness.queue_weights

    def narrowed(some: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        return narrow(pod, some, view.cluster, view.promises, weights=weights, horizon=horizon)

    def fails(candidate: Candidate) -> bool:
        try:
            narrowed((candidate,))
        except Exception:
            log.exception(
                "could not examine candidate", extra=keys(pod=pod.key, node=candidate.node)
            )
            return True
        return False

    try:
        return narrowed(candidates)
    except Exception:
        failing = tuple(filter(fails, candidates))
        if not failing:
            raise
        return (*failing, *narrowed(tuple(c for c in candidates if c not in failing)))
