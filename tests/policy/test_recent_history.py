"""What is remembered between plans, and for how long."""

from policy.cluster.snapshot import ANYWHERE
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.demand import DemandHistory, Period, of
from policy.planning.plan import FailedMove, MoveKey, Plan, Release
from policy.planning.recent_history import CoolDowns, PlacementPace, RecentHistory
from policy.reasons import Reason
from tests.support.builders import NOW_S, job

JOB = job("net")
MOVED = Release(JOB.key, "u", "ml", "p", "n1", Reason.FAIR_SHARE, {})


def test_a_node_cools_down_for_as_long_as_asked() -> None:
    """And no longer; a new start counts, whatever remained of the old one."""
    cool_downs = CoolDowns()
    cool_downs.start("n0", NOW_S, 5.0)

    assert cool_downs.cooling(NOW_S + 4) == {"n0": NOW_S + 5}
    cool_downs.start("n0", NOW_S + 4, 5.0)
    assert cool_downs.cooling(NOW_S + 8) == {"n0": NOW_S + 9}
    assert cool_downs.cooling(NOW_S + 9) == {}


def _pace(*placed: tuple[float, int]) -> PlacementPace:
    """Of plans at these seconds after `NOW_S`, and how many were placed since the one before."""
    pace = PlacementPace()
    for after_s, count in placed:
        pace.record(count, NOW_S + after_s)
    return pace


def test_half_as_many_again_as_are_placed_until_the_next_plan() -> None:
    """A second of plans 0.8 s apart has the placements of two of them: they count for 1.6 s."""
    pace = _pace((0.0, 9), (0.8, 60), (1.6, 60))

    assert pace.until_next_plan(NOW_S + 1.6) == 90


def test_the_pace_is_the_best_of_the_last_five_seconds() -> None:
    """A time without room says nothing about the scheduler; what is older does not count."""
    pace = _pace((0.0, 0), (0.5, 50), (1.0, 0), (3.0, 20), (3.5, 1))

    assert pace.until_next_plan(NOW_S + 3.5) == 75
    assert pace.until_next_plan(NOW_S + 5.2) == 7
    assert pace.until_next_plan(NOW_S + 9.0) == 0


def test_the_number_grows_while_the_scheduler_places_all_of_it() -> None:
    """From the usual eight on, by plans a third of a second apart."""
    pace, number = PlacementPace(), 8
    for index in range(20):
        pace.record(number, NOW_S + index / 3)
        number = max(8, pace.until_next_plan(NOW_S + index / 3))

    assert number > 100


def test_slow_and_fast_plans_have_bounds() -> None:
    """Plans in a row get as much as 0.3 s lets through, and one after a long time no more than a second's."""
    assert _pace((0.0, 0), (0.5, 10), (0.51, 0)).until_next_plan(NOW_S + 0.51) == 9
    assert _pace((0.0, 0), (0.5, 10), (4.0, 0)).until_next_plan(NOW_S + 4.0) == 30


def test_the_pace_starts_again_where_the_clock_goes_back() -> None:
    """What was counted in a future that did not come would otherwise stay for ever."""
    pace = _pace((999.0, 0), (1000.0, 50))

    assert pace.until_next_plan(NOW_S) == 0


def test_our_own_releases_cool_only_for_services() -> None:
    """A move between jobs must be able to use the node at once."""
    recent = RecentHistory()
    reclaimed = Release(JOB.key, "v", "ml", "q", "n2", Reason.SERVICES_FIRST, {})
    recent.record(Plan(releases=(MOVED, reclaimed)), NOW_S, 5.0)

    assert recent.history(NOW_S).cooling == {"n2": NOW_S + 5}


def test_how_often_a_service_was_helped_is_remembered_for_half_an_hour() -> None:
    """So that releases for one that does not come become rarer."""
    recent = RecentHistory()
    recent.record(Plan(reclaimed_for=frozenset({"u"})), NOW_S, 5.0)
    recent.record(Plan(reclaimed_for=frozenset({"u"})), NOW_S + 10, 5.0)

    assert recent.history(NOW_S + 1000).reclaimed_for == {"u": (2, NOW_S + 10)}
    assert recent.history(NOW_S + 1810).reclaimed_for == {}


def test_capacity_is_offered_from_the_first_plan_on_that_reserves_it() -> None:
    """As long as plans name the owner, and no fewer of its pods wait."""
    recent = RecentHistory()
    for after_s, offered in ((0, {"u": 2}), (5, {"u": 2, "v": 3}), (9, {"v": 4})):
        recent.record(Plan(offered=offered), NOW_S + after_s, 5.0)

    assert recent.history(NOW_S + 9).offered == {"v": (NOW_S + 5, 4)}
    recent.record(Plan(offered={"u": 2, "v": 3}), NOW_S + 10, 5.0)
    assert recent.history(NOW_S + 10).offered == {"u": (NOW_S + 10, 2), "v": (NOW_S + 10, 3)}


