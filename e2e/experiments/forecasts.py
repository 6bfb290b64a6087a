"""Forecasts of another policy for random clusters, compared with what happens there.

Pure: draws the cases, and counts how many forecasts came true.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rich.table import Table

from e2e import workload
from e2e.cluster.nodes import node
from e2e.workload import Manifest
from policy.cluster.snapshot import Job, Pod
from policy.document.model import Policy
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN, ANNOTATION_QUEUE, ANNOTATION_WEIGHT
from tests.simulator import forecasts

GOOD_SHARE = 0.95
"""Of the forecasts, that are right for every job within `TOLERANCE`."""
TOLERANCE = 1
"""Trainers."""
NAMESPACES = ("ml", "lab", "shop")
"""Of the jobs, and of the services."""
_MOST_JOBS, _FEWEST_NODES, _MOST_NODES = 4, 3, 6
_SIZES = (17, 18, 32)
"""CPUs of nodes."""
_STOP_TIME = "100ms"
_PACE = {"min_run_seconds": 0.0, "cool_down_seconds": 0.5}
"""The delays that pace plans, so that a case takes seconds; a forecast does not depend on them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A cluster, its arriving pods and jobs, and two policies."""

    number: int
    """Also the seed."""
    nodes: tuple[str, ...]
    """Those of the pool that it uses."""
    jobs: tuple[Job, ...]
    services: tuple[Pod, ...]
    before: Policy
    after: Policy


@dataclass(frozen=True, slots=True)
class Outcome:
    """Trainers of each job: when the policy changed, as forecast for the other one, and in the end."""

    number: int
    before: Mapping[str, int]
    predicted: Mapping[str, int]
    happened: Mapping[str, int]
    seconds: float = 0.0
    """How long the case took."""
    unsettled: str = ""
    """Changes that had not ended at the time limit."""

    @property
    def off_by(self) -> int:
        """By how many trainers the forecast was wrong about a job, at most."""
        return _largest_difference(self.predicted, self.happened)

    @property
    def moved(self) -> int:
        """By how many trainers the policy has changed a job, at most."""
        return _largest_difference(self.before, self.happened)

    @property
    def right(self) -> bool:
        """Whether the forecast came true for every job."""
        return not self.unsettled and self.off_by <= TOLERANCE


def draw(number: int, *, quick: bool = True) -> Case:
    """Returns a random case, the same for each number.

    Args:
        number: Of the case.
        quick: Whether policies pace their plans as `_PACE` says, and not as a user's do.
    """
    random = Random(number)  # noqa: S311 - repeatable on purpose
    cluster = forecasts.nodes(random, _FEWEST_NODES, _MOST_NODES, _SIZES)
    jobs = [
        replace(job, name=f"case-{number}-{index}")
        for index, job in enumerate(forecasts.jobs(random, _MOST_JOBS))
    ]
    before, after = forecasts.policy(random), forecasts.policy(random)
    taken: dict[int, int] = {}
    names = []
    for record in cluster:
        size = record.allocatable["cpu"] // 1000
        names.append(_node_name(size, taken.get(size, 0)))
        taken[size] = taken.get(size, 0) + 1
    return Case(
        number,
        tuple(names),
        tuple(jobs),
        forecasts.services(random, cluster),
        _paced(before) if quick else before,
        _paced(after) if quick else after,
    )


def pool() -> list[Manifest]:
    """Returns the nodes that cases choose from: as many of each size as the largest case may have."""
    return [
        node(_node_name(size, index), str(size)) for size in _SIZES for index in range(_MOST_NODES)
    ]


def job_manifest(job: Job) -> Manifest:
    """Returns a Job as a user writes it."""
    annotations = {
        ANNOTATION_MIN: str(job.min_trainers),
        ANNOTATION_MAX: str(job.max_trainers),
        ANNOTATION_WEIGHT: str(job.weight),
        **({ANNOTATION_QUEUE: job.queue} if job.queue else {}),
    }
    template = {
        "metadata": {"annotations": {workload.STOP_ANNOTATION: _STOP_TIME}},
        "spec": {**_pod_spec(job.requests), "restartPolicy": "Never"},
    }
    return {
        "metadata": {"name": job.name, "namespace": job.namespace, "annotations": annotations},
        "spec": {"template": template},
    }


def service_manifest(service: Pod) -> Manifest:
    """Returns a pod of an online service."""
    spec = _pod_spec(service.requests)
    return {
        "metadata": {"name": service.name, "namespace": service.namespace},
        "spec": {**spec, "priorityClassName": workload.SERVICES},
    }


def share_right(outcomes: Sequence[Outcome]) -> float:
    """Returns the share of forecasts that came true; 0 without any."""
    return sum(outcome.right for outcome in outcomes) / len(outcomes) if outcomes else 0.0


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Returns the figures of a run, for its report."""
    seconds = sorted(outcome.seconds for outcome in outcomes)
    return {
        "cases": len(outcomes),
        "right": sum(outcome.right for outcome in outcomes),
        "exact": sum(outcome.right and outcome.off_by == 0 for outcome in outcomes),
        "moved": sum(outcome.moved > TOLERANCE for outcome in outcomes),
        "unsettled": sum(bool(outcome.unsettled) for outcome in outcomes),
        "share": share_right(outcomes),
        "seconds_median": round(seconds[len(seconds) // 2], 2) if seconds else 0.0,
        "seconds_worst": round(max(seconds, default=0.0), 2),
        "wrong": [
            {
                "case": outcome.number,
                "before": dict(outcome.before),
                "predicted": dict(outcome.predicted),
                "happened": dict(outcome.happened),
                "unsettled": outcome.unsettled,
            }
            for outcome in outcomes
            if not outcome.right
        ],
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """How far forecasts were off, by how much the policy moved, and each case that was wrong."""
    result = Table(title="forecasts of another policy", title_justify="left")
    for heading in ("off by, trainers of a job", "cases", "of these: policy moved more than one"):
        result.add_column(heading, justify="right")
    for off_by in sorted({outcome.off_by for outcome in outcomes if not outcome.unsettled}):
        cases = [each for each in outcomes if not each.unsettled and each.off_by == off_by]
        moved = sum(outcome.moved > TOLERANCE for outcome in cases)
        result.add_row(str(off_by), str(len(cases)), str(moved))
    lost = sum(bool(outcome.unsettled) for outcome in outcomes)
    if lost:
        result.add_row("did not settle", str(lost), "-")
    return result


def line(outcome: Outcome) -> str:
    """Returns a case in one line."""
    trainers = ", ".join(
        f"{key} {outcome.before.get(key, 0)} -> {outcome.predicted.get(key, 0)} said, {count} happened"
        for key, count in sorted(outcome.happened.items())
    )
    verdict = "right" if outcome.right else f"WRONG ({outcome.unsettled or 'off by more than one'})"
    return f"case {outcome.number}, {outcome.seconds:.1f} s, {verdict}: {trainers}"


def _paced(policy: Policy) -> Policy:
    return policy.model_copy(update={"stability": policy.stability.model_copy(update=_PACE)})


def _node_name(size: int, index: int) -> str:
    return f"node-{size}-{index}"


def _pod_spec(requests: Mapping[str, int]) -> Manifest:
    amounts = {"cpu": f"{requests['cpu']}m"}
    if "memory" in requests:
        amounts["memory"] = str(requests["memory"])
    image = "registry.invalid/workload"  # kwok pulls nothing
    return {"containers": [{"name": "main", "image": image, "resources": {"requests": amounts}}]}


def _largest_difference(one: Mapping[str, int], other: Mapping[str, int]) -> int:
    return max(
        (abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()), default=0
    )
