"""Facts about process groups that follow rounds, for each way to make them; run by `test_torch.py`."""

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from edl.errors import DataError, EdlError, RoundOver
from edl.torch.buckets import GradientBuckets
from edl.torch.groups.forming import FreshGroups, Groups, ReconfiguredGroups, gloo_groups
from edl.torch.groups.link import GroupLink
from edl.torch.groups.store import MasterStore

from tests.sdk.model.paddle_facts import check
from tests.sdk.torch.devices import DEVICE, IS_CPU
from tests.sdk.torch.members import LIMIT_S, MemoryKeys, Seat, together

HAS_RECONFIGURE = isinstance(gloo_groups("127.0.0.1"), ReconfiguredGroups)
KINDS: tuple[Callable[[str], Groups], ...] = (
    (FreshGroups, ReconfiguredGroups) if HAS_RECONFIGURE else (FreshGroups,)
)
MAKERS: tuple[Callable[[], Groups], ...] = tuple(partial(kind, "127.0.0.1") for kind in KINDS)


def seats(make: Callable[[], Groups], count: int) -> list[Seat]:
    """Members that are in no round yet."""
    return [Seat(make()) for _ in range(count)]


def connect(members: list[Seat], number: int = 1) -> list[GroupLink]:
    """Connects them in one round, in this order."""
    keys, size = MemoryKeys(), len(members)
    calls = [partial(seat.link, number, rank, size, keys) for rank, seat in enumerate(members)]
    links = together(calls)
    assert all(isinstance(link, GroupLink) for link in links), links
    return links


def add(link: GroupLink, value: float) -> float:
    """Sums one number over all members."""
    tensor = torch.full((3,), value, device=DEVICE)
    link.wait_for([link.begin_sum(tensor)])
    return float(tensor[0])


def add_often(link: GroupLink) -> None:
    """Begins more sums than gloo has threads, and waits for them."""
    link.wait_for([link.begin_sum(torch.ones(3, device=DEVICE)) for _ in range(5)])


def sums_are_of_all_members() -> None:
    """The same sum in all of them, of three members and then of two others in the same processes."""
    for make in MAKERS:
        members = seats(make, 3)
        links = connect(members)
        assert (
            together([partial(add, link, 10.0**i) for i, link in enumerate(links)]) == [111.0] * 3
        )
        for seat, link in zip(members, links, strict=True):
            seat.groups.abandon(link.works)
        links = connect([members[2], members[0]], number=2)
        assert together([partial(add, link, 1.0) for link in links]) == [2.0, 2.0]


def a_late_member_is_waited_for() -> None:
    """However late it is; the wait is reported, and its end."""
    for make in MAKERS:
        members = seats(make, 2)
        links = connect(members)
        reported = threading.Event()
        members[0].waiting.on_wait = lambda _, event=reported: event.set()

        def late(link: GroupLink = links[1], reported: threading.Event = reported) -> float:
            assert reported.wait(LIMIT_S)
            return add(link, 2.0)

        assert together([partial(add, links[0], 1.0), late]) == [3.0, 3.0]


def news_end_every_wait() -> None:
    """Members wait for a silent one until the news; then they go on without it, at once."""
    for make in MAKERS:
        members = seats(make, 3)
        links = connect(members)
        waits = [threading.Event(), threading.Event()]
        for seat, event in zip(members, waits, strict=False):
            seat.waiting.on_wait = lambda _, event=event: event.set()

        def news(members: list[Seat] = members, waits: list[threading.Event] = waits) -> None:
            for seat, event in zip(members, waits, strict=False):
                assert event.wait(LIMIT_S)
                seat.interrupt.set()

        first, second, _ = together([partial(add_often, link) for link in links[:2]] + [news])
        assert isinstance(first, RoundOver), first
        assert isinstance(second, RoundOver), second
        for seat, link in zip(members[:2], links, strict=False):
            assert link.works, "nothing is under way"
            seat.groups.abandon(link.works)
        links = connect(members[:2], number=2)
        assert together([partial(add, link, 1.0) for link in links]) == [2.0, 2.0]


def news_end_the_making_of_a_group() -> None:
    """A member that never comes to the round does not hold up the one that has come."""
    for make in MAKERS:
        seat = seats(make, 1)[0]
        keys = MemoryKeys()
        reported = threading.Event()
        seat.waiting.on_wait = lambda _, event=reported: event.set()

        def news(seat: Seat = seat, reported: threading.Event = reported) -> None:
            assert reported.wait(LIMIT_S)
            seat.interrupt.set()

        made, _ = together([partial(seat.link, 1, 0, 2, keys), news])
        assert isinstance(made, RoundOver), made
        keys.end()
        seat.groups.abandon([])
        links = connect([seat, *seats(make, 1)], number=2)
        assert together([partial(add, link, 1.0) for link in links]) == [2.0, 2.0]


def a_closed_member_is_missed_at_once() -> None:
    """The sum that waits for it fails, without any news."""
    for make in MAKERS:
        members = seats(make, 2)
        links = connect(members)

        def leave(seat: Seat = members[1], link: GroupLink = links[1]) -> None:
            link.close()
            seat.groups.abandon(link.works)
            seat.groups.close()

        error, _ = together([partial(add, links[0], 1.0), leave])
        assert isinstance(error, RoundOver), error


