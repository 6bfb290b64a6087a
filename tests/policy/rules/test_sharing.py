from dataclasses import replace

from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Fairness, FairnessBy, Policy, Reserve, Sizes
from policy.names import Tier
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, trainer, trainers

_FREE = Policy(reserve=Reserve(max_load={}))
_A, _B = job("a", 1, 9), job("b", 1, 9)


def _plan(
    nodes: list[Node],
    jobs: list[Job],
    pods: list[Pod],
    policy: Policy = _FREE,
    history: History | None = None,
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _targets(new_plan: Plan) -> dict[str, int]:
    return {job_plan.key: job_plan.target for job_plan in new_plan.jobs}


def _reasons(new_plan: Plan) -> dict[str, Reason]:
    return {job_plan.key: job_plan.reason for job_plan in new_plan.jobs}


def test_the_least_share_grows_first() -> None:
    """Free slots go to the job that has least until both have the same."""
    pods = [*trainers(_A, ["n0"] * 3), *trainers(_B, ["n0"])]

    new_plan = _plan([node("n0", 20), node("n1", 20)], [_A, _B], pods)

    assert _targets(new_plan) == {"ml/a": 4, "ml/b": 4}
    assert _reasons(new_plan) == {"ml/a": Reason.NO_ROOM, "ml/b": Reason.NO_ROOM}
    assert {create.tier for create in new_plan.creates} == {Tier.SURPLUS}


def test_weights_scale_shares() -> None:
    """Thrice the weight, thrice the trainers."""
    heavy = replace(_B, weight=3)

    new_plan = _plan(
        [node("n0", 40)], [_A, heavy], [*trainers(_A, ["n0"]), *trainers(heavy, ["n0"])]
    )

    assert _targets(new_plan) == {"ml/a": 2, "ml/b": 6}


def test_the_dominant_resource_counts() -> None:
    """Trainers of 5 CPU against such of a quarter of the memory: equal shares, unequal numbers."""
    hungry = job("hungry", 1, 9, cpu=1, memory=16)
    pods = [*trainers(_A, ["n0", "n0"]), *trainers(hungry, ["n0"])]

    new_plan = _plan([node("n0", 35, memory=64)], [_A, hungry], pods)

    assert _targets(new_plan) == {"ml/a": 6, "ml/hungry": 4}


def test_fulfilment_counts_what_jobs_request() -> None:
    """The seeds' measure: each gets the same part of what it could have."""
    small, large = job("a", 1, 5), job("b", 1, 9)
    policy = Policy(reserve=_FREE.reserve, fairness=Fairness(by=FairnessBy.FULFILMENT))
    pods = [*trainers(small, ["n0"]), *trainers(large, ["n0"])]

    new_plan = _plan([node("n0", 40)], [small, large], pods, policy)

    assert _targets(new_plan) == {"ml/a": 3, "ml/b": 5}
    assert [job_plan.share for job_plan in new_plan.jobs] == [0.5, 0.5]


def test_at_max_a_job_is_done() -> None:
    """The reason is the maximum, or that the next allowed size exceeds it."""
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(allowed=(2, 50)),))

    full = _plan([node("n0", 90)], [_A], trainers(_A, ["n0"] * 9))
    capped = _plan([node("n0", 90)], [_A], trainers(_A, ["n0"] * 2), policy)

    assert (full.empty, _reasons(full)["ml/a"]) == (True, Reason.AT_MAX)
    assert (capped.empty, _reasons(capped)["ml/a"]) == (True, Reason.AT_CEILING)


def test_steps_are_taken_whole() -> None:
    """From 2 to 4 or not at all; room that half a step took is free for others."""
    policy = Policy(reserve=_FREE.reserve, sizes=(Sizes(namespaces=("ml",), allowed=(2, 4)),))
    other = job("o", 1, 9, namespace="other")
    pods = [*trainers(_A, ["n0"] * 2), *trainers(other, ["n0"] * 3)]

    new_plan = _plan([node("n0", 30)], [_A, other], pods, policy)

    assert _targets(new_plan) == {"ml/a": 2, "other/o": 4}


