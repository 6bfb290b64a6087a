"""What the snapshots of a serving master hold: what is on its disk, and nothing else for long."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from master import protocol
from master import service as services
from master.books import Books
from master.errors import FencedError, JournalError
from master.fence import Kept
from master.ledger import Ledger
from master.service import Service, UnavailableError
from runtime import clock
from tests.master.books import shape, who
from tests.master.serving import LIMIT_S

Json = dict[str, Any]


class Place:
    """Holds the newest snapshot."""

    def __init__(self) -> None:
        self.books: Json | None = None
        self.stored = threading.Event()

    def read(self) -> Kept:
        """See `Fence.read`."""
        return Kept(0, "", self.books)

    def write(self, generation: int, books: Json, outcome: str) -> None:
        """See `Fence.write`."""
        del generation, outcome
        self.books = books
        self.stored.set()


class Full(Books):
    """Books on a disk that may be full: a write fails once a snapshot was stored meanwhile."""

    def __init__(self, directory: Path, place: Place) -> None:
        super().__init__(Ledger("digits"), directory)
        self._place = place
        self.full = False

    def write(self, lines: list[bytes]) -> None:
        """See `Books.write`."""
        if self.full:
            assert self._place.stored.wait(LIMIT_S)
            raise JournalError("cannot write: no space left on device")
        super().write(lines)


async def _until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not fact():  # noqa: ASYNC110 - a loop of the master makes it so
            await asyncio.sleep(0.002)


async def _fails_once(books: Full, place: Place) -> None:
    service = Service(books, 60.0, clock.monotonic_s, place)
    await service.start()
    await service.describe("train", shape())
    await service.join(protocol.Join(**who("a")).model_dump())
    await _until(lambda: service.covered)
    books.full = True
    place.stored.clear()
    with pytest.raises(UnavailableError):
        await service.work({**who("a"), "want": 1})
    assert place.books != service.ledger.dump()  # it has the lease of which nobody was told
    await _until(lambda: place.books == service.ledger.dump())
    assert service.ledger.datasets["train"].leased == 0
    await service.halt()


def test_a_snapshot_of_what_could_not_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing else changes: another master would go on from what has never happened."""
    monkeypatch.setattr(services, "_SNAPSHOT_S", 0.1)
    place = Place()
    books = Full(tmp_path / "journal", place)
    try:
        asyncio.run(_fails_once(books, place))
    finally:
        books.full = False
        books.close()


class Lost(Place):
    """Cannot be written any more from some moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.tried = 0

    def write(self, generation: int, books: Json, outcome: str) -> None:
        """See `Fence.write`."""
        if self.error is not None:
            self.tried += 1
            raise self.error
        super().write(generation, books, outcome)


async def _stops(books: Books, place: Lost, error: Exception) -> None:
    service = Service(books, 60.0, clock.monotonic_s, place)
    await service.start()
    await service.describe("train", shape())
    await _until(lambda: place.books == service.ledger.dump())
    place.error = error
    await service.describe("test", shape())
    await service.stop()


@pytest.mark.parametrize("error", [JournalError("the API server is away"), FencedError("another")])
def test_a_last_snapshot_that_cannot_be_written_does_not_keep_a_master_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It tries once; what was answered is in the journal, or in the books of whoever replaced it."""
    monkeypatch.setattr(services, "_SNAPSHOT_S", 60.0)
    place, books = Lost(), Books(Ledger("digits"), tmp_path / "journal")
    asyncio.run(_stops(books, place, error))
    books.close()

    assert place.tried == 1


async def _breaks(books: Books) -> str:
    service = Service(books, 60.0, clock.monotonic_s)
    await service.start()
    why = await asyncio.wait_for(service.fatal, LIMIT_S)
    await service.stop()
    assert service.exit_code == 1
    return why


def test_a_master_whose_own_loop_breaks_ends_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would accept calls and never answer; the log has the error itself."""
    error = ZeroDivisionError("odd")

    async def tick(_: Service) -> None:
        raise error

    monkeypatch.setattr(services, "_TICK_S", 0.0)
    monkeypatch.setattr(Service, "_tick", tick)
    books = Books(Ledger("digits"), tmp_path / "journal")
    why = asyncio.run(_breaks(books))
    books.close()

    assert why == "an error in the master itself, see its log: ZeroDivisionError('odd')"
    told = next(one for one in caplog.records if one.message == "a loop of the master broke")
    assert told.exc_info is not None
    assert told.exc_info[1] is error
