import pytest

from runtime.metrics import Metrics


def test_names_have_prefix_and_unit() -> None:
    """A metric is called edl_<room>_<thing>_<unit>."""
    metrics = Metrics("attic")
    metrics.counter("boxes_total", "Boxes.").inc()
    metrics.gauge("free_bytes", "Room.").set(7)
    metrics.histogram("search_seconds", "Searching.").observe(0.003)

    text = metrics.text().decode()

    assert "edl_attic_boxes_total 1.0" in text
    assert "edl_attic_free_bytes 7.0" in text
    assert 'edl_attic_search_seconds_bucket{le="0.005"} 1.0' in text


@pytest.mark.parametrize("name", ["boxes", "Boxes_total", "boxes__total", "total", "_boxes_total"])
def test_counters_are_called_total(name: str) -> None:
    """A counter with another ending or other letters is refused."""
    with pytest.raises(ValueError, match="must be lower_case and end in one of _total"):
        Metrics("attic").counter(name, "Boxes.")


def test_gauges_say_their_unit() -> None:
    """A gauge without a unit is refused."""
    with pytest.raises(ValueError, match="_seconds"):
        Metrics("attic").gauge("free", "Room.")


def test_counters_exist_before_the_first_event() -> None:
    """Zeroed labels are there from the start, so that a rate sees the first event."""
    metrics = Metrics("attic")
    metrics.counter("boxes_total", "Boxes.", ("color",), [("red",)])

    assert 'edl_attic_boxes_total{color="red"} 0.0' in metrics.text().decode()


def test_info_shows_the_labels_of_now() -> None:
    """Labels are asked for at every scrape, and those of before are gone."""
    metrics = Metrics("attic")
    version = {"version": "a"}
    metrics.info("policy_info", "The policy.", lambda: version)

    first = metrics.text().decode()
    version["version"] = "b"
    second = metrics.text().decode()

    assert 'edl_attic_policy_info{version="a"} 1.0' in first
    assert 'edl_attic_policy_info{version="b"} 1.0' in second
    assert 'version="a"' not in second


def test_two_rooms_share_nothing() -> None:
    """The same name in two registries is two metrics."""
    first, second = Metrics("attic"), Metrics("attic")
    first.counter("boxes_total", "Boxes.").inc()
    second.counter("boxes_total", "Boxes.")

    assert "edl_attic_boxes_total 0.0" in second.text().decode()