def test_a_move_that_failed_is_remembered_for_the_next_plan() -> None:
    """Else every plan would look at every node again for a job that cannot be helped."""
    recent = RecentHistory()
    key = MoveKey((("cpu", JOB.requests["cpu"]),), ANYWHERE, Reason.NO_ROOM, 1, 0.1, (), 0)
    failed = {key: FailedMove(NOW_S, 7)}
    recent.record(Plan(failed_moves=failed), NOW_S, 5.0)

    assert recent.history(NOW_S).failed_moves == failed


def test_how_long_a_job_is_short_of_capacity_is_remembered() -> None:
    """As long as every plan finds it short; then it begins anew."""
    recent = RecentHistory()
    for now_s in (NOW_S, NOW_S + 9):
        recent.record(Plan(short=frozenset({"j"})), now_s, 5.0)

    assert recent.history(NOW_S + 9).short_since == {"j": NOW_S}
    recent.record(Plan(), NOW_S + 10, 5.0)
    assert recent.history(NOW_S + 10).short_since == {}


def test_requests_for_nodes_in_vain_are_counted_once_each() -> None:
    """The pods of one request may need several plans to go; after two hours it is forgotten."""
    recent = RecentHistory()
    for now_s in (NOW_S, NOW_S + 1, NOW_S + 900):
        recent.record(Plan(gave_up=frozenset({"j"})), now_s, 5.0)

    assert recent.history(NOW_S + 1000).vain_requests == {"j": (2, NOW_S + 900)}
    assert recent.history(NOW_S + 900 + 7200).vain_requests == {}


def test_how_long_surplus_alone_uses_a_node_is_remembered() -> None:
    """As long as every plan finds it so."""
    recent = RecentHistory()
    for now_s in (NOW_S, NOW_S + 9):
        recent.record(Plan(unneeded=frozenset({"n0"})), now_s, 5.0)

    assert recent.history(NOW_S + 9).unneeded_since == {"n0": NOW_S}
    recent.record(Plan(), NOW_S + 10, 5.0)
    assert recent.history(NOW_S + 10).unneeded_since == {}


def test_refusals_back_a_job_off_until_a_creation_succeeds() -> None:
    """A success says nothing about trainers that got no node."""
    recent = RecentHistory()
    recent.record_creation("u", "quota", trainers=2, in_vain=0, now_s=NOW_S)
    refused = recent.history(NOW_S).creation_backoffs
    recent.record_creation("u", "", trainers=3, in_vain=0, now_s=NOW_S)
    recent.record_creation("v", "", trainers=3, in_vain=0, now_s=NOW_S)

    assert refused["u"].error == "quota"
    assert recent.history(NOW_S).creation_backoffs == {}
    unplaced = {"w": CreationBackoff(1, NOW_S, NOW_S + 10, 2)}
    recent.record(Plan(creation_backoffs=unplaced), NOW_S, 5.0)
    recent.record_creation("w", "", trainers=3, in_vain=0, now_s=NOW_S)
    assert recent.history(NOW_S).creation_backoffs == unplaced


def test_what_could_not_be_created_was_not_taken() -> None:
    """Others gave nothing for it; what was taken before stays, and other jobs' counts do."""
    demands = {
        uid: DemandHistory(of(job(uid)), 0.0, (Period(NOW_S, changes=2, gains=gains),))
        for uid, gains in (("u", 7), ("v", 3))
    }
    recent = RecentHistory()
    recent.record(Plan(demands=demands, gains={"u": 5, "v": 3}), NOW_S, 5.0)
    recent.cancel_gains("u")
    recent.cancel_gains("unknown")

    kept = recent.history(NOW_S).demands
    assert {uid: kept[uid].gains for uid in kept} == {"u": 2, "v": 3}


def test_moved_trainers_are_remembered_for_the_next_plan() -> None:
    """As the plan returned them: it drops those that are gone."""
    recent = RecentHistory()
    recent.record(Plan(moved=frozenset({"a"})), NOW_S, 5.0)

    assert recent.history(NOW_S).moved == {"a"}


def test_releases_for_a_quota_are_counted_for_two_hours() -> None:
    """By number and time of the last, so that they become rarer."""
    recent = RecentHistory()
    recent.record(Plan(quota_reliefs=frozenset({"a"})), NOW_S, 5.0)
    recent.record(Plan(quota_reliefs=frozenset({"a"})), NOW_S + 1, 5.0)

    assert recent.history(NOW_S + 7200).quota_reliefs == {"a": (2, NOW_S + 1)}
    assert recent.history(NOW_S + 7201).quota_reliefs == {}
