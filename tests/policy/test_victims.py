from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policy import amounts
from policy.crew import is_surplus, loss, tier_rank
from policy.index import Index
from policy.names import Role, Tier
from policy.snapshot import Job, Node, Pod
from policy.victims import Candidate, Promise, choose
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
from tests.support.simulate import free_beside, propose
from tests.support.strategies import CALM, Case, cases

_A, _B = job("a", 1, 10), job("b", 1, 10)


def _all(index_: Index, *names: str) -> list[Candidate]:
    """A proposal for each node that takes every training pod there."""
    return [
        Candidate(name, tuple(uid for uid, p in index_.bound[name].items() if p.is_training))
        for name in names
    ]


def _chosen(preemptor: Pod, found: Index, *names: str, promises: tuple[Promise, ...] = ()) -> str:
    """`node: victims` of the choice."""
    choice = choose(preemptor, _all(found, *names), found, promises)
    assert choice is not None
    return f"{choice.node}: {' '.join(choice.uids)}"


def test_tiers_give_way_in_order() -> None:
    """Surplus, guaranteed, support; foreign pods last. Trainers without a tier are surplus."""
    first, second = trainers(_A, ["n0", "n0"])
    ranks = [second, replace(first, tier=None), first, support(_A, "m"), service("s")]

    assert [tier_rank(pod) for pod in ranks] == [0, 0, 1, 2, 3]
    assert tier_rank(replace(first, tier=None, role=Role.MASTER)) == 2


def test_the_least_loss_goes_first() -> None:
    """Surplus before guaranteed, waiting before running, starting before ready, young before old."""
    old = trainer(_A, 1, "n0")
    order = [
        trainer(_A, 9, ""),
        trainer(_A, 8, "n0", ready=False),
        trainer(_A, 7, "n0", started_s=NOW_S),
        replace(old, trainer_id=2),
        old,
        trainer(_A, 0, "n0", Tier.GUARANTEED),
    ]
    shuffled = [order[i] for i in (3, 0, 5, 2, 4, 1)]

    assert sorted(shuffled, key=loss) == order


def test_surplus_goes_before_guaranteed() -> None:
    """On the node, and between nodes."""
    pods = [
        trainer(_A, 0, "n0", Tier.GUARANTEED),
        trainer(_A, 1, "n1", Tier.GUARANTEED),
        trainer(_A, 2, "n1"),
    ]
    found = index([node("n0", 5), node("n1", 10)], [_A], pods)

    assert _chosen(service("s", 3), found, "n0", "n1") == "n1: a-002"


def test_a_master_never_goes_while_trainers_can() -> None:
    """Not even where one master would be enough and two trainers are needed."""
    pods = [support(_A, "m", "n0", cpu=5), trainer(_A, 1, "n0", requests=shape(2))]
    pods += [trainer(_A, 2, "n0", Tier.GUARANTEED, requests=shape(3))]
    found = index([node("n0", 10)], [_A], pods)

    assert _chosen(service("s", 5), found, "n0") == "n0: a-001 a-002"


def test_the_trainer_with_the_master_goes_last_in_its_tier() -> None:
    """On the node, and between nodes: its master would have to move."""
    first = trainer(_A, 0, "n0", Tier.GUARANTEED, master=True)
    second = trainer(_A, 1, "n0", Tier.GUARANTEED)
    both = index([node("n0", 10)], [_A], [first, second])
    third = replace(second, node="n1")
    apart = index([node("n0", 5), node("n1", 5)], [_A], [first, third])

    assert sorted([first, second], key=loss) == [second, first]
    assert _chosen(service("s", 3), both, "n0") == "n0: a-001"
    assert _chosen(service("s", 3), apart, "n0", "n1") == "n1: a-001"


def test_the_job_that_holds_most_gives_first() -> None:
    """For its weight, counting what it holds everywhere."""
    pods = [trainer(_A, 1, "n0"), trainer(_B, 1, "n0"), trainer(_B, 2, "n1")]
    nodes = [node("n0", 10), node("n1", 10)]

    assert _chosen(service("s"), index(nodes, [_A, _B], pods), "n0") == "n0: b-001"
    heavy = replace(_B, weight=3)
    assert _chosen(service("s"), index(nodes, [_A, heavy], pods), "n0") == "n0: a-001"


