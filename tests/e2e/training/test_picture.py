"""The picture of a run on a real node."""

from pathlib import Path

import pytest

from e2e.training.observer import Observation
from e2e.training.picture import PictureData, draw
from e2e.training.traces import TrainerTrace, TrainingStep

_PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize(("loss", "looks", "pixels"), [(0.0, 0, 700), (0.5, 2, 1200)])
def test_there_is_a_panel_for_all_that_was_observed(
    tmp_path: Path, loss: float, looks: int, pixels: int
) -> None:
    """Loss and number of trainers need panels of their own, which make the picture higher."""
    steps = tuple(TrainingStep(float(number), number, 8, loss) for number in range(1, 4))
    trace = TrainerTrace("trainer-0", (7,), 0.5, steps, 3.5, 4.0, 143)
    observations = [Observation(float(at_s), training=1) for at_s in range(looks)]
    path = tmp_path / "pictures" / "run.png"
    draw(path, PictureData("A run", [trace], steps, (1.0, 2.0), observations, [(2.5, "kill")]))

    data = path.read_bytes()
    assert data.startswith(_PNG)
    assert int.from_bytes(data[20:24]) == pixels
