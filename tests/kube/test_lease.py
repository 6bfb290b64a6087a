"""Leader election: never two, and one again soon."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import errors, request
from kube.client import Api, Stream
from kube.fake import FakeApi
from kube.lease import RETRY_S, Elector, Lease, Step, decide
from kube.request import LEASES, Request


def lease(holder: str) -> Lease:
    """A lease of 15 s."""
    return Lease(holder, 15.0, "", "", 0, "1")


@pytest.mark.parametrize(
    ("found", "now_s", "expected"),
    [
        (None, 100.0, Step.CREATE),
        (lease("me"), 100.0, Step.RENEW),
        (lease("me"), 999.0, Step.RENEW),
        (lease(""), 100.0, Step.TAKE),
        (lease("other"), 114.9, Step.WAIT),
        (lease("other"), 115.0, Step.TAKE),
    ],
)
def test_what_to_do_about_a_lease(found: Lease | None, now_s: float, expected: Step) -> None:
    """Somebody else's is taken only after its whole time without a change, as observed here."""
    assert decide(found, "me", observed_s=100.0, now_s=now_s) is expected


LIMIT_S = 60.0
"""Ends a hang, and nothing else."""
PAUSES_S = (0.0, 0.0, 1.0, 5.0, 9.0, 14.0, 16.0, 40.0)


class World:
    """Electors on one server, held up wherever a process can be: before and after each request.

    A script of numbers says what happens; when it is used up, nothing bad happens any more.
    """

    def __init__(self, script: bytes, count: int) -> None:
        self.now_s = 0.0
        self.fake = FakeApi()
        self.script = list(script)
        self.busy: list[int] = []
        self.electors = [self._elector(index) for index in range(count)]

    def _elector(self, index: int) -> Elector:
        api = Paused(self)
        offset_s = 1000.0 * index  # monotonic clocks have nothing to do with each other
        return Elector(api, "n", "l", f"e{index}", clock_s=lambda: self.now_s + offset_s)

    def choose(self, count: int) -> int:
        """The script's next word, 0 to count - 1; 0 at its end."""
        return self.script.pop() % count if self.script else 0

    def tick(self, index: int) -> None:
        """One try of one elector, unless it is in the middle of one."""
        if index in self.busy:
            return
        self.busy.append(index)
        self.electors[index].tick()
        self.busy.remove(index)
        self.check()

    def pause(self) -> None:
        """Time passes, and others may have their turn."""
        for _ in range(1 + self.choose(4)):
            self.now_s += PAUSES_S[self.choose(len(PAUSES_S))]
            self.check()
            if self.choose(2):
                self.tick(self.choose(len(self.electors)))

    def check(self) -> None:
        """The one thing that must never happen."""
        assert sum(elector.is_leader for elector in self.electors) <= 1


class Paused:
    """A way to the server on which a process can be held up."""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, asked: Request) -> bytes:
        """As the fake does, late; now and then the answer gets lost."""
        self._world.pause()
        answer = self._world.fake.send(asked)
        self._world.pause()
        if self._world.choose(6) == 1:
            raise errors.Unavailable("lost")
        return answer

    def stream(self, asked: Request) -> AbstractContextManager[Stream]:
        """Leases are not watched."""
        raise NotImplementedError


@settings(deadline=None)
@given(st.binary(min_size=40, max_size=200))
def test_never_two_leaders(script: bytes) -> None:
    """Under any pauses, lost answers, releases and turns; and calm gives exactly one again."""
    world = World(script, count=3)
    while world.script:
        index = world.choose(3)
        world.tick(index)
        if world.choose(8) == 1:
            world.electors[index].release()
        world.pause()
    for _ in range(12):
        world.now_s += 2.0
        for index in range(3):
            world.tick(index)

    assert sum(elector.is_leader for elector in world.electors) == 1


