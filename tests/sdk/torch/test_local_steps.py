"""Semi-synchronous training of the digits, beside synchronous training."""

from pathlib import Path

import pytest

from tests.sdk.torch.digits_jobs import TORCH, digits

LOCAL_STEPS = 50


@pytest.mark.soak
@pytest.mark.timeout(600)  # torch is imported by each process, on cores that others share
@pytest.mark.skipif(
    not (TORCH / "torch").exists(), reason="no torch here: `make torch` installs it"
)
def test_the_digits_are_learned_as_well_with_a_tenth_of_the_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a point of accuracy, though three of four trainers are killed and replaced meanwhile."""
    monkeypatch.setenv("PYTHONPATH", str(TORCH))
    together = digits(tmp_path / "together", local_steps=0, kills=0, pause_s=0.0)
    apart = digits(tmp_path / "apart", local_steps=LOCAL_STEPS, kills=3, pause_s=0.03)

    assert apart[0] >= together[0] - 0.01
    assert apart[1] <= together[1] / 10
