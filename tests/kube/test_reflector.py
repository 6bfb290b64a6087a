"""Reflectors: lists, watches, and what goes wrong with them."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import errors, request
from kube.changes import Changes
from kube.client import Api, Stream
from kube.fake import FakeApi
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, Request


@dataclass(frozen=True)
class Item:
    """A ConfigMap, trimmed."""

    name: str
    uid: str
    value: str


def read(obj: Mapping[str, Any]) -> Item | None:
    """Keeps all but those that say "drop"."""
    value = (obj.get("data") or {})["v"]
    item = Item(obj["metadata"]["name"], obj["metadata"]["uid"], value)
    return None if value == "drop" else item


def put(api: Api, name: str, value: str) -> None:
    """Creates or changes a ConfigMap."""
    body = {"metadata": {"name": name}, "data": {"v": value}}
    try:
        api.send(request.create(CONFIGMAPS, "n", body))
    except errors.AlreadyExists:
        api.send(request.merge_patch(CONFIGMAPS, "n", name, {"data": {"v": value}}))


def drop(api: Api, name: str) -> None:
    """Deletes a ConfigMap."""
    api.send(request.delete(CONFIGMAPS, "n", name))


def truth(api: Api) -> set[Item]:
    """What a reflector should hold."""
    page = orjson.loads(api.send(request.list_page(CONFIGMAPS, limit=0)))
    return {item for item in map(read, page["items"]) if item is not None}


class Lines:
    """A watch that is cut, garbled or repeated on purpose."""

    def __init__(self, lines: list[bytes], broken: errors.KubeError | None = None) -> None:
        self._lines = lines
        self._broken = broken

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._lines:
            return self._lines.pop(0)
        if self._broken is not None:
            raise self._broken
        raise StopIteration

    def close(self) -> None:
        """Nothing is held."""


class Brief:
    """A server whose watches give what there is and end, with one chosen mishap each.

    Mishaps: "", "cut" (broken after one event), "twice" (all events repeated), "old" (the
    events of before once more), "gone" (410 over HTTP), "error" (410 in the stream),
    "garbage" (half a line).
    """

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        self.mishap = ""
        self._before: list[bytes] = []

    def send(self, asked: Request) -> bytes:
        """As the fake does."""
        return self.api.send(asked)

    @contextmanager
    def stream(self, asked: Request) -> Iterator[Stream]:
        """The events there are, after the mishap."""
        if self.mishap == "gone":
            raise errors.Gone("too old", status=410)
        query = tuple((k, "0" if k == "timeoutSeconds" else v) for k, v in asked.query)
        with self.api.stream(replace(asked, query=query)) as stream:
            lines = list(stream)
        before, self._before = self._before, self._before + lines
        expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}'
        broken = errors.Unavailable("cut")
        yield {
            "cut": lambda: Lines(lines[:1], broken),
            "twice": lambda: Lines([line for line in lines for _ in range(2)]),
            "old": lambda: Lines(before + lines),
            "error": lambda: Lines([*lines[:1], expired]),
            "garbage": lambda: Lines([*lines[:1], b'{"type":']),
        }.get(self.mishap, lambda: Lines(lines))()


MISHAPS = ("", "cut", "twice", "old", "gone", "error", "garbage")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.sampled_from(["1", "2", "drop"])),
        st.tuples(st.just("drop"), st.sampled_from("abc"), st.just("")),
        st.tuples(st.just("follow"), st.sampled_from(MISHAPS), st.just("")),
        st.tuples(st.just("compact"), st.just(""), st.just("")),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(STEPS)
def test_it_always_comes_to_hold_what_the_server_holds(steps: list[tuple[str, str, str]]) -> None:
    """Whatever happens to its watches; listeners that add up the changes agree."""
    fake = FakeApi()
    brief = Brief(fake)
    reflector = Reflector(brief, CONFIGMAPS, read)
    heard: set[Item] = set()

    def listen(old: Item | None, new: Item | None) -> None:
        if old is not None:
            heard.remove(old)
        if new is not None:
            assert new not in heard
            heard.add(new)

    reflector.listen(listen)
    for step, what, value in steps:
        if step == "put":
            put(fake, what, value)
        elif step == "compact":
            fake.compact()
        elif step == "follow":
            brief.mishap = what
            reflector.follow_once()
        elif any(item.name == what for item in truth(fake)):
            drop(fake, what)
    brief.mishap = ""
    while reflector.follow_once():
        pass

    assert set(reflector.records()) == truth(fake) == heard


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


@pytest.fixture
def running(fake: FakeApi) -> Iterator[Reflector[Item]]:
    """A reflector at work on it."""
    reflector = Reflector(fake, CONFIGMAPS, read)
    reflector.start()
    try:
        assert until(reflector, lambda: reflector.synced and fake.watches == 1)
        yield reflector
    finally:
        reflector.stop()


def until(reflector: Reflector[Item], predicate: Callable[[], bool]) -> bool:
    """Waits for a change that makes `predicate` true."""
    return any(reflector.changes.wait_for(predicate, 0.01) for _ in range(300))


def test_it_follows_changes_as_they_come(fake: FakeApi, running: Reflector[Item]) -> None:
    """Creation, change and deletion, each told once with what was before."""
    heard: list[tuple[str | None, str | None]] = []

    def listen(old: Item | None, new: Item | None) -> None:
        heard.append((old.value if old else None, new.value if new else None))

    running.listen(listen)
    put(fake, "a", "1")
    put(fake, "a", "2")
    drop(fake, "a")

    assert until(running, lambda: len(heard) == 3)
    assert heard == [(None, "1"), ("1", "2"), ("2", None)]
    assert running.counts.events == 3
    assert (running.counts.lists, running.counts.watches, running.counts.errors) == (1, 1, {})


def test_a_late_listener_hears_of_what_is_there(fake: FakeApi, running: Reflector[Item]) -> None:
    """As if it had just been added."""
    put(fake, "a", "1")
    assert until(running, lambda: len(running.records()) == 1)
    heard: list[Item | None] = []
    running.listen(lambda _, new: heard.append(new))

    assert heard == list(running.records())


def test_an_equal_record_is_no_change(fake: FakeApi, running: Reflector[Item]) -> None:
    """A write to a part that nobody reads wakes nobody; the record stays the same object."""
    put(fake, "a", "1")
    assert until(running, lambda: len(running.records()) == 1)
    version, (record,) = running.changes.version, running.records()
    label = {"metadata": {"labels": {"x": "y"}}}
    fake.send(request.merge_patch(CONFIGMAPS, "n", "a", label))

    assert until(running, lambda: running.counts.events == 2)
    assert running.changes.version == version
    assert running.get(record.uid) is record
    assert running.records() is running.records()


def test_it_stops_inside_a_blocked_read(fake: FakeApi, running: Reflector[Item]) -> None:
    """At once: nothing has to come for it to notice."""
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
    """410 in the stream; what vanished meanwhile is told as deleted."""
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


def test_a_list_that_fails_is_tried_again(fake: FakeApi) -> None:
    """Not synced until one is in."""
    fake.faults.fail_next(
        errors.Forbidden("no", status=403), match=lambda r: "watch" not in r.target
    )
    put_later = Reflector(fake, CONFIGMAPS, read)
    assert put_later.follow_once()

    assert not put_later.synced
    assert put_later.counts.errors == {"Forbidden": 1}


def test_a_version_that_keeps_failing_is_given_up(fake: FakeApi) -> None:
    """A server restored from a backup knows no such version: after five failures it lists."""
    brief = Brief(fake)
    reflector = Reflector(brief, CONFIGMAPS, read)
    brief.mishap = "cut"
    for _ in range(5):
        assert reflector.follow_once()
    assert reflector.resource_version == ""

    brief.mishap = ""
    assert not reflector.follow_once()
    assert reflector.counts.lists == 2


def test_pages_are_put_together(fake: FakeApi) -> None:
    """More objects than one page holds."""
    for number in range(request.PAGE + 1):
        put(fake, f"c{number}", "1")
    reflector = Reflector(Brief(fake), CONFIGMAPS, read)
    reflector.follow_once()

    assert len(reflector.records()) == request.PAGE + 1


def test_selectors_reach_the_server(fake: FakeApi) -> None:
    """Namespace, fields and labels narrow both list and watch."""
    put(fake, "a", "1")
    put(fake, "b", "1")
    reflector = Reflector(
        Brief(fake),
        CONFIGMAPS,
        read,
        namespace="n",
        field_selector="metadata.name=b",
        label_selector="!x",
    )
    reflector.follow_once()

    assert [item.name for item in reflector.records()] == ["b"]


def test_an_object_that_cannot_be_read_is_counted(fake: FakeApi) -> None:
    """It is left out; the others are kept."""
    fake.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "odd"}}))
    put(fake, "a", "1")
    reflector = Reflector(Brief(fake), CONFIGMAPS, read)

    assert not reflector.follow_once()
    assert [item.name for item in reflector.records()] == ["a"]
    assert reflector.counts.errors == {"decode": 1}


def test_a_listener_that_raises_does_not_stop_the_others(fake: FakeApi) -> None:
    """Its failure is counted."""
    heard = []

    def fail(_old: Item | None, _new: Item | None) -> None:
        raise ValueError("a bug")

    reflector = Reflector(Brief(fake), CONFIGMAPS, read)
    reflector.listen(fail)
    reflector.listen(lambda _, new: heard.append(new))
    put(fake, "a", "1")
    reflector.follow_once()

    assert len(heard) == 1
    assert reflector.counts.errors == {"listener": 1}


def test_a_bug_of_ours_lists_again_and_goes_on(fake: FakeApi) -> None:
    """A watch thread never dies in silence."""

    class Odd(Brief):
        def send(self, asked: Request) -> bytes:
            super().send(asked)
            return b"{}"

    reflector = Reflector(Odd(fake), CONFIGMAPS, read)

    assert reflector.follow_once()
    assert reflector.counts.errors == {"internal": 1}


def test_several_share_one_counter(fake: FakeApi) -> None:
    """Who waits for a change of either is woken once for both."""
    changes = Changes()
    one = Reflector(Brief(fake), CONFIGMAPS, read, changes=changes)
    two = Reflector(Brief(fake), CONFIGMAPS, read, changes=changes)
    put(fake, "a", "1")
    one.follow_once()
    version = changes.version
    two.follow_once()

    assert changes.wait(version, 0.0) > version


def test_a_stop_before_the_start_is_fine(fake: FakeApi) -> None:
    """Nothing runs, and nothing will be asked."""
    reflector = Reflector(fake, CONFIGMAPS, read)
    reflector.stop()
    reflector.start()
    reflector.stop()

    assert reflector.counts.lists == 0


def test_a_stop_between_two_pages_is_heard(fake: FakeApi) -> None:
    """A half list is thrown away; what breaks by the stop is no error."""

    class Stopping(Brief):
        def send(self, asked: Request) -> bytes:
            reflector.request_stop()
            if "/pods" in asked.path:
                raise errors.Unavailable("closed")
            return super().send(asked)

    for number in range(request.PAGE + 1):
        put(fake, f"c{number}", "1")
    reflector: Reflector[Any] = Reflector(Stopping(fake), CONFIGMAPS, read)
    reflector.follow_once()
    assert (reflector.synced, reflector.records()) == (False, ())

    reflector = Reflector(Stopping(fake), request.PODS, read)
    reflector.follow_once()
    assert reflector.counts.errors == {}


def test_a_stop_while_connecting_is_heard(fake: FakeApi) -> None:
    """Nothing of the watch is taken in any more."""

    class Stopping(Brief):
        @contextmanager
        def stream(self, asked: Request) -> Iterator[Stream]:
            reflector.request_stop()
            put(fake, "a", "1")
            with super().stream(asked) as stream:
                yield stream

    reflector = Reflector(Stopping(fake), CONFIGMAPS, read)
    reflector.follow_once()

    assert reflector.counts.events == 0


def test_versions_that_are_no_numbers_are_only_compared(fake: FakeApi) -> None:
    """Opaque versions: the same one again is an old event, any other is new."""

    class Opaque(Brief):
        def send(self, asked: Request) -> bytes:
            super().send(asked)
            return b'{"metadata": {"resourceVersion": "x"}, "items": null}'

        @contextmanager
        def stream(self, _asked: Request) -> Iterator[Stream]:
            metadata = {"uid": "u", "name": "a"}
            yield Lines(
                [
                    orjson.dumps(
                        {
                            "type": "ADDED",
                            "object": {
                                "metadata": {**metadata, "resourceVersion": version},
                                "data": {"v": version},
                            },
                        }
                    )
                    for version in ("x", "y")
                ]
            )

    heard: list[Item | None] = []
    reflector = Reflector(Opaque(fake), CONFIGMAPS, read)
    reflector.listen(lambda _, new: heard.append(new))
    reflector.follow_once()

    assert [item.value for item in heard if item] == ["y"]
