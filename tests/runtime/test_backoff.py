"""How pauses grow."""

from random import Random

from runtime.backoff import FIRST_S, MAX_S, Backoff, Backoffs


def test_waits_double_up_to_a_limit() -> None:
    """0.5, 1, 2, ... 30, 30 at most."""
    backoff = Backoff()

    waits = [backoff.next_s() for _ in range(9)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert (waits[0], waits[-1]) == (FIRST_S, MAX_S)


def test_a_reset_starts_small_again() -> None:
    """A reset after a success returns to the first bound."""
    backoff = Backoff(first_s=1, max_s=3)
    assert [backoff.next_s() for _ in range(3)] == [1, 2, 3]

    backoff.reset()
    assert backoff.next_s() == 1


def test_jitter_is_full() -> None:
    """Waits are spread from 0 to the bound."""
    waits = [Backoff(jitter=Random(seed).random).next_s() for seed in range(100)]  # noqa: S311 - no secrets

    assert 0 <= min(waits) < 0.1
    assert 0.4 < max(waits) <= 0.5


def test_each_object_has_its_own_pauses() -> None:
    """They double until the object succeeds."""
    backoffs = Backoffs[str](1, 3, calm_s=10)
    ends_s = []
    now_s = 0.0
    for _ in range(3):
        backoffs.begin("a", now_s)
        begun_s = now_s
        while backoffs.is_waiting("a", now_s):
            now_s += 0.5
        ends_s.append(now_s - begun_s)
    assert ends_s == [1, 2, 3]
    assert not backoffs.is_waiting("b", now_s)

    backoffs.end("a")
    backoffs.begin("a", now_s)
    assert backoffs.is_waiting("a", now_s + 0.9)
    assert not backoffs.is_waiting("a", now_s + 1)


def test_objects_that_were_calm_are_forgotten() -> None:
    """Their next failure is a first one."""
    backoffs = Backoffs[str](1, 60, calm_s=10)
    for now_s in (0.0, 1.0):
        backoffs.begin("a", now_s)
    backoffs.begin("b", 13.0)
    assert set(backoffs) == {"a", "b"}
    backoffs.begin("a", 13.5)

    assert set(backoffs) == {"a", "b"}
    assert not backoffs.is_waiting("a", 14.5)
