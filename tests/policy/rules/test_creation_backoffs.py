"""Jobs in back-off: what they may still get, and what others get meanwhile."""

from dataclasses import replace

import pytest

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Reserve, Sizes
from policy.names import Tier
from policy.planning.creation_backoff import CreationBackoff
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    server,
    servers,
    trainer,
    trainers,
)

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 30), job("b", 1, 30)


def _plan(
    nodes: list[Node], jobs: list[Job], pods: list[Pod], backoff: CreationBackoff | None = None
) -> Plan:
    history = History(creation_backoffs={} if backoff is None else {_A.uid: backoff})
    return plan(cluster_state(nodes, jobs, pods), _FREE, NOW_S, history)


def _backoff(
    trainers: int,
    left_s: float = 5,
    error: str = "quota",
    *,
    partial: bool = False,
    since_s: float = 9,
) -> CreationBackoff:
    return CreationBackoff(3, NOW_S - since_s, NOW_S + left_s, trainers, error, partial)


def _created(new_plan: Plan, tier: Tier = Tier.SURPLUS) -> dict[str, int]:
    return {create.job: create.count for create in new_plan.creates if create.tier is tier}


def _reasons(new_plan: Plan) -> dict[str, Reason]:
    return {job_plan.key: job_plan.reason for job_plan in new_plan.jobs}


@pytest.mark.parametrize(
    ("backoff", "created", "reason"),
    [
        (_backoff(1), 0, Reason.REFUSED),
        (_backoff(1, left_s=0), 1, Reason.REFUSED),
        (_backoff(3), 2, Reason.REFUSED),
        (_backoff(1, error=""), 0, Reason.UNPLACED),
        (_backoff(1, left_s=0, error=""), 1, Reason.UNPLACED),
        (_backoff(3, error=""), 2, Reason.UNPLACED),
    ],
)
def test_surplus_in_back_off(backoff: CreationBackoff, created: int, reason: Reason) -> None:
    """Up to the number that worked before, then one after each pause; the rest is another's."""
    pods = [*trainers(_A, ["n0"]), *trainers(_B, ["n0"])]
    new_plan = _plan([node("n0", 40)], [_A, _B], pods, backoff)

    assert _created(new_plan).get("ml/a", 0) == created
    assert _created(new_plan)["ml/b"] == 6 - created
    assert _reasons(new_plan)["ml/a"] is reason
    assert new_plan.creation_backoffs == {_A.uid: backoff}


def test_only_one_trainer_is_tried_at_a_time() -> None:
    """As long as it waits for a node."""
    pods = [*trainers(_A, ["n0"]), trainer(_A, 1, created_s=NOW_S - 1)]
    new_plan = _plan([node("n0", 40)], [_A], pods, _backoff(1, left_s=-1, error=""))

    assert new_plan.empty


def test_trainers_with_scheduling_gates_stay_and_keep_no_room() -> None:
    """However long they wait; the job gets no more of them, and another has the room."""
    gated = [replace(trainer(_A, n, created_s=NOW_S - 900), gated=True) for n in (1, 2)]
    pods = [*trainers(_A, ["n0"]), *gated, *trainers(_B, ["n0"])]
    new_plan = _plan([node("n0", 40)], [_A, _B], pods)

    assert _created(new_plan) == {"ml/b": 6}
    assert new_plan.releases == ()
    assert _reasons(new_plan)["ml/a"] is Reason.GATED


@pytest.mark.parametrize("partial", [True, False])
def test_a_minimum_that_is_refused_keeps_no_room(*, partial: bool) -> None:
    """Another job may have all; after the pause it is tried again, and whole."""
    large = replace(_A, min_trainers=8)
    pods = trainers(_B, ["n0"])
    paused = _plan([node("n0", 40)], [large, _B], pods, _backoff(0, partial=partial))
    due = _plan([node("n0", 45)], [large, _B], pods, _backoff(0, 0, partial=partial))

    assert _created(paused)["ml/b"] == 7
    assert _reasons(paused)["ml/a"] is Reason.REFUSED
    assert _created(due, Tier.GUARANTEED) == {"ml/a": 8}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"refusal": "quota"}, Reason.REFUSED), ({"unprobed": True}, Reason.CHECKING)],
)
def test_a_job_is_not_started_before_the_api_server_would_take_it(
    fields: dict[str, object], reason: Reason
) -> None:
    """It keeps no room meanwhile."""
    held = replace(_A, **fields)  # type: ignore[arg-type]
    new_plan = _plan([node("n0", 20)], [held, _B], [])

    assert {create.job for create in new_plan.creates} == {"ml/b"}
    assert _reasons(new_plan)["ml/a"] is reason


def test_a_partial_start_is_taken_back_with_its_servers() -> None:
    """Trainers at once, servers after the last of them; a job that has its minimum keeps all."""
    large = replace(_A, min_trainers=3, servers=servers())
    started = trainers(large, ["n0", "n0"])
    shards = [server(large, index, "n0") for index in range(2)]
    backoff = _backoff(0, partial=True)
    first = _plan([node("n0", 40)], [large], [*started, *shards], backoff)
    second = _plan([node("n0", 40)], [large], shards, backoff)
    whole = [*trainers(large, ["n0"] * 3), *shards]
    kept = _plan([node("n0", 40)], [large], whole, replace(backoff, partial=False))

    assert [release.reason for release in first.releases] == [Reason.START_REFUSED] * 2
    assert "quota" in first.releases[0].detail
    assert first.server_releases == ()
    assert [release.pod for release in second.server_releases] == ["a-ps-0", "a-ps-1"]
    assert (kept.releases, kept.server_releases) == ((), ())


