from dataclasses import replace
from typing import Any

import pytest

from policy.cluster.snapshot import Constraints, Job, Node, Pod, Requirement
from policy.document.model import Policy, Sizes
from policy.names import Tier
from policy.planning.plan import FailedMove, History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_A, _B = job("a", 1, 9), job("b", 1, 9)
_FULL = [node("n0", 30)]


def _policy(max_load: float | None = None, **stability: Any) -> Policy:
    return Policy.model_validate(
        {"reserve": {"maxLoad": {"cpu": max_load} if max_load else {}}, "stability": stability}
    )


def _plan(
    nodes: list[Node],
    jobs: list[Job],
    pods: list[Pod],
    policy: Policy | None = None,
    history: History | None = None,
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy or _policy(), NOW_S, history)


def _split(first: int, second: int, **fields: Any) -> list[Pod]:
    """Trainers of the two jobs on one node."""
    pods = [*trainers(_A, ["n0"] * first), *trainers(_B, ["n0"] * second)]
    return [replace(pod, **fields) for pod in pods]


@pytest.mark.parametrize(
    ("first", "second", "threshold", "moves"),
    [
        (5, 1, 0.1, True),
        (4, 2, 0.1, True),
        (3, 3, 0.1, False),
        (4, 3, 0.0, False),
        (4, 2, 1.0, True),
        (4, 2, 1.1, False),
        (2, 4, 0.1, True),
    ],
)
def test_trainers_move_for_a_clear_gain_only(
    first: int, second: int, threshold: float, *, moves: bool
) -> None:
    """The giver must stay at or above the taker, and have more by the threshold."""
    pods = _split(first, second)

    new_plan = _plan(
        [node("n0", 5 * (first + second))], [_A, _B], pods, _policy(gainThreshold=threshold)
    )

    assert [release.reason for release in new_plan.releases] == [Reason.FAIR_SHARE] * moves
    assert not new_plan.creates


def test_the_plan_says_between_whom() -> None:
    """With what each has."""
    new_plan = _plan(_FULL, [_A, _B], _split(5, 1))

    assert new_plan.releases[0].detail == (
        "ml/b has 1 trainer (share 0.1667); ml/a has 5 (share 0.8333)"
    )
    assert new_plan.releases[0].uid == "a-004"


def test_young_trainers_stay() -> None:
    """A trainer that has just begun is not moved, nor one whose start is not known yet."""
    assert _plan(_FULL, [_A, _B], _split(5, 1, started_s=NOW_S - 14.9)).empty
    assert _plan(_FULL, [_A, _B], _split(5, 1, started_s=0.0, created_s=NOW_S - 1)).empty
    assert not _plan(_FULL, [_A, _B], _split(5, 1, started_s=NOW_S - 15.0)).empty


def test_few_trainers_are_on_the_move_at_one_time() -> None:
    """A tenth of all, at least one; those that were moved and are leaving count, others do not."""
    a, b = job("a", 1, 40), job("b", 1, 40)
    pods = [*trainers(a, ["n0"] * 29), *trainers(b, ["n0"])]
    leaving = [trainer(a, 90 + i, "n0", deleting=True) for i in range(2)]

    new_plan = _plan([node("n0", 150)], [a, b], pods)
    moved = History(moved=frozenset(pod.uid for pod in leaving))
    fewer = _plan([node("n0", 160)], [a, b], [*pods, *leaving], history=moved)
    deleted = [trainer(job("c"), i, "n0", deleting=True) for i in range(9)]
    as_many = _plan([node("n0", 195)], [a, b], [*pods, *deleted])

    assert len(new_plan.releases) == 3
    assert len(fewer.releases) == 1
    assert len(as_many.releases) == 3


def test_what_is_coming_needs_no_move() -> None:
    """A slot that is about to be free goes to the poorer job first."""
    leaving = [service(f"s{i}", 5, "n0", deleting=True) for i in range(3)]

    assert _plan([node("n0", 45)], [_A, _B], [*_split(5, 1), *leaving]).empty


