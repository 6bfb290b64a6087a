"""The benchmark of the exchange: real processes, a time for every sum, ratios where gloo is."""

import sys
from pathlib import Path

import pytest

from bench import exchange
from bench.benchmark import Setting

SETTING = Setting((10, 20), 3, lambda _: None)


@pytest.mark.soak  # its members are processes
def test_members_tell_a_time_for_every_sum() -> None:
    """There is one duration per sum, for each size."""
    figures = exchange.measure("ring", sys.executable, 2, [10, 1000], [3, 5])

    assert [len(times) for times in figures] == [3, 5]
    assert all(time > 0 for times in figures for time in times)


def test_a_member_that_ends_before_its_time_is_told() -> None:
    """The error is one line."""
    with pytest.raises(RuntimeError, match="a member ended without a result"):
        exchange.measure("rope", sys.executable, 1, [10], [3])


def test_figures_are_reported_by_members_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Medians over turns; without PaddlePaddle there is nothing to compare with."""
    measured: list[tuple[str, int, list[int], list[int]]] = []

    def measure(
        kind: str, _python: str, world: int, sizes: list[int], counts: list[int]
    ) -> list[list[float]]:
        measured.append((kind, world, sizes, counts))
        return [[5.0, 1.0, 3.0] for _ in sizes]

    handed = [[[1900.0], [0.5]], [[1900.0], [954.0]]]
    monkeypatch.setattr(exchange, "measure", measure)
    monkeypatch.setattr(exchange, "measure_hand_over", lambda *_: handed)
    monkeypatch.setattr(exchange, "WORLDS", (2,))
    monkeypatch.setattr(exchange, "SIZES", {"1k": 1000})
    monkeypatch.setattr(exchange, "SHARES", (1,))
    monkeypatch.setattr(exchange, "PADDLE", Path("nowhere"))
    result = exchange.run(SETTING)

    assert measured == [("ring", 2, [1000], [3])]
    assert {criterion.name: criterion.value for criterion in result.criteria} == {
        "hand_over_1_GB_s": 1.9,
        "hand_over_memory_of_others_mb": 0.5,
    }
    assert result.growth == {"ring_2_x_1k_ms": [3.0, 3.0]}


def test_ratios_are_over_gloo() -> None:
    """There is one ratio per number of members and size."""
    result = exchange.result(SETTING, {"ring": {"4_x_1M": 2.0}, "gloo": {"4_x_1M": 4.0}})

    assert [(criterion.name, criterion.value) for criterion in result.criteria] == [
        ("all_reduce_4_x_1M_over_gloo", 0.5)
    ]
    assert result.growth == {"ring_4_x_1M_ms": [2.0, 2.0], "gloo_4_x_1M_ms": [4.0, 4.0]}


@pytest.mark.soak  # as above
def test_a_state_is_handed_to_the_last_member_alone() -> None:
    """The others hold no copy of it."""
    handed = exchange.measure_hand_over(3, 16_000_000, 2)

    assert [len(times) for times, _ in handed] == [2] * 3
    assert handed[-1][1][0] > 35.0
    assert all(memory < 20.0 for _, (memory,) in handed[:-1])