def test_queue_weights_count() -> None:
    """A heavier queue keeps its trainers."""
    night = replace(_B, queue="night")
    pods = [trainer(_A, 1, "n0"), trainer(night, 1, "n0"), trainer(night, 2, "n1")]
    found = index([node("n0", 10), node("n1", 10)], [_A, night], pods)

    choice = choose(service("s"), _all(found, "n0"), found, weights={"night": 5})

    assert choice == Candidate("n0", ("a-001",), 0)


def test_among_equals_the_least_uncommitted_work_goes() -> None:
    """What the master says of a trainer counts before its age, on a node and between nodes."""
    busy = trainer(_A, 1, "n0", uncommitted_s=9.0, started_s=NOW_S)
    idle = trainer(_A, 2, "n0", uncommitted_s=1.0)
    fresh = [trainer(_A, number, "n1") for number in (3, 4)]
    found = index([node("n0", 10), node("n1", 10)], [_A], [busy, idle, *fresh])

    assert _chosen(service("s"), found, "n0") == "n0: a-002"
    assert _chosen(service("s"), found, "n0", "n1") == "n1: a-003"


def test_among_equals_the_youngest_goes() -> None:
    """It has done least."""
    pods = [trainer(_A, 1, "n0"), trainer(_A, 2, "n0", started_s=NOW_S), trainer(_A, 3, "n0")]

    assert _chosen(service("s"), index([node("n0", 15)], [_A], pods), "n0") == "n0: a-002"


def test_pods_of_no_known_job_are_their_own() -> None:
    """Trainers of other operators count by what each of them asks for."""
    small = trainer(job("x", cpu=2), 1, "n0", job="")
    large = trainer(job("y", cpu=5), 1, "n0", job="")
    found = index([node("n0", 7)], [], [small, large])

    assert _chosen(service("s", 2), found, "n0") == "n0: y-001"


def test_a_victim_that_is_not_needed_is_spared() -> None:
    """Small trainers taken first stay where a large one is needed anyway."""
    pods = [trainer(_A, i, "n0", requests=shape(1)) for i in (1, 2)]
    pods += [trainer(_B, 1, "n0", requests=shape(8))]
    found = index([node("n0", 10)], [_A, _B], pods)

    assert _chosen(service("s", 8), found, "n0") == "n0: b-001"


def test_of_several_that_could_be_spared_the_dearest_is() -> None:
    """Six CPU: the surplus trainer and one guaranteed go, not both guaranteed ones."""
    pods = [
        trainer(_A, 2, "n0", requests=shape(2)),
        trainer(_A, 0, "n0", Tier.GUARANTEED, requests=shape(3), started_s=NOW_S),
        trainer(_A, 1, "n0", Tier.GUARANTEED, requests=shape(5)),
    ]

    assert _chosen(service("s", 6), index([node("n0", 10)], [_A], pods), "n0") == "n0: a-001 a-002"


@CALM
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 6), st.integers(1, 20))
def test_no_victim_could_be_exchanged_for_cheaper_ones(
    sizes: list[int], surplus: int, cpu: int
) -> None:
    """Of all sets that make room the one goes whose dearest trainer, then its next, costs least."""
    assume(cpu <= sum(sizes))
    tiers = [Tier.SURPLUS if i < surplus else Tier.GUARANTEED for i in range(len(sizes))]
    pods = [
        trainer(_A, i, "n0", tier, requests=shape(size), uncommitted_s=float(i))
        for i, (size, tier) in enumerate(zip(sizes, tiers, strict=True))
    ]  # the cheapest first, so that a set's bits as a number say how dear it is
    found = index([node("n0", sum(sizes))], [_A], pods)

    cheapest = min(
        bits
        for bits in range(1, 1 << len(sizes))
        if sum(size for i, size in enumerate(sizes) if bits >> i & 1) >= cpu
    )

    uids = " ".join(pod.uid for i, pod in enumerate(pods) if cheapest >> i & 1)
    assert _chosen(service("s", cpu), found, "n0") == f"n0: {uids}"


def test_one_trainer_makes_room_for_two_services() -> None:
    """5 CPU beside 1 free are 6: two services of 3 come cheaper than on a node with none free."""
    pods = [trainer(_A, 1, "n0"), trainer(_A, 2, "n1")]
    nodes = [node("n0", 5), node("n1", 6)]
    waiting = [service("s0"), service("s1")]

    assert _chosen(waiting[0], index(nodes, [_A], [*pods, *waiting]), "n0", "n1") == "n1: a-002"