def test_the_receiver_must_fit_where_the_giver_leaves() -> None:
    """On its node, with the node's labels, and not on one that cools down."""
    elsewhere = Constraints(terms=((Requirement("zone", "In", ("b",)),),))
    picky = replace(_B, constraints=elsewhere)
    large = replace(_B, requests={"cpu": 26_000, "pods": 1})
    pods = trainers(_A, ["n0"] * 5)

    for receiver, cpu in ((picky, 6), (large, 26)):
        all_pods = [*pods, *trainers(receiver, ["n1"])]
        beside = node("n1", cpu, labels={"zone": "b"})
        assert _plan([node("n0", 25), beside], [_A, receiver], all_pods).empty
    cooling = History(cooling={"n0": NOW_S + 1})
    assert _plan(_FULL, [_A, _B], _split(5, 1), history=cooling).empty


def test_small_trainers_go_together_for_a_large_one() -> None:
    """Two of 5 CPU on one node make room for one of 8, while their job stays the richer one."""
    large = job("large", 1, 9, cpu=8)
    pods = [*trainers(_A, ["n0"] * 6), *trainers(large, ["n1"])]

    new_plan = _plan([node("n0", 30), node("n1", 8)], [_A, large], pods)

    assert [release.uid for release in new_plan.releases] == ["a-005", "a-004"]
    assert _plan([node("n0", 15), node("n1", 8)], [_A, large], [*pods[:3], pods[-1]]).empty


def test_a_job_takes_a_whole_step_to_its_next_allowed_size() -> None:
    """From 2 to 4, from a job that goes from 8 to 4; never half of either."""
    policy = _policy().model_copy(update={"sizes": (Sizes(powers_of_two=True),)})
    rich, poor = job("rich", 1, 8), job("poor", 2, 8)
    pods = [*trainers(rich, ["n0"] * 8), *trainers(poor, ["n0"] * 2)]

    new_plan = _plan([node("n0", 50)], [rich, poor], pods, policy)

    assert len(new_plan.releases) == 4
    assert {release.job for release in new_plan.releases} == {rich.key}


def test_where_the_reserve_is_the_bound_trainers_move_too() -> None:
    """Nodes have room, but the load limit is reached: shares become equal all the same."""
    new_plan = _plan([node("n0", 60)], [_A, _B], _split(5, 1), _policy(0.5))

    assert [release.uid for release in new_plan.releases] == ["a-004"]


def test_where_the_reserve_is_the_bound_any_free_node_will_do() -> None:
    """The receiver need not fit where the giver leaves: only load was missing."""
    large = job("large", 1, 9, cpu=6)
    pods = [*trainers(_A, ["n0"] * 6), *trainers(large, ["n1"])]

    new_plan = _plan([node("n0", 30), node("n1", 60)], [_A, large], pods, _policy(0.42))

    assert [release.job for release in new_plan.releases] == ["ml/a"]


def test_a_move_that_would_break_the_reserve_is_none() -> None:
    """A larger trainer for a smaller one may be too much."""
    large = job("large", 1, 9, cpu=10)
    pods = [*trainers(job("a", 1, 30, cpu=1), ["n0"] * 25), *trainers(large, ["n1"])]

    new_plan = _plan(
        [node("n0", 25), node("n1", 25)], [job("a", 1, 30, cpu=1), large], pods, _policy(0.7)
    )

    assert new_plan.empty


def test_where_a_quota_is_the_bound_trainers_move_inside_it() -> None:
    """From the richer job of the quota, not from one outside."""
    outside = job("o", 1, 20, namespace="other")
    policy = Policy.model_validate(
        {
            "reserve": {"maxLoad": {}},
            "quotas": [{"namespace": "ml", "requests": {"cpu": 30}}],
        }
    )
    pods = [*_split(5, 1), *trainers(outside, ["n0"] * 8)]

    new_plan = _plan([node("n0", 70)], [_A, _B, outside], pods, policy)

    assert [release.uid for release in new_plan.releases] == ["a-004"]


def test_moves_inside_a_quota_never_take_from_outside_of_it() -> None:
    """The first move leaves the quota as full as before: trainers of others would end for nobody."""
    outside = job("o", 1, 20, namespace="other")
    policy = Policy.model_validate(
        {
            "reserve": {"maxLoad": {}},
            "quotas": [{"namespace": "ml", "requests": {"cpu": 30}}],
            "stability": {"maxMoves": 1.0},
        }
    )
    pods = [*_split(5, 1), *trainers(outside, ["n0"] * 8)]

    new_plan = _plan([node("n0", 70)], [_A, _B, outside], pods, policy)

    assert [release.uid for release in new_plan.releases] == ["a-004", "a-003"]


