"""What journeys tell whoever runs them."""

from collections.abc import Callable

import pytest


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a figure in spite of pytest's capturing."""

    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text}")

    return show
