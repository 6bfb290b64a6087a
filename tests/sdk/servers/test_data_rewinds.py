"""The data goes back with the servers although the master is away for a moment."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers
from edl.errors import Unavailable
from edl.master.client import Client

from tests.master.serving import TOKEN, Served
from tests.pserver import serving
from tests.pserver.serving import RunningServers
from tests.sdk.servers.counting_program import Acting

RECORDS = 60


class _Job:
    """A master and one server."""

    def __init__(self, folder: Path) -> None:
        self.master = Served(folder / "journal", heartbeat_s=30.0)
        self._folder = folder / "servers"
        self.servers = RunningServers(self._folder, 1)

    def restart_server(self) -> None:
        """Kills the server, and starts it again: it knows its checkpoints only."""
        self.servers.kill()
        self.servers.start()

    def lose_server(self) -> None:
        """Its node is lost with its checkpoints; another one starts in its place."""
        self.servers.kill()
        shutil.rmtree(self._folder)
        self._folder.mkdir()
        self.servers.start()

    def train(self, name: str, *, stop: int = 0, restart: int = 0) -> None:
        """Trains until the end, or until it stops; the server is killed before a batch."""
        url = f"http://127.0.0.1:{self.master.port}"
        settings = edl.Settings(url, TOKEN, name, patience_s=60.0, servers=self.servers.urls)
        member = edl.Session(settings)
        acts: dict[int, Callable[[], object]]
        acts = {restart: self.restart_server, stop: member.stop}
        data = edl.from_arrays("points", np.arange(RECORDS))
        options: dict[str, Any] = {"batch_size": 3, "task_records": 12, "checkpoint_steps": 5}
        try:
            servers.train(
                Acting(RECORDS, acts), data, member=member, checkpoint_seconds=0.0, **options
            )
        finally:
            member.leave()

    @property
    def counts(self) -> list[float]:
        """How often the model has seen each record."""
        server = self.servers.all[0].server
        counts: list[float] = server.serving_at(server.generation).shard.vector.values.tolist()
        return counts


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Job]:
    """A job that ends with the test."""
    monkeypatch.setattr(serving, "TOKEN", TOKEN)
    running = _Job(tmp_path)
    yield running
    running.servers.stop()
    running.master.stop()


def test_servers_that_have_lost_their_files_begin_a_new_generation(
    job: _Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the master knows the newest: with an old one the data would not go back with the model."""
    ask, failures = Client.position, [Unavailable("the master is away")]

    def position(client: Client, *about: Any) -> Any:
        if failures:
            raise failures.pop()
        return ask(client, *about)

    job.train("trainer-0", restart=7, stop=14)
    job.lose_server()
    monkeypatch.setattr(Client, "position", position)
    job.train("trainer-1")

    assert failures == []
    assert job.counts == [1.0] * RECORDS
    assert job.master.service.status()["datasets"]["points"]["done_records"] == RECORDS
