"""Event streams on a real server: they follow, end, go on where they ended, and are bounded."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from page import streams
from page.sections import Section, Subscription
from page.streams import StreamBounds, Streams
from tests.page.serving import Readers, serving
from tests.page.world import ALL, VISION, PageWorld, parse, rows_of
from tests.reconciler.waiting import until

JOBS = "/api/v1/stream?sections=jobs"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that look for changes without a pause."""
    monkeypatch.setattr(streams, "_PACE_S", 0.005)


@contextmanager
def _served(**settings: float) -> Iterator[tuple[PageWorld, Readers]]:
    world = PageWorld(nodes=10, **settings)
    world.look()
    with serving(world.app) as address, Readers(address) as readers:
        yield world, readers


def test_a_stream_follows_the_cluster() -> None:
    """First all jobs, then the one that has changed, with the headers of a stream."""
    with _served() as (world, readers):
        reader = readers.open(JOBS)
        blocks = reader.blocks()
        first = rows_of(parse(next(blocks)), "jobs")
        world.cluster.resize(world.job, 1)
        world.look()
        second = rows_of(parse(next(blocks)), "jobs")

    assert reader.response.headers["Content-Type"].startswith("text/event-stream")
    assert reader.response.headers["Cache-Control"] == "no-store"
    assert {row["key"] for row in first} == set(world.cluster.jobs)
    assert [row["key"] for row in second] == [world.job]


def test_a_stream_goes_on_where_it_ended() -> None:
    """With its last id; a stream of another caller or with other sections begins again."""
    with _served() as (world, readers):
        reader = readers.open(JOBS)
        next(reader.blocks())
        reader.close()
        world.cluster.resize(world.job, 1)
        world.look()
        again = readers.open(JOBS, Last_Event_ID=reader.ident)
        rows = rows_of(parse(next(again.blocks())), "jobs")
        others = [
            readers.open(JOBS, Last_Event_ID=reader.ident, Authorization="Bearer vision"),
            readers.open(f"{JOBS},records", Last_Event_ID=reader.ident),
            readers.open(JOBS, Last_Event_ID="nonsense.1.2.3"),
        ]
        firsts = [dict(parse(next(other.blocks())))["jobs"] for other in others]

    assert [row["key"] for row in rows] == [world.job]
    assert all(data["reset"] for data in firsts)
    assert {row["namespace"] for row in firsts[0]["rows"]} == {"ml-vision"}


def test_a_stream_ends_so_that_rights_are_checked_again() -> None:
    """After its time, also where nothing happens."""
    with _served(stream_seconds=60.0) as (world, readers):
        reader = readers.open(JOBS)
        blocks = reader.blocks()
        next(blocks)
        world.now_s += 61.0

        assert list(blocks) == []


def test_a_quiet_stream_shows_that_it_lives() -> None:
    """A comment, where nothing has changed for some seconds."""
    with _served() as (world, readers):
        reader = readers.open(JOBS)
        blocks = reader.blocks()
        next(blocks)
        world.now_s += 11.0

        assert next(blocks) == ": keep-alive"


def test_streams_are_bounded() -> None:
    """One too many of a caller gets 429, one too many of all 503; a closed one makes room."""
    with _served(max_streams=2, max_streams_per_caller=1) as (_, readers):
        first = readers.open(JOBS)
        next(first.blocks())
        second = readers.open(JOBS)
        third = readers.open(JOBS, Authorization="Bearer vision")
        next(third.blocks())
        fourth = readers.open(JOBS, Authorization="Bearer nobody")
        assert (second.response.status, fourth.response.status) == (429, 503)
        assert int(second.response.headers["Retry-After"]) > 0
        first.close()

        def is_open_again() -> bool:
            reader = readers.open(JOBS)
            status = reader.response.status
            reader.close()
            return status == 200

        until(is_open_again)


def test_service_accounts_of_one_namespace_are_one_tenant() -> None:
    """Who makes them may make any number: a fourth of all streams, and others have the rest."""
    world = PageWorld(nodes=10)
    world.look()
    streams_ = Streams(world.view, StreamBounds(16, 2, 60.0), lambda: 0.0, lambda: False)

    async def fill() -> list[str]:
        opened, refused = [], []
        for number in range(40):
            access = replace(VISION, user=f"system:serviceaccount:ml-vision:a{number}")
            refused.append(streams_.refusal(access.user))
            if not refused[-1]:
                stream = streams_.follow(Subscription(access, (Section.JOBS,)), None)
                await anext(stream)
                opened.append(stream)
        others = "system:serviceaccount:ml-speech:a"
        assert [streams_.refusal(user) for user in ("admin", others)] == ["", ""]
        for stream in opened:
            await stream.aclose()
        assert streams_.refusal("system:serviceaccount:ml-vision:a0") == ""
        return refused

    assert asyncio.run(fill()) == [""] * 4 + ["caller"] * 36


def test_who_does_not_read_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is kept for a reader that has gone to sleep, its stream is closed, and that is no error."""
    world = PageWorld(nodes=10)
    world.look()
    with serving(world.app, answer_s=0.05) as address, Readers(address) as readers:
        readers.open("/api/v1/stream?sections=jobs,records,nodes")

        def is_dropped() -> bool:
            for key in world.cluster.jobs:
                world.cluster.resize(key, 1)
            world.cluster.decide(list(world.cluster.jobs))
            world.pass_time(0.1)
            world.look()
            text = world.get("/metrics").text
            return 'connections_dropped_total{reason="answer"} 1.0' in text and (
                "edl_page_streams_open 0.0" in text
            )

        until(is_dropped)

    assert [entry for entry in caplog.records if entry.levelno >= logging.ERROR] == []


def test_streams_end_with_the_process() -> None:
    """As soon as it drains, so that nobody waits for them."""
    with _served() as (world, readers):
        reader = readers.open(JOBS)
        blocks = reader.blocks()
        next(blocks)
        world.app.draining = True

        assert list(blocks) == []


def test_a_stream_that_never_began_takes_no_place() -> None:
    """A caller that is gone before the first part leaves nothing behind."""
    world = PageWorld(nodes=10)
    world.look()
    open_streams = Streams(world.view, StreamBounds(1, 1, 60.0), lambda: world.now_s, lambda: False)
    subscription = Subscription(ALL, (Section.JOBS,))

    async def leave() -> int:
        parts = open_streams.follow(subscription, None)
        await parts.aclose()
        parts = open_streams.follow(subscription, None)
        await anext(parts)
        begun = open_streams.count
        await parts.aclose()
        return begun

    assert asyncio.run(leave()) == 1
    assert open_streams.count == 0
    assert open_streams.refusal(VISION.user) == ""


def test_the_head_of_a_stream_is_not_a_stream() -> None:
    """HEAD ends at once."""
    with _served() as (world, readers):
        reader = readers.open(JOBS, method="HEAD")

        assert reader.response.status == 200
        assert reader.response.read() == b""
        assert "edl_page_streams_open 0.0" in world.get("/metrics").text
