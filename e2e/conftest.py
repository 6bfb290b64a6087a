"""Fixtures of the end-to-end tests."""

from collections.abc import Callable

import pytest

_FIGURE = "figure"


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records a measured figure, which is printed at the end of the run."""

    def record(text: str) -> None:
        request.node.user_properties.append((_FIGURE, text))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the figures of all tests, those of other processes too."""
    lines = [
        f"{result.nodeid.rpartition('/')[2]}: {text}"
        for outcome in ("passed", "failed")
        for result in terminalreporter.getreports(outcome)
        if result.when == "call"
        for name, text in result.user_properties
        if name == _FIGURE
    ]
    if lines:
        terminalreporter.section("figures")
        for line in lines:
            terminalreporter.line(line)
