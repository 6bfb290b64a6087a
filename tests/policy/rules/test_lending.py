"""Queues lend what they do not use, and have it back when they ask."""

from dataclasses import replace
from typing import Any

import pytest

from policy.cluster import amounts
from policy.cluster.snapshot import Job, Node, Pod
from policy.document.model import Policy, Reserve, Sizes, Stability
from policy.document.queue_model import Queue
from policy.planning.plan import History, Plan
from policy.planning.planner import plan
from policy.planning.quotas import Quotas
from policy.planning.rules import moves
from policy.reasons import Reason
from tests.support.builders import (
    NOW_S,
    cluster_state,
    job,
    node,
    servers,
    service,
    trainers,
)


def _queue(name: str, cpu: int, **fields: Any) -> Queue:
    return Queue(name=name, namespaces=("*",), nominal_quota={"cpu": str(cpu)}, **fields)


_POLICY = Policy(reserve=Reserve(max_load={}), queues=(_queue("a", 4), _queue("b", 4)))
_OWNER = job("owner", 1, 4, cpu=1, queue="a")
_BORROWER = job("borrower", 1, 9, cpu=1, queue="b")
_NODES = [node("n0", 4), node("n1", 40)]


def _plan(
    jobs: list[Job],
    pods: list[Pod],
    policy: Policy = _POLICY,
    nodes: list[Node] = _NODES,
    history: History | None = None,
) -> Plan:
    return plan(cluster_state(nodes, jobs, pods), policy, NOW_S, history)


def _released(new_plan: Plan) -> dict[str, int]:
    jobs = [release.job.removeprefix("ml/") for release in new_plan.releases]
    return {name: jobs.count(name) for name in jobs}


def _targets(new_plan: Plan) -> dict[str, int]:
    return {job_plan.key.removeprefix("ml/"): job_plan.target for job_plan in new_plan.jobs}


def test_surplus_borrows_what_another_queue_leaves() -> None:
    """Up to the quotas of both together, or to the limit of its own queue."""
    limited = _POLICY.model_copy(
        update={"queues": (_queue("a", 4), _queue("b", 4, borrowing_limit={"cpu": "1"}))}
    )

    assert _targets(_plan([_BORROWER], [])) == {"borrower": 8}
    assert _targets(_plan([_BORROWER], [], limited)) == {"borrower": 5}


def test_a_minimum_never_borrows() -> None:
    """Its condition says what its queue lacks; so no guaranteed trainer has to give way later."""
    large = replace(_BORROWER, min_trainers=5)
    new_plan = _plan([large], [])

    assert _targets(new_plan) == {"borrower": 0}
    assert new_plan.jobs[0].detail == (
        "the quota of queue b without borrowing (4 cpu) is 1 too small for 5 more trainers"
    )
    with_servers = replace(_BORROWER, servers=servers(2, 2))
    assert _targets(_plan([with_servers], [])) == {"borrower": 0}


def test_an_owner_has_its_share_back_in_one_plan() -> None:
    """At once, whatever the pace of moves; with the reason and its figures."""
    pods = [*trainers(_OWNER, ["n1"]), *trainers(_BORROWER, ["n1"] * 7)]

    new_plan = _plan([_OWNER, _BORROWER], pods)

    assert _released(new_plan) == {"borrower": 3}
    first = new_plan.releases[0]
    assert first.reason is Reason.SHARE_RETURNED
    assert first.detail == ("ml/owner needs its queue's share; queue b owns 4 cpu and uses 7")


def test_an_owner_has_its_share_back_where_nodes_are_full() -> None:
    """Not quota but room is lacking then: borrowers leave nodes that it can use."""
    pods = [*trainers(_OWNER, ["n0"]), *trainers(_BORROWER, ["n0"] * 2 + ["n1"] * 5)]
    busy = [*pods, service("s0", 1, "n0"), service("s1", 35, "n1")]
    small = replace(_OWNER, max_trainers=2)

    assert _released(_plan([small, _BORROWER], busy)) == {"borrower": 1}


def test_an_owner_s_minimum_takes_borrowed_surplus_only() -> None:
    """A third queue keeps its own, though its job has the largest share of all."""
    policy = _POLICY.model_copy(update={"queues": (*_POLICY.queues, _queue("c", 9))})
    third = job("third", 1, 9, cpu=1, queue="c")
    pods = [*trainers(third, ["n1"] * 9), *trainers(_BORROWER, ["n1"] * 8)]
    owner = replace(_OWNER, min_trainers=2, max_trainers=2)

    assert _released(_plan([owner, _BORROWER, third], pods, policy)) == {"borrower": 2}


def test_a_minimum_that_only_a_lowered_quota_stops_takes_nothing() -> None:
    """Guaranteed trainers of a third queue hold more than it has: no surplus goes in vain."""
    policy = _POLICY.model_copy(update={"queues": (*_POLICY.queues, _queue("c", 4))})
    third = job("third", 6, 6, cpu=1, queue="c")
    pods = [*trainers(third, ["n1"] * 6), *trainers(_BORROWER, ["n1"] * 5)]
    owner = replace(_OWNER, min_trainers=3)

    assert _released(_plan([owner, _BORROWER, third], pods, policy)) == {}


