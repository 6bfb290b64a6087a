"""Verdicts on mutants, from the exit codes of their tests, and their counts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

TIMED_OUT = 36
"""Mutmut's exit code for a time-out."""
_CODES_TIMED_OUT = frozenset((TIMED_OUT, 24, -24, 152))
"""Mutmut ends tests that take too long by SIGXCPU."""
_CODES_NOT_REACHED = frozenset((33, 5))
"""Mutmut: no test calls the function; pytest: no tests."""
_CODES_BROKEN = frozenset((4, 255))
"""pytest: wrong arguments; mutmut: pytest crashed."""
MIN_RATE = 0.9
"""The required share of tried mutants that the tests detect."""


class Verdict(StrEnum):
    """The verdict on one mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    NOT_COVERED = "not covered"
    BROKEN = "broken"
    """Its tests failed to run twice; it counts as not detected."""
    EQUIVALENT = "equivalent"


def needs_second_try(code: int) -> bool:
    """Whether a mutant must be tried again, because the result is not certain.

    A time-out may be caused by other load on the machine.
    """
    return code == 0 or code in _CODES_BROKEN or code in _CODES_TIMED_OUT


def verdict(code: int) -> Verdict:
    """Converts an exit code of pytest, of mutmut or of a signal; any other failure is a kill."""
    if code in _CODES_BROKEN:
        return Verdict.BROKEN
    if code in _CODES_TIMED_OUT:
        return Verdict.TIMED_OUT
    if code in _CODES_NOT_REACHED:
        return Verdict.NOT_COVERED
    return Verdict.KILLED if code else Verdict.SURVIVED


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """The counts of verdicts in one room, or in all rooms."""

    tried: int
    killed: int
    survived: int
    timed_out: int
    not_covered: int
    broken: int
    equivalent: int

    @staticmethod
    def of(verdicts: Iterable[Verdict]) -> "VerdictCounts":
        """Counts verdicts."""
        counted = Counter(verdicts)
        return VerdictCounts(
            tried=counted.total(),
            killed=counted[Verdict.KILLED],
            survived=counted[Verdict.SURVIVED],
            timed_out=counted[Verdict.TIMED_OUT],
            not_covered=counted[Verdict.NOT_COVERED],
            broken=counted[Verdict.BROKEN],
            equivalent=counted[Verdict.EQUIVALENT],
        )

    @property
    def rate(self) -> float:
        """The share of non-equivalent mutants that tests detect, by failing or hanging."""
        differing = self.tried - self.equivalent
        return (self.killed + self.timed_out) / differing if differing else 1.0

    @property
    def rate_text(self) -> str:
        """The rate in percent; "-" if all tried mutants are equivalent."""
        return f"{100 * self.rate:.1f} %" if self.tried > self.equivalent else "-"
