"""A number that changes at known moments: how many pods run, how much CPU is in use (pure).

Figures are integrals, maxima and values of such step functions, so none of them depends on
when it happened to be sampled.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class WeightedSpan:
    """From `start_s` until before `end_s` (None: for ever) something counts `weight`."""

    start_s: float
    end_s: float | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Level:
    """A right-continuous step function that is 0 before the first change."""

    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()
    """`values[i]` holds from `times[i]` until before `times[i + 1]`."""

    @classmethod
    def of(cls, spans: Iterable[WeightedSpan]) -> "Level":
        """Returns the sum of the spans; those that end before they start count nothing."""
        changes: Counter[float] = Counter()
        for span in spans:
            if span.end_s is not None and span.end_s <= span.start_s:
                continue
            changes[span.start_s] += span.weight
            if span.end_s is not None:
                changes[span.end_s] -= span.weight
        times = sorted(time for time, change in changes.items() if change)
        return cls(tuple(times), tuple(accumulate(changes[time] for time in times)))

    def at(self, time_s: float) -> int:
        """Returns the value at a moment."""
        index = bisect_right(self.times, time_s) - 1
        return self.values[index] if index >= 0 else 0

    def before(self, time_s: float) -> int:
        """Returns the value just before a moment."""
        index = bisect_right(self.times, time_s) - 1
        if index >= 0 and self.times[index] == time_s:
            index -= 1
        return self.values[index] if index >= 0 else 0

    def pieces(self, start_s: float, end_s: float) -> Iterator[tuple[float, float, int]]:
        """(begin, end, value) of every constant piece between two moments, in order."""
        index = bisect_right(self.times, start_s)
        begin = start_s
        while begin < end_s:
            end = min(self.times[index], end_s) if index < len(self.times) else end_s
            yield begin, end, self.values[index - 1] if index else 0
            begin, index = end, index + 1

    def integral(self, start_s: float, end_s: float) -> float:
        """Value times seconds between two moments."""
        return sum((end - begin) * value for begin, end, value in self.pieces(start_s, end_s))

    def mean(self, start_s: float, end_s: float) -> float:
        """Returns the mean over time; the value itself where no time passes."""
        if end_s <= start_s:
            return float(self.at(start_s))
        return self.integral(start_s, end_s) / (end_s - start_s)

    def peak(self, start_s: float, end_s: float) -> int:
        """Returns the highest value between two moments."""
        return max((piece[2] for piece in self.pieces(start_s, end_s)), default=self.at(start_s))

    def first(self, start_s: float, end_s: float, holds: Callable[[int], bool]) -> float | None:
        """Returns the first moment at which `holds(value)`, or None."""
        for begin, _, value in self.pieces(start_s, end_s):
            if holds(value):
                return begin
        return None