def test_the_reserve_stays_free() -> None:
    """There is room, but services are to find it free."""
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.5}))

    new_plan = _plan([node("n0", 40)], [_A], trainers(_A, ["n0"]), policy)

    assert _targets(new_plan) == {"ml/a": 4}
    assert _reasons(new_plan) == {"ml/a": Reason.RESERVE_HELD}


def test_cooling_nodes_get_no_surplus() -> None:
    """Until the time is over."""
    pods = trainers(_A, ["n0"])
    nodes = [node("n0", 5), node("n1", 5)]

    new_plan = _plan(nodes, [_A], pods, history=History(cooling={"n1": NOW_S + 1}))

    assert (new_plan.empty, _reasons(new_plan)["ml/a"]) == (True, Reason.NO_ROOM)
    over = _plan(nodes, [_A], pods, history=History(cooling={"n1": NOW_S}))
    assert _targets(over) == {"ml/a": 2}


def test_no_pile_of_waiting_trainers() -> None:
    """Eight on their way are enough for small clusters; the jobs that could have more say so."""
    big, done = job("big", 1, 40), job("done", 1, 1)
    pods = [*trainers(big, ["n0"]), *trainers(done, ["n0"])]

    new_plan = _plan([node("n0", 300)], [big, done], pods)

    assert [create.count for create in new_plan.creates] == [8]
    assert _reasons(new_plan) == {"ml/big": Reason.GROWING, "ml/done": Reason.AT_MAX}


def test_as_many_wait_as_the_scheduler_places() -> None:
    """A fast scheduler is kept busy; one that places fewer than the usual number gets that."""
    job_a = job("big", 1, 400)
    nodes, pods = [node("n0", 3000)], trainers(job_a, ["n0"])

    def created(placeable: int) -> int:
        new_plan = _plan(nodes, [job_a], pods, history=History(placeable=placeable))
        assert new_plan.growing == {"ml/big"}
        return sum(create.count for create in new_plan.creates)

    assert (created(50), created(3)) == (50, 8)


def test_waiting_trainers_hold_their_slots() -> None:
    """They are on their way: their room is not given away, and they count as in flight."""
    waiting = [trainer(_A, i, created_s=NOW_S) for i in range(10, 18)]

    new_plan = _plan([node("n0", 90)], [_A], [*trainers(_A, ["n0"]), *waiting])

    assert new_plan.empty


def test_waiting_trainers_without_room_are_taken_back() -> None:
    """After a while; not at once."""
    running = trainers(_A, ["n0"])

    def gone(age_s: float) -> list[Reason]:
        pods = [*running, trainer(_A, 5, created_s=NOW_S - age_s)]
        return [release.reason for release in _plan([node("n0", 5)], [_A], pods).releases]

    assert gone(2.9) == []
    assert gone(3.0) == [Reason.NOT_SCHEDULED]


def test_a_richer_job_does_not_take_what_a_poorer_one_waits_for() -> None:
    """Load that is about to be free is kept for the job whose turn it is."""
    large, small = job("large", 1, 9, cpu=6), job("small", 1, 9, cpu=1)
    pods = [*trainers(large, ["n0"]), *trainers(small, ["n0"] * 9)]
    leaving = [service("s", 4, "n0", deleting=True)]
    policy = Policy(reserve=Reserve(max_load={"cpu": 0.84}))

    new_plan = _plan([node("n0", 25)], [large, small], [*pods, *leaving], policy)

    assert new_plan.empty
    assert _reasons(new_plan)["ml/large"] is Reason.RESERVE_HELD


def test_room_that_is_coming_is_dealt_in_turn() -> None:
    """One leaver is kept for one job only; the next in turn waits for the next."""
    going = [service(f"s{i}", 5, "n0", deleting=True) for i in range(3)]
    pods = [*trainers(_A, ["n0"] * 2), *trainers(_B, ["n0"] * 2), *going]

    assert _plan([node("n0", 35)], [_A, _B], pods).empty


def test_nothing_is_awaited_above_max() -> None:
    """A job that has all it wants leaves what is coming to others."""
    full = job("full", 1, 2)
    pods = [*trainers(full, ["n0"] * 2), *trainers(_A, ["n0"] * 8)]
    pods += [service("s", 5, "n0", deleting=True)]

    assert _plan([node("n0", 55)], [full, _A], pods).empty
