"""Durations of simulated operations, measured on the local control plane of `e2e.cluster`.

The whole control plane ran on two cores: see docs/methods.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of the simulated operations, in seconds."""

    bind_s: float = 0.012
    """Scheduling one pod: filter, score, the extender's two answers and the bind."""
    preempt_s: float = 0.060
    """Preemption: the dry run on all nodes, the extender's choice and two patches."""
    start_s: float = 0.1
    """From the bind until the pod is running."""
    stop_s: float = 1.06
    """From the start of a deletion until the pod is removed."""
    write_s: float = 0.015
    """One write to the API server while several others run in parallel."""
    gather_s: float = 0.1
    """`ReconcilerSettings.gather_seconds`."""
    plan_s: float = 0.2
    """Receiving a change, planning and recording new trainer ids."""
    tick_s: float = 5.0
    """`ReconcilerSettings.tick_seconds`."""
    backoff_s: float = 1.0
    """First delay before a pod that fitted on no node is tried again; the delay doubles with each failure."""
    max_backoff_s: float = 10.0
