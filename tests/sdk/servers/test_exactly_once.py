"""A model at parameter servers that counts its records equals the books, whoever is lost."""

import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers

from tests.master.serving import TOKEN, Served
from tests.pserver import serving
from tests.pserver.serving import RunningServers
from tests.sdk.servers.counting_program import Acting
from tests.sdk.sync.fleets import Fleet, Member
from tests.support.storm_size import part_of

Json = dict[str, Any]
_WAIT_S = 60.0
RECORDS, EPOCHS, BATCH = 400, 3, 5
OPTIONS: Json = {
    "records": RECORDS,
    "batch_size": BATCH,
    "task_records": 40,
    "shuffle_seed": 1,
    "epochs": EPOCHS,
    "checkpoint_steps": 15,
    "checkpoint_seconds": 0.0,
    "pause_s": 0.02,
}


class Storm:
    """Trainers and servers of one job, and what happens to them."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def steps(self) -> int:
        """Steps of all trainers that were ever started."""
        for member in self.fleet.members:
            member.look()
        return sum(len(member.steps) for member in self.fleet.members)

    def run(self, steps: int) -> None:
        """Waits for so many steps more, or for the end."""
        least = self.steps() + steps
        assert self.fleet.until(
            lambda: self.steps() >= least or not self.fleet.active(), _WAIT_S
        ), f"no progress at {self.steps()} steps"

    def end(self, victims: list[Member], number: signal.Signals) -> None:
        """Ends trainers by a signal."""
        for member in victims:
            member.send(number)
        assert self.fleet.ended(victims, _WAIT_S)

    def restart_server(self, index: int, number: signal.Signals) -> None:
        """Ends a server by a signal, and starts it again."""
        self.fleet.restart_server(index, number)

    def restart_master(self) -> None:
        """Kills the master, and starts it again."""
        self.fleet.kill_master()
        self.fleet.start_master()


def _counts(fleet: Fleet) -> Any:
    """How often the servers' model has seen each record."""
    member = edl.Session(fleet.settings("reader"))
    member.join()
    counts = servers.fetch(member=member).dense["counts"]
    member.leave()
    return counts


def _finish(storm: Storm, hurry: Path, trainers: int) -> None:
    """Lets all data be trained, and checks that all of it is."""
    fleet = storm.fleet
    while len(fleet.active()) < trainers:
        fleet.add()
    hurry.touch()
    last = fleet.active()
    assert fleet.ended(last, 4 * _WAIT_S)
    assert all(member.end is not None and member.end["end"] for member in last)
    assert fleet.status()["datasets"]["points"]["done_records"] == RECORDS * EPOCHS


@pytest.mark.soak  # `make test` has the same with threads, at the end
@pytest.mark.timeout(240)
def test_the_model_at_the_servers_is_that_of_the_books(tmp_path: Path) -> None:
    """Trainers leave, die one by one and all at once, servers and master die, in mid-task.

    With one server even the batch in hand is in the model once.
    """
    hurry = tmp_path / "hurry"
    fleet = Fleet(
        tmp_path,
        {**OPTIONS, "hurry": str(hurry)},
        program="tests.sdk.servers.counting_program",
        parameter_servers=1,
    )
    with fleet:
        storm = Storm(fleet)
        for _ in range(2):
            fleet.add()
        storm.run(23)
        storm.end(fleet.active()[:1], signal.SIGTERM)
        storm.run(19)
        storm.restart_server(0, signal.SIGKILL)
        storm.run(17)
        storm.end(fleet.active(), signal.SIGKILL)
        storm.restart_master()
        storm.restart_server(0, signal.SIGKILL)
        for _ in range(2):
            fleet.add()
        storm.run(21)
        storm.end(fleet.active()[:1], signal.SIGKILL)
        storm.restart_server(0, signal.SIGTERM)
        _finish(storm, hurry, 1)
        counts = _counts(fleet)

    assert counts.tolist() == [EPOCHS] * RECORDS


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_after_a_storm_of_changes_servers_and_books_differ_by_batches_in_hand(
    tmp_path: Path, *, thorough: bool
) -> None:
    """With two servers, a batch that was on its way to both may be in one of them.

    A hundred changes, two hundred in `make properties`.
    """
    hurry, chance = tmp_path / "hurry", Random(3)  # noqa: S311 - a seed
    records = 4_000
    options = {**OPTIONS, "records": records, "epochs": 60, "pause_s": 0.05, "hurry": str(hurry)}
    fleet = Fleet(
        tmp_path,
        options,
        program="tests.sdk.servers.counting_program",
        parameter_servers=2,
    )
    with fleet:
        storm, kills = Storm(fleet), 0
        changes = 200 if thorough else part_of(100)
        for change in range(changes):
            while len(fleet.active()) < 3:
                fleet.add()
            storm.run(chance.randint(4, 12))
            if change % 66 == min(65, changes - 1):
                kills += len(fleet.active())
                storm.end(fleet.active(), signal.SIGKILL)
                storm.restart_master()
            elif change % 20 == 19:
                storm.restart_server(chance.randint(0, 1), signal.SIGKILL)
                kills += len(fleet.active())
            else:
                number = chance.choice([signal.SIGTERM, signal.SIGKILL])
                kills += number == signal.SIGKILL
                storm.end(fleet.active()[:1], number)
        while len(fleet.active()) < 3:
            fleet.add()
        hurry.touch()
        last = fleet.active()
        assert fleet.ended(last, 600)
        progress = fleet.status()["datasets"]["points"]
        counts = _counts(fleet)

    assert progress["done_records"] == records * 60
    assert np.abs(counts - 60).sum() <= BATCH * kills


# -- in one process ------------------------------------------------------------------------------


def test_each_record_is_in_the_model_of_one_server_once_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers and master die, trainers leave and are lost, all in mid-task."""
    monkeypatch.setattr(serving, "TOKEN", TOKEN)
    master = Served(tmp_path / "journal", heartbeat_s=30.0)
    running = RunningServers(tmp_path / "servers", 1)
    sessions: list[edl.Session] = []

    def restart_server() -> None:
        running.kill()
        running.start()

    def restart_master() -> None:
        master.kill()
        master.start()

    def train(acts: dict[int, Callable[[], object]], name: str) -> servers.TrainingResult:
        url = f"http://127.0.0.1:{master.port}"
        member = edl.Session(edl.Settings(url, TOKEN, name, patience_s=60.0, servers=running.urls))
        sessions.append(member)
        options = {
            key: value for key, value in OPTIONS.items() if key not in ("records", "pause_s")
        }
        data = edl.from_arrays("points", np.arange(RECORDS))
        try:
            return servers.train(Acting(RECORDS, acts), data, member=member, **options)
        finally:
            member.leave()

    def stop() -> None:
        sessions[-1].stop()

    def fail() -> None:
        raise ArithmeticError("this trainer is lost")

    first = train({11: restart_server, 23: restart_master, 37: stop}, "trainer-0")
    with pytest.raises(ArithmeticError):
        train({9: restart_server, 30: fail}, "trainer-1")
    last = train({22: restart_master, 26: restart_server}, "trainer-2")
    server = running.all[0].server
    counts = server.serving_at(server.generation).shard.vector.values
    progress = master.service.status()["datasets"]["points"]
    running.stop()
    master.stop()

    assert (first.whole, last.whole) == (False, True)
    assert progress["done_records"] == RECORDS * EPOCHS
    assert counts.tolist() == [EPOCHS] * RECORDS
