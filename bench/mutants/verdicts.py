"""What the exit of a mutant's tests means, and how a room's mutants are counted."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

TIMED_OUT = 36
"""Mutmut's exit code for it."""
_CODES_TIMED_OUT = frozenset((TIMED_OUT, 24, -24, 152))
"""SIGXCPU is how mutmut ends tests that take too long."""
_CODES_NOT_REACHED = frozenset((33, 5))
"""Of mutmut for a function that no test calls, and of pytest for no test."""
_CODES_BROKEN = frozenset((4, 255))
"""pytest: wrong arguments; mutmut: pytest crashed."""
MIN_RATE = 0.9
"""The least rate: of the mutants tried, how many the tests notice."""


class Verdict(StrEnum):
    """What came of one mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    NOT_COVERED = "not covered"
    BROKEN = "broken"
    """Its tests did not run, twice; it counts as not noticed."""
    EQUIVALENT = "equivalent"


def needs_second_try(code: int) -> bool:
    """Whether a mutant has to be tried again: what its tests say, or whether they ran, is not sure.

    A time-out may be the machine's, which does other work too.
    """
    return code == 0 or code in _CODES_BROKEN or code in _CODES_TIMED_OUT


def verdict(code: int) -> Verdict:
    """What an exit code of pytest, of mutmut or of a signal says; any other failure is a kill."""
    if code in _CODES_BROKEN:
        return Verdict.BROKEN
    if code in _CODES_TIMED_OUT:
        return Verdict.TIMED_OUT
    if code in _CODES_NOT_REACHED:
        return Verdict.NOT_COVERED
    return Verdict.KILLED if code else Verdict.SURVIVED


@dataclass(frozen=True, slots=True)
class Counts:
    """A room's mutants, or those of all rooms."""

    tried: int
    killed: int
    survived: int
    timed_out: int
    not_covered: int
    broken: int
    equivalent: int

    @staticmethod
    def of(verdicts: Iterable[Verdict]) -> "Counts":
        """Counts them."""
        counted = Counter(verdicts)
        return Counts(
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
        """Of those that differ from the code, how many tests notice, by failing or by hanging."""
        differing = self.tried - self.equivalent
        return (self.killed + self.timed_out) / differing if differing else 1.0

    @property
    def rate_text(self) -> str:
        """The rate as a person reads it; "-" where nothing could be noticed."""
        return f"{100 * self.rate:.1f} %" if self.tried > self.equivalent else "-"
