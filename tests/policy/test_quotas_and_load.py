from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest

from policy.cluster.snapshot import Job
from policy.document.model import Policy, Reserve, Sizes, Window
from policy.document.queue_model import Quota
from policy.planning import sizes
from policy.planning.load import Load, active_window, load_limits
from policy.planning.quotas import Quotas
from tests.support.builders import cluster_state, job, node, servers, service, shape, trainers

_TOTAL = {"cpu": 100_000, "memory": 1_000}


def _window(start: str, end: str, **fields: object) -> Window:
    values = {"name": "w", "start": start, "end": end, "maxLoad": {"cpu": 0.5}} | fields
    return Window.model_validate(values)


def _at(day: int, clock: str, zone: str = "UTC") -> datetime:
    """A time in the week of Monday the 2nd of November 2026."""
    date = datetime(2026, 11, 1 + day, tzinfo=ZoneInfo(zone)).date()
    return datetime.combine(date, time.fromisoformat(clock), ZoneInfo(zone))


@pytest.mark.parametrize(
    ("window", "now", "inside"),
    [
        (_window("09:00", "17:00"), _at(1, "09:00"), True),
        (_window("09:00", "17:00"), _at(1, "16:59:59"), True),
        (_window("09:00", "17:00"), _at(1, "17:00"), False),
        (_window("09:00", "17:00"), _at(1, "08:59"), False),
        (_window("09:00", "17:00", days=["tue"]), _at(1, "12:00"), False),
        (_window("22:00", "06:00"), _at(1, "23:00"), True),
        (_window("22:00", "06:00"), _at(2, "05:59"), True),
        (_window("22:00", "06:00"), _at(2, "06:00"), False),
        (_window("22:00", "06:00", days=["mon"]), _at(2, "03:00"), True),
        (_window("22:00", "06:00", days=["mon"]), _at(1, "03:00"), False),
        (_window("22:00", "06:00", days=["sun"]), _at(1, "03:00"), True),
        (_window("08:00", "08:00"), _at(1, "03:00"), True),
        (_window("09:00", "17:00", timeZone="Asia/Shanghai"), _at(1, "01:30"), True),
        (_window("09:00", "17:00", timeZone="Asia/Shanghai"), _at(1, "09:30"), False),
        (
            _window("00:00", "06:00", days=["tue"], timeZone="Asia/Shanghai"),
            _at(1, "17:00"),
            True,
        ),
    ],
)
def test_windows_hold_in_their_own_time_zone(
    window: Window, now: datetime, *, inside: bool
) -> None:
    """A span past midnight belongs to the day it starts on."""
    active = active_window(Policy(windows=(window,)), now)

    assert active == (window if inside else None)


def test_the_first_window_that_holds_counts() -> None:
    """Windows may overlap."""
    first, second = _window("09:00", "12:00"), _window("08:00", "17:00", name="second")
    policy = Policy(windows=(first, second))

    assert active_window(policy, _at(1, "10:00")) is first
    assert active_window(policy, _at(1, "13:00")) is second


@pytest.mark.parametrize(
    ("reserve", "limits"),
    [
        (Reserve(), {"cpu": 97_000}),
        (Reserve(max_load={}), {}),
        (Reserve(max_load={"cpu": 0.5, "gpu": 0.5}), {"cpu": 50_000, "gpu": 0}),
        (Reserve(max_load={"cpu": 0.9}, headroom={"cpu": "20"}), {"cpu": 70_000}),
        (Reserve(max_load={}, headroom={"memory": "25%"}), {"memory": 750}),
        (Reserve(max_load={}, headroom={"cpu": "200"}), {"cpu": 0}),
    ],
)
def test_limits_are_load_less_headroom(reserve: Reserve, limits: dict[str, int]) -> None:
    """Amounts and shares of the cluster; never below nothing."""
    assert load_limits(Policy(reserve=reserve), _TOTAL, _at(1, "10:00")) == limits


def test_a_window_replaces_the_load_limit() -> None:
    """Inside it its own limits hold, with 0 for no surplus at all; the headroom stays."""
    policy = Policy(
        reserve=Reserve(headroom={"memory": "10%"}),
        windows=(_window("09:00", "17:00", maxLoad={"cpu": 0}),),
    )

    assert load_limits(policy, _TOTAL, _at(1, "10:00")) == {"cpu": 0, "memory": 900}
    assert load_limits(policy, _TOTAL, _at(1, "20:00")) == {"cpu": 97_000, "memory": 900}


def _quotas(*quotas: Quota, jobs: tuple[Job, ...] = ()) -> Quotas:
    pods = [pod for owner in jobs for pod in trainers(owner, ["n0"] * 2)]
    return Quotas(Policy(quotas=quotas), cluster_state([node("n0")], jobs, pods))


def test_quotas_count_the_trainers_there_are() -> None:
    """By queue or by namespace; other jobs do not matter."""
    covered, other = job("a", queue="night"), job("b", namespace="other", uid="b")
    by_queue = _quotas(Quota(queue="night", requests={"cpu": "20"}), jobs=(covered, other))
    by_namespace = _quotas(Quota(namespace="other", requests={"cpu": "10"}), jobs=(covered, other))

    assert by_queue.allow(covered, 2)
    assert not by_queue.allow(covered, 3)
    assert by_queue.allow(other, 1000)
    assert not by_namespace.allow(other)
    assert by_namespace.allow(covered, 1000)


