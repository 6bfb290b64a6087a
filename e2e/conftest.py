"""Fixtures of the end-to-end tests."""

import re
from collections.abc import Callable, Iterator

import pytest

from e2e.environment import (
    Environment,
    IsolatedNamespace,
    isolated_namespace,
    running_environment,
)

_FIGURE = "figure"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One cluster with EDL for all tests of a file; its nodes are played."""
    with running_environment(tmp_path_factory.mktemp("environment")) as cluster_environment:
        yield cluster_environment


@pytest.fixture
def policy(environment: Environment) -> Iterator[str]:
    """The policy's text; it is in force again after the test."""
    text = environment.policy
    yield text
    environment.set_policy(text)


@pytest.fixture
def namespace(
    environment: Environment, request: pytest.FixtureRequest
) -> Iterator[IsolatedNamespace]:
    """A namespace of the test's own; what it has killed is started again."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))
    with isolated_namespace(environment, words[:50].strip("-")) as isolated:
        yield isolated


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Records a measured figure, which is printed at the end of the run."""

    def record(text: str) -> None:
        request.node.user_properties.append((_FIGURE, text))

    return record


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the figures of all tests, including tests in other processes."""
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