def test_what_goes_next_counts_as_it_is() -> None:
    """Beside it there is a trainer of 7 CPU: two then make room for three services, not for two."""
    small, large = job("small", cpu=4), job("large", cpu=8)
    pods = [
        trainer(small, 1, "n1", started_s=NOW_S),
        trainer(large, 1, "n1", started_s=NOW_S - 900),
        trainer(small, 2, "n0", started_s=NOW_S - 1),
        trainer(small, 3, "n0", started_s=NOW_S - 900),
    ]
    nodes = [node("n0", 8), node("n1", 12)]
    waiting = [service(f"s{i}", 4) for i in range(3)]

    found = index(nodes, [small, large], [*pods, *waiting])

    assert _chosen(waiting[0], found, "n0", "n1") == "n1: small-001"


def test_the_preemptor_counts_once() -> None:
    """A lone service takes one victim, not two where a second service would have fitted."""
    big, small = job("big", cpu=3), job("small", cpu=5)
    pods = [trainer(big, 1, "n0"), trainer(big, 2, "n0"), trainer(small, 1, "n1")]
    pods += [service("full", 3, "n2")]
    nodes = [node("n0", 6), node("n1", 5), node("n2", 30)]
    lone = service("s", 5)

    found = index(nodes, [big, small], [*pods, lone])

    assert _chosen(lone, found, "n0", "n1") == "n1: small-001"


def test_leavers_cost_nothing() -> None:
    """Where room is coming, nobody new is taken; the leavers are named as the victims."""
    pods = [trainer(_A, 1, "n0"), trainer(_A, 2, "n1", deleting=True), trainer(_A, 3, "n1")]
    found = index([node("n0", 5), node("n1", 10)], [_A], pods)

    assert _chosen(service("s"), found, "n0", "n1") == "n1: a-002"


def test_room_given_away_is_not_given_twice() -> None:
    """Promises of the same rank count, once and for others only; their victims count as gone."""
    pods = [trainer(_A, i, "n0") for i in (1, 2, 3)]
    nodes = [node("n0", 15)]
    found = index(nodes, [_A], pods)
    promise = Promise("uid-other", "n0", shape(3), 0, frozenset({"a-001"}))

    assert _chosen(service("s", 2), found, "n0", promises=(promise,)) == "n0: a-001"
    assert _chosen(service("s", 3), found, "n0", promises=(promise,)) == "n0: a-002"
    nominated = service("other", 3, nominated="n0")
    found.put_pod(nominated)
    assert _chosen(service("s", 3), found, "n0", promises=(promise,)) == "n0: a-002"
    assert _chosen(nominated, found, "n0", promises=(promise,)) == "n0: a-001"


@pytest.mark.parametrize("priority", [0, 1])
def test_room_of_a_nominated_pod_is_its_own(priority: int) -> None:
    """Two of one rank or above would take the same room, and the second would preempt again."""
    pods = [trainer(_A, i, "n0") for i in (1, 2, 3)]
    before = service("before", 3, nominated="n0", priority=priority)
    alone = index([node("n0", 15)], [_A], pods)
    beside = index([node("n0", 15)], [_A], [*pods, before])

    assert _chosen(service("s", 3), alone, "n0") == "n0: a-001"
    assert _chosen(service("s", 3), beside, "n0") == "n0: a-001 a-002"


def _asking(tier: Tier, name: str, owner: Job, where: str = "") -> Pod:
    """A pod of 5 CPU of that tier."""
    if tier is Tier.SUPPORT:
        return support(owner, name, where, cpu=5)
    return trainer(owner, 0, where, tier)


@pytest.mark.parametrize("tier", [Tier.GUARANTEED, Tier.SUPPORT])
def test_a_job_never_takes_what_ranks_as_its_own(tier: Tier) -> None:
    """Where the lower pods' room is promised already, another job's minimum and servers stay."""
    surplus, equal = trainer(_B, 1, "n0"), _asking(tier, "held", _B, "n0")
    found = index([node("n0", 10)], [_A, _B], [surplus, equal])
    promise = Promise("uid-other", "n0", shape(5), 0, frozenset({surplus.uid}))
    proposed = Candidate("n0", (surplus.uid,))

    assert choose(_asking(tier, "new", _A), [proposed], found, (promise,)) == proposed


