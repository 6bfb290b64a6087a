"""The input of a simulation: nodes, and pods and jobs with their arrival times."""

from dataclasses import dataclass

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy


@dataclass(frozen=True, slots=True)
class Arrival:
    """Objects that a user submits at the same time."""

    at_s: float
    """Seconds from the start of the simulation."""
    pods: tuple[Pod, ...] = ()
    """Pods without a node, created one after another: parameter servers, masters and services."""
    job: Job | None = None
    """A job, whose trainers the reconciler creates."""
    policy: Policy | None = None
    """A policy that replaces the previous one."""
    runs_s: float = 0.0
    """How long the job runs after its first trainer has started; 0 for no end."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the arrivals in it."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]
    end_s: float
    """End of the simulation, in seconds from its start."""
