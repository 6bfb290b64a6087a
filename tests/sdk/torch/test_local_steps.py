"""Semi-synchronous training of the digits, beside synchronous training."""

from pathlib import Path
from statistics import mean

import pytest

from tests.sdk.torch.digits_jobs import TORCH, digits

LOCAL_STEPS = 50
RUNS = 3
"""Runs with local steps; the moments of the kills move the accuracy of a single run by up to a point."""


@pytest.mark.soak
@pytest.mark.timeout(900)  # torch is imported by each process, on cores that others share
@pytest.mark.skipif(
    not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
)
def test_the_digits_are_learned_as_well_with_a_tenth_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean accuracy is within a point, though three of four trainers are killed and replaced each time."""
    monkeypatch.setenv("PYTHONPATH", str(TORCH))
    together = digits(tmp_path / "together", local_steps=0, kills=0, pause_s=0.0)
    apart = [
        digits(tmp_path / f"apart-{run}", local_steps=LOCAL_STEPS, kills=3, pause_s=0.03)
        for run in range(RUNS)
    ]

    assert mean(accuracy for accuracy, _ in apart) >= together[0] - 0.01
    assert max(megabytes for _, megabytes in apart) <= together[1] / 10
