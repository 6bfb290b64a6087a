"""Metrics that add up: their value over all records is computed of sums, not of batches' values."""

import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl.model import metrics
from edl.model.errors import ModelError
from edl.model.metrics import AdditiveMetric, finish, part_name
from edl.model.user_code import UserCode
from edl.model.user_file import Model

from tests.sdk.support.trainers import Lone


def _over_batches(
    name: str, metric: AdditiveMetric, batches: Sequence[tuple[Any, Any]]
) -> dict[str, float]:
    """What the master has of a metric: means of its parts, weighted by records."""
    total = sum(len(labels) for _, labels in batches)
    sums = np.sum([metric.sums(outputs, labels) for outputs, labels in batches], axis=0)
    return {part_name(name, i): float(part) / total for i, part in enumerate(sums)}


def _batches(seed: int, sizes: Sequence[int]) -> list[tuple[Any, Any]]:
    draw = np.random.default_rng(seed)
    batches = []
    for size in sizes:
        labels = draw.integers(0, 2, size)
        scores = np.clip(draw.normal(0.4 + 0.2 * labels, 0.2), 0, 1)
        batches.append((scores, labels))
    return batches


def _exact_auc(scores: Any, labels: Any) -> float:
    """Over all pairs of both classes; equal scores count half."""
    positive, negative = scores[labels > 0], scores[labels <= 0]
    wins = (positive[:, None] > negative[None]).sum()
    ties = (positive[:, None] == negative[None]).sum()
    return float((wins + ties / 2) / (len(positive) * len(negative)))


@pytest.mark.parametrize("sizes", [(300,), (64, 64, 64, 8), (1,) * 40, (7, 200, 1)])
def test_auc_over_batches_is_that_over_all_records(sizes: tuple[int, ...]) -> None:
    """However they are cut: to the last digits that of the binned scores."""
    batches = _batches(3, sizes)
    metric = metrics.auc(bins=50)
    scores, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    values = finish(_over_batches("auc", metric, batches), {"auc": metric})

    assert values == {"auc": pytest.approx(_exact_auc((scores * 50).astype(int), labels), abs=1e-9)}
    assert metric(scores, labels) == pytest.approx(values["auc"], abs=1e-9)


def test_auc_of_many_bins_is_near_that_of_the_scores() -> None:
    """200 bins: within a thousandth for a thousand records."""
    (batch,) = _batches(5, [1000])

    assert metrics.auc()(*batch) == pytest.approx(_exact_auc(*batch), abs=1e-3)


@pytest.mark.parametrize(
    ("scores", "labels", "value"),
    [
        ([0.1, 0.9], [0, 1], 1.0),
        ([0.9, 0.1], [0, 1], 0.0),
        ([0.5, 0.5], [0, 1], 0.5),
        ([0.1, 0.9], [1, 1], 0.5),
        ([float("nan"), 2.0], [0, 1], 1.0),
        ([[0.9, 0.1], [0.2, 0.8]], [0, 1], 1.0),
        ([[0.1], [0.8]], [0, 1], 1.0),
    ],
)
def test_auc_of_few_records(scores: Any, labels: list[int], value: float) -> None:
    """Ties count half, a class that is missing gives one half, two columns are two classes."""
    assert metrics.auc()(np.array(scores), np.array(labels)) == value


def test_precision_recall_and_rmse_of_uneven_batches() -> None:
    """As over all records, and not as the mean over batches."""
    scores = [np.array([0.9, 0.8, 0.2]), np.array([0.7])]
    labels = [np.array([1, 0, 1]), np.array([1])]
    batches = list(zip(scores, labels, strict=True))

    def value(metric: AdditiveMetric) -> float:
        return finish(_over_batches("m", metric, batches), {"m": metric})["m"]

    errors = np.concatenate(scores) - np.concatenate(labels)
    assert value(metrics.precision()) == pytest.approx(2 / 3)
    assert value(metrics.recall()) == pytest.approx(2 / 3)
    assert value(metrics.rmse()) == pytest.approx(math.sqrt((errors**2).mean()))


