"""The command line of the measurement, as far as it needs no cluster."""

import pytest

from e2e.scale.__main__ import main


@pytest.mark.parametrize("words", [["--nodes", "0"], ["--nodes", "many"], ["--only", "none"]])
def test_what_makes_no_sense_is_refused(words: list[str]) -> None:
    """Before anything is built or started."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
