"""Optimizers against the textbook, number by number, for dense parameters and rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edl.model.numpy_optimizer import NumpyOptimizer
from hypothesis import given
from hypothesis import strategies as st

from pserver import optimizers
from runtime.call_checks import RefusedError
from tests.pserver.builders import make_shard, model, push, rows
from tests.support.strategies import CALM

SPECS: list[dict[str, Any]] = [
    {"kind": "sgd", "learning_rate": 0.1},
    {"kind": "momentum", "learning_rate": 0.1},
    {"kind": "momentum", "learning_rate": 0.1, "momentum": 0.5, "nesterov": True},
    {"kind": "adagrad", "learning_rate": 0.1, "initial": 0.1},
    {"kind": "adam", "learning_rate": 0.1, "beta1": 0.8},
]
IDS = ["sgd", "momentum", "nesterov", "adagrad", "adam"]
GRADIENTS = st.lists(st.lists(st.floats(-2, 2, width=16), min_size=3, max_size=3), max_size=5)


def _textbook(spec: dict[str, Any]) -> Callable[[float, float], float]:
    """One number's optimizer: (value, gradient) -> value, in float64."""
    state = {"m": 0.0, "v": spec.get("initial", 0.0), "t": 0}
    rate = spec["learning_rate"]

    def momentum(value: float, gradient: float) -> float:
        momentum_ = spec.get("momentum", 0.9)
        state["m"] = momentum_ * state["m"] + gradient
        step = gradient + momentum_ * state["m"] if spec.get("nesterov") else state["m"]
        return float(value - rate * step)

    def adagrad(value: float, gradient: float) -> float:
        state["v"] += gradient**2
        return float(value - rate * gradient / (state["v"] ** 0.5 + 1e-6))

    def adam(value: float, gradient: float) -> float:
        first, second = spec.get("beta1", 0.9), 0.999
        state["t"] += 1
        state["m"] = first * state["m"] + (1 - first) * gradient
        state["v"] = second * state["v"] + (1 - second) * gradient**2
        mean = state["m"] / (1 - first ** state["t"])
        squares = state["v"] / (1 - second ** state["t"])
        return float(value - rate * mean / (squares**0.5 + 1e-8))

    def sgd(value: float, gradient: float) -> float:
        return float(value - rate * gradient)

    return {"sgd": sgd, "momentum": momentum, "adagrad": adagrad, "adam": adam}[spec["kind"]]


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@CALM
@given(steps=GRADIENTS)
def test_a_vector_is_updated_as_the_textbook_says(
    spec: dict[str, Any], steps: list[list[float]]
) -> None:
    """Each number by itself."""
    optimizer = optimizers.make(spec)
    values = np.ones(3, np.float32)
    slots = np.full((optimizer.slots, 3), optimizer.start, np.float32)
    books, expected = [_textbook(spec) for _ in values], [1.0, 1.0, 1.0]
    for count, step in enumerate(steps, 1):
        gradient = np.array(step, np.float32)
        optimizers.dense(optimizer, values, slots, gradient, scale=1.0, count=count)
        assert gradient.tolist() == step
        expected = [book(value, g) for book, value, g in zip(books, expected, step, strict=True)]

    assert np.allclose(values, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
@CALM
@given(steps=GRADIENTS)
def test_a_row_is_updated_as_a_vector_is(spec: dict[str, Any], steps: list[list[float]]) -> None:
    """It counts its own updates."""
    optimizer = optimizers.make(spec)
    flat, flat_slots = (
        np.ones(3, np.float32),
        np.full((optimizer.slots, 3), optimizer.start, np.float32),
    )
    row = np.ones((1, 3), np.float32)
    slots = np.full((1, optimizer.width(3)), optimizer.start, np.float32)
    for count, step in enumerate(steps, 1):
        gradient = np.array(step, np.float32)
        optimizers.dense(optimizer, flat, flat_slots, gradient, scale=0.5, count=count)
        optimizers.rows(optimizer, row, slots, gradient[None, :], scale=0.5)

    assert np.allclose(row[0], flat, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", SPECS, ids=IDS)
def test_large_vectors_are_updated_in_parts(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which makes no difference."""
    optimizer = optimizers.make(spec)
    gradient = np.random.default_rng(0).normal(size=100).astype(np.float32)
    results = []
    for chunk in (1 << 16, 7):
        monkeypatch.setattr(optimizers, "_CHUNK", chunk)
        values, slots = np.ones(100, np.float32), np.zeros((optimizer.slots, 100), np.float32)
        for count in (1, 2):
            optimizers.dense(optimizer, values, slots, gradient, scale=1.0, count=count)
        results.append(values)

    assert np.array_equal(results[0], results[1])


SGD = {"kind": "sgd", "learning_rate": 1}
SCHEDULES: tuple[dict[str, Any], ...] = (
    {"kind": "constant", "warmup": 4, "start": 0.25},
    {"kind": "step", "every": 2, "by": 0.5, "warmup": 3},
    {"kind": "exponential", "by": 0.9, "every": 2},
    {"kind": "cosine", "versions": 6, "lowest": 0.1},
)


@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize(
    "options",
    [
        {"weight_decay": 0.1},
        {"clip_norm": 0.5},
        {"clip_value": 0.2},
        *({"schedule": schedule, "weight_decay": 0.01} for schedule in SCHEDULES),
    ],
    ids=str,
)
def test_the_options_mean_the_same_with_and_without_servers(
    spec: dict[str, Any], options: dict[str, Any]
) -> None:
    """A model file trains by `--sync` as by `--async`, as far as the optimizer goes."""
    spec = {**spec, **options}
    chance, theirs = np.random.default_rng(0), {"w": np.ones(8, np.float32)}
    plain = NumpyOptimizer(spec, theirs, Path("model.py"))
    shard = make_shard(model(optimizer=spec, parameters={"w": [2, 3], "b": [2]}))
    shard.vector.values[...] = 1
    for number in range(1, 11):
        gradient = chance.normal(size=8).astype(np.float32)
        norm = float(np.linalg.norm(gradient))
        shard.push(push(number, version=number - 1, dense=gradient, norm=norm))
        plain.step({"w": gradient.copy()}, 1.0)

    assert np.allclose(shard.vector.values, theirs["w"], atol=1e-4)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (SCHEDULES[0], [0.25, 0.4375, 0.625, 0.8125, 1, 1]),
        (SCHEDULES[1], [0, 1 / 3, 2 / 3, 1, 1, 0.5]),
        (SCHEDULES[2], [1, 0.94868, 0.9, 0.85381, 0.81, 0.76843]),
        (SCHEDULES[3], [1, 0.93971, 0.775, 0.55, 0.325, 0.16029]),
    ],
)
def test_a_schedule_is_a_function_of_the_version(
    schedule: dict[str, Any], factors: list[float]
) -> None:
    """So it needs no state of its own in checkpoints."""
    optimizer = optimizers.make({**SGD, "schedule": schedule})

    assert np.allclose([optimizer.rate_factor(version) for version in range(6)], factors, atol=1e-5)
    if schedule["kind"] == "cosine":
        assert optimizer.rate_factor(10**9) == 0.1


def test_rows_are_clipped_and_decay_as_vectors_do() -> None:
    """Rows of the push, and no others."""
    shard = make_shard(model(optimizer={**SGD, "clip_norm": 1.0, "weight_decay": 0.5}))
    table = shard.tables["words"]
    before = table.lookup(np.array([1, 2]))
    shard.push(push(dense=None, sparse={"words": rows(1, value=3.0)}, norm=6.0))

    assert np.allclose(table.lookup(np.array([1, 2])), [before[0] * 0.5 - 0.5, before[1]])


def test_a_gradient_without_its_norm_is_refused_where_it_would_be_clipped() -> None:
    """An SDK from before clipping does not send it; no part of a server knows the whole."""
    shard = make_shard(model(optimizer={**SGD, "clip_norm": 1.0}))
    with pytest.raises(RefusedError, match="edl-sdk sends none: update it") as caught:
        shard.push(push())

    assert (caught.value.status, caught.value.field, shard.version) == (422, "norm", 0)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({}, "optimizer.kind", "None is not one of sgd, momentum, adagrad, adam"),
        ({"kind": "lamb"}, "optimizer.kind", "'lamb' is not one of"),
        ({"kind": "sgd"}, "optimizer.learning_rate", "required"),
        ({"kind": "sgd", "learning_rate": 0}, "optimizer.learning_rate", "greater than 0"),
        ({"kind": "sgd", "learning_rate": 1, "decay": 1}, "optimizer.decay", "no such option"),
        ({"kind": "adam", "learning_rate": 1, "beta1": 1}, "optimizer.beta1", "less than 1"),
        ({**SGD, "clip_norm": 1, "clip_value": 1}, "optimizer", "exclude each other: choose one"),
        ({**SGD, "clip_norm": 0}, "optimizer.clip_norm", "greater than 0"),
        ({**SGD, "weight_decay": 1}, "optimizer.weight_decay", "less than 1"),
        ({**SGD, "schedule": {"kind": "poly"}}, "optimizer.schedule", "'constant', 'step'"),
        ({**SGD, "schedule": {"kind": "step"}}, "optimizer.schedule.every", "required"),
        (
            {**SGD, "schedule": {"kind": "cosine", "versions": 0}},
            "optimizer.schedule.versions",
            "greater than or equal to 1",
        ),
    ],
)
def test_what_cannot_be_is_named(spec: dict[str, Any], field: str, message: str) -> None:
    """422, with the option."""
    with pytest.raises(RefusedError, match=message) as caught:
        optimizers.make(spec)

    assert (caught.value.status, caught.value.field) == (422, field)
