"""Reflectors that run in threads."""

import functools
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from kube import reflector as reflector_module
from kube import request
from kube.reflector import Reflector
from kube.request import CONFIGMAPS
from lab.fake_api import FakeApi
from runtime.backoff import Backoff
from tests.kube.items import Item, drop, put, read


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


@pytest.fixture
def running(fake: FakeApi, pauses: list[float]) -> Iterator[Reflector[Item]]:
    """A running reflector without pauses."""
    del pauses
    reflector = Reflector(fake, CONFIGMAPS, read)
    reflector.start()
    try:
        assert until(reflector, lambda: reflector.synced and fake.watches == 1)
        yield reflector
    finally:
        reflector.stop()


def until(reflector: Reflector[Item], predicate: Callable[[], bool]) -> bool:
    """Waits for a change that makes `predicate` true; False ends a hang, after 20 s."""
    return any(reflector.changes.wait_for(predicate, 0.01) for _ in range(2_000))


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long a reflector's thread would have paused at most each time; it does not."""
    waits_s: list[float] = []

    class Recording(Backoff):
        def __init__(self, max_s: float, jitter: object) -> None:
            del jitter
            super().__init__(max_s=max_s)

        def next_s(self) -> float:
            waits_s.append(super().next_s())
            return 0.0

    monkeypatch.setattr(reflector_module, "Backoff", Recording)
    return waits_s


def test_it_follows_changes_as_they_come(fake: FakeApi, running: Reflector[Item]) -> None:
    """Creation, change and deletion are each reported once, with the previous record."""
    notified: list[tuple[str | None, str | None]] = []

    def listen(old: Item | None, new: Item | None) -> None:
        notified.append((old.value if old else None, new.value if new else None))

    running.listen(listen)
    put(fake, "a", "1")
    put(fake, "a", "2")
    drop(fake, "a")

    assert until(running, lambda: len(notified) == 3)
    assert notified == [(None, "1"), ("1", "2"), ("2", None)]
    assert running.counts.events == 3
    assert (running.counts.lists, running.counts.watches, running.counts.errors) == (1, 1, {})


def test_a_late_listener_hears_of_what_is_there(fake: FakeApi, running: Reflector[Item]) -> None:
    """Existing records are reported as if they had just been added."""
    put(fake, "a", "1")
    assert until(running, lambda: len(running.records()) == 1)
    notified: list[Item | None] = []
    running.listen(lambda _, new: notified.append(new))

    assert notified == list(running.records())


def test_an_equal_record_is_no_change(fake: FakeApi, running: Reflector[Item]) -> None:
    """A write to a field that is not decoded wakes no waiter; the record stays the same object."""
    put(fake, "a", "1")
    assert until(running, lambda: len(running.records()) == 1)
    version, (record,) = running.changes.version, running.records()
    label = {"metadata": {"labels": {"x": "y"}}}
    fake.send(request.merge_patch(CONFIGMAPS, "n", "a", label))

    assert until(running, lambda: running.counts.events == 2)
    assert running.changes.version == version
    assert running.records()[0] is record
    assert running.records() is running.records()


def test_it_stops_inside_a_blocked_read(fake: FakeApi, running: Reflector[Item]) -> None:
    """The stop does not wait for the next event."""
    running.stop()

    assert fake.watches == 0
    assert not [t for t in threading.enumerate() if t.name == "watch-configmaps"]


def test_a_broken_watch_goes_on_where_it_broke(fake: FakeApi, running: Reflector[Item]) -> None:
    """No second list; the error is counted."""
    fake.disconnect()
    put(fake, "a", "1")

    assert until(running, lambda: len(running.records()) == 1)
    assert running.counts.lists == 1
    assert running.counts.errors == {"Unavailable": 1}


def test_an_expired_watch_lists_again(fake: FakeApi, running: Reflector[Item]) -> None:
    """After a 410 in the stream, objects that vanished meanwhile are reported as deleted."""
    put(fake, "a", "1")
    assert until(running, lambda: len(running.records()) == 1)
    fake.expire_watches()
    drop(fake, "a")

    assert until(running, lambda: running.counts.lists == 2 and not running.records())
    assert running.counts.errors == {"Gone": 1}


def test_bookmarks_keep_it_fresh(fake: FakeApi) -> None:
    """A bookmark moves the version on and shows that the watch is alive."""
    now = [100.0]
    reflector = Reflector(fake, CONFIGMAPS, read, clock_s=lambda: now[0])
    reflector.start()
    try:
        assert until(reflector, lambda: reflector.synced and fake.watches == 1)
        now[0] = 130.0
        assert reflector.age_s(130.0) == 30.0
        before = reflector.resource_version
        fake.send(request.create(request.SECRETS, "n", {"metadata": {"name": "s"}}))
        fake.bookmark()

        assert until(reflector, lambda: reflector.age_s(130.0) == 0.0)
        assert int(reflector.resource_version) > int(before)
        assert not reflector.records()
    finally:
        reflector.stop()


def test_a_watch_that_held_a_minute_is_followed_by_the_next_at_once(
    fake: FakeApi, pauses: list[float]
) -> None:
    """Its regular end causes no pause."""
    now = itertools.count(0, 100)
    reflector = Reflector(fake, CONFIGMAPS, read, clock_s=lambda: float(next(now)))
    reflector.start()
    try:
        for _ in range(5):
            _end_a_watch(fake, reflector)
    finally:
        reflector.stop()

    assert reflector.counts.errors == {}
    assert pauses == []


def test_watches_that_bring_nothing_are_paused_between(fake: FakeApi, pauses: list[float]) -> None:
    """Pauses grow: a server that ends every watch at once is not called in a tight loop."""
    reflector = Reflector(fake, CONFIGMAPS, read, clock_s=lambda: 0.0)
    reflector.start()
    try:
        for _ in range(5):
            _end_a_watch(fake, reflector)
        assert until(reflector, lambda: len(pauses) >= 5)
    finally:
        reflector.stop()

    assert reflector.counts.errors == {}
    assert pauses[:5] == [0.5, 1.0, 2.0, 4.0, 5.0]


def test_events_of_an_earlier_watch_do_not_count(fake: FakeApi, pauses: list[float]) -> None:
    """Later watches without events are still followed by pauses."""
    reflector = Reflector(fake, CONFIGMAPS, read, clock_s=lambda: 0.0)
    reflector.start()
    try:
        assert until(reflector, lambda: fake.watches == 1)
        put(fake, "a", "1")
        assert until(reflector, lambda: reflector.counts.events == 1)
        for _ in range(3):
            _end_a_watch(fake, reflector)
    finally:
        reflector.stop()

    assert pauses[:2] == [0.5, 1.0]


def _end_a_watch(fake: FakeApi, reflector: Reflector[Item]) -> None:
    """Ends the watch that is open, and waits for the next."""
    assert until(reflector, lambda: fake.watches == 1)
    before = reflector.counts.watches
    fake.end_watches()
    assert until(reflector, lambda: reflector.counts.watches > before)


def holds(reflector: Reflector[Item], count: int) -> bool:
    """Whether it has `count` records."""
    return len(reflector.records()) == count


def test_a_watch_that_brought_events_is_resumed_at_once(
    fake: FakeApi, running: Reflector[Item], pauses: list[float]
) -> None:
    """A busy server ends full watches in the middle of a burst; nothing pauses."""
    for number in range(30):
        put(fake, f"c{number}", "1")
        assert until(running, functools.partial(holds, running, number + 1))
        fake.end_watches()
    running.stop()

    assert running.counts.lists == 1
    assert running.counts.watches >= 30
    assert pauses == []