def test_only_jobs_that_started_receive() -> None:
    """Nobody gives for a job that waits for its minimum: admission sees to it."""
    waiting = job("w", 9, 9, cpu=9)

    new_plan = _plan(_FULL, [_A, waiting], trainers(_A, ["n0"] * 6))

    assert new_plan.empty


def test_guaranteed_trainers_do_not_move() -> None:
    """A job with a large minimum keeps it, however little others have."""
    rich = job("rich", 5, 9)
    pods = [*trainers(rich, ["n0"] * 5), *trainers(_B, ["n0"])]

    assert all(pod.tier is Tier.GUARANTEED for pod in pods)
    assert _plan(_FULL, [rich, _B], pods).empty


def test_allowed_sizes_are_kept_on_both_sides() -> None:
    """A move by one that would leave a size nobody allowed is not made."""
    policy = Policy.model_validate({"reserve": {"maxLoad": {}}, "sizes": [{"allowed": [1, 5]}]})

    assert _plan(_FULL, [_A, _B], _split(5, 1), policy).empty
    giver_only = Policy.model_validate(
        {
            "reserve": {"maxLoad": {}},
            "sizes": [{"namespaces": ["other"], "allowed": [1, 5]}],
        }
    )
    fixed = job("f", 1, 9, namespace="other")
    pods = [*trainers(fixed, ["n0"] * 5), *trainers(_B, ["n0"])]
    assert _plan(_FULL, [fixed, _B], pods, giver_only).empty


def test_jobs_of_the_builtin_controller_give_and_take() -> None:
    """Their number is lowered; which pod goes is not ours to say, but room is counted."""
    plain = job("plain", 1, 9, managed=False, parallelism=5)
    pods = [service(f"p{i}", 5, "n0", namespace="ml", owner_uid=plain.uid) for i in range(5)]

    new_plan = _plan(_FULL, [plain, _B], [*pods, *trainers(_B, ["n0"])])

    assert {job_plan.key: job_plan.target for job_plan in new_plan.jobs} == {
        "ml/plain": 4,
        "ml/b": 1,
    }


def test_a_waiting_trainer_gives_nothing() -> None:
    """It has no node that anybody could use."""
    pods = [*_split(1, 1), *(trainer(_A, 10 + i, created_s=NOW_S - 20) for i in range(2))]
    patient = _policy(withdrawAfterSeconds=60, minRunSeconds=0)

    assert _plan([node("n0", 10)], [_A, _B], pods, patient).empty


def _powers_of_two() -> Policy:
    return _policy().model_copy(update={"sizes": (Sizes(powers_of_two=True),)})


def test_a_whole_step_waits_until_others_have_moved() -> None:
    """Four at one time are more than a tenth: alone they may, beside one that leaves not."""
    rich, poor, fixed = job("rich", 1, 8), job("poor", 2, 8), job("fixed", 16, 16)
    pods = [
        *trainers(rich, ["n0"] * 8),
        *trainers(poor, ["n0"] * 2),
        *trainers(fixed, ["n0"] * 16),
    ]
    leaving = trainer(rich, 90, "n0", deleting=True)

    alone = _plan([node("n0", 130)], [rich, poor, fixed], pods, _powers_of_two())
    moved = History(moved=frozenset({leaving.uid}))
    nodes, jobs = [node("n0", 135)], [rich, poor, fixed]
    beside = _plan(nodes, jobs, [*pods, leaving], _powers_of_two(), moved)

    assert len(alone.releases) == 4
    assert beside.empty


def test_a_step_that_too_few_trainers_are_old_enough_for_is_not_made() -> None:
    """Going from 8 to 4 needs four that have run for a while."""
    rich, poor = job("rich", 1, 8), job("poor", 2, 8)
    young = [replace(pod, started_s=NOW_S - 1) for pod in trainers(rich, ["n0"] * 8)[3:]]
    pods = [*trainers(rich, ["n0"] * 3), *young, *trainers(poor, ["n0"] * 2)]

    assert _plan([node("n0", 50)], [rich, poor], pods, _powers_of_two()).empty


