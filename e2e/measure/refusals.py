"""Pods that nodes refused because their room was given away twice, and what that cost. Pure."""

from collections import defaultdict
from dataclasses import dataclass

from e2e.measure.pods import Kind
from e2e.measure.record import PodLifetime, Timeline


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused pod."""

    kind: Kind
    node: str
    at_s: float
    replaced_s: float | None
    """From its binding until a pod in its place ran; None for never."""


def refusals(timeline: Timeline) -> tuple[Refusal, ...]:
    """Returns the refused pods in order.

    In the place of each is the first later pod of its kind and job that is in nobody else's.
    """
    later: dict[tuple[Kind, str], list[PodLifetime]] = defaultdict(list)
    for lifetime in sorted(timeline.lifetimes, key=lambda pod: pod.created_s, reverse=True):
        later[lifetime.kind, lifetime.job].append(lifetime)
    refused_pods = [pod for pod in timeline.lifetimes if pod.refused_s is not None]
    results = []
    for pod in sorted(refused_pods, key=lambda pod: pod.refused_s or 0.0):
        at_s, queue = pod.refused_s or 0.0, later[pod.kind, pod.job]
        while queue and queue[-1].created_s <= at_s:
            queue.pop()
        successor = queue.pop() if queue else None
        ran_s = successor.running_s if successor else None
        begun_s = at_s if pod.bound_s is None else pod.bound_s
        replaced_s = None if ran_s is None else ran_s - begun_s
        results.append(Refusal(pod.kind, pod.node, at_s, replaced_s))
    return tuple(results)
