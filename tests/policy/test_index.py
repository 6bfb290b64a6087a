from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from policy.crew import is_surplus
from policy.index import Index, job_key
from policy.names import Tier
from policy.snapshot import Node, Phase, Pod
from tests.support.builders import (
    NOW_S,
    index,
    job,
    node,
    server,
    servers,
    service,
    shape,
    support,
    trainer,
    trainers,
)
from tests.support.strategies import CALM

_NAMES = ("n0", "n1", "n2")
_JOB = job("a", 1, 4)
_PLAIN = job("plain", 1, 4, managed=False)
_SERVED = job("served", 1, 4, servers=servers(2, 5))

_nodes = st.builds(node, st.sampled_from(_NAMES), st.integers(1, 20), gpus=st.sampled_from([0, 8]))


@st.composite
def _pods(draw: st.DrawFn) -> Pod:
    number = draw(st.integers(0, 3))
    pod = draw(
        st.sampled_from(
            [
                trainer(_JOB, number),
                service(f"p{number}", owner_uid=_PLAIN.uid),
                service(f"s{number}"),
                support(_JOB, f"m{number}"),
                server(_SERVED, number),
            ]
        )
    )
    return replace(
        pod,
        node=draw(st.sampled_from(["", *_NAMES])),
        phase=draw(st.sampled_from(Phase)),
        deleting=draw(st.booleans()),
        master=draw(st.booleans()),
        requests=shape(draw(st.integers(1, 9)), gpus=draw(st.sampled_from([0, 1]))),
    )


_Change = Node | Pod | str
_changes = st.lists(
    st.one_of(
        _nodes, _pods(), st.sampled_from(_NAMES), st.just("ml/a"), _pods().map(lambda p: p.uid)
    ),
    max_size=40,
)


def _apply(kept: Index, change: _Change) -> None:
    match change:
        case Node():
            kept.put_node(change)
        case Pod():
            kept.put_pod(change)
        case str():
            kept.drop_node(change)
            kept.drop_pod(change)
            kept.drop_job(change)