@pytest.mark.parametrize(
    ("cpu", "places", "released_count"),
    [(5, ["n0", "n1"] * 6, 2), (3, [*["n0"] * 4, *["n1"] * 6, *["n0"] * 2], 4)],
)
def test_a_step_may_come_from_several_nodes_and_several_steps(
    cpu: int, places: list[str], released_count: int
) -> None:
    """Room for two on two nodes: from one step across both, or from one step on each."""
    rich, poor = job("rich", 2, 12, cpu=cpu), job("poor", 2, 12)
    policy = _policy().model_copy(update={"sizes": (Sizes(step=2),)})
    pods = [*trainers(rich, places), *trainers(poor, ["n2"] * 2)]
    nodes = [node("n0", 6 * cpu), node("n1", 6 * cpu), node("n2", 10)]

    new_plan = _plan(nodes, [rich, poor], pods, policy)

    assert sorted(release.uid for release in new_plan.releases) == [
        f"rich-{number:03}" for number in range(12 - released_count, 12)
    ]


def test_trainers_that_go_together_go_once() -> None:
    """Two large trainers of one step are paid for by four small ones, each named once."""
    small = job("small", 1, 16, cpu=5)
    large = job("large", 2, 16, cpu=8, namespace="even")
    policy = _policy().model_copy(update={"sizes": (Sizes(namespaces=("even",), step=2),)})
    pods = [*trainers(small, ["n0"] * 12), *trainers(large, ["n1"] * 2)]

    new_plan = _plan([node("n0", 60), node("n1", 16)], [small, large], pods, policy)

    released = [release.uid for release in new_plan.releases]
    assert len(released) == len(set(released)) == 4


def test_failed_moves_are_tried_again_in_turns() -> None:
    """Only as many are looked into again as a plan has time for, the oldest first."""
    first, second = job("b", 1, 9, cpu=26), job("c", 1, 9, cpu=27)
    nodes = [node("n0", 30), node("n1", 26), node("n2", 27)]
    pods = [*trainers(_A, ["n0"] * 6), *trainers(first, ["n1"]), *trainers(second, ["n2"])]
    before = _plan(nodes, [_A, first, second], pods)
    oldest, *others = before.failed_moves
    failed = {key: FailedMove(NOW_S - 5, 900) for key in others}
    failed[oldest] = FailedMove(NOW_S - 9, 900)

    new_plan = _plan(nodes, [_A, first, second], pods, history=History(failed_moves=failed))

    assert not before.deferred
    assert new_plan.deferred
    assert others
    assert new_plan.failed_moves[oldest].at_s == NOW_S
    assert [new_plan.failed_moves[key] for key in others] == [failed[key] for key in others]


def test_trainers_that_go_together_leave_their_job_its_minimum() -> None:
    """Two for the first large trainer, and the third and fourth for the second would be too many."""
    small = job("small", 9, 16, cpu=5)
    large = job("large", 2, 16, cpu=8, namespace="even")
    policy = _policy().model_copy(update={"sizes": (Sizes(namespaces=("even",), step=2),)})
    pods = [*trainers(small, ["n0"] * 12), *trainers(large, ["n1"] * 2)]

    new_plan = _plan([node("n0", 60), node("n1", 16)], [small, large], pods, policy)

    assert new_plan.releases == ()


@pytest.mark.parametrize(
    ("lost", "leaves_by_s", "moves"),
    [
        ({}, NOW_S - 5, False),
        ({}, NOW_S - 6, True),
        ({}, 0.0, False),
        ({"ready": False, "unready_s": NOW_S - 59}, NOW_S, False),
        ({"ready": False, "unready_s": NOW_S - 60}, NOW_S, True),
        ({"ready": False, "silent": True}, NOW_S, True),
    ],
)
def test_a_trainer_that_never_leaves_holds_up_no_move(
    lost: dict[str, Any], leaves_by_s: float, *, moves: bool
) -> None:
    """Its node is lost, or it is overdue."""
    hanging = replace(trainer(_A, 20, "n1"), deleting=True, leaves_by_s=leaves_by_s)

    nodes = [*_FULL, node("n1", 5, **lost)]
    moved = History(moved=frozenset({hanging.uid}))

    new_plan = _plan(nodes, [_A, _B], [*_split(5, 1), hanging], history=moved)

    assert bool(new_plan.releases) == moves
