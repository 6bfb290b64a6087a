"""The page of measured figures, and the figures in bench/results that it is written from."""

import pytest

from bench import performance_page
from bench.performance_page import AREAS, MAX_BYTES, RESULTS, amount, figure, figures, table

ROW = {
    "claim": "full plan",
    "area": "Plans",
    "value": 0.3,
    "unit": "s",
    "bar": 1,
    "at_least": False,
    "ok": True,
    "when": "2026-11-27",
    "commit": "c1722b1b",
    "command": "make bench",
    "note": "quiet machine",
    "headline": True,
}


def test_the_page_is_short() -> None:
    """A figure that is added to a full page takes the place of another headline."""
    assert len(performance_page.page().encode()) <= MAX_BYTES


def test_every_file_of_results_is_an_area_of_the_page() -> None:
    """Each claim has one figure, and a file has one area."""
    measured = [figures(area) for area in AREAS]
    claims = [(m.area, m.criterion.name) for area in measured for m in area]

    assert {f"{area}.json" for area in AREAS} == {path.name for path in RESULTS.iterdir()}
    assert len(claims) == len(set(claims))
    assert all(len({m.area for m in area}) == 1 for area in measured)


def test_every_missed_bar_is_on_the_page() -> None:
    """In bold, whether or not the figure is a headline."""
    page = performance_page.page()
    missed = [m.criterion for area in AREAS for m in figures(area) if m.missed]

    assert missed
    assert [
        c.name for c in missed if f"| {c.name} | **{amount(c.value, c.unit)}**" not in page
    ] == []


def test_missed_bars_come_first() -> None:
    """Then the headlines; a figure that is neither is only counted."""
    shown = figure(ROW)
    hidden = figure(ROW | {"claim": "small plan", "headline": False})
    missed = figure(
        ROW | {"claim": "pace", "value": 0.6, "unit": "x", "at_least": True, "ok": False}
    )
    free = figure(ROW | {"claim": "nodes", "value": 25600, "unit": "", "bar": None, "ok": None})

    assert table([shown, hidden, missed, free]) == (
        "## Plans\n\n2 of 3 bars hold.\n\n"
        "| Claim | Value | Bar | When | Commit | Command |\n|---|---|---|---|---|---|\n"
        "| pace | **0.6 x** | ≥ 1 | 2026-11-27 | c1722b1b | `make bench` |\n"
        "| full plan | 0.3 s | ≤ 1 | 2026-11-27 | c1722b1b | `make bench` |\n"
        "| nodes | 25,600 | - | 2026-11-27 | c1722b1b | `make bench` |\n"
    )


@pytest.mark.parametrize(
    "change", [{"value": 1.1}, {"ok": False}, {"ok": None}, {"value": None}, {"bar": None}]
)
def test_ok_agrees_with_value_and_bar(change: dict[str, object]) -> None:
    """A row that is edited by hand cannot claim a bar that it misses."""
    with pytest.raises(ValueError, match="full plan: ok is"):
        figure(ROW | change)


def test_a_value_that_was_never_reached_misses_its_bar() -> None:
    """The page says so."""
    assert figure(ROW | {"value": None, "ok": False}).missed
    assert amount(None, "s") == "never"
