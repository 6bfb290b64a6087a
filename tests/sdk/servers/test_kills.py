"""Real parameter servers, as processes: learning as well as alone, and being killed under load."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import edl
import pytest
from edl import servers

from tests.pserver.processes import PserverProcess
from tests.sdk.conftest import Join
from tests.sdk.servers.marks import Kills, Marks, applied_counts, data
from tests.sdk.servers.trainer_threads import Trainer
from tests.sdk.support.digits import BATCH, EPOCHS, TESTED, TRAINED, Digits, alone, example
from tests.sdk.support.loops import until
from tests.sdk.support.master_server import Server

pytestmark = pytest.mark.timeout(300)  # whole processes, on cores that others share

STEPS = 10
"""Versions from one checkpoint to the next."""
APART = 60
"""Batches from one kill to the next: some checkpoints, of which one at least is whole by then."""
PATIENCE_S = 150.0
"""Only ends a hang: processes begin slowly on cores that others share."""


@contextmanager
def _serving(folder: Path, count: int) -> Iterator[list[PserverProcess]]:
    """Servers of one job, each with a folder of its own."""
    processes = [
        PserverProcess(folder / str(index), index, count, waits=False) for index in range(count)
    ]
    for process in processes:
        process.wait()
    yield processes
    for process in processes:
        process.end(signal.SIGKILL)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[PserverProcess]]:
    """Two servers."""
    with _serving(tmp_path, 2) as processes:
        yield processes


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[PserverProcess]]:
    """Three servers."""
    with _serving(tmp_path, 3) as processes:
        yield processes


def urls(processes: list[PserverProcess]) -> tuple[str, ...]:
    """As in EDL_PARAMETER_SERVERS."""
    return tuple(process.url for process in processes)


@pytest.mark.soak
def test_digits_are_learned_as_well_as_alone(three: list[PserverProcess], join: Join) -> None:
    """Three trainers without any order among them, within a point of one that has all to itself.

    The bound on staleness is what that many have anyway, on cores that are their own.
    """
    program = example()
    images, labels = program.drawn(TRAINED + TESTED)
    first = program.fresh()
    data = edl.from_arrays("digits", images[:TRAINED], labels[:TRAINED])
    crew = [
        Trainer(
            join(f"t-{place}", servers=urls(three), patience_s=PATIENCE_S),
            Digits(first),
            data,
            batch_size=BATCH,
            epochs=EPOCHS,
            shuffle_seed=1,
            max_staleness=8,
        )
        for place in range(3)
    ]
    results = [trainer.join(PATIENCE_S) for trainer in crew]
    final = servers.fetch(member=join("reader", servers=urls(three)))
    together = program.accuracy(final.dense, images[TRAINED:], labels[TRAINED:])
    reference = alone(first, images[:TRAINED], labels[:TRAINED], EPOCHS)
    expected = program.accuracy(reference, images[TRAINED:], labels[TRAINED:])

    assert sum(result.records for result in results) == EPOCHS * TRAINED
    assert expected > 0.95
    assert together > expected - 0.01


class Slow(Marks):
    """Its steps take a while, as steps do."""

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """Late."""
        time.sleep(0.01)
        return super().gradients(records, lookup)


def _saved(process: PserverProcess) -> tuple[int, int]:
    """Generation and version of the newest checkpoint; (0, 0) where there is none.

    Once server 0 has committed it, all others have.
    """
    folders = (path.parent.name for path in process.directory.glob("digits/*/shard-0-of-3"))
    names = [tuple(int(part) for part in name.split("-")) for name in folders]
    generation, version = max(names, default=(0, 0))
    return generation, version


def _killed(
    processes: list[PserverProcess], victims: list[int], before: tuple[int, int]
) -> tuple[int, int]:
    """Kills servers once there is another checkpoint, and names that."""
    until(lambda: _saved(processes[0]) > before)
    newest = _saved(processes[0])
    for index in victims:
        processes[index].run.kill()
    for index in victims:
        processes[index].run.wait()
        processes[index].begin()
    return newest


@pytest.mark.soak  # `make test` has the same with servers in its own process, test_servers_faults
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param([[1], [0, 1, 2]], id="twice"),
        pytest.param([[0], [1], [2], [0, 1, 2]], id="each"),
    ],
)
def test_servers_killed_under_load_cost_what_came_after_their_checkpoint(
    three: list[PserverProcess],
    join: Join,
    server: Server,
    victims: list[list[int]],
    *,
    thorough: bool,
) -> None:
    """One by one and all at once: each batch is in the model once, or counted as lost once."""
    plan = victims * (10 if thorough else 1)
    batches, saved = APART * (len(plan) + 1), [(0, 0)]
    kills = Kills(
        {
            APART * (place + 1): lambda indexes=indexes: saved.append(
                _killed(three, indexes, saved[-1])
            )  # type: ignore[misc]
            for place, indexes in enumerate(plan)
        }
    )
    crew = [
        Trainer(
            join(f"t-{place}", servers=urls(three), patience_s=PATIENCE_S),
            Slow(batches, 3, kills),
            data(batches),
            batch_size=1,
            checkpoint_steps=STEPS,
            checkpoint_seconds=0.0,
        )
        for place in range(2)
    ]
    results = [trainer.join(PATIENCE_S) for trainer in crew]
    marks, setbacks = applied_counts(join, three), server.master.rollbacks

    assert sum(result.steps for result in results) == batches
    assert marks.min() >= 0
    assert marks.max() == 1
    assert batches - setbacks["steps"] == marks.all(axis=0).sum()
    assert setbacks["steps"] == sum(result.lost_steps for result in results)
    assert setbacks["count"] == len(plan)
    for setback, (_, version) in zip(
        setbacks["newest"], saved[1:][-len(setbacks["newest"]) :], strict=True
    ):
        gone_back = re.search(r"all continue from version (\d+)", setback["reason"])
        assert gone_back is not None, setback
        assert int(gone_back[1]) >= version, "they had a newer checkpoint"


@pytest.mark.soak  # `make test` has test_faults
def test_a_server_that_was_told_to_end_and_comes_back_costs_nothing(
    pair: list[PserverProcess], join: Join, server: Server
) -> None:
    """As when its node is drained: exit code 0, and it continues from its last state."""

    def drain() -> None:
        assert pair[1].end(signal.SIGTERM) == 0
        pair[1].begin()

    trainer = Trainer(
        join(servers=urls(pair), patience_s=PATIENCE_S),
        Marks(40, 2, Kills({20: drain})),
        data(40),
        batch_size=1,
        checkpoint_seconds=0.0,
    )
    result = trainer.join(PATIENCE_S)

    assert (result.steps, result.version, result.lost_steps) == (40, 40, 0)
    assert server.master.rollbacks["count"] == 0
