"""The fewest trainers that must go so that a burst of services finds room (pure).

Why not simply CPU wanted / CPU of a trainer: a service needs its CPU on one node, so what is
free counts in whole services per node, and so does what a leaving trainer frees.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What one node can offer at the moment of a burst."""

    free_millis: int
    trainers: int


def unavoidable(
    nodes: Iterable[NodeCapacity], services: int, *, service_millis: int, trainer_millis: int
) -> int:
    """Returns the least number of trainers whose removal lets `services` more services run.

    A node with `f` free that loses `k` trainers takes `(f + k * trainer) // service` services;
    the sum of k is minimised by dynamic programming over nodes: O(nodes * services * trainers
    on a node). CPU only: memory is never scarce in this workload. Where even all trainers
    are too few, all of them.
    """
    nodes = tuple(nodes)
    everything = sum(node.trainers for node in nodes)
    least: list[int] = [0] + [everything] * services  # services placed -> fewest trainers removed
    for node in nodes:
        gains = [
            (max(0, node.free_millis + removed * trainer_millis) // service_millis, removed)
            for removed in range(node.trainers + 1)
        ]
        least = [
            min(least[max(0, placed - gain)] + removed for gain, removed in gains)
            for placed in range(services + 1)
        ]
    return min(least[services], everything)