def _seen(kept: Index) -> dict[str, object]:
    """What decisions can see of an index; amounts of 0 are no amounts."""

    def trim(amounts: dict[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in amounts.items() if amount}

    return {
        "nodes": kept.nodes,
        "pods": kept.pods,
        "jobs": kept.jobs,
        "used": {name: trim(used) for name, used in kept.used.items()},
        "bound": kept.bound,
        "waiting": kept.waiting,
        "members": kept.members,
        "carriers": kept.carriers,
        "servers": kept.servers,
        "owned": kept.owned,
        "allocatable": trim(kept.allocatable),
        "total": trim(kept.total_used()),
    }


@CALM
@given(_changes)
def test_changes_one_by_one_are_the_same_as_a_recount(changes: list[_Change]) -> None:
    """After any sequence of changes the sums are those of an index made anew."""
    kept = Index()
    kept.put_job(_JOB)
    for change in changes:
        _apply(kept, change)

    fresh = index(list(kept.nodes.values()), list(kept.jobs.values()), list(kept.pods.values()))
    assert _seen(kept) == _seen(fresh)


def test_leaving_pods_hold_their_room() -> None:
    """A terminating pod counts until it is gone; one that has ended does not count at all."""
    pods = [
        service("going", 3, "n0", deleting=True),
        service("done", 4, "n0", phase=Phase.SUCCEEDED),
        service("failed", 4, "n0", phase=Phase.FAILED),
    ]
    kept = index([node("n0", 10)], pods=pods)

    assert kept.free("n0")["cpu"] == 7_000
    assert kept.total_used()["cpu"] == 3_000


def test_pods_on_unknown_nodes_use_nothing() -> None:
    """A pod may name a node that is gone, or not seen yet: no sum of the cluster counts it."""
    kept = index([node("n0")], pods=[service("lost", 3, "gone")])

    assert kept.total_used() == {}
    kept.put_node(node("gone", 10))
    assert kept.free("gone")["cpu"] == 7_000


def test_only_pods_that_want_a_node_wait() -> None:
    """Deleted ones do not."""
    kept = index(pods=[service("a"), service("b", deleting=True), service("c", where="n0")])

    assert set(kept.waiting) == {"uid-a"}


def test_trainers_belong_to_this_very_job() -> None:
    """Those of an earlier Job of the same name, ended ones and leaving ones are not counted."""
    live = trainer(_JOB, 1, "n0")
    others = [
        trainer(_JOB, 2, "n0", owner_uid="uid-before"),
        trainer(_JOB, 3, "n0", phase=Phase.FAILED),
        trainer(_JOB, 4, "n0", deleting=True),
    ]

    assert index([node("n0")], [_JOB], [live, *others]).trainers(_JOB) == (live,)


def test_pods_of_the_builtin_controller_get_tiers_by_age() -> None:
    """They carry no labels of ours: the oldest that run count as guaranteed."""
    pods = [
        service("new", where="n0", owner_uid=_PLAIN.uid, created_s=NOW_S),
        service("waits", owner_uid=_PLAIN.uid, created_s=1.0),
        service("old", where="n0", owner_uid=_PLAIN.uid, created_s=2.0),
        service("gone", where="n0", owner_uid=_PLAIN.uid, deleting=True),
    ]

    found = index([node("n0")], [_PLAIN], pods).trainers(_PLAIN)

    assert [(pod.name, pod.tier) for pod in found] == [
        ("waits", Tier.SURPLUS),
        ("new", Tier.SURPLUS),
        ("old", Tier.GUARANTEED),
    ]


def test_a_share_is_weighed_by_job_and_queue() -> None:
    """Twice the weight makes half the share."""
    kept = index([node("n0", 50)])
    heavy = job("a", weight=2, queue="night")

    assert kept.share(_JOB, 5, {}) == 0.5
    assert kept.share(heavy, 5, {"night": 5}) == 0.05


def test_servers_count_from_a_jobs_first_pod_on() -> None:
    """All or none of them: of one that waits, none; of one that runs, those that are missing too."""
    first = trainer(_SERVED, 0, "n0")
    other = server(_SERVED, 0, "n0", owner_uid="uid-before")
    nodes = [node("n0", 50)]

    assert index(nodes, [_SERVED], [other]).serving(_SERVED) == 0
    assert index(nodes, [_SERVED], [first]).serving(_SERVED) == 2
    assert index(nodes, [_SERVED], [server(_SERVED, 1, "n0")]).serving(_SERVED) == 2
    assert index(nodes, [_JOB], [trainer(_JOB, 0, "n0")]).serving(_JOB) == 0
    for stopped in (replace(_SERVED, suspended=True), replace(_SERVED, managed=False)):
        assert index(nodes, [stopped], [first]).serving(stopped) == 0


def test_servers_are_part_of_a_share() -> None:
    """Weighed as trainers are."""
    kept = index([node("n0", 50)])

    assert kept.servers_share(_SERVED, {}) == 0.2
    assert kept.servers_share(replace(_SERVED, weight=2), {}) == 0.1
    assert kept.servers_share(_JOB, {}) == 0.0


def test_surplus_is_a_tier_of_trainers() -> None:
    """Other roles never are, whatever tier they claim."""
    first, second = trainers(_JOB, ["n0", "n0"])

    assert not is_surplus(first)
    assert is_surplus(second)
    assert not is_surplus(replace(support(_JOB, "m"), tier=Tier.SURPLUS))
    assert job_key(first) == _JOB.key


def test_the_carrier_of_a_master_is_known_while_it_stays() -> None:
    """Told to stop, ended, of an earlier Job or of another job: none of these carries it."""
    owner = job("net", 2, 2, master=True)
    pod = trainer(owner, 0, "n0", Tier.GUARANTEED, master=True)
    others = (
        replace(pod, deleting=True),
        replace(pod, phase=Phase.FAILED),
        replace(pod, owner_uid="an earlier one"),
        replace(pod, job="other"),
        replace(pod, job=""),
        replace(pod, master=False),
    )
    found = index(jobs=[owner], pods=[pod])

    assert found.carrier(owner) == pod
    assert [index(jobs=[owner], pods=[other]).carrier(owner) for other in others] == [None] * 6
    found.drop_pod(pod.uid)
    assert found.carrier(owner) is None
    assert found.carriers == {}


def test_of_several_carriers_one_counts() -> None:
    """A pod of role master, whoever made it; else the youngest trainer."""
    owner = job("net", 2, 2, master=True)
    first, second = (trainer(owner, i, "n0", Tier.GUARANTEED, master=True) for i in range(2))
    master = replace(support(owner, "net-master", "n0"), master=True)

    assert index(jobs=[owner], pods=[first, second]).carrier(owner) == second
    assert index(jobs=[owner], pods=[first, second, master]).carrier(owner) == master
