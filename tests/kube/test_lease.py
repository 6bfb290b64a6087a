"""Leader election as one elector sees it, by a clock that is set by hand."""

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from kube import errors, request
from kube.api import Api, Stream
from kube.lease import RETRY_S, Elector, Lease, LeaseAction, decide
from kube.request import LEASES, Request
from lab.fake_api import FakeApi


def lease(holder: str) -> Lease:
    """A lease of 15 s."""
    return Lease(holder, 15.0, "", "", 0, "1")


@pytest.mark.parametrize(
    ("observed", "now_s", "expected"),
    [
        (None, 100.0, LeaseAction.CREATE),
        (lease("me"), 100.0, LeaseAction.RENEW),
        (lease("me"), 999.0, LeaseAction.RENEW),
        (lease(""), 100.0, LeaseAction.ACQUIRE),
        (lease("other"), 114.9, LeaseAction.WAIT),
        (lease("other"), 115.0, LeaseAction.ACQUIRE),
    ],
)
def test_what_to_do_about_a_lease(
    observed: Lease | None, now_s: float, expected: LeaseAction
) -> None:
    """Another's lease is acquired only after its whole duration without an observed change."""
    assert decide(observed, "me", observed_s=100.0, now_s=now_s) is expected


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


def elector(api: Api, identity: str, clock_s: Clock) -> Elector:
    """Creates one of several electors for the same lease."""
    wall = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    return Elector(api, "edl-system", "reconciler", identity, clock_s=clock_s, wall=lambda: wall)


def spec_of(fake: FakeApi) -> Any:
    """The lease as the server has it."""
    return orjson.loads(fake.send(request.get(LEASES, "edl-system", "reconciler")))["spec"]


def test_the_first_one_leads_and_says_so(fake: FakeApi, clock_s: Clock) -> None:
    """The lease carries what people and other electors read."""
    first = elector(fake, "one", clock_s)
    assert not first.is_leader
    first.tick()

    assert first.is_leader
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
    times: list[tuple[str, str]] = []
    for act in (both[0].tick, both[0].tick, both[0].release, both[1].tick):
        act()
        spec = spec_of(fake)
        times.append((spec["acquireTime"][17:19], spec["renewTime"][17:19]))

    assert times == [("00", "00"), ("00", "01"), ("00", "02"), ("03", "03")]
    assert spec_of(fake)["leaseTransitions"] == 1


def test_who_must_not_lead_gives_the_lease_up_and_takes_none(fake: FakeApi, clock_s: Clock) -> None:
    """Another takes it at once; the first may take it again when it may lead again."""
    asked: list[bool] = []
    may_lead = [True]

    def may(leads: bool) -> bool:
        asked.append(leads)
        return may_lead[0]

    first = Elector(*(fake, "edl-system", "reconciler", "one"), clock_s=clock_s, may_lead=may)
    second = elector(fake, "two", clock_s)
    first.tick()
    may_lead[0] = False
    first.tick()
    gave_up = not first.is_leader
    first.tick()
    second.tick()
    took = second.is_leader
    second.release()
    may_lead[0] = True
    first.tick()

    assert (gave_up, took, first.is_leader) == (True, True, True)
    assert asked == [False, True, False, False]


@pytest.mark.parametrize(
    ("error", "age_s"),
    [
        (errors.Unavailable("no answer in time"), 12.0),
        (errors.TooManyRequests("slow down", status=429), 0.0),
        (errors.Forbidden("no", status=403), 0.0),
    ],
)
def test_the_age_of_the_last_answer_counts_refusals_as_answers(
    fake: FakeApi, clock_s: Clock, error: errors.KubeError, age_s: float
) -> None:
    """Only silence is none."""
    first = elector(fake, "one", clock_s)
    first.tick()
    fake.faults.fail_next(error, count=2)
    for _ in range(2):
        clock_s.now_s += 6
        first.tick()

    assert first.answer_age_s == age_s


def test_who_must_not_lead_still_asks_for_the_lease(fake: FakeApi, clock_s: Clock) -> None:
    """So the age of the last answer says something of the API server, not of this process."""
    mute = Elector(
        *(fake, "edl-system", "reconciler", "one"), clock_s=clock_s, may_lead=lambda _: False
    )
    clock_s.now_s += 60
    before_s = mute.answer_age_s
    elector(fake, "two", clock_s).tick()
    mute.tick()

    assert (before_s, mute.answer_age_s) == (60.0, 0.0)
    assert not mute.is_leader


def test_every_change_of_holder_is_counted(fake: FakeApi, clock_s: Clock) -> None:
    """Counted from the value in the lease."""
    for number, name in enumerate(("one", "two", "third")):
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
    manual_lease = {"metadata": {"name": "reconciler"}, "spec": {"holderIdentity": "hand"}}
    fake.send(request.create(LEASES, "edl-system", manual_lease))
    first = elector(fake, "one", clock_s)
    first.tick()
    clock_s.now_s += 14.9
    first.tick()
    assert not first.is_leader

    clock_s.now_s += 0.1
    first.tick()
    assert first.is_leader


