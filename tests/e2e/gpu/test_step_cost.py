import os
from pathlib import Path

import pytest

from e2e.gpu import step_cost
from e2e.gpu.cell import CellError, Run

ROOT = Path(__file__).parents[3]
TORCH = Path(os.environ.get("EDL_TORCH_PATH") or ROOT / "build/torch")

RAW = {
    "pairs": [[0.02, 0.0202], [0.02, 0.0206], [0.02, 0.0204], [0.1, 0.101], [0.02, 0.03]],
    "parameters": 110_010_112,
    "loss_plain": 8.0,
    "loss_edl": 8.001,
    "held_bytes": {"plain": 2_200_000_000, "edl": 1_760_000_000},
    "syncs": {"plain": {}, "edl": {"torch/step.py:103": 20, "torch/buckets.py:183": 10}},
    "counted": 20,
}


@pytest.mark.timeout(300)  # torch is imported, on cores that others share
@pytest.mark.skipif(
    not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
)
def test_both_sides_train_the_same_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU the batches and losses of both sides are equal, and every pair is timed."""
    monkeypatch.setenv("PYTHONPATH", str(TORCH))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run = Run("cpu", tmp_path)

    step_cost.play(run)

    assert run.figures["pairs"] == step_cost.SMALL.pairs
    assert run.figures["loss_edl"] == pytest.approx(run.figures["loss_plain"], rel=1e-5)
    assert "syncs_edl" not in run.figures


def test_ratio_is_the_median_of_pairs() -> None:
    """One slow pair changes neither the ratio nor the medians of the sides."""
    figures = step_cost.figures_of(RAW)

    assert figures["ratio"] == 1.02
    assert (figures["step_plain_ms"], figures["step_edl_ms"]) == (20.0, 20.6)
    assert figures["ratio_p5"] < 1.02 < figures["ratio_p95"] < 1.5


def test_synchronisations_are_means_of_a_step() -> None:
    """Thirty waits in twenty steps are 1.5 a step, and the places come with their counts."""
    figures = step_cost.figures_of(RAW)

    assert (figures["syncs_plain"], figures["syncs_edl"]) == (0.0, 1.5)
    assert figures["sync_places"] == "torch/step.py:103 20, torch/buckets.py:183 10"


def test_five_most_frequent_places_are_kept() -> None:
    """The rarest of six places is left out."""
    text = step_cost.places_text({f"a.py:{count}": count for count in range(1, 7)})

    assert text == "a.py:6 6, a.py:5 5, a.py:4 4, a.py:3 3, a.py:2 2"


@pytest.mark.parametrize(("ratio", "is_within"), [(1.019, True), (1.021, False)])
def test_goal_is_a_figure(ratio: float, is_within: bool) -> None:
    """A step that costs more than two percent is recorded."""
    figures = step_cost.figures_of({**RAW, "pairs": [[1.0, ratio]] * 3})

    assert figures["within_2_percent"] is is_within


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss_edl": 9.0}, "losses of the last step differ"),
        ({"pairs": [[1.0, 1.2]] * 3}, "a step of EDL takes 1.2 times as long"),
    ],
)
def test_cell_fails_on_a_card(
    changes: dict[str, object], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other losses, or a step that takes a fifth longer, fail the cell; its figures are kept."""
    monkeypatch.setattr(step_cost, "_run_program", lambda *_: {**RAW, **changes})
    run = Run("cuda", tmp_path)

    with pytest.raises(CellError, match=reason):
        step_cost.play(run)

    assert "ratio" in run.figures
