"""What the extender answers, as pure functions of the request and the cluster's index.

Reasons are constant words: a text that changes makes kube-scheduler patch the pod, which wakes
the pod, which asks again (seen: 2 847 calls in 20 s instead of 2).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from policy import amounts
from policy.crew import is_surplus
from policy.decisions import Decision, Figure, sentence
from policy.index import Index
from policy.model import NodePool, Policy
from policy.names import Role
from policy.placement import CHEAPEST, score
from policy.reasons import Reason
from policy.snapshot import Pod
from policy.victims import Candidate, Promise, choose


@dataclass(frozen=True, slots=True)
class Filtered:
    """Every node asked about, in exactly one of three places."""

    kept: list[str]
    failed: dict[str, str]
    """Node -> reason; preemption may still help there."""
    unresolvable: dict[str, str]
    """Node -> reason; nothing helps there."""


def filter_nodes(
    pod: Pod,
    names: Iterable[str],
    index: Index,
    policy: Policy,
    *,
    promises: Iterable[Promise],
    cooling: Mapping[str, float],
    now_s: float,
) -> Filtered:
    """Which of `names` a training pod may use.

    Called after the in-tree filters, so only what they do not know is looked at: node pools,
    room promised to services, nodes that just gave capacity back. Pods that outrank surplus
    are held to the pools alone.

    A node cools down only while somebody waits for room: on a quiet cluster nothing would wake
    the rejected pod when the time is over, and it would wait for minutes.
    """
    result = Filtered([], {}, {})
    pools = policy.node_pools if pod.role is Role.TRAINER else ()
    taken = promised(index, promises, pod.priority) if is_surplus(pod) else {}
    hot = cooling if is_surplus(pod) and _outranked(pod, index) else {}
    for name in names:
        node = index.nodes.get(name)
        if node is None:
            result.failed[name] = Reason.NODE_UNKNOWN
        elif pools and not _in_pools(node.labels, pools):
            result.unresolvable[name] = Reason.NODE_POOL
        elif hot.get(name, 0.0) > now_s:
            result.failed[name] = Reason.NODE_COOLING_DOWN
        elif name in taken and not _fits_beside(pod, name, index, taken[name]):
            result.failed[name] = Reason.NODE_PROMISED
        else:
            result.kept.append(name)
    return result


_MOST_NAMED = 3
"""Nodes that a record names for each reason; the others are counted."""


def rejections(
    pod: Pod,
    rejected: Mapping[str, str],
    index: Index,
    *,
    promises: Iterable[Promise],
    cooling: Mapping[str, float],
    now_s: float,
    at_s: float,
) -> Iterator[Decision]:
    """Why nodes were no place for a pod: one record for each reason, with the figures of a few.

    Args:
        pod: That was asked about.
        rejected: Node -> reason, as `filter_nodes` gave it.
        index: As `filter_nodes` had it, like `promises`, `cooling` and `now_s`.
        promises: Room given away.
        cooling: Node -> until when it cools down.
        now_s: On the clock of `cooling`.
        at_s: Seconds since the epoch, for the records.
    """
    taken = promised(index, promises, pod.priority) if rejected else {}
    by_reason: dict[str, list[str]] = {}
    for name, reason in rejected.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in sorted(by_reason.items()):
        figures: dict[str, Figure] = {"nodes": len(names)}
        for name in names[:_MOST_NAMED]:
            figures[name] = ""
            if reason == Reason.NODE_PROMISED:
                room = {"free": index.free(name), "promised": taken[name], "needs": pod.requests}
                figures[name] = sentence(Reason.NODE_PROMISED, room)
            elif reason == Reason.NODE_COOLING_DOWN:
                left = {"left_s": round(cooling[name] - now_s, 1)}
                figures[name] = sentence(Reason.NODE_COOLING_DOWN, left)
        yield Decision(f"pod {pod.key}", Reason(reason), figures, at_s)


def _outranked(pod: Pod, index: Index) -> bool:
    """Whether a pod of higher priority waits for a node."""
    return any(
        other.priority > pod.priority and not other.gated for other in index.waiting.values()
    )


def _in_pools(labels: Mapping[str, str], pools: tuple[NodePool, ...]) -> bool:
    return any(pool.labels.items() <= labels.items() for pool in pools)


def _fits_beside(pod: Pod, name: str, index: Index, taken: Mapping[str, int]) -> bool:
    free = index.free(name)
    amounts.subtract(free, taken)
    return amounts.within(pod.requests, free)


def promised(index: Index, promises: Iterable[Promise], priority: int) -> dict[str, dict[str, int]]:
    """Node -> amounts that pods of higher priority were given there and have not taken yet."""
    taken: dict[str, dict[str, int]] = {}
    seen: set[str] = set()
    for pod in index.waiting.values():
        if pod.nominated and pod.priority > priority:
            amounts.add(taken.setdefault(pod.nominated, {}), pod.requests)
            seen.add(pod.uid)
    for promise in promises:
        if promise.priority > priority and promise.uid not in seen:
            amounts.add(taken.setdefault(promise.node, {}), promise.requests)
    return taken


def prioritize(pod: Pod, names: Collection[str], index: Index) -> dict[str, int]:
    """Node -> 0..10; 10 where the pod spoils least room for trainers, 0 where it has none.

    The prices are those that the plan places by. The node that a trainer was planned on comes
    before all others: what the plan promised one of two shapes must not go to the other.
    """
    priced = index.fits(pod.requests, pod.constraints).costs
    costs = {name: priced[name] for name in names if name in priced}
    if pod.planned in costs:
        costs[pod.planned] = CHEAPEST
    return dict.fromkeys(names, 0) | score(costs)


def preempt(
    pod: Pod,
    candidates: tuple[Candidate, ...],
    index: Index,
    policy: Policy,
    promises: Iterable[Promise],
) -> Candidate | None:
    """The candidate node and the victims on it that cost training least."""
    return choose(pod, candidates, index, promises, policy.fairness.queue_weights)
