"""Reflectors, one pass at a time: lists, watches, and what goes wrong with them."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import errors, request
from kube.api import Stream
from kube.changes import Changes
from kube.reflector import Reflector
from kube.request import CONFIGMAPS, Request
from lab.fake_api import FakeApi
from tests.kube.items import FaultyWatchApi, Item, ScriptedStream, drop, put, read, truth

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
    """After any faults of its watches; the sum of the changes that listeners get agrees."""
    fake = FakeApi()
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    notified: set[Item] = set()

    def listen(old: Item | None, new: Item | None) -> None:
        if old is not None:
            notified.remove(old)
        if new is not None:
            assert new not in notified
            notified.add(new)

    reflector.listen(listen)
    for step, argument, value in steps:
        if step == "put":
            put(fake, argument, value)
        elif step == "compact":
            fake.compact()
        elif step == "follow":
            faulty.mishap = argument
            reflector.follow_once()
        elif any(item.name == argument for item in truth(fake)):
            drop(fake, argument)
    faulty.mishap = ""
    while reflector.follow_once():
        pass

    assert set(reflector.records()) == truth(fake) == notified


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


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
    """A server restored from a backup lacks the version: after five failures it lists."""
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    faulty.mishap = "cut"
    for _ in range(5):
        assert reflector.follow_once()
    assert reflector.resource_version == ""

    faulty.mishap = ""
    assert not reflector.follow_once()
    assert reflector.counts.lists == 2


def test_failures_that_are_not_in_a_row_keep_the_version(fake: FakeApi) -> None:
    """Four, an event, four more: a list of a whole cluster is not for a server that is busy."""
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    reflector.follow_once()
    faulty.mishap = "cut"
    for number in range(8):
        if number == 4:
            put(fake, "a", "1")
        assert reflector.follow_once()

    assert reflector.counts.lists == 1
    assert reflector.follow_once()
    assert reflector.resource_version == ""


def test_watches_that_end_well_between_failures_keep_the_version(fake: FakeApi) -> None:
    """They show that the server has the version."""
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    for faulty.mishap in ("", "cut", "cut", "cut", "cut", "", "cut", "cut", "cut", "cut"):
        assert reflector.follow_once() is (faulty.mishap == "cut")

    assert reflector.counts.lists == 1
    assert reflector.resource_version


def test_after_a_list_failures_count_from_the_start(fake: FakeApi) -> None:
    """Five again, before the next list of everything."""
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    faulty.mishap = "cut"
    versions = [reflector.follow_once() and reflector.resource_version for _ in range(10)]

    assert [index for index, version in enumerate(versions) if not version] == [4, 9]
    assert reflector.counts.lists == 2


def test_what_is_out_of_scope_is_neither_listed_nor_watched(fake: FakeApi) -> None:
    """Objects of another namespace or name are not read, before or after the list."""
    reflector = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read, namespace="n", name="a")
    for moment in ("before", "after"):
        for namespace, name in (("n", "a"), ("n", "b"), ("other", "a")):
            body = {"metadata": {"name": name}, "data": {"v": moment}}
            if moment == "before":
                fake.send(request.create(CONFIGMAPS, namespace, body))
            else:
                fake.send(request.merge_patch(CONFIGMAPS, namespace, name, body))
        reflector.follow_once()

        assert [(item.name, item.value) for item in reflector.records()] == [("a", moment)]
    assert reflector.counts.events == 1


def test_a_server_that_wants_a_rest_is_not_asked_for_everything(fake: FakeApi) -> None:
    """429 on a watch: the next one continues from the same version."""
    reflector = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read)
    reflector.follow_once()
    version = reflector.resource_version
    fake.faults.fail_next(errors.TooManyRequests("slow down", status=429))

    assert reflector.follow_once()
    assert reflector.resource_version == version


def test_pages_are_put_together(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """More objects than one page holds; other threads get a turn between two, and no more."""
    turns: list[float] = []
    monkeypatch.setattr("kube.reflector.time", SimpleNamespace(sleep=turns.append))
    for number in range(request.PAGE + 1):
        put(fake, f"c{number}", "1")
    reflector = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read)
    reflector.follow_once()

    assert len(reflector.records()) == request.PAGE + 1
    assert turns == [0]


def test_selectors_reach_the_server(fake: FakeApi) -> None:
    """Namespace, fields and labels narrow both list and watch."""
    put(fake, "a", "1")
    put(fake, "b", "1")
    reflector = Reflector(
        FaultyWatchApi(fake),
        CONFIGMAPS,
        read,
        namespace="n",
        name="b",
        label_selector="!x",
    )
    reflector.follow_once()

    assert [item.name for item in reflector.records()] == ["b"]


def test_an_object_that_cannot_be_read_is_counted(fake: FakeApi) -> None:
    """It is left out; the others are stored."""
    fake.send(request.create(CONFIGMAPS, "n", {"metadata": {"name": "odd"}}))
    put(fake, "a", "1")
    reflector = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read)

    assert not reflector.follow_once()
    assert [item.name for item in reflector.records()] == ["a"]
    assert reflector.counts.errors == {"decode": 1}


@pytest.mark.parametrize("depth", [100, 300, 1100, 9000])
def test_one_object_that_is_nested_deeply_does_not_hide_the_others(
    fake: FakeApi, depth: int
) -> None:
    """Of a custom kind, neither in a list nor in an event; kinds with unknown fields store them so."""
    deep = b'{"a":[' * depth + b'"]}"' + b"]}" * depth

    def deepened(text: bytes) -> bytes:
        return text.replace(b'"deep me"', deep)

    class Deep(FaultyWatchApi):
        def send(self, api_request: Request) -> bytes:
            return deepened(super().send(api_request))

        @contextmanager
        def stream(self, watch_request: Request) -> Iterator[Stream]:
            with super().stream(watch_request) as stream:
                yield ScriptedStream([deepened(line) for line in stream])

    for name in "ac":
        put(fake, name, "1")
    put(fake, "b", "deep me")
    reflector = Reflector(Deep(fake), CONFIGMAPS, lambda obj: obj["metadata"]["name"])
    assert not reflector.follow_once()
    put(fake, "b", "deep me")
    put(fake, "d", "1")
    reflector.follow_once()

    assert reflector.counts.errors == {}
    assert sorted(reflector.records()) == ["a", "b", "c", "d"]


def test_a_listener_that_raises_does_not_stop_the_others(fake: FakeApi) -> None:
    """Its failure is counted."""
    notified = []

    def fail(_old: Item | None, _new: Item | None) -> None:
        raise ValueError("a bug")

    reflector = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read)
    reflector.listen(fail)
    reflector.listen(lambda _, new: notified.append(new))
    put(fake, "a", "1")
    reflector.follow_once()

    assert len(notified) == 1
    assert reflector.counts.errors == {"listener": 1}


def test_a_bug_of_ours_lists_again_and_goes_on(fake: FakeApi) -> None:
    """A watch thread never dies in silence."""

    class Odd(FaultyWatchApi):
        def send(self, api_request: Request) -> bytes:
            super().send(api_request)
            return b"{}"

    reflector = Reflector(Odd(fake), CONFIGMAPS, read)

    assert reflector.follow_once()
    assert reflector.counts.errors == {"internal": 1}


def test_an_event_that_is_none_lists_again(fake: FakeApi) -> None:
    """A malformed event may have been a change, so it lists again."""

    class Odd(FaultyWatchApi):
        @contextmanager
        def stream(self, _request: Request) -> Iterator[Stream]:
            put(fake, "a", "1")
            yield ScriptedStream([b'{"type": "ADDED"}'])

    reflector = Reflector(Odd(fake), CONFIGMAPS, read)

    assert reflector.follow_once()
    assert reflector.resource_version == ""
    reflector.follow_once()
    assert [item.name for item in reflector.records()] == ["a"]


def test_what_counts_has_happened(fake: FakeApi) -> None:
    """A list, a watch, its events: each once."""
    faulty = FaultyWatchApi(fake)
    reflector = Reflector(faulty, CONFIGMAPS, read)
    put(fake, "a", "1")
    reflector.follow_once()
    put(fake, "a", "2")
    put(fake, "b", "1")
    reflector.follow_once()

    counts = reflector.counts
    assert (counts.lists, counts.watches, counts.events, counts.errors) == (1, 2, 2, {})


def test_a_watch_is_asked_to_end_after_minutes(fake: FakeApi) -> None:
    """Between four and five, not the same for all: they do not come back all at one time."""
    asked_s: set[int] = set()

    class Recording(FaultyWatchApi):
        @contextmanager
        def stream(self, watch_request: Request) -> Iterator[Stream]:
            asked_s.add(int(dict(watch_request.query)["timeoutSeconds"]))
            with super().stream(watch_request) as stream:
                yield stream

    reflector = Reflector(Recording(fake), CONFIGMAPS, read)
    for _ in range(40):
        reflector.follow_once()

    assert len(asked_s) > 1
    assert all(240 <= timeout_s <= 300 for timeout_s in asked_s)


def test_several_share_one_counter(fake: FakeApi) -> None:
    """A thread that waits for a change of either is woken once for both."""
    changes = Changes()
    first = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read, changes=changes)
    two = Reflector(FaultyWatchApi(fake), CONFIGMAPS, read, changes=changes)
    put(fake, "a", "1")
    first.follow_once()
    version = changes.version
    two.follow_once()

    assert changes.wait(version, 0.0) > version


def test_versions_that_are_no_numbers_are_only_compared(fake: FakeApi) -> None:
    """Opaque versions: the same one again is an old event, any other is new."""

    class Opaque(FaultyWatchApi):
        def send(self, api_request: Request) -> bytes:
            super().send(api_request)
            return b'{"metadata": {"resourceVersion": "x"}, "items": null}'

        @contextmanager
        def stream(self, _request: Request) -> Iterator[Stream]:
            metadata = {"uid": "u", "name": "a"}
            yield ScriptedStream(
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

    notified: list[Item | None] = []
    reflector = Reflector(Opaque(fake), CONFIGMAPS, read)
    reflector.listen(lambda _, new: notified.append(new))
    reflector.follow_once()

    assert [item.value for item in notified if item] == ["y"]
