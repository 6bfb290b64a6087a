"""What a benchmark is: a function from a setting to a result, and the stop-watch it uses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

from e2e.measure.bars import Bar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """How large and how long; `tell` shows a person what goes on."""

    sizes: tuple[int, ...]
    """Numbers of nodes, growing; bars are about the last."""
    rounds: int
    """How often a short thing is done."""
    tell: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Result:
    """What one benchmark found."""

    bars: tuple[Bar, ...]
    """At the largest size."""
    growth: dict[str, list[float]]
    """Figure -> its value at each size, units in the names."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Everything else that is worth keeping."""


Benchmark = Callable[[Setting], Result]


@dataclass(slots=True)
class Times:
    """Durations of one thing done many times, in milliseconds."""

    values: list[float] = field(default_factory=list)

    def run(self, act: Callable[[], T]) -> T:
        """Does it once, timed."""
        begun_s = perf_counter()
        done = act()
        self.values.append((perf_counter() - begun_s) * 1000)
        return done

    @property
    def median(self) -> float:
        """Half were faster."""
        return median(self.values)

    @property
    def worst(self) -> float:
        """The longest."""
        return max(self.values)

    def figures(self) -> dict[str, float]:
        """For the report."""
        return {
            "median_ms": self.median,
            "worst_ms": self.worst,
            "best_ms": min(self.values),
            "count": len(self.values),
        }


def grown(rows: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    """Figures of each size, turned into a list for each figure."""
    return {name: [row[name] for row in rows] for name in rows[0]}
