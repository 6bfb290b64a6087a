"""Real parameter servers, as processes: learning as well as alone, and being killed under load."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import clock, servers

from tests.pserver.processes import Process
from tests.sdk.conftest import Join
from tests.sdk.crews import Trainer
from tests.sdk.digits import BATCH, EPOCHS, TESTED, TRAINED, Digits, alone, example
from tests.sdk.loops import until
from tests.sdk.servers import Server
from tests.sdk.trained import Line, points

pytestmark = pytest.mark.timeout(180)  # whole processes, on cores that others share

STEPS = 10
"""Versions from one checkpoint to the next."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[Process]]:
    """Three servers of one job, each with a folder of its own."""
    found = [Process(tmp_path / str(index), index, 3) for index in range(3)]
    yield found
    for one in found:
        one.end(signal.SIGKILL)


def urls(found: list[Process]) -> tuple[str, ...]:
    """As in EDL_PARAMETER_SERVERS."""
    return tuple(one.url for one in found)


def test_digits_are_learned_as_well_as_alone(three: list[Process], join: Join) -> None:
    """Three trainers without any order among them, within a point of one that has all to itself."""
    program = example()
    images, labels = program.drawn(TRAINED + TESTED)
    first = program.fresh()
    data = edl.from_arrays("digits", images[:TRAINED], labels[:TRAINED])
    crew = [
        Trainer(
            join(f"t-{place}", servers=urls(three), patience_s=60.0),
            Digits(first),
            data,
            batch_size=BATCH,
            epochs=EPOCHS,
            shuffle_seed=1,
        )
        for place in range(3)
    ]
    results = [one.join(120) for one in crew]
    final = servers.fetch(member=join("reader", servers=urls(three)))
    together = program.accuracy(final.dense, images[TRAINED:], labels[TRAINED:])
    one = alone(first, images[:TRAINED], labels[:TRAINED], EPOCHS)
    wanted = program.accuracy(one, images[TRAINED:], labels[TRAINED:])

    assert sum(each.records for each in results) == EPOCHS * TRAINED
    assert wanted > 0.95
    assert together > wanted - 0.01


class Slow(Line):
    """Its steps take a while, as steps do."""

    def gradients(self, records: Any, lookup: servers.Lookup) -> servers.Gradients:
        """Late."""
        time.sleep(0.01)
        return super().gradients(records, lookup)


def _version(crew: list[Trainer]) -> int:
    return sum(len(one.worker.losses) for one in crew)


def test_servers_killed_under_load_cost_what_came_after_their_checkpoint(
    three: list[Process], join: Join, server: Server, *, thorough: bool
) -> None:
    """One by one and all at once: each record is trained once more at most, and the model is good."""
    rounds = 10 if thorough else 1
    crew = [
        Trainer(
            join(f"t-{place}", servers=urls(three), patience_s=60.0),
            Slow(rate=0.05),
            edl.from_arrays("points", *points(800)),
            epochs=6 * rounds,
            checkpoint_steps=STEPS,
            checkpoint_seconds=0.0,
        )
        for place in range(2)
    ]
    kills = 0
    for victims in [[0], [1], [2], [0, 1, 2]] * rounds:
        begun = _version(crew)
        until_s = clock.monotonic_s() + 60
        while _version(crew) < begun + 3 * STEPS:
            assert clock.monotonic_s() < until_s, "training does not go on"
            assert any(one.running for one in crew), "training ended too early"
            time.sleep(0.01)
        for index in victims:
            three[index].run.kill()
        for index in victims:
            three[index].run.wait()
            three[index].begin()
        kills += 1
    results = [one.join(120) for one in crew]
    final = servers.fetch(member=join("reader", servers=urls(three)))
    told, steps = server.books.setbacks, sum(one.steps for one in results)

    assert steps == 240 * rounds
    assert told["steps"] == sum(one.lost_steps for one in results)
    assert told["count"] == kills
    for setback in told["newest"]:
        assert setback["steps"] <= 2 * STEPS + len(crew), (
            told
        )  # one more is made while one is written
    assert 0 <= final.version - (steps - told["steps"]) <= kills * len(crew)
    assert np.allclose(final.dense["w"], [1, 2, 3], atol=0.05)


def test_a_server_that_was_told_to_end_and_comes_back_costs_nothing(
    three: list[Process], join: Join, server: Server
) -> None:
    """As when its node is drained: exit code 0, and it goes on where it was."""
    trainer = Trainer(
        join(servers=urls(three), patience_s=60.0),
        Slow(rate=0.05),
        edl.from_arrays("points", *points(800)),
        epochs=2,
        checkpoint_seconds=0.0,
    )
    until(lambda: len(trainer.worker.losses) > 5)
    assert three[1].end(signal.SIGTERM) == 0
    three[1].begin()
    result = trainer.join(120)

    assert (result.steps, result.version, result.lost_steps) == (80, 80, 0)
    assert server.books.setbacks["count"] == 0