def test_a_quota_below_what_is_there_is_overdrawn() -> None:
    """Only resources that the job asks for count."""
    covered = job("a", queue="night")

    assert _quotas(Quota(queue="night", requests={"cpu": "5"}), jobs=(covered,)).exceeded(covered)
    assert not _quotas(Quota(queue="night", requests={"cpu": "10"}), jobs=(covered,)).exceeded(
        covered
    )
    assert not _quotas(Quota(queue="night", requests={"gpu": "0"}), jobs=(covered,)).exceeded(
        covered
    )


def test_one_trainer_for_another_inside_a_quota() -> None:
    """A smaller trainer's going does not make room for a larger one; an outsider's for none."""
    small, large, outside = (
        job("a", cpu=2, queue="night"),
        job("b", cpu=5, queue="night"),
        job("c", cpu=9),
    )
    quotas = _quotas(Quota(queue="night", requests={"cpu": "4"}), jobs=(small,))

    assert quotas.relieves(large, 1, small)
    assert not quotas.relieves(large, 1, outside)
    assert not quotas.relieves(outside, 1, small)


@pytest.mark.parametrize(
    ("rule", "trainers_now", "upper", "lower"),
    [
        (None, 3, 4, 3),
        (None, 10, 10, 10),
        (None, 12, 12, 10),
        (Sizes(step=4), 4, 8, 4),
        (Sizes(step=4), 7, 8, 4),
        (Sizes(step=4), 3, 4, 2),
        (Sizes(step=4), 8, 8, 8),
        (Sizes(powers_of_two=True), 4, 8, 4),
        (Sizes(powers_of_two=True), 9, 9, 8),
        (Sizes(allowed=(3, 6, 50)), 3, 6, 3),
        (Sizes(allowed=(3, 6, 50)), 6, 6, 6),
        (Sizes(allowed=(3, 6, 50)), 2, 3, 2),
        (Sizes(allowed=(50,)), 5, 5, 2),
        (Sizes(allowed=(50,)), 1, 2, 1),
        (Sizes(namespaces=("other",), step=4), 3, 4, 3),
    ],
)
def test_allowed_sizes(rule: Sizes | None, trainers_now: int, upper: int, lower: int) -> None:
    """A job of 2 to 10: the next size up, or the same; the size to fall back to. Min is allowed."""
    policy = Policy(sizes=(rule,) if rule else ())
    elastic_job = job("a", 2, 10)

    assert sizes.next_size(policy, elastic_job, trainers_now) == upper
    assert sizes.floor_size(policy, elastic_job, trainers_now) == lower


def test_load_is_checked_resource_by_resource() -> None:
    """A limit binds those who ask for the resource; one without a limit is free."""
    load = Load({"cpu": 10_000}, {"cpu": 4_000})

    assert load.allow(shape(3), 2)
    assert not load.allow(shape(3), 3)
    assert load.allow(shape(memory=1_000))
    load.reserve(shape(6))
    assert not load.allow(shape(1))
    load.unreserve(shape(6))
    assert load.allow(shape(6))


def test_what_leaves_counts_now_and_not_later() -> None:
    """Growth waits until it is gone; the reserve does not ask for more to go meanwhile."""
    load = Load({"cpu": 10_000}, {"cpu": 12_000})
    assert load.exceeded() == ("cpu",)

    load.add_leaving(shape(5))

    assert load.exceeded() == ()
    assert not load.allow(shape(1))
    assert load.allow_later(shape(3), {})
    assert not load.allow_later(shape(4), {})
    assert load.allow_later(shape(4), shape(1))
    load.add_expected(shape(3))
    assert not load.allow_later(shape(1), {})


def test_what_is_expected_binds_those_that_come_first() -> None:
    """Nobody else takes load that a job was promised beyond what leaves."""
    load = Load({"cpu": 10_000}, {"cpu": 6_000})
    load.add_leaving(shape(2))
    load.add_expected(shape(5))

    assert load.allow(shape(1))
    assert not load.allow(shape(2))


def test_utc_is_what_windows_mean_by_default() -> None:
    """The time zone of a window is UTC unless given."""
    assert _window("09:00", "17:00").time_zone == "UTC"
    assert active_window(
        Policy(windows=(_window("09:00", "17:00"),)), datetime(2026, 11, 2, 9, tzinfo=UTC)
    )


def test_services_are_not_counted_in_quotas() -> None:
    """Only trainers are."""
    covered = job("a", queue="night")
    cluster = cluster_state([node("n0")], [covered], [service("s", where="n0", namespace="ml")])

    quotas = Quotas(Policy(quotas=(Quota(namespace="ml", requests={"cpu": "5"}),)), cluster)

    assert quotas.allow(covered)


def test_what_is_allowed_lacks_nothing() -> None:
    """Only a limit that is passed is named, with what is in use of it."""
    load = Load({"cpu": 10_000}, {"cpu": 6_000})

    assert not load.lack(shape(4), 1)
    assert load.lack(shape(4), 2)["resource"] == "cpu"


def test_what_servers_take_is_lacked_too() -> None:
    """A trainer and two servers beside it, where the quota has room for less."""
    served = job("j", 1, 1, cpu=1, servers=servers(2, 2))
    quotas = _quotas(Quota(namespace="ml", requests={"cpu": "9"}), jobs=(served,))  # 6 are in use

    assert not quotas.lack(served, 1, 1)
    assert quotas.lack(served, 1, 2)["short"] == "2"
