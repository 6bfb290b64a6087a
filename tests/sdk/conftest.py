"""A master in memory, members and sessions of it, two servers, and a folder to train in."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edl import Session, Settings
from edl.master.rendezvous import Rendezvous

from tests.pserver.serving import RunningServers
from tests.sdk.collective.rings import Seats, Take
from tests.sdk.support.fake_master import FakeMaster
from tests.sdk.support.loops import LIMIT_S
from tests.sdk.support.master_server import TOKEN, Server
from tests.sdk.support.models import SOFTMAX, write_data
from tests.sdk.support.trainers import Lone

Join = Callable[..., Session]
Start = Callable[..., Rendezvous]


@pytest.fixture
def server() -> Iterator[Server]:
    """A master in memory on a port of its own."""
    master_server = Server(FakeMaster())
    yield master_server
    master_server.stop()


@pytest.fixture
def lone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Lone:
    """Calls `edl` as the only trainer of a job, in the folder of the test."""
    return Lone(tmp_path, monkeypatch, capsys)


@pytest.fixture
def join(server: Server) -> Iterator[Join]:
    """Makes sessions, and ends them after the test."""
    sessions: list[Session] = []

    def make(trainer: str = "trainer-0", **changes: object) -> Session:
        settings = Settings(server.url, TOKEN, trainer, **{"patience_s": 5.0, **changes})  # type: ignore[arg-type]
        sessions.append(Session(settings))
        return sessions[-1]

    yield make
    for session in sessions:
        session.leave()


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Makes members, and closes them after the test."""
    members: list[Rendezvous] = []

    def make(trainer: str = "a", **about: Any) -> Rendezvous:
        patience_s = about.pop("patience_s", LIMIT_S)
        settings = Settings(server.url, TOKEN, trainer, patience_s=patience_s)
        incarnation = about.pop("incarnation", f"{trainer}-1")
        members.append(Rendezvous(settings, incarnation, f"{trainer}:1", about.pop("code", None)))
        members[-1].start()
        return members[-1]

    yield make
    for member in members:
        member.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that waits at the master outlasts any test: what happens, its end did not bring."""
    monkeypatch.setattr("edl.master.rendezvous.POLL_S", 600.0)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last calls of a loop wait for their answers, on a machine as busy as it may be."""
    monkeypatch.setattr("edl.master.client.LAST_CALL_S", LIMIT_S)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[RunningServers]:
    """Two servers of one job, in one folder."""
    running = RunningServers(tmp_path / "servers", 2)
    yield running
    running.stop()


@pytest.fixture
def take() -> Iterator[Take]:
    """Makes seats for members, and clears them away after the test."""
    seats_made: list[Seats] = []

    def make(world_size: int) -> Seats:
        seats_made.append(Seats(world_size))
        return seats_made[-1]

    yield make
    for seats in seats_made:
        seats.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a model and data."""
    (tmp_path / "model.py").write_text(SOFTMAX)
    write_data(tmp_path)
    return tmp_path
