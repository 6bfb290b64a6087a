"""The types of a benchmark: a function from a setting to a result, and its stop-watch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

from e2e.measure.criteria import Criterion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """The size and duration of a benchmark run, and where it reports progress."""

    sizes: tuple[int, ...]
    """Numbers of nodes, ascending; criteria apply to the last."""
    rounds: int
    """Repetitions of a short measurement."""
    report_progress: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one benchmark."""

    criteria: tuple[Criterion, ...]
    """Acceptance criteria, measured at the largest size."""
    growth: dict[str, list[float]]
    """The value of each figure at each size; units are in the names."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Raw measurements for the report."""


Benchmark = Callable[[Setting], Result]


@dataclass(slots=True)
class Times:
    """Durations of repetitions of one action, in milliseconds."""

    values: list[float] = field(default_factory=list)

    def run(self, act: Callable[[], T]) -> T:
        """Runs the action once and records its duration."""
        begun_s = perf_counter()
        done = act()
        self.values.append((perf_counter() - begun_s) * 1000)
        return done

    @property
    def median(self) -> float:
        """The median duration."""
        return median(self.values)

    @property
    def worst(self) -> float:
        """The longest duration."""
        return max(self.values)

    def figures(self) -> dict[str, float]:
        """Statistics for the report."""
        return {
            "median_ms": self.median,
            "worst_ms": self.worst,
            "best_ms": min(self.values),
            "count": len(self.values),
        }


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns the value that `percent` of 100 are not above: 50 for the median, 0 to 99.

    Raises:
        IndexError: There are no values.
    """
    return sorted(values)[len(values) * percent // 100]


def latency_figures(times_ms: Sequence[float]) -> dict[str, float]:
    """Statistics of a server's answers, for the report."""
    return {
        "p50_ms": percentile(times_ms, 50),
        "p99_ms": percentile(times_ms, 99),
        "worst_ms": max(times_ms),
    }


def grown(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Transposes figures per size into a list per figure."""
    return {name: [row[name] for row in rows] for name in rows[0]}
