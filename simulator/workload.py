"""What a simulation is given: nodes, pods and jobs with the moments at which they come."""

from dataclasses import dataclass

from policy.snapshot import Job, Node, Pod


@dataclass(frozen=True, slots=True)
class Arrival:
    """Something that a user submits."""

    at_s: float
    """Seconds from the start of the simulation."""
    pods: tuple[Pod, ...] = ()
    """Made one after another, without a node: parameter servers, masters, services."""
    job: Job | None = None
    """Its trainers are made by the reconciler."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and what comes to it."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]
    end_s: float
    """Seconds from the start."""
