"""Checks names of metrics and labels against the rules that `promtool check metrics` applies.

See https://prometheus.io/docs/practices/naming/: base units, `_total` for counters only, no ending
that belongs to a histogram's series, no abbreviations and no metric type in a name.
"""

import re
from collections.abc import Sequence
from enum import StrEnum

BASE_UNITS = ("bytes", "celsius", "cores", "grams", "joules", "meters", "ratio", "seconds", "volts")
"""Units that a name may have; a histogram must have one."""

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_RESERVED = ("_bucket", "_count", "_created", "_sum")
"""Name endings of a histogram's series, and endings that the client library adds."""
_ABBREVIATIONS = frozenset(
    ("s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d")
)
_OTHER_UNITS = frozenset(
    (
        *("minutes", "hours", "days", "weeks", "kelvins", "fahrenheit", "rankine", "inches"),
        *("yards", "miles", "bits", "calories", "pounds", "ounces", "percent"),
    )
)
_PREFIXES = (
    *("pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "mega", "giga"),
    *("tera", "peta", "kibi", "mebi", "gibi", "tebi", "pebi"),
)
_SCALED_UNITS = frozenset(prefix + unit for prefix in _PREFIXES for unit in BASE_UNITS)
_RESERVED_LABELS = frozenset({"le", "quantile"})


class MetricType(StrEnum):
    """The types of metrics that components export."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricNameError(ValueError):
    """The name of a metric or of a label breaks a rule."""


def check(metric_type: MetricType, name: str, labels: Sequence[str] = ()) -> None:
    """Checks a name, with or without prefix, and the names of its labels.

    Raises:
        MetricNameError: a name breaks a rule; the message states the rule.
    """
    for text in (name, *labels):
        if not _NAME.fullmatch(text):
            raise MetricNameError(f"{text!r} must be in lower case, its words separated by _")
    for label in labels:
        if label in _RESERVED_LABELS:
            raise MetricNameError(f"the label {label!r} of {name!r} belongs to Prometheus")
    _check_ending(metric_type, name)
    for word in name.split("_"):
        _check_word(metric_type, name, word)


def _check_ending(metric_type: MetricType, name: str) -> None:
    is_counter = metric_type is MetricType.COUNTER
    if is_counter != name.endswith("_total"):
        raise MetricNameError(f"{name!r}: counters, and only counters, end in _total")
    for ending in _RESERVED:
        if name.endswith(ending):
            raise MetricNameError(f"{name!r} must not end in {ending}: name what it holds")
    if metric_type is MetricType.HISTOGRAM and name.rpartition("_")[2] not in BASE_UNITS:
        raise MetricNameError(f"the histogram {name!r} must end in one of {', '.join(BASE_UNITS)}")


def _check_word(metric_type: MetricType, name: str, word: str) -> None:
    if word in _ABBREVIATIONS:
        raise MetricNameError(f"{name!r} must not abbreviate a unit: {word}")
    if word in _SCALED_UNITS or word in _OTHER_UNITS:
        raise MetricNameError(f"{name!r} must use a base unit instead of {word}")
    if word == metric_type:
        raise MetricNameError(f"{name!r} must not contain its type")
