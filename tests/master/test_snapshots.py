"""Snapshots of a serving master: they hold what is on its disk, and nothing else for long."""

import asyncio
import threading
from pathlib import Path

import pytest
from edl_protocol import master as protocol

from master import service as services
from master import snapshots
from master.durable_ledger import DurableLedger
from master.errors import FencedError, JournalError, UnavailableError
from master.fence import StoredSnapshot
from master.ledger import Ledger
from master.service import MasterService
from runtime import clock
from runtime.call_checks import Json
from tests.master.ledger_calls import shape, who
from tests.reconciler.waiting import LIMIT_S, until_in_loop


class MemoryFence:
    """A fence that holds the newest snapshot in memory."""

    def __init__(self) -> None:
        self.state: Json | None = None
        self.stored = threading.Event()

    def read(self) -> StoredSnapshot:
        """See `Fence.read`."""
        return StoredSnapshot(0, "", self.state)

    def write(self, generation: int, state: Json, outcome: str) -> None:
        """See `Fence.write`."""
        del generation, outcome
        self.state = state
        self.stored.set()


class FullDiskLedger(DurableLedger):
    """A ledger on a disk that may be full: a write fails once a snapshot was stored."""

    def __init__(self, directory: Path, fence: MemoryFence) -> None:
        super().__init__(Ledger("digits"), directory)
        self._fence = fence
        self.full = False

    def write(self, lines: list[bytes]) -> None:
        """See `DurableLedger.write`."""
        if self.full:
            assert self._fence.stored.wait(LIMIT_S)
            raise JournalError("cannot write: no space left on device")
        super().write(lines)


async def _fails_once(durable_ledger: FullDiskLedger, fence: MemoryFence) -> None:
    service = MasterService(durable_ledger, 60.0, clock.monotonic_s, fence)
    await service.start()
    await service.describe("train", shape())
    await service.join(protocol.JoinRequest(**who("a")))
    await until_in_loop(lambda: service.snapshot_is_current)
    durable_ledger.full = True
    fence.stored.clear()
    with pytest.raises(UnavailableError):
        await service.work(protocol.WorkRequest(**who("a"), want=1))
    assert fence.state != service.ledger.dump()  # it has a lease that was not answered
    await until_in_loop(lambda: fence.state == service.ledger.dump())
    assert service.ledger.datasets["train"].leased == 0
    await service.halt()


def test_a_snapshot_of_what_could_not_be_written_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another change: the next master would resume from what never happened."""
    monkeypatch.setattr(snapshots, "_SNAPSHOT_S", 0.1)
    fence = MemoryFence()
    durable_ledger = FullDiskLedger(tmp_path / "journal", fence)
    try:
        asyncio.run(_fails_once(durable_ledger, fence))
    finally:
        durable_ledger.full = False
        durable_ledger.close()


class FailingFence(MemoryFence):
    """A fence that cannot be written any more from some moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.tried = 0

    def write(self, generation: int, state: Json, outcome: str) -> None:
        """See `Fence.write`."""
        if self.error is not None:
            self.tried += 1
            raise self.error
        super().write(generation, state, outcome)


async def _recovers(durable_ledger: DurableLedger, fence: FailingFence) -> None:
    service = MasterService(durable_ledger, 60.0, clock.monotonic_s, fence)
    await service.start()
    fence.error = JournalError("the API server is away")
    await service.describe("train", shape())
    await until_in_loop(lambda: fence.tried > 0)
    fence.error = None
    await until_in_loop(lambda: fence.state == service.ledger.dump())
    await service.halt()


def test_a_snapshot_that_could_not_be_stored_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without another change: a job that waits has none for hours."""
    monkeypatch.setattr(snapshots, "_SNAPSHOT_S", 0.1)
    fence, durable_ledger = FailingFence(), DurableLedger(Ledger("digits"), tmp_path / "journal")
    asyncio.run(_recovers(durable_ledger, fence))
    durable_ledger.close()

    assert fence.state is not None


async def _stops(durable_ledger: DurableLedger, fence: FailingFence, error: Exception) -> None:
    service = MasterService(durable_ledger, 60.0, clock.monotonic_s, fence)
    await service.start()
    await service.describe("train", shape())
    await until_in_loop(lambda: fence.state == service.ledger.dump())
    fence.error = error
    await service.describe("test", shape())
    await service.stop()


@pytest.mark.parametrize("error", [JournalError("the API server is away"), FencedError("another")])
def test_a_last_snapshot_that_cannot_be_written_does_not_keep_a_master_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It tries once; what was answered is in the journal, or in the next master's ledger."""
    monkeypatch.setattr(snapshots, "_SNAPSHOT_S", 60.0)
    fence, durable_ledger = FailingFence(), DurableLedger(Ledger("digits"), tmp_path / "journal")
    asyncio.run(_stops(durable_ledger, fence, error))
    durable_ledger.close()

    assert fence.tried == 1


async def _breaks(durable_ledger: DurableLedger) -> str:
    service = MasterService(durable_ledger, 60.0, clock.monotonic_s)
    await service.start()
    reason = await asyncio.wait_for(service.fatal, LIMIT_S)
    await service.stop()
    assert service.exit_code == 1
    return reason


def test_a_master_whose_own_loop_fails_ends_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would accept calls and never answer; the log has the error itself."""
    error = ZeroDivisionError("odd")

    async def tick(_: MasterService) -> None:
        raise error

    monkeypatch.setattr(services, "_TICK_S", 0.0)
    monkeypatch.setattr(MasterService, "_tick", tick)
    durable_ledger = DurableLedger(Ledger("digits"), tmp_path / "journal")
    reason = asyncio.run(_breaks(durable_ledger))
    durable_ledger.close()

    assert reason == "an error in the master itself, see its log: ZeroDivisionError('odd')"
    failure = next(
        record for record in caplog.records if record.message == "a loop of the master failed"
    )
    assert failure.exc_info is not None
    assert failure.exc_info[1] is error
