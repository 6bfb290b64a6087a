"""A master in memory, and a trainer's session with it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edl import Session, Settings

from tests.sdk.books import Books
from tests.sdk.servers import TOKEN, Server
from tests.sdk.trainers import Lone

Join = Callable[..., Session]


@pytest.fixture
def server() -> Iterator[Server]:
    """A master in memory on a port of its own."""
    found = Server(Books())
    yield found
    found.stop()


@pytest.fixture
def lone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lone:
    """Calls `edl` as the only trainer of a job, in the folder of the test."""
    return Lone(tmp_path, monkeypatch, capsys)


@pytest.fixture
def join(server: Server) -> Iterator[Join]:
    """Makes sessions, and ends them after the test."""
    made: list[Session] = []

    def make(trainer: str = "trainer-0", **changes: object) -> Session:
        settings = Settings(server.url, TOKEN, trainer, **{"patience_s": 5.0, **changes})  # type: ignore[arg-type]
        made.append(Session(settings))
        return made[-1]

    yield make
    for one in made:
        one.leave()