def test_one_large_trainer_takes_several_small_ones() -> None:
    """As many as quota and reserve need, on whatever nodes."""
    owner = job("owner", 1, 2, cpu=2, queue="a")
    pods = [*trainers(owner, ["n1"]), *trainers(_BORROWER, ["n1"] * 6)]

    assert _released(_plan([owner, _BORROWER], pods)) == {"borrower": 2}


def test_no_more_is_returned_than_a_large_trainer_needs() -> None:
    """Three small ones, though the search looks at one, two and then four of those borrowed."""
    policy = _POLICY.model_copy(update={"queues": (_queue("a", 7), _queue("b", 4))})
    owner = job("owner", 1, 2, cpu=3, queue="a")
    pods = [*trainers(owner, ["n1"]), *trainers(_BORROWER, ["n1"] * 8)]

    assert _released(_plan([owner, _BORROWER], pods, policy)) == {"borrower": 3}


def test_a_place_on_a_node_is_counted_once() -> None:
    """One of two new trainers takes it; where nothing else is free for the other, nobody leaves."""
    owner = replace(job("owner", 1, 3, cpu=2, queue="a"), sizes=(1, 3))
    borrower = replace(_BORROWER, max_trainers=3)
    nodes = [node("own", 2), node("base", 1), node("open", 3), node("small", 1)]
    pods = [*trainers(owner, ["own"]), *trainers(borrower, ["base", "small", "open"])]
    policy = _POLICY.model_copy(update={"queues": (_queue("a", 6), _queue("b", 1))})

    assert _released(_plan([owner, borrower], pods, policy, nodes)) == {}
    enough = [*nodes, node("further", 2)]
    assert _released(_plan([owner, borrower], pods, policy, enough)) == {"borrower": 2}


def test_several_queues_return_what_they_borrow_for_one_trainer() -> None:
    """Each down to its own quota; where that is not enough, none gives anything in vain."""
    queues = (_queue("a", 6), _queue("b", 4), _queue("c", 4))
    policy = _POLICY.model_copy(update={"queues": queues})
    owner = job("owner", 1, 2, cpu=3, queue="a")
    third = job("third", 1, 9, cpu=1, queue="c")
    pods = [*trainers(owner, ["n1"]), *trainers(third, ["n1"] * 6)]
    lent = [*pods, *trainers(_BORROWER, ["n1"] * 5)]

    assert _released(_plan([owner, third, _BORROWER], lent, policy)) == {"borrower": 1, "third": 2}
    kept = replace(_BORROWER, min_trainers=5)
    held = [*pods, *trainers(kept, ["n1"] * 5)]
    assert _released(_plan([owner, third, kept], held, policy)) == {}


def test_a_queue_keeps_its_own() -> None:
    """An owner that uses its quota gets no more; the borrower may hold what is left."""
    owner = replace(_OWNER, max_trainers=9)
    pods = [*trainers(owner, ["n1"] * 4), *trainers(_BORROWER, ["n1"] * 4)]

    assert _plan([owner, _BORROWER], pods).empty


def test_a_fair_share_is_not_taken_from_what_a_queue_owns() -> None:
    """Two jobs of one queue have the larger share each; its owner would ask it back at once."""
    second = job("second", 1, 9, cpu=1, queue="b")
    pods = [
        *trainers(replace(_OWNER, max_trainers=9), ["n1"] * 4),
        *trainers(_BORROWER, ["n1"] * 3),
        *trainers(second, ["n1"]),
    ]
    jobs = [replace(_OWNER, max_trainers=9), _BORROWER, second]
    fast = _POLICY.model_copy(
        update={
            "stability": Stability(max_moves=1.0),
            "queues": (*_POLICY.queues, _queue("c", 9)),
        }
    )

    assert _released(_plan(jobs, pods, fast, [node("n1", 8)])) == {"borrower": 1}
    quotas = Quotas(_POLICY, cluster_state(_NODES, jobs, pods))
    assert not quotas.lends(_OWNER, second, {"cpu": 1000})
    assert not quotas.lends(
        job("free"), second, {"cpu": 1000}
    )  # growth gives to it before b borrows
    assert quotas.lends(_BORROWER, second, {"cpu": 1000})


def test_nothing_is_returned_while_services_take_capacity() -> None:
    """They decide how much is left to share."""
    pods = [*trainers(_OWNER, ["n0"]), *trainers(_BORROWER, ["n1"] * 7)]
    waiting = service("web", 36, created_s=NOW_S)

    reasons = {release.reason for release in _plan([_OWNER, _BORROWER], [*pods, waiting]).releases}

    assert reasons == {Reason.SERVICES_FIRST}


def test_whole_steps_are_returned_where_sizes_are_steps() -> None:
    """The borrower stays on an allowed size; the owner gets a whole step."""
    policy = _POLICY.model_copy(update={"sizes": (Sizes(step=2),)})
    owner, borrower = replace(_OWNER, min_trainers=2), replace(_BORROWER, min_trainers=2)
    pods = [*trainers(owner, ["n1"] * 2), *trainers(borrower, ["n1"] * 6)]

    assert _released(_plan([owner, borrower], pods, policy)) == {"borrower": 2}