def test_lower_nominations_do_not_bind() -> None:
    """A pod that ranks below the preemptor gets no room before it."""
    pods = [trainer(_A, 1, "n0"), service("low", 3, nominated="n0", priority=-5)]
    found = index([node("n0", 5)], [_A], pods)
    promise = Promise("uid-x", "n0", shape(3), -5, frozenset())

    assert _chosen(service("s", 3), found, "n0", promises=(promise,)) == "n0: a-001"


def test_a_node_of_no_help_keeps_its_proposal() -> None:
    """Where training cannot free enough, kube-scheduler's victims stand, and come last."""
    pods = [service("low", 8, "n0", priority=-1), trainer(_A, 1, "n0", requests=shape(1))]
    found = index([node("n0", 9), node("n1", 18)], [_A], [*pods, *trainers(_B, ["n1"] * 3)])
    stands = Candidate("n0", ("uid-low",), 1)

    assert choose(service("s", 8), [stands], found) == stands
    assert choose(service("s", 8), [stands, *_all(found, "n1")], found) == Candidate(
        "n1", ("b-001",), 0
    )


@pytest.mark.parametrize(
    "candidate", [Candidate("gone", ("x",)), Candidate("n0", ("never-seen",), 2)]
)
def test_what_the_index_does_not_know_is_kept_as_it_came(candidate: Candidate) -> None:
    """A node or a victim that the watch has not shown yet: taken only where nothing is better."""
    found = index([node("n0", 5), node("n1", 5)], [_A], [trainer(_A, 0, "n1", Tier.GUARANTEED)])

    assert choose(service("s"), [candidate], found) == candidate
    better = choose(service("s"), [candidate, *_all(found, "n1")], found)
    assert better is not None
    assert better.node == "n1"


def test_candidates_that_training_cannot_help_go_by_their_names() -> None:
    """A trainer that does not make room enough, a node that is unknown: neither says more."""
    found = index([node("n0", 9)], [_A], [trainer(_A, 1, "n0")])
    known, unknown = Candidate("n0", ("a-001",)), Candidate("n1", ("x",))

    assert choose(service("s", 18), [unknown, known], found) == known


def test_no_victims_no_choice() -> None:
    """Candidates without victims are none."""
    assert choose(service("s"), [Candidate("n0", ())], index([node("n0")])) is None
    assert choose(service("s"), [], index()) is None


@pytest.mark.parametrize(
    ("proposed", "violations", "counted"),
    [(("a-001", "a-000"), 2, 1), (("a-001",), 0, 0), (("a-000",), 1, 0)],
)
def test_budget_violations_are_counted_for_our_choice(
    proposed: tuple[str, ...], violations: int, counted: int
) -> None:
    """Never more than the victims; surplus is outside of every budget of ours."""
    pods = [trainer(_A, 0, "n0", Tier.GUARANTEED), trainer(_A, 1, "n0")]
    found = index([node("n0", 10)], [_A], pods)

    choice = choose(service("s"), [Candidate("n0", proposed, violations)], found)

    assert choice == Candidate("n0", ("a-001",), counted)


def test_guaranteed_trainers_violate_their_budget() -> None:
    """Each of them that is taken beyond the proposal counts one."""
    pods = [trainer(_A, i, "n0", Tier.GUARANTEED) for i in (0, 1)]
    pods += [service("low", 5, "n0", priority=-1)]
    found = index([node("n0", 15)], [_A], pods)

    choice = choose(service("s", 9), [Candidate("n0", ("uid-low", "a-000"), 1)], found)

    assert choice == Candidate("n0", ("a-000", "a-001"), 2)


def _proposals(preemptor: Pod, found: Index) -> list[Candidate]:
    return [c for name in sorted(found.nodes) for c in propose(preemptor, name, found)]


def _guaranteed(found: Index, choice: Candidate) -> int:
    taken = (found.pods[uid] for uid in choice.uids)
    return sum(tier_rank(pod) == 1 and not pod.deleting for pod in taken)