def _stuck(count: int, waited_s: float = 4, first: int = 1) -> list[Pod]:
    return [trainer(_A, first + i, created_s=NOW_S - waited_s, refused=True) for i in range(count)]


def test_trainers_that_kube_scheduler_cannot_place_do_not_stop_others() -> None:
    """They count for their own job alone."""
    pods = [*trainers(_A, ["n0"]), *_stuck(8), *trainers(_B, ["n0"])]
    new_plan = _plan([node("n0", 100)], [_A, _B], pods)

    assert _created(new_plan) == {"ml/b": 8}
    assert _reasons(new_plan)["ml/a"] is Reason.GROWING


def test_a_job_with_many_trainers_without_a_node_gets_no_more() -> None:
    """As many of its own may wait as of all jobs together."""
    new_plan = _plan([node("n0", 100)], [_A], [*trainers(_A, ["n0"]), *_stuck(8)])

    assert new_plan.empty
    assert _reasons(new_plan) == {"ml/a": Reason.GROWING}


def test_a_withdrawn_trainer_that_had_room_backs_its_job_off() -> None:
    """Trainers of one try count once; those of the next try count again."""
    pods = [*trainers(_A, ["n0"]), *_stuck(3, waited_s=6), *_stuck(1, waited_s=8, first=4)]
    first = _plan([node("n0", 100)], [_A], pods)
    again = _plan([node("n0", 100)], [_A], pods, _backoff(1, error=""))
    later = replace(_backoff(1, error=""), last_s=NOW_S - 7)
    once = _plan([node("n0", 100)], [_A], pods, later)

    (backoff,) = first.creation_backoffs.values()
    assert [release.reason for release in first.releases] == [Reason.NOT_SCHEDULED] * 4
    assert (backoff.failures, backoff.trainers, backoff.until_s) == (1, 1, NOW_S + 10)
    assert again.creation_backoffs[_A.uid].failures == 4
    assert once.creation_backoffs[_A.uid].failures == 4
    assert _created(first) == {}


def test_a_trainer_that_kube_scheduler_has_not_tried_backs_nothing_off() -> None:
    """It is away or slow; a job cannot help that."""
    waiting = trainer(_A, 1, created_s=NOW_S - 13)
    new_plan = _plan([node("n0", 100)], [_A], [*trainers(_A, ["n0"]), waiting])

    assert [release.reason for release in new_plan.releases] == [Reason.NOT_SCHEDULED]
    assert new_plan.creation_backoffs == {}


@pytest.mark.parametrize("error", ["quota", ""])
def test_trainers_between_two_sizes_do_not_end_a_back_off(error: str) -> None:
    """They go, the pause counts them, and the size below it is held back no less."""
    sizes = _FREE.model_copy(update={"sizes": (Sizes(step=4),)})
    four, history = replace(_A, min_trainers=4), History(creation_backoffs={_A.uid: _backoff(6)})
    between = cluster_state([node("n0", 100)], [four], trainers(four, ["n0"] * 6))
    at_size = cluster_state([node("n0", 100)], [four], trainers(four, ["n0"] * 4))
    first = plan(between, sizes, NOW_S, history)
    backoff = replace(first.creation_backoffs[_A.uid], error=error)
    second = plan(at_size, sizes, NOW_S, History(creation_backoffs={_A.uid: backoff}))

    assert [release.reason for release in first.releases] == [Reason.SIZE_NOT_ALLOWED] * 2
    assert backoff.until_s == NOW_S - 9 + 2 * 30
    assert second.empty


def test_while_kube_scheduler_places_others_of_a_job_it_is_only_slow() -> None:
    """No back-off; the trainer is created again."""
    placed = replace(trainer(_A, 9, "n0"), started_s=NOW_S - 1)
    pods = [*trainers(_A, ["n0"]), placed, *_stuck(1, waited_s=6)]
    new_plan = _plan([node("n0", 100)], [_A], pods)

    assert len(new_plan.releases) == 1
    assert new_plan.creation_backoffs == {}


def test_a_job_in_back_off_gets_one_trainer_of_another() -> None:
    """Its share is less, but whether more can work is tried with one."""
    pods = [*trainers(_A, ["n0"]), *trainers(_B, ["n0"] * 29)]
    many = _FREE.model_copy(
        update={"stability": _FREE.stability.model_copy(update={"max_moves": 0.5})}
    )
    cluster = cluster_state([node("n0", 150)], [_A, _B], pods)
    history = History(creation_backoffs={_A.uid: _backoff(1, left_s=0, since_s=40)})

    assert len(plan(cluster, many, NOW_S, History()).releases) > 1
    assert len(plan(cluster, many, NOW_S, history).releases) == 1


@pytest.mark.parametrize("error", ["quota", ""])
@pytest.mark.parametrize(("trainers_before", "released"), [(1, 0), (2, 1)])
def test_a_try_rarely_costs_another_job_a_trainer(
    error: str, trainers_before: int, released: int
) -> None:
    """On a full cluster the room of a try has to come from another job, mostly in vain.

    A job that has fewer trainers than it had when its back-off began gets them back at once.
    """
    pods = [*trainers(_A, ["n0"]), *trainers(_B, ["n0"] * 29)]
    backoff = _backoff(trainers_before, left_s=0, error=error, since_s=39)
    new_plan = _plan([node("n0", 150)], [_A, _B], pods, backoff)

    assert len(new_plan.releases) == released
