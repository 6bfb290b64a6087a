"""Commands of other distributions: the SDK finds them by entry points, and imports nothing of theirs before."""

from collections.abc import Callable

import edl.__main__
import pytest
from edl.commands import plugins


class Point:
    """An entry point."""

    name = "why"

    def __init__(self) -> None:
        """Nobody has loaded it."""
        self.calls: list[list[str]] = []
        self.loads = 0

    def load(self) -> Callable[[list[str]], int]:
        """A command that keeps its words."""
        self.loads += 1

        def command(words: list[str]) -> int:
            self.calls.append(words)
            return 4

        return command


@pytest.fixture
def point(monkeypatch: pytest.MonkeyPatch) -> Point:
    """The one command that another distribution has installed."""
    installed = Point()
    monkeypatch.setattr(plugins, "installed", lambda: {"why": installed})
    return installed


def test_a_command_of_another_distribution_gets_its_words(point: Point) -> None:
    """With its name first; its exit code is the command's."""
    assert edl.__main__.main(["why", "digits", "-n", "ml"]) == 4
    assert point.calls == [["why", "digits", "-n", "ml"]]


def test_the_help_names_them(point: Point, capsys: pytest.CaptureFixture[str]) -> None:
    """Without loading them."""
    with pytest.raises(SystemExit):
        edl.__main__.main(["--help"])

    assert "commands that query the cluster (see `edl COMMAND --help`): why." in " ".join(
        capsys.readouterr().out.split()
    )
    assert point.loads == 0


def test_own_commands_do_not_depend_on_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing else is installed."""
    monkeypatch.setattr(plugins, "installed", dict)

    assert plugins.run(["why"]) is None
    assert plugins.run([]) is None
    assert plugins.epilog() == ""


def test_what_is_installed_here_is_found() -> None:
    """The control plane's package has the commands of the cluster."""
    assert "why" in plugins.installed()
