"""How long things take. The defaults are those of the local control plane of `e2e.cluster`.

Measured on 2 cores that ran all of it: see docs/measurements.md, "The first experiment".
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds each."""

    bind_s: float = 0.012
    """One pod through kube-scheduler: filter, score, the extender's two answers, the bind."""
    preempt_s: float = 0.060
    """A pod that finds no room: dry run on all nodes, the extender's choice, two patches."""
    start_s: float = 0.1
    """From the bind until the pod runs."""
    stop_s: float = 1.06
    """From the word to stop until the pod is gone."""
    write_s: float = 0.015
    """One write to the API server, of those that go side by side."""
    gather_s: float = 0.1
    """`ReconcilerSettings.gather_seconds`."""
    plan_s: float = 0.2
    """Hearing of a change, making a plan, and entering new ids in the books."""
    tick_s: float = 5.0
    """`ReconcilerSettings.tick_seconds`."""
    backoff_s: float = 1.0
    """A pod that found no room is tried again this much later at the earliest; doubles each time."""
    backoff_most_s: float = 10.0
