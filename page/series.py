"""Time series of limited length: the use of the cluster at two resolutions, and trainers per job. Pure."""

from collections import deque
from collections.abc import Sequence

Point = tuple[float, list[list[int]]]
"""Time, and the amounts of each resource."""
FINE_S, COARSE_S = 5.0, 60.0
_FINE_POINTS, _COARSE_POINTS = 720, 1440
_MAX_STEPS = 240
"""Maximum number of changes kept for each job."""


class UsageSeries:
    """One point per 5 s for the last hour, and one per minute for the last day; times are rounded down."""

    def __init__(self) -> None:
        self._fine: deque[Point] = deque(maxlen=_FINE_POINTS)
        self._coarse: deque[Point] = deque(maxlen=_COARSE_POINTS)

    def put(self, now_s: float, amounts: list[list[int]]) -> Point:
        """Adds a point with the present use of the cluster; replaces earlier points of the same 5 s or minute."""
        for points, slot_s in ((self._coarse, COARSE_S), (self._fine, FINE_S)):
            at_s = now_s - now_s % slot_s
            if points and points[-1][0] >= at_s:
                points.pop()
            points.append((at_s, amounts))
        return self._fine[-1]

    def points(self) -> list[Point]:
        """Returns all points in order of time: minutes first, then the finer points."""
        first_s = self._fine[0][0] if self._fine else float("inf")
        return [point for point in self._coarse if point[0] + COARSE_S <= first_s] + list(
            self._fine
        )

    def clear(self) -> None:
        """Removes all points, for example because the resources have changed."""
        self._fine.clear()
        self._coarse.clear()


class TrainerSteps:
    """The number of trainers of each job over time, stored as the newest changes of this number."""

    def __init__(self) -> None:
        self._steps: dict[str, deque[tuple[float, int]]] = {}

    def put(self, job: str, now_s: float, trainers: int) -> None:
        """Adds the present number of trainers of a job."""
        steps = self._steps.setdefault(job, deque(maxlen=_MAX_STEPS))
        if not steps or steps[-1][1] != trainers:
            steps.append((now_s, trainers))

    def drop(self, job: str) -> None:
        """Removes a job that no longer exists."""
        self._steps.pop(job, None)

    def of(self, job: str) -> Sequence[tuple[float, int]]:
        """Returns the changes of a job, oldest first."""
        return tuple(self._steps.get(job, ()))

    def largest(self, jobs: Sequence[str], limit: int) -> dict[str, list[tuple[float, int]]]:
        """Returns the changes of the jobs that now have the most trainers, largest first."""
        counted = [job for job in jobs if job in self._steps]
        counted.sort(key=lambda job: (-self._steps[job][-1][1], job))
        return {job: list(self._steps[job]) for job in counted[:limit]}
