"""How waits grow."""

from random import Random

from kube.backoff import FIRST_S, LONGEST_S, Backoff


class Highest(Random):
    """A random generator that always returns the upper bound."""

    def uniform(self, a: float, b: float) -> float:
        """The upper end."""
        return max(a, b)


def test_waits_double_up_to_a_limit() -> None:
    """0.5, 1, 2, ... 30, 30 at most."""
    backoff = Backoff(Highest())

    waits = [backoff.next_s() for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert (waits[0], waits[-1]) == (FIRST_S, LONGEST_S)


def test_a_reset_starts_small_again() -> None:
    """A reset after a success returns to the first bound."""
    backoff = Backoff(Highest(), first_s=1, longest_s=3)
    assert [backoff.next_s() for _ in range(3)] == [1, 2, 3]

    backoff.reset()
    assert backoff.next_s() == 1


def test_jitter_is_full() -> None:
    """Waits are spread from 0 to the bound."""
    waits = [Backoff(Random(seed)).next_s() for seed in range(100)]  # noqa: S311 - no secrets

    assert 0 <= min(waits) < 0.1
    assert 0.4 < max(waits) <= 0.5