def test_owners_grow_before_borrowers() -> None:
    """In one plan, though the borrower's share is smaller; what was borrowed would be asked back."""
    heavy = replace(_BORROWER, weight=100)
    few = [node("n1", 4)]
    policy = _POLICY.model_copy(update={"queues": (_queue("a", 4), _queue("b", 1))})

    assert _targets(_plan([_OWNER, heavy], [], policy, few)) == {"owner": 3, "borrower": 1}


def test_jobs_of_one_queue_borrow_from_where_its_quota_ends() -> None:
    """What one of them uses of it, the other lacks."""
    two = [replace(_BORROWER, name=name, uid=name) for name in ("b1", "b2")]
    policy = _POLICY.model_copy(update={"queues": (_queue("a", 4), _queue("b", 3))})

    targets = _targets(_plan([_OWNER, *two], [], policy, [node("n1", 7)]))

    assert targets["owner"] == 4
    assert targets["b1"] + targets["b2"] == 3


def test_a_borrower_waits_while_an_owner_waits_for_its_turn() -> None:
    """The part of its namespace is under way; what it lacks of its own is not given away."""
    large = _POLICY.model_copy(update={"queues": (_queue("a", 50), _queue("b", 4))})
    owner = replace(_OWNER, max_trainers=50)
    elsewhere = replace(_BORROWER, namespace="other", max_trainers=60)
    nodes = [node("n0", 54)]

    new_plan = _plan([owner, elsewhere], [], large, nodes)

    assert _targets(new_plan)["other/borrower"] <= 4


def test_the_reserve_is_restored_from_borrowers() -> None:
    """Of all surplus that of a queue that borrows goes first."""
    policy = _POLICY.model_copy(
        update={
            "reserve": Reserve(max_load={"cpu": 0.5}),
            "stability": Stability(max_moves=1.0),
        }
    )
    owner = job("owner", 1, 4, cpu=1, queue="a", weight=1)
    borrower = replace(_BORROWER, weight=9)
    pods = [*trainers(owner, ["n1"] * 4), *trainers(borrower, ["n1"] * 5)]

    new_plan = _plan([owner, borrower], pods, policy, [node("n1", 16)])

    assert _released(new_plan) == {"borrower": 1}


def _return_at_once(step: int, cpu: int, room: int = 0) -> Plan:
    """An owner that can grow by a single large step, and a queue that borrows all its nodes."""
    owner = replace(job("owner", 1, step + 1, cpu=cpu, queue="a"), sizes=(1, step + 1))
    borrower = replace(_BORROWER, max_trainers=9999)
    nodes = [node("own", cpu), *(node(f"n{number}", 4) for number in range(step))]
    nodes += [node(f"free{number}", room) for number in range(step) if room]
    pods = trainers(owner, ["own"])
    pods += trainers(borrower, [f"n{number // 4}" for number in range(4 * step)])
    total = cpu * (step + 1)
    policy = _POLICY.model_copy(
        update={"queues": (_queue("a", total), _queue("b", 4 * step + cpu - total))}
    )
    return _plan([owner, borrower], pods, policy, nodes)


def _count_calls(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    calls = [0]
    function = getattr(owner, name)

    def counting(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        return function(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_a_large_step_costs_in_proportion_to_its_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes sizes of 1 and 5000 must not keep the plan of all others waiting."""
    calls = _count_calls(monkeypatch, amounts, "add")
    counts = []
    for step in (100, 400):
        calls[0] = 0
        assert _released(_return_at_once(step, 1)) == {"borrower": step}
        counts.append(calls[0])

    assert counts[1] < 6 * counts[0]


def test_where_quota_lacks_few_looks_find_as_much_as_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes have room for larger trainers than leave: the whole step comes, and no more goes."""
    calls = _count_calls(monkeypatch, moves.Move, "_allowed")

    assert _released(_return_at_once(60, 2, room=2)) == {"borrower": 120}
    assert calls[0] < 30


def test_what_one_owner_does_not_get_no_other_of_its_kind_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's many jobs with a step that is too large cost a plan one search."""
    calls = _count_calls(monkeypatch, moves.Move, "__init__")
    owners = [
        replace(job(f"owner-{number}", 1, 9, cpu=1, queue="a"), sizes=(1, 9)) for number in range(6)
    ]
    nodes = [node("full", 12), *(node(f"own-{number}", 1) for number in range(6))]
    pods = trainers(_BORROWER, ["full"] * 12)
    for number, owner in enumerate(owners):
        pods += trainers(owner, [f"own-{number}"])
    policy = _POLICY.model_copy(update={"queues": (_queue("a", 20), _queue("b", 6))})

    assert (
        _released(_plan([*owners, replace(_BORROWER, max_trainers=12)], pods, policy, nodes)) == {}
    )
    assert calls[0] == 2  # one to return, and one for fairer shares