def test_without_a_positive_precision_and_recall_are_0() -> None:
    """And no error."""
    scores, labels = np.array([0.1, 0.2]), np.array([0, 0])

    assert (metrics.precision()(scores, labels), metrics.recall()(scores, labels)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        (
            {"click": metrics.auc(), "like": metrics.auc()},
            "has 800 values in total, but the maximum",
        ),
        ({"x" * 65: max}, "has the name 'xxx.* of 65 characters: use at most 64"),
        ({"x" * 60: metrics.auc()}, "of 65 characters"),
    ],
)
def test_what_the_master_would_refuse_is_refused_before_training(
    own: dict[str, Callable[[Any, Any], Any]], text: str
) -> None:
    """Else the job would fail at its first evaluation, with all that was trained until then."""
    model = Model(Path("net.py"), {}, {"metrics": lambda: own})
    with pytest.raises(ModelError, match=rf"metrics\(\) of net.py {text}|net.py .*{text}"):
        UserCode(model).metrics()


def test_metrics_up_to_the_limits_are_taken() -> None:
    """The values that only a batch tells are checked with it."""
    own = {
        "click": metrics.auc(127),
        "like": metrics.auc(127),
        "x" * 64: max,
        "rmse": metrics.rmse(),
    }
    user_code = UserCode(Model(Path("net.py"), {}, {"metrics": lambda: own}))
    assert user_code.metrics() == own

    late = AdditiveMetric(lambda *_: [1.0] * 300, sum)
    user_code.set_context("an evaluation", [0])
    with pytest.raises(ModelError, match="has 600 values in total"):
        user_code.metric_values({"a": late, "b": late}, [], [])


def test_parts_that_are_missing_give_no_value() -> None:
    """A sum that was not finite is none; names that only look like parts are metrics of their own."""
    metric = metrics.rmse()
    plain: Callable[[Any, Any], float] = lambda outputs, labels: 0.0  # noqa: ARG005, E731 - a metric

    assert finish({"rmse[1]": 4.0, "loss": 1.0}, {"rmse": metric}) == {"loss": 1.0}
    assert finish({"top[5]": 0.9}, {"top": plain}) == {"top[5]": 0.9}


@pytest.mark.parametrize("bins", [1, 0, 201])
def test_bins_out_of_range_are_refused(bins: int) -> None:
    """With the range."""
    with pytest.raises(ValueError, match=r"it must be 2 to 200"):
        metrics.auc(bins)


HELD_OUT = """
    import edl

    area = edl.model.metrics.auc(bins=20)

    def sums(outputs, labels):
        return area.sums(1 / (1 + np.exp(-outputs[:, 1])), labels == 1)

    return {"auc": edl.model.metrics.AdditiveMetric(sums, area.finish), "accuracy":"""


WORDS = ("train", "model.py", "--data", "train.npz", "--evaluate", "test.npz")


def _write_model(home: Path) -> None:
    model = home / "model.py"
    model.write_text(model.read_text().replace('    return {"accuracy":', HELD_OUT, 1))


def _line(home: Path) -> str:
    """What the last line of a run has of the exported model, computed of all records at once."""
    test, exported = np.load(home / "test.npz"), np.load(home / "out" / "model.npz")
    outputs = test["inputs"] @ exported["w"] + exported["b"]
    scores = (20 / (1 + np.exp(-outputs[:, 1]))).astype(int)
    return f"auc {_exact_auc(scores, test['labels'] == 1):.4g}"


def test_an_evaluation_has_the_value_over_all_records(lone: Lone, home: Path) -> None:
    """Of 200 records in batches of 64; the sums are shown nowhere."""
    _write_model(home)
    done = lone(*WORDS, "--batch-size", "64", "--export", "out", "--seed", "1")

    assert done.code == 0, done.out + done.err
    assert _line(home) in done.last
    assert "auc[" not in done.out + str(done.status)


@pytest.mark.soak  # processes
def test_so_has_one_with_parameter_servers(home: Path) -> None:
    """Of the version that the servers hold at the end."""
    _write_model(home)
    words = (
        *WORDS,
        "--async",
        "--servers",
        "1",
        "-n",
        "2",
        "--batch-size",
        "64",
        "--export",
        "out",
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "edl", *words],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert _line(home) in done.stdout.splitlines()[-1]
