from runtime.drop_counts import LOG_INTERVAL_S, Drop, DropCounts, counted_drops
from runtime.metrics import Metrics


def test_a_line_sums_up_an_interval() -> None:
    """The first drop is logged at once, those of the next minute with the first after it."""
    drops = DropCounts()

    assert drops.note(Drop.HEAD, 0.0) == {"head": 1}
    assert drops.note(Drop.HEAD, 1.0) == {}
    assert drops.note(Drop.MALFORMED, LOG_INTERVAL_S - 0.1) == {}
    assert drops.note(Drop.HEAD, LOG_INTERVAL_S) == {"head": 2, "malformed": 1}
    assert drops.note(Drop.BODY, LOG_INTERVAL_S + 1.0) == {}


def test_every_reason_is_exported_from_the_start() -> None:
    """So that a rate includes the first drop."""
    metrics = Metrics("room")
    drops = counted_drops(metrics)
    drops.note(Drop.FULL, 0.0)
    text = metrics.text().decode()

    assert 'edl_room_connections_dropped_total{reason="full"} 1.0' in text
    for reason in set(Drop) - {Drop.FULL}:
        assert f'edl_room_connections_dropped_total{{reason="{reason}"}} 0.0' in text
