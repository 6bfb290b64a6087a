"""A model at parameter servers that counts its records equals the books, whoever is lost."""

import signal
from pathlib import Path
from random import Random
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers

from tests.sdk.sync.fleets import Fleet, Member

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
def test_after_200_changes_the_servers_and_the_books_differ_by_batches_in_hand(
    tmp_path: Path,
) -> None:
    """With two servers, a batch that was on its way to both may be in one of them."""
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
        for change in range(200):
            while len(fleet.active()) < 3:
                fleet.add()
            storm.run(chance.randint(4, 12))
            if change % 66 == 65:
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
