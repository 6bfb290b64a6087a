"""Metrics whose value over all records is not the mean of their values over batches.

```python
def metrics():
    return {"auc": edl.model.metrics.auc(), "rmse": edl.model.metrics.rmse()}
```

Each batch contributes sums over its records, which the master adds up over all trainers and tasks. The
trainer then computes the value from the totals. The area under the ROC curve follows Fawcett, "An
introduction to ROC analysis", 2006, with scores in bins of equal width.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edl.model.arrays import to_array
from edl_protocol.master import MAX_METRIC_NAME_CHARS, MAX_METRICS

MAX_PARTS = 400
"""Maximum number of sums per metric."""
_MAX_VALUES = MAX_METRICS - 1
"""The master's limit for values in addition to the loss; each sum of a metric counts as one value."""
_PART = re.compile(r"(.+)\[(\d{1,3})\]")


@dataclass(frozen=True)
class AdditiveMetric:
    """A metric that is computed from sums over records."""

    sums: Callable[[Any, Any], Sequence[float]]
    """(outputs, labels) of a batch -> sums over its records.

    The number of sums is the same for every batch, 1 to `MAX_PARTS`.
    """
    finish: Callable[[Sequence[float]], float]
    """Sums over all records, each divided by the number of records -> value."""
    parts: int = 0
    """Number of sums; 0 if unknown before the first batch."""

    def __call__(self, outputs: Any, labels: Any) -> float:
        """Returns the metric's value over one batch."""
        records = max(1, len(labels))
        return self.finish([part / records for part in self.sums(outputs, labels)])


def auc(bins: int = 200) -> AdditiveMetric:
    """Returns the area under the ROC curve of a binary classifier: 0 to 1, or 0.5 if a class is missing.

    Outputs are scores from 0 to 1: one score per record, or two scores, of which the second is for class 1.
    Among all pairs of a positive and a negative record, consider the share whose two scores fall into the
    same bin: the error of the result is at most half this share.

    Args:
        bins: Number of bins in the histogram of scores, 2 to 200.

    Raises:
        ValueError: `bins` is out of range.
    """
    if not 2 <= bins <= MAX_PARTS // 2:  # noqa: PLR2004 - one bin cannot rank scores
        raise ValueError(f"bins is {bins}: it must be 2 to {MAX_PARTS // 2}")

    def sums(outputs: Any, labels: Any) -> list[float]:
        numpy = importlib.import_module("numpy")
        scores, truth = _scores(outputs), to_array(labels).reshape(-1) > 0
        places = numpy.clip((numpy.nan_to_num(scores) * bins).astype(int), 0, bins - 1)
        counts = [numpy.bincount(places[mask], minlength=bins) for mask in (truth, ~truth)]
        return [float(count) for part in counts for count in part]

    def finish(parts: Sequence[float]) -> float:
        positives, negatives = parts[:bins], parts[bins:]
        pairs = sum(positives) * sum(negatives)
        if not pairs:
            return 0.5
        below = area = 0.0
        for positive, negative in zip(positives, negatives):
            area += positive * (below + negative / 2)
            below += negative
        return area / pairs

    return AdditiveMetric(sums, finish, 2 * bins)


def precision(threshold: float = 0.5) -> AdditiveMetric:
    """Returns the precision: the share of true positives among the records classified as positive.

    The value is 0 if no record is classified as positive.

    Args:
        threshold: The lowest score that is classified as positive.
    """

    def sums(outputs: Any, labels: Any) -> list[float]:
        called, truth = _scores(outputs) >= threshold, to_array(labels).reshape(-1) > 0
        return [float((called & truth).sum()), float(called.sum())]

    return AdditiveMetric(sums, _ratio, 2)


def recall(threshold: float = 0.5) -> AdditiveMetric:
    """Returns the recall: the share of positive records that are classified as positive.

    The value is 0 if there are no positive records.

    Args:
        threshold: The lowest score that is classified as positive.
    """

    def sums(outputs: Any, labels: Any) -> list[float]:
        called, truth = _scores(outputs) >= threshold, to_array(labels).reshape(-1) > 0
        return [float((called & truth).sum()), float(truth.sum())]

    return AdditiveMetric(sums, _ratio, 2)


def rmse() -> AdditiveMetric:
    """Returns the root of the mean squared error over all elements of outputs and labels."""

    def sums(outputs: Any, labels: Any) -> list[float]:
        errors = (to_array(outputs).reshape(-1) - to_array(labels).reshape(-1)).astype("float64")
        return [float((errors * errors).sum()), float(errors.size)]

    return AdditiveMetric(sums, lambda parts: _ratio(parts) ** 0.5, 2)


def part_name(name: str, index: int) -> str:
    """Returns the name under which a metric's sum with this index is reported."""
    return f"{name}[{index}]"


def value_names(metrics: Mapping[str, Callable[[Any, Any], Any]]) -> list[str]:
    """Returns the names of the reported values, as far as they are known before the first batch."""
    names = []
    for name, metric in metrics.items():
        parts = metric.parts if isinstance(metric, AdditiveMetric) else 0
        names += [part_name(name, index) for index in range(parts)] or [name]
    return names


def limit_problem(names: Collection[str]) -> str:
    """Returns why the master would refuse values with these names; "" if it would accept them."""
    if len(names) > _MAX_VALUES:
        return (
            f"has {len(names)} values in total, but the maximum is {_MAX_VALUES}: each auc(bins) has "
            "two per bin, so use fewer bins"
        )
    longest = max(names, key=len, default="")
    if len(longest) > MAX_METRIC_NAME_CHARS:
        return (
            f"has the name {longest!r:.80} of {len(longest)} characters: use at most "
            f"{MAX_METRIC_NAME_CHARS}, including the number of a sum"
        )
    return ""


def finish(
    reported: Mapping[str, float], metrics: Mapping[str, Callable[[Any, Any], Any]]
) -> dict[str, float]:
    """Replaces the reported sums of additive metrics by their values.

    Args:
        reported: Name -> mean over records, from the master.
        metrics: Name -> the user's metric.

    Returns:
        Name -> value. A metric is left out if one of its sums is missing because it was not finite.
    """
    parts: dict[str, dict[int, float]] = {}
    values: dict[str, float] = {}
    for name, value in reported.items():
        match = _PART.fullmatch(name)
        if match is not None and isinstance(metrics.get(match[1]), AdditiveMetric):
            parts.setdefault(match[1], {})[int(match[2])] = value
        else:
            values[name] = value
    for name, by_index in parts.items():
        metric = metrics[name]
        if isinstance(metric, AdditiveMetric) and len(by_index) == max(by_index) + 1:
            values[name] = metric.finish([by_index[i] for i in range(len(by_index))])
    return values


def _ratio(parts: Sequence[float]) -> float:
    return parts[0] / parts[1] if parts[1] else 0.0


def _scores(outputs: Any) -> Any:
    """Returns one score per record; if the outputs have two columns, the score is in the second."""
    array = to_array(outputs)
    return array[:, 1] if array.ndim == 2 and array.shape[1] == 2 else array.reshape(-1)  # noqa: PLR2004 - one column per class
