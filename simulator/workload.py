"""The input of a simulation: nodes, and pods and jobs with their arrival times."""

from dataclasses import dataclass

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy


@dataclass(frozen=True, slots=True)
class Arrival:
    """Objects that a user submits at one time."""

    at_s: float
    """Seconds from the start of the simulation."""
    pods: tuple[Pod, ...] = ()
    """Pods without a node, created one after another: parameter servers, masters, services."""
    job: Job | None = None
    """A job, whose trainers the reconciler creates."""
    policy: Policy | None = None
    """A policy, which takes the place of the one before."""
    runs_s: float = 0.0
    """How long after the start of its first trainer the job ends; 0 for not at all."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and the arrivals in it."""

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]
    end_s: float
    """Seconds from the start."""
