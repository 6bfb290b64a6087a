import pytest

from runtime.metric_names import MetricNameError, MetricType, check


@pytest.mark.parametrize(
    ("metric_type", "name"),
    [
        (MetricType.COUNTER, "edl_attic_boxes_opened_total"),
        (MetricType.COUNTER, "boxes_created_total"),
        (MetricType.COUNTER, "read_bytes_total"),
        (MetricType.GAUGE, "boxes"),
        (MetricType.GAUGE, "accounts"),
        (MetricType.GAUGE, "expiry_timestamp_seconds"),
        (MetricType.GAUGE, "policy_info"),
        (MetricType.HISTOGRAM, "search_seconds"),
    ],
)
def test_names_that_follow_the_rules(metric_type: MetricType, name: str) -> None:
    """They are accepted with their labels."""
    check(metric_type, name, ("verb", "outcome"))


@pytest.mark.parametrize("metric_type", MetricType)
@pytest.mark.parametrize(
    "name", ["", "Boxes_total", "boxes__total", "_boxes_total", "boxes_", "freeBytes", "free:bytes"]
)
def test_names_are_words_in_lower_case(metric_type: MetricType, name: str) -> None:
    """Separated by one underscore each."""
    with pytest.raises(MetricNameError, match="lower case"):
        check(metric_type, name)


@pytest.mark.parametrize(
    ("metric_type", "name"),
    [
        (MetricType.COUNTER, "boxes"),
        (MetricType.COUNTER, "total"),
        (MetricType.COUNTER, "boxes_total_seconds"),
        (MetricType.GAUGE, "boxes_total"),
        (MetricType.HISTOGRAM, "boxes_total"),
    ],
)
def test_counters_and_nothing_else_end_in_total(metric_type: MetricType, name: str) -> None:
    """So that a reader of the name knows what may be rated."""
    with pytest.raises(MetricNameError, match="counters, and only counters, end in _total"):
        check(metric_type, name)


@pytest.mark.parametrize("metric_type", [MetricType.GAUGE, MetricType.HISTOGRAM])
@pytest.mark.parametrize("ending", ["_bucket", "_count", "_created", "_sum"])
def test_endings_of_a_histograms_series_are_reserved(metric_type: MetricType, ending: str) -> None:
    """A gauge of that name would look like a part of a histogram."""
    with pytest.raises(MetricNameError, match=f"must not end in {ending}: name what it holds"):
        check(metric_type, f"boxes{ending}")


@pytest.mark.parametrize("name", ["search", "search_ratio_now", "timeseconds", "search_versions"])
def test_a_histogram_ends_in_a_base_unit(name: str) -> None:
    """Its buckets are amounts of it."""
    with pytest.raises(MetricNameError, match=r"must end in one of bytes, .*, seconds, volts"):
        check(MetricType.HISTOGRAM, name)


@pytest.mark.parametrize(
    "word", ["milliseconds", "kibibytes", "megabytes", "minutes", "hours", "bits", "percent"]
)
def test_other_units_are_refused(word: str) -> None:
    """Also in the middle of a name, and those with a prefix."""
    for metric_type, name in (
        (MetricType.GAUGE, f"search_{word}"),
        (MetricType.GAUGE, f"{word}_of_search"),
        (MetricType.COUNTER, f"search_{word}_total"),
    ):
        with pytest.raises(MetricNameError, match=f"a base unit instead of {word}"):
            check(metric_type, name)


@pytest.mark.parametrize("word", ["s", "ms", "sec", "kb", "d"])
def test_abbreviated_units_are_refused(word: str) -> None:
    """The unit is a whole word."""
    with pytest.raises(MetricNameError, match=f"must not abbreviate a unit: {word}"):
        check(MetricType.GAUGE, f"search_{word}")


@pytest.mark.parametrize(
    ("metric_type", "name"),
    [
        (MetricType.COUNTER, "boxes_counter_total"),
        (MetricType.GAUGE, "gauge_of_boxes"),
        (MetricType.HISTOGRAM, "search_histogram_seconds"),
    ],
)
def test_a_name_does_not_repeat_its_type(metric_type: MetricType, name: str) -> None:
    """A scrape has a line for that."""
    with pytest.raises(MetricNameError, match="must not contain its type"):
        check(metric_type, name)


@pytest.mark.parametrize("label", ["le", "quantile"])
def test_labels_of_prometheus_are_reserved(label: str) -> None:
    """They belong to buckets and summaries."""
    with pytest.raises(MetricNameError, match=f"the label '{label}' of 'boxes' belongs"):
        check(MetricType.GAUGE, "boxes", ("verb", label))


def test_labels_are_in_lower_case_too() -> None:
    """As names of metrics are."""
    with pytest.raises(MetricNameError, match="'outCome' must be in lower case"):
        check(MetricType.GAUGE, "boxes", ("verb", "outCome"))