def _ranked(tier: Tier | None, owner: Job, name: str, cpu: int) -> Pod:
    """A waiting pod of a rank that preempts; None for a service's."""
    if tier is None:
        return service(name, cpu)
    if tier is Tier.SUPPORT:
        return support(owner, name, cpu=cpu)
    return replace(trainer(owner, 0, tier=tier, requests=shape(cpu)), name=name, uid=f"uid-{name}")


_RANKS = st.sampled_from([None, Tier.SUPPORT, Tier.GUARANTEED])


@st.composite
def _crowded(draw: st.DrawFn) -> tuple[Pod, Index]:
    """A preemptor, and two nodes full of training to which other waiting pods are nominated."""
    size = st.tuples(st.sampled_from(Tier), st.integers(1, 5), st.integers(0, 6))
    nodes: list[Node] = []
    pods: list[Pod] = []
    for name in ("n0", "n1"):
        here = draw(st.lists(size, min_size=1, max_size=5))
        nodes.append(node(name, sum(cpu for _, cpu, _ in here) + draw(st.integers(0, 2))))
        for tier, cpu, state in here:
            owner = draw(st.sampled_from([_A, _B]))
            pod = trainer(owner, len(pods), name, tier, requests=shape(cpu), deleting=state == 0)
            pods.append(pod)
    for number in range(draw(st.integers(0, 3))):
        pod = _ranked(draw(_RANKS), _B, f"before-{number}", draw(st.integers(1, 4)))
        pods.append(replace(pod, nominated=draw(st.sampled_from(["n0", "n1"]))))
    preemptor = _ranked(draw(_RANKS), _A, "new", draw(st.integers(1, 9)))
    return preemptor, index(nodes, [_A, _B], pods)


@CALM
@given(_crowded())
def test_a_choice_frees_enough_beside_those_that_come_first(case: tuple[Pod, Index]) -> None:
    """The preemptor fits once all pods nominated to the node, of its rank or above, have come."""
    preemptor, found = case
    choice = choose(preemptor, _proposals(preemptor, found), found)
    assume(choice is not None)
    assert choice is not None

    free = free_beside(preemptor, choice.node, found)
    gone = {uid: pod for uid, pod in found.bound[choice.node].items() if pod.deleting}
    for pod in (gone | {uid: found.pods[uid] for uid in choice.uids}).values():
        amounts.add(free, pod.requests)
    assert amounts.within(preemptor.requests, free)


@CALM
@given(_crowded(), st.lists(st.booleans(), min_size=10, max_size=10), st.integers(1, 5))
def test_a_choice_takes_nobody_of_its_rank_or_above(
    case: tuple[Pod, Index], promised: list[bool], cpu: int
) -> None:
    """Even where the room that lower ones can make is promised to somebody else."""
    preemptor, found = case
    bound = [pod for name in ("n0", "n1") for pod in found.bound[name].values()]
    lower = [pod.uid for pod, yes in zip(bound, promised, strict=False) if yes and is_surplus(pod)]
    promises = [Promise("uid-x", name, shape(cpu), 0, frozenset(lower)) for name in ("n0", "n1")]

    choice = choose(preemptor, _proposals(preemptor, found), found, promises)

    taken = [found.pods[uid] for uid in choice.uids] if choice else []
    assert all(pod.priority < preemptor.priority for pod in taken if not pod.deleting)


@CALM
@given(cases(), st.integers(1, 20))
def test_a_choice_is_never_worse_than_the_schedulers_own(case: Case, cpu: int) -> None:
    """On no node more guaranteed trainers die than kube-scheduler would have taken there."""
    found = Index.of(case.snapshot)
    preemptor = service("preemptor", cpu)
    for proposal in _proposals(preemptor, found):
        choice = choose(preemptor, [proposal], found)
        assert choice is not None
        assert _guaranteed(found, choice) <= _guaranteed(found, proposal)


def test_servers_make_a_job_richer() -> None:
    """Of two jobs with a trainer each on the node, the one that holds servers gives."""
    served = job("zserved", 1, 9, servers=servers(2, 2))
    plain = job("a", 1, 9)
    pods = [
        trainer(plain, 0, "n0"),
        trainer(served, 0, "n0"),
        server(served, 0, "n1"),
        server(served, 1, "n1"),
    ]
    found = index([node("n0", 10), node("n1", 10)], [served, plain], pods)

    assert _chosen(service("s", 5), found, "n0") == "n0: zserved-000"
