"""Calls that wait at the master, and a master that stands still."""

import asyncio

import pytest
from edl import clock

from master.long_polls import LongPolls
from master.membership import DISCONNECTED_S
from master.rendezvous import Rendezvous
from master.round import WINDOW_S
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


def test_the_late_end_of_a_replaced_connection_drops_nobody() -> None:
    """After an outage of the network a member calls over another connection, at first.

    The end of the one before is sent again only later. The member waits at the master then, and has
    no reason to call.
    """
    now_s = [0.0]
    rendezvous = Rendezvous(0.0)
    polls = LongPolls(rendezvous, lambda: now_s[0])
    for name in "ab":
        rendezvous.call(meet(name), 0.0)
    rendezvous.tick(WINDOW_S)
    waits = meet("a", seen=1, at=1, ready=True)

    async def call_again() -> int:
        calls = []
        for now_s[0] in (0.5, 1.0):
            calls.append(asyncio.create_task(polls.poll(waits, lambda: False)))
            await asyncio.sleep(0)
        for call, at_s in zip(calls, (1.0, 2.0), strict=True):
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            now_s[0] = at_s + 2 * DISCONNECTED_S
            rendezvous.call(meet("b", seen=1), now_s[0])
            rendezvous.tick(now_s[0])
            dropped.append(
                [fields["trainer"] for _, fields in rendezvous.events if "why" in fields]
            )
        return polls.waiting

    dropped: list[list[str]] = []
    waiting = asyncio.run(call_again())

    assert dropped == [[], ["a"]], "only the end of the newest call is the member's"
    assert waiting == 0