class Clock:
    """A monotonic clock set by hand."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


@pytest.fixture
def clock_s() -> Clock:
    """Time stands still until moved."""
    return Clock()


@pytest.fixture
def fake() -> FakeApi:
    """An empty cluster."""
    return FakeApi()


def elector(api: Api, identity: str, clock_s: Clock) -> Elector:
    """One of several for the same lease."""
    wall = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    return Elector(api, "edl-system", "reconciler", identity, clock_s=clock_s, wall=lambda: wall)


def spec_of(fake: FakeApi) -> Any:
    """The lease as the server has it."""
    return orjson.loads(fake.send(request.get(LEASES, "edl-system", "reconciler")))["spec"]


def test_the_first_one_leads_and_says_so(fake: FakeApi, clock_s: Clock) -> None:
    """The lease carries what people and other electors read."""
    one = elector(fake, "one", clock_s)
    assert (one.is_leader, one.holder) == (False, "")
    one.tick()

    assert (one.is_leader, one.holder) == (True, "one")
    assert spec_of(fake) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T03:04:05.000006Z",
        "renewTime": "2026-01-02T03:04:05.000006Z",
        "leaseTransitions": 0,
    }


def test_people_see_since_when_who_leads(fake: FakeApi, clock_s: Clock) -> None:
    """A renewal moves the one time only, a new holder both; a release ends the last."""
    now = [datetime(2026, 1, 2, 3, 4, minute, tzinfo=UTC) for minute in range(4)]
    wall = iter(now)
    both = [
        Elector(fake, "edl-system", "reconciler", name, clock_s=clock_s, wall=lambda: next(wall))
        for name in ("one", "two")
    ]
    seen: list[tuple[str, str]] = []
    for act in (both[0].tick, both[0].tick, both[0].release, both[1].tick):
        act()
        spec = spec_of(fake)
        seen.append((spec["acquireTime"][17:19], spec["renewTime"][17:19]))

    assert seen == [("00", "00"), ("00", "01"), ("00", "02"), ("03", "03")]
    assert spec_of(fake)["leaseTransitions"] == 1


def test_every_change_of_holder_is_counted(fake: FakeApi, clock_s: Clock) -> None:
    """On from what the lease says, whoever wrote it."""
    for number, name in enumerate(("one", "two", "three")):
        leader = elector(fake, name, clock_s)
        leader.tick()
        assert spec_of(fake)["leaseTransitions"] == number
        leader.release()


def test_a_lease_lasts_whole_seconds(fake: FakeApi, clock_s: Clock) -> None:
    """Rounded up: the others wait at least as long as was asked for."""
    Elector(fake, "edl-system", "reconciler", "one", lease_s=15.2, clock_s=clock_s).tick()

    assert spec_of(fake)["leaseDurationSeconds"] == 16


def test_a_lease_that_names_no_time_lasts_as_long_as_ours(fake: FakeApi, clock_s: Clock) -> None:
    """Made by hand, or by another program."""
    made = {"metadata": {"name": "reconciler"}, "spec": {"holderIdentity": "hand"}}
    fake.send(request.create(LEASES, "edl-system", made))
    one = elector(fake, "one", clock_s)
    one.tick()
    clock_s.now_s += 14.9
    one.tick()
    assert (one.is_leader, one.holder) == (False, "hand")

    clock_s.now_s += 0.1
    one.tick()
    assert one.is_leader


def test_tries_come_in_time(fake: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader renews every two seconds; those who wait come a little later, each by chance."""
    pauses: list[float] = []

    class Told(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 20:
                self.set()
            return True

    with monkeypatch.context() as patch:
        thread = SimpleNamespace(Event=Told, Thread=threading.Thread)
        patch.setattr("kube.lease.threading", thread)
        leads, waits = (Elector(fake, "n", "l", name) for name in ("a", "b"))
    taken: list[list[float]] = []
    for one in (leads, waits):
        one.start()
        wait_until_ended()
        taken.append(pauses.copy())
        pauses.clear()

    assert taken[0] == [2.0] * 20
    assert all(2.0 <= pause_s <= 2.4 for pause_s in taken[1])
    assert len(set(taken[1])) > 1


def test_a_renewal_is_one_request(fake: FakeApi, clock_s: Clock) -> None:
    """The version is known from the last answer."""
    one = elector(fake, "one", clock_s)
    one.tick()
    reads: list[Request] = []

    def is_read(asked: Request) -> bool:
        reads.extend([asked] if asked.method == "GET" else [])
        return False

    fake.faults.fail_next(errors.Unavailable("never"), match=is_read)
    clock_s.now_s += 9
    one.tick()
    clock_s.now_s += 9

    assert one.is_leader
    assert reads == []


def test_a_leader_that_cannot_renew_steps_down_first(fake: FakeApi, clock_s: Clock) -> None:
    """Ten seconds after its last renewal, five before anybody may take over."""
    one, two = elector(fake, "one", clock_s), elector(fake, "two", clock_s)
    one.tick()
    two.tick()
    fake.faults.fail_next(errors.Unavailable("down"), count=99)
    clock_s.now_s += 9.9
    one.tick()
    assert one.is_leader
    clock_s.now_s += 0.1
    assert not one.is_leader
    one.tick()
    fake.faults.clear()
    clock_s.now_s += 4.9
    two.tick()
    assert not two.is_leader

    clock_s.now_s += 0.1
    two.tick()
    assert (two.is_leader, one.is_leader) == (True, False)
    assert spec_of(fake)["leaseTransitions"] == 1


def test_a_late_answer_does_not_make_a_leader(fake: FakeApi, clock_s: Clock) -> None:
    """The lease counts from when the renewal was sent, not from when its answer came."""

    class Late:
        def send(self, asked: Request) -> bytes:
            answer = fake.send(asked)
            clock_s.now_s += 11
            return answer

        def stream(self, asked: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    one = elector(Late(), "one", clock_s)
    one.tick()

    assert spec_of(fake)["holderIdentity"] == "one"
    assert not one.is_leader


def test_one_hung_request_does_not_cost_the_leadership(fake: FakeApi, clock_s: Clock) -> None:
    """It is given up so early that a second try still renews in time: nobody stops working."""

    class HangsOnce:
        hangs = False

        def send(self, asked: Request) -> bytes:
            if self.hangs:
                self.hangs = False
                clock_s.now_s += asked.timeout_s
                raise errors.Unavailable("timed out")
            return fake.send(asked)

        def stream(self, asked: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    api = HangsOnce()
    one = elector(api, "one", clock_s)
    one.tick()
    api.hangs = True
    for _ in range(2):
        clock_s.now_s += RETRY_S
        one.tick()
        assert one.is_leader


def test_a_released_lease_is_taken_at_once(fake: FakeApi, clock_s: Clock) -> None:
    """A clean stop clears the holder; who did not hold it clears nothing."""
    one, two = elector(fake, "one", clock_s), elector(fake, "two", clock_s)
    one.tick()
    two.tick()
    two.stop()
    assert spec_of(fake)["holderIdentity"] == "one"
    one.stop()

    assert "holderIdentity" not in spec_of(fake)
    assert spec_of(fake)["leaseDurationSeconds"] == 1  # for electors that look at this first
    three = elector(fake, "three", clock_s)
    three.tick()
    assert (one.is_leader, three.is_leader) == (False, True)


def test_a_release_that_fails_is_not_fatal(fake: FakeApi, clock_s: Clock) -> None:
    """The lease runs out by itself then."""
    one = elector(fake, "one", clock_s)
    one.tick()
    fake.faults.fail_next(errors.Unavailable("down"))
    one.release()

    assert not one.is_leader
    assert spec_of(fake)["holderIdentity"] == "one"


def test_who_sees_another_holder_stops_leading(fake: FakeApi, clock_s: Clock) -> None:
    """Somebody may edit the lease by hand."""
    one = elector(fake, "one", clock_s)
    one.tick()
    stolen = {"spec": {"holderIdentity": "hand"}}
    fake.send(request.merge_patch(LEASES, "edl-system", "reconciler", stolen))
    one.tick()
    one.tick()

    assert not one.is_leader


def test_a_garbled_answer_is_a_failed_try(fake: FakeApi, clock_s: Clock) -> None:
    """The next try is due as usual."""

    class Garbled:
        def send(self, asked: Request) -> bytes:
            fake.send(asked)
            return b"<html>"

        def stream(self, asked: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    one = elector(Garbled(), "one", clock_s)
    fake.send(request.create(LEASES, "edl-system", {"metadata": {"name": "reconciler"}}))
    one.tick()

    assert not one.is_leader


def test_a_lease_deleted_by_hand_is_made_again(fake: FakeApi, clock_s: Clock) -> None:
    """The renewal finds nothing, the next try creates it."""
    one = elector(fake, "one", clock_s)
    one.tick()
    fake.send(request.delete(LEASES, "edl-system", "reconciler"))
    one.tick()
    one.tick()

    assert spec_of(fake)["holderIdentity"] == "one"


@pytest.mark.parametrize(
    ("retry_s", "renew_s", "lease_s"),
    [(0, 10, 15), (2, 15, 15), (10, 10, 15), (11, 10, 15), (0.1, 0.2, 0.9)],
)
def test_times_that_would_allow_two_leaders_are_refused(
    fake: FakeApi, retry_s: float, renew_s: float, lease_s: float
) -> None:
    """Renewals must end before the lease does, and tries before renewals."""
    with pytest.raises(ValueError, match="must hold"):
        Elector(fake, "n", "l", "i", retry_s=retry_s, renew_s=renew_s, lease_s=lease_s)


@pytest.fixture
def threads(fake: FakeApi) -> Iterator[tuple[Elector, Elector]]:
    """Two electors at work, with short times."""
    both = tuple(
        Elector(fake, "n", "l", name, retry_s=0.02, renew_s=0.5, lease_s=1.0) for name in "ab"
    )
    yield both[0], both[1]
    for one in both:
        one.stop()


def test_threads_hand_over(threads: tuple[Elector, Elector]) -> None:
    """One leads; when it stops, the other does, and no thread stays."""
    first, second = threads
    first.start()
    wait_until_leader(first)
    second.start()
    first.stop()
    wait_until_leader(second)

    assert not first.is_leader
    second.stop()
    assert not [t for t in threading.enumerate() if t.name == "leader-election"]


def test_a_stop_does_not_wait_for_a_hung_request() -> None:
    """Leadership ends at once; the lease is left to run out."""
    hung, reached = threading.Event(), threading.Event()

    class Hung:
        def send(self, _asked: Request) -> bytes:
            reached.set()
            hung.wait(LIMIT_S)
            raise errors.Unavailable("hung")

        def stream(self, asked: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    one = Elector(Hung(), "n", "l", "one", retry_s=0.01, renew_s=0.05, lease_s=1.0)
    one.start()
    assert reached.wait(LIMIT_S)
    one.stop()

    assert not one.is_leader
    hung.set()
    wait_until_ended()


def test_a_stop_sends_nothing_while_a_renewal_is_on_its_way(fake: FakeApi) -> None:
    """A second request would hang as the first does, and neither knows which of them counts."""
    hung, reached = threading.Event(), threading.Event()
    sent: list[str] = []

    class Hung:
        def send(self, asked: Request) -> bytes:
            sent.append(asked.method)
            if sent[2:] == ["PUT"]:
                reached.set()
                hung.wait(LIMIT_S)
            return fake.send(asked)

        def stream(self, asked: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    one = Elector(Hung(), "n", "l", "one", retry_s=0.01, renew_s=0.05, lease_s=1.0)
    one.tick()
    one.start()
    assert reached.wait(LIMIT_S)
    one.stop()
    by_the_stop = sent[3:]
    hung.set()
    wait_until_ended()

    assert sent[:3] == ["GET", "POST", "PUT"]
    assert by_the_stop == []


def wait_until_ended() -> None:
    """Fails by the test's timeout."""
    while any(thread.name == "leader-election" for thread in threading.enumerate()):
        time.sleep(0.005)


def wait_until_leader(elector: Elector) -> None:
    """Fails by the test's timeout."""
    while not elector.is_leader:
        time.sleep(0.005)
