import pytest

from runtime.http_server import STUCK_S, stuck_reason


@pytest.mark.parametrize(
    ("beat_s", "begun_s", "reason"),
    [
        (100.0, [], ""),
        (99.0, [100.0 - STUCK_S, 99.5], ""),
        (99.0, [99.5, 60.0], "a request has been running for 40 s"),
        (100.0 - STUCK_S, [], ""),
        (60.0, [], "the event loop has not run for 40 s"),
    ],
)
def test_a_server_that_hangs_says_why(beat_s: float, begun_s: list[float], reason: str) -> None:
    """At 100 s: its loop, or one request, has stood still for more than half a minute."""
    assert stuck_reason(100.0, beat_s, begun_s) == reason