def test_a_renewal_is_one_request(fake: FakeApi, clock_s: Clock) -> None:
    """The version is known from the last answer."""
    leader = elector(fake, "one", clock_s)
    leader.tick()
    reads: list[Request] = []

    def is_read(api_request: Request) -> bool:
        reads.extend([api_request] if api_request.method == "GET" else [])
        return False

    fake.faults.fail_next(errors.Unavailable("never"), match=is_read)
    clock_s.now_s += 9
    leader.tick()
    clock_s.now_s += 9

    assert leader.is_leader
    assert reads == []


def test_a_leader_that_cannot_renew_steps_down_first(fake: FakeApi, clock_s: Clock) -> None:
    """Ten seconds after its last renewal, five before anybody may take over."""
    first, second = elector(fake, "one", clock_s), elector(fake, "two", clock_s)
    first.tick()
    second.tick()
    fake.faults.fail_next(errors.Unavailable("down"), count=99)
    clock_s.now_s += 9.9
    first.tick()
    assert first.is_leader
    clock_s.now_s += 0.1
    assert not first.is_leader
    first.tick()
    fake.faults.clear()
    clock_s.now_s += 4.9
    second.tick()
    assert not second.is_leader

    clock_s.now_s += 0.1
    second.tick()
    assert (second.is_leader, first.is_leader) == (True, False)
    assert spec_of(fake)["leaseTransitions"] == 1


def test_a_late_answer_does_not_make_a_leader(fake: FakeApi, clock_s: Clock) -> None:
    """The lease counts from when the renewal was sent, not from when its answer came."""

    class Late:
        def send(self, api_request: Request) -> bytes:
            answer = fake.send(api_request)
            clock_s.now_s += 11
            return answer

        def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    late = elector(Late(), "one", clock_s)
    late.tick()

    assert spec_of(fake)["holderIdentity"] == "one"
    assert not late.is_leader


def test_one_hung_request_does_not_cost_the_leadership(fake: FakeApi, clock_s: Clock) -> None:
    """It times out so early that a second attempt still renews in time."""

    class HangsOnce:
        hangs = False

        def send(self, api_request: Request) -> bytes:
            if self.hangs:
                self.hangs = False
                clock_s.now_s += api_request.timeout_s
                raise errors.Unavailable("timed out")
            return fake.send(api_request)

        def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    api = HangsOnce()
    leader = elector(api, "one", clock_s)
    leader.tick()
    api.hangs = True
    for _ in range(2):
        clock_s.now_s += RETRY_S
        leader.tick()
        assert leader.is_leader


def test_a_released_lease_is_taken_at_once(fake: FakeApi, clock_s: Clock) -> None:
    """A clean stop clears the holder, but only of the process's own lease."""
    first, second = elector(fake, "one", clock_s), elector(fake, "two", clock_s)
    first.tick()
    second.tick()
    second.stop()
    assert spec_of(fake)["holderIdentity"] == "one"
    first.stop()

    assert "holderIdentity" not in spec_of(fake)
    assert spec_of(fake)["leaseDurationSeconds"] == 1  # for electors that look at this first
    third = elector(fake, "three", clock_s)
    third.tick()
    assert (first.is_leader, third.is_leader) == (False, True)


def test_a_release_that_fails_is_not_fatal(fake: FakeApi, clock_s: Clock) -> None:
    """The lease runs out by itself then."""
    leader = elector(fake, "one", clock_s)
    leader.tick()
    fake.faults.fail_next(errors.Unavailable("down"))
    leader.release()

    assert not leader.is_leader
    assert spec_of(fake)["holderIdentity"] == "one"


def test_who_sees_another_holder_stops_leading(
    fake: FakeApi, clock_s: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease may be edited manually; each change of the lead is one line of the log."""
    caplog.set_level("INFO", "kube.lease")
    leader = elector(fake, "one", clock_s)
    leader.tick()
    stolen = {"spec": {"holderIdentity": "hand"}}
    fake.send(request.merge_patch(LEASES, "edl-system", "reconciler", stolen))
    leader.tick()
    leader.tick()

    assert not leader.is_leader
    assert caplog.messages == ["leading", "no longer leading"]


def test_a_garbled_answer_is_a_failed_try(fake: FakeApi, clock_s: Clock) -> None:
    """The next try is due as usual."""

    class Garbled:
        def send(self, api_request: Request) -> bytes:
            fake.send(api_request)
            return b"<html>"

        def stream(self, watch_request: Request) -> AbstractContextManager[Stream]:
            raise NotImplementedError

    candidate = elector(Garbled(), "one", clock_s)
    fake.send(request.create(LEASES, "edl-system", {"metadata": {"name": "reconciler"}}))
    candidate.tick()

    assert not candidate.is_leader


def test_a_lease_deleted_by_hand_is_made_again(fake: FakeApi, clock_s: Clock) -> None:
    """The renewal finds nothing, the next try creates it."""
    leader = elector(fake, "one", clock_s)
    leader.tick()
    fake.send(request.delete(LEASES, "edl-system", "reconciler"))
    leader.tick()
    leader.tick()

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
