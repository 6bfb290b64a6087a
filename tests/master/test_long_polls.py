"""Calls that wait at the master, and a master that stands still."""

import asyncio

import pytest
from edl import clock

from master.change_window import WINDOW_S
from master.long_polls import LongPolls
from master.rendezvous import Rendezvous
from tests.master.crowd import meet
from tests.reconciler.waiting import LIMIT_S


def test_a_master_that_stood_still_reads_first_what_has_arrived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A member whose call waits to be read is not silent."""
    caplog.set_level("INFO")
    now_s = [0.0]
    rendezvous = Rendezvous(0.0)
    polls = LongPolls(rendezvous, lambda: now_s[0])
    rendezvous.call(meet("a"), 0.0)
    rendezvous.tick(WINDOW_S)

    async def stand_still() -> None:
        running = asyncio.create_task(polls.run())
        await asyncio.sleep(0)
        now_s[0] = 60.0
        polls.leave("nobody", "")  # wakes it, as a call does
        await asyncio.sleep(0.01)
        rendezvous.call(meet("a"), 60.0)
        until_s = clock.monotonic_s() + LIMIT_S
        while (next_s := rendezvous.next_s()) is not None and next_s < 60.0:
            assert clock.monotonic_s() < until_s
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(stand_still())

    assert "round proclaimed" in caplog.text
    assert "member was dropped" not in caplog.text
