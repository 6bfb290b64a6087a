"""How soon the loop looks again: decided by what a tick left to do, without real time."""

from collections.abc import Iterator

import pytest

from policy.cluster.snapshot import Phase
from tests.reconciler.server import look
from tests.reconciler.world import Process, World


class Stopping:
    """The loop's signal to end: set after some ticks; pauses take no time and are kept."""

    def __init__(self, ticks: int) -> None:
        self._left = ticks
        self.pauses_s: list[float] = []

    def is_set(self) -> bool:
        """As `threading.Event` has it."""
        self._left -= 1
        return self._left < 0

    def set(self) -> None:
        """As `threading.Event` has it."""
        self._left = 0

    def wait(self, timeout: float) -> None:
        """As `threading.Event` has it."""
        self.pauses_s.append(timeout)


class Paced(Process):
    """A reconciler whose own loop runs in virtual time; some ticks of it may fail."""

    def __init__(self, world: World) -> None:
        self.failing: list[bool] = []
        """Whether each of the next ticks fails; none of those after."""
        self._fails = False
        super().__init__(world, self._leads)
        self.waits: list[tuple[int, float, float]] = []
        """After which version, how long, and how long to gather: of every wait for changes."""

    def _leads(self) -> bool:
        if self._fails:
            raise RuntimeError("who leads is not known")
        return True

    def wait_change(self, after: int, timeout_s: float, gather_s: float) -> int:
        """As `ClusterCache` has it; nothing changes unless a test does it."""
        self.waits.append((after, timeout_s, gather_s))
        self._fails = bool(self.failing) and self.failing.pop(0)
        look(self.cache)
        return self.cache.changes.version

    def play(self, ticks: int) -> list[float]:
        """Lets the loop run; the pauses after ticks that failed."""
        stopping = Stopping(ticks)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.cache, "wait_change", self.wait_change)
            patch.setattr(self.loop, "_stopping", stopping)
            self.loop._run()  # noqa: SLF001 - what its thread runs
        self.writers.settle()
        return stopping.pauses_s


@pytest.fixture
def world() -> World:
    """A node with room for three trainers of 5 CPU."""
    return World(16)


@pytest.fixture
def process(world: World) -> Iterator[Paced]:
    """A reconciler there."""
    paced = Paced(world)
    yield paced
    paced.stop()


def test_a_loop_with_nothing_left_to_do_looks_every_five_seconds(
    world: World, process: Paced
) -> None:
    """And at changes, of which those that come within a tenth of a second are one."""
    world.add_job("net", 2, 2)
    process.run(5)
    process.play(2)

    assert [(wait_s, gather_s) for _, wait_s, gather_s in process.waits] == [(5.0, 0.1)] * 2


def test_what_had_to_wait_is_written_within_a_second(world: World, process: Paced) -> None:
    """Nothing else would wake the loop for it."""
    world.add_job("net", 3, 3)
    process.run(5)
    first, second, _ = world.running("net")
    world.end(first, Phase.FAILED)
    process.round()
    world.end(second, Phase.FAILED)
    process.play(1)
    counted = world.job("net").status.failed
    world.clock.advance(1)
    process.play(2)

    assert counted == 1
    assert world.job("net").status.failed == 2
    assert [wait_s for _, wait_s, _ in process.waits][1:] == [1.0, 5.0]


def test_a_write_that_was_refused_is_tried_again_within_a_second(
    world: World, process: Paced
) -> None:
    """Somebody else wrote to the Job, or the API server was away for a moment."""
    world.add_job("net", 1, 1)
    process.run(5)
    look(process.cache)
    world.end(world.running("net")[0], Phase.FAILED)
    process.cache.pods.follow_once()
    world.change_job("net", {"metadata": {"labels": {"a": "b"}}})
    process.tick()
    counted = world.job("net").status.failed
    world.clock.advance(1)
    process.play(1)

    assert counted == 0
    assert world.job("net").status.failed == 1
    assert process.waits[0][1] == 1.0


def test_rounds_that_fail_are_tried_again_later_and_later(process: Paced) -> None:
    """Without waiting for a change; half a minute is the longest pause, and success ends them."""
    process.failing = [True] * 9
    pauses_s = process.play(10)
    process.failing = [True]
    again_s = process.play(2)

    assert pauses_s == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert again_s == [0.5]
    assert [after for after, _, _ in process.waits[:10]] == [-1] * 10


def test_a_round_that_succeeds_makes_the_next_pause_short(process: Paced) -> None:
    """An outage of before does not count."""
    process.failing = [True, True, True, False, False, True]

    assert process.play(6) == [0.5, 1.0, 2.0, 0.5]
    assert process.value("edl_reconciler_rounds_failed_total") == "4.0"


def test_the_next_round_waits_for_a_change_after_the_one_it_saw(process: Paced) -> None:
    """One that came meanwhile is not missed, and an old one is not taken for new."""
    process.play(3)

    version = process.cache.changes.version
    assert [after for after, _, _ in process.waits] == [-1, version, version]
