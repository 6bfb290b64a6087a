import pytest

from runtime.metric_names import MetricNameError, MetricType
from runtime.metrics import MetricDescription, Metrics, Samples


def test_names_start_with_the_component() -> None:
    """A metric is called edl_<component>_<name>."""
    metrics = Metrics("attic")
    metrics.counter("boxes_opened_total", "Boxes.").inc()
    metrics.gauge("free_bytes", "Capacity.").set(7)
    metrics.histogram("search_seconds", "Searching.").observe(0.003)

    text = metrics.text().decode()

    assert "edl_attic_boxes_opened_total 1.0" in text
    assert "edl_attic_free_bytes 7.0" in text
    assert 'edl_attic_search_seconds_bucket{le="0.005"} 1.0' in text


def test_every_kind_of_metric_checks_its_name() -> None:
    """A name that breaks a rule is refused, whatever creates the metric."""
    metrics = Metrics("attic")

    with pytest.raises(MetricNameError, match="_total"):
        metrics.counter("boxes", "Boxes.")
    with pytest.raises(MetricNameError, match="_total"):
        metrics.total("boxes", "Boxes.", lambda: 0.0)
    with pytest.raises(MetricNameError, match="le"):
        metrics.totals("boxes_total", "Boxes.", "le", dict)
    with pytest.raises(MetricNameError, match="_count"):
        metrics.gauge("boxes_count", "Boxes.")
    with pytest.raises(MetricNameError, match="seconds"):
        metrics.histogram("search", "Searching.")
    with pytest.raises(MetricNameError, match="_info"):
        metrics.info("policy", "The policy.", ("version",), dict)
    assert metrics.descriptions == []
    assert "edl_attic" not in metrics.text().decode()


def test_a_total_is_read_at_every_scrape() -> None:
    """It is a counter; registration does not read it."""
    metrics = Metrics("attic")
    boxes: dict[str, float] = {}
    metrics.total("boxes_opened_total", "Boxes.", lambda: boxes["red"])
    metrics.totals("boxes_lost_total", "Lost boxes.", "color", lambda: boxes)
    scrapes = []
    for count in (1.0, 2.0):
        boxes["red"] = count
        scrapes.append(metrics.text().decode())

    for scrape, count in zip(scrapes, (1.0, 2.0), strict=True):
        assert "# HELP edl_attic_boxes_opened_total Boxes." in scrape
        assert "# TYPE edl_attic_boxes_opened_total counter" in scrape
        assert f"\nedl_attic_boxes_opened_total {count}" in scrape
        assert f'edl_attic_boxes_lost_total{{color="red"}} {count}' in scrape


def test_descriptions_have_every_metric_by_name() -> None:
    """Also those that are read at a scrape, without reading them."""
    metrics = Metrics("attic")
    metrics.totals("boxes_lost_total", "Lost boxes.", "color", dict)
    metrics.total("boxes_opened_total", "Boxes.", lambda: 1 / 0)
    metrics.info("policy_info", "The policy.", ("version",), dict)
    metrics.histogram("call_seconds", "Calls.", ["path"])
    metrics.gauge("boxes", "Boxes.")

    assert metrics.descriptions == [
        MetricDescription("edl_attic_boxes", MetricType.GAUGE, (), "Boxes."),
        MetricDescription(
            "edl_attic_boxes_lost_total", MetricType.COUNTER, ("color",), "Lost boxes."
        ),
        MetricDescription("edl_attic_boxes_opened_total", MetricType.COUNTER, (), "Boxes."),
        MetricDescription("edl_attic_call_seconds", MetricType.HISTOGRAM, ("path",), "Calls."),
        MetricDescription("edl_attic_policy_info", MetricType.GAUGE, ("version",), "The policy."),
    ]


def test_counters_exist_before_the_first_event() -> None:
    """Zeroed labels are there from the start, so that a rate sees the first event."""
    metrics = Metrics("attic")
    metrics.counter("boxes_total", "Boxes.", ("color",), [("red",)])

    assert 'edl_attic_boxes_total{color="red"} 0.0' in metrics.text().decode()


def test_info_shows_the_labels_of_now() -> None:
    """Labels are read at every scrape, and earlier ones are gone."""
    metrics = Metrics("attic")
    version = {"version": "a"}
    metrics.info("policy_info", "The policy.", ("version",), lambda: version)

    first = metrics.text().decode()
    version["version"] = "b"
    second = metrics.text().decode()

    assert 'edl_attic_policy_info{version="a"} 1.0' in first
    assert 'edl_attic_policy_info{version="b"} 1.0' in second
    assert 'version="a"' not in second


def test_values_are_those_of_now() -> None:
    """Read at every scrape as a whole; labels that are gone leave no series."""
    metrics = Metrics("attic")
    boxes: Samples = {("red",): 2.0}
    metrics.values("boxes", "Boxes.", ("color",), lambda: boxes)

    first = metrics.text().decode()
    boxes = {("blue",): 3.0}
    second = metrics.text().decode()

    assert 'edl_attic_boxes{color="red"} 2.0' in first
    assert 'edl_attic_boxes{color="blue"} 3.0' in second
    assert "red" not in second


def test_two_components_share_nothing() -> None:
    """The same name in two registries is two metrics."""
    first, second = Metrics("attic"), Metrics("attic")
    first.counter("boxes_total", "Boxes.").inc()
    second.counter("boxes_total", "Boxes.")

    assert "edl_attic_boxes_total 0.0" in second.text().decode()