def abandoned_sums_do_not_reach_later_gradients() -> None:
    """A frozen member that goes on completes the sum that the others have left behind."""
    for make in MAKERS:
        members = seats(make, 2)
        links = connect(members)
        model = torch.nn.Linear(3, 2).to(DEVICE)
        buckets = GradientBuckets(model.named_parameters(), 4)
        reported = threading.Event()
        members[0].waiting.on_wait = lambda _, event=reported: event.set()

        def news(seat: Seat = members[0], reported: threading.Event = reported) -> None:
            assert reported.wait(LIMIT_S)
            seat.interrupt.set()

        def wait(link: GroupLink = links[0], buckets: GradientBuckets = buckets) -> None:
            link.wait_for(buckets.finish(link.begin_sum))

        error, _ = together([wait, news])
        assert isinstance(error, RoundOver), error
        (work,) = links[0].works
        assert links[0].has_pending
        buckets.move()
        links[1].wait_for([links[1].begin_sum(torch.ones(3 * 2 + 2 + 4, device=DEVICE))])
        assert until(work.is_completed)
        gradients = [parameter.grad for parameter in model.parameters()]
        assert all(gradient is not None and not gradient.any() for gradient in gradients)
        assert not buckets.tail.any()


def until(true: Callable[[], bool]) -> bool:
    """Whether something becomes true in time."""
    pause = threading.Event()
    return any(true() or pause.wait(0.01) for _ in range(int(LIMIT_S / 0.01)))


def payloads_are_gathered_in_order() -> None:
    """Short ones and long ones, of different lengths."""
    for make in MAKERS:
        links = connect(seats(make, 3))
        for payloads in ([b"a", b"", b"ccc"], [b"x" * 5_000, b"y", b"z" * 70_000]):
            calls = [partial(link.gather, own) for link, own in zip(links, payloads, strict=True)]
            assert together(calls) == [payloads] * 3


def arrays_are_broadcast() -> None:
    """With their types and shapes, empty ones too."""
    arrays = [np.arange(6.0).reshape(2, 3), np.zeros((0, 4), np.int16), np.array(7, np.int64)]
    for make in MAKERS:
        links = connect(seats(make, 3))
        calls: list[Callable[[], Any]] = [partial(link.receive, 1) for link in links]
        calls[1] = partial(links[1].broadcast, arrays, b"about", 1)
        for meta, received in together(calls):
            assert meta == b"about"
            assert [a.dtype for a in received] == [a.dtype for a in arrays]
            assert all(np.array_equal(a, b) for a, b in zip(received, arrays, strict=True))


def messages_do_not_follow_the_default_device() -> None:
    """A program may create all its tensors on a GPU; those of members' messages stay on the host."""
    for make in MAKERS:
        links = connect(seats(make, 2))

        def talk(link: GroupLink) -> list[bytes]:
            with torch.device("meta" if IS_CPU else DEVICE):
                link.barrier()
                link.broadcast([np.ones(2)] if link.rank == 0 else None, b"about", 0)
                return link.gather(bytes([link.rank]))

        assert together([partial(talk, link) for link in links]) == [[b"\0", b"\1"]] * 2


def states_go_to_those_that_lack_them() -> None:
    """Two newcomers get the state; the other members receive nothing."""
    arrays = [np.arange(1000.0), np.ones(3, np.int32)]
    for make in MAKERS:
        links = connect(seats(make, 4))
        answers = together([partial(link.hand_over, arrays, b"state", {2, 3}) for link in links])
        assert answers[:2] == [(b"", []), (b"", [])]
        for meta, received in answers[2:]:
            assert meta == b"state"
            assert all(np.array_equal(a, b) for a, b in zip(received, arrays, strict=True))


def torch_meets_over_the_keys() -> None:
    """A group of torch.distributed of two members needs nothing but the store."""
    keys = MemoryKeys()

    def meet(rank: int) -> float:
        store = MasterStore(keys)  # type: ignore[arg-type]
        prefixed = dist.PrefixStore("own", store)
        group = dist.ProcessGroupGloo(prefixed, rank, 2, timedelta(seconds=LIMIT_S))
        tensor = torch.ones(1)
        group.allreduce([tensor]).wait()
        return float(tensor[0])

    sums = together([partial(meet, 0), partial(meet, 1)])
    assert sums == [2.0, 2.0], sums


def the_store_is_as_torch_expects() -> None:
    """Texts and bytes, counters, several keys at once; what it lacks it says in a line."""
    store = MasterStore(MemoryKeys())  # type: ignore[arg-type]
    store.set("text", "words")
    store.set("bytes", b"\0\1")
    assert (store.get("text"), store.get("bytes")) == (b"words", b"\0\1")
    assert (store.add("count", 2), store.add("count", -3)) == (2, -1)
    assert (store.check(["text", "count"]), store.check(["text", "none"])) == (True, False)
    assert store.multi_get(["bytes", "text"]) == [b"\0\1", b"words"]
    store.wait(["text"])
    with pytest.raises(EdlError, match="have no append"):
        store.append("text", "more")
    assert store.compare_set("claimed", "", "one") == store.compare_set("claimed", "", "two")
    assert store.get("claimed") == b"one"
    with pytest.raises(EdlError, match="not replaced"):
        store.compare_set("claimed", "one", "two")
    with pytest.raises(EdlError, match="no keys yet"):
        MasterStore().get("text")


def other_addresses_are_refused() -> None:
    """An address that this machine does not have is named, with the variable that sets it."""
    for kind in KINDS:
        with pytest.raises(DataError, match=r"192\.0\.2\.7.*EDL_ADDRESS"):
            kind("192.0.2.7")


FACTS = (
    sums_are_of_all_members,
    a_late_member_is_waited_for,
    news_end_every_wait,
    news_end_the_making_of_a_group,
    a_closed_member_is_missed_at_once,
    abandoned_sums_do_not_reach_later_gradients,
    payloads_are_gathered_in_order,
    arrays_are_broadcast,
    messages_do_not_follow_the_default_device,
    states_go_to_those_that_lack_them,
    torch_meets_over_the_keys,
    the_store_is_as_torch_expects,
    other_addresses_are_refused,
)

if __name__ == "__main__":
    check(FACTS)
