from simulator.clock import Clock


def test_what_is_due_first_happens_first() -> None:
    """Order is by time, and among equals by who asked first."""
    clock, calls = Clock(100.0), list[str]()
    clock.after(2.0, lambda: calls.append(f"late at {clock.now_s}"))
    clock.at(101.0, lambda: calls.append("first"))
    clock.at(101.0, lambda: calls.append("second"))
    clock.run(110.0)
    assert calls == ["first", "second", "late at 102.0"]
    assert clock.now_s == 110.0


def test_what_is_due_later_waits() -> None:
    """A run ends at its time; what comes after it happens in the next."""
    clock, times = Clock(0.0), list[float]()
    for time_s in (5.0, 5.1):
        clock.at(time_s, lambda: times.append(clock.now_s))
    clock.run(5.0)
    assert times == [5.0]
    clock.run(6.0)
    assert times == [5.0, 5.1]


def test_the_past_is_now() -> None:
    """An action that is asked for too late happens at once, and time never runs back."""
    clock, times = Clock(50.0), list[float]()
    clock.at(1.0, lambda: times.append(clock.now_s))
    clock.run(50.0)
    assert times == [50.0]
