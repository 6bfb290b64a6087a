"""Builds small timelines by hand, so that every figure can be worked out on paper."""

from e2e.measure.pods import Kind, PodView
from e2e.measure.record import PodLifetime, ServiceStep, Timeline
from policy.cluster.snapshot import Phase


def lifetime(
    kind: Kind,
    *,
    uid: str = "",
    created_s: float = 0.0,
    bound_s: float | None = None,
    running_s: float | None = None,
    deleting_s: float | None = None,
    ended_s: float | None = None,
    node: str = "node-000",
    job: str = "",
    surplus: bool = True,
    cpu_millis: int = 0,
    limit_millis: int = 0,
    disruption: str = "",
    nominations: tuple[tuple[float, str], ...] = (),
) -> PodLifetime:
    """A pod's life; one that runs was bound just then unless said otherwise."""
    default_cpu = {Kind.SERVICE: 3000, Kind.TRAINER: 5000, Kind.SUPPORT: 4000, Kind.SYSTEM: 500}
    bound = running_s if bound_s is None else bound_s
    return PodLifetime(
        uid=uid or f"{kind}-{job}-{created_s}-{running_s}-{node}",
        name=uid,
        kind=kind,
        job=job,
        surplus=kind is Kind.TRAINER and surplus,
        cpu_millis=cpu_millis or default_cpu[kind],
        created_s=created_s,
        node=node if bound is not None else "",
        bound_s=bound,
        running_s=running_s,
        deleting_s=deleting_s,
        ended_s=ended_s,
        disruption=disruption,
        nominations=list(nominations),
        limit_millis=limit_millis or cpu_millis or default_cpu[kind],
    )


def timeline(
    *lifetimes: PodLifetime,
    steps: tuple[tuple[float, int], ...] = ((0.0, 0),),
    jobs: tuple[str, ...] = (),
    end_s: float = 100.0,
    nodes: dict[str, int] | None = None,
) -> Timeline:
    """A run that started at 0 and submitted its jobs there."""
    return Timeline(
        lifetimes=lifetimes,
        steps=tuple(ServiceStep(at_s, services) for at_s, services in steps),
        submitted_s=dict.fromkeys(jobs, 0.0),
        started_s=0.0,
        end_s=end_s,
        nodes={"node-000": 18_000} if nodes is None else nodes,
    )


def view(
    kind: Kind,
    *,
    uid: str = "u1",
    job: str = "",
    surplus: bool = False,
    node: str = "",
    nominated: str = "",
    phase: Phase = Phase.PENDING,
    deleting: bool = False,
    disruption: str = "",
) -> PodView:
    """A pod at one moment, 5 CPU."""
    return PodView(
        uid=uid,
        name=uid,
        kind=kind,
        job=job,
        surplus=surplus,
        cpu_millis=5000,
        node=node,
        nominated=nominated,
        phase=phase,
        deleting=deleting,
        disruption=disruption,
    )
