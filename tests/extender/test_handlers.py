from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import handlers
from extender.handlers import FilterVerdict, View
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Pod
from policy.document.model import NodePool, Policy
from policy.names import Tier
from policy.planning.victims import Candidate, Promise
from policy.reasons import Reason
from tests.support.builders import NOW_S, cluster_state, job, node, service, shape, support, trainer
from tests.support.strategies import CALM

JOB = job("net", 2, 20)
SURPLUS = trainer(JOB, 9)
GUARANTEED = trainer(JOB, 8, tier=Tier.GUARANTEED)
MASTER = support(JOB, "net-master")
PROMISE = Promise("uid-web", "n0", shape(3), 0, frozenset())


def _filter(
    pod: Pod,
    cluster: ClusterState,
    *names: str,
    policy: Policy | None = None,
    promises: tuple[Promise, ...] = (),
    cooling: Mapping[str, float] | None = None,
) -> FilterVerdict:
    view = View(cluster, promises, cooling or {}, NOW_S)
    return handlers.filter_nodes(pod, names, view, policy or Policy())


def test_nodes_are_kept_where_nothing_speaks_against_them() -> None:
    """kube-scheduler has looked at room, taints and selectors already."""
    cluster = cluster_state([node("n0"), node("n1", cpu=1)])

    assert _filter(SURPLUS, cluster, "n0", "n1") == FilterVerdict(["n0", "n1"], {}, {})


def test_a_node_that_is_not_known_yet_may_be_tried_later() -> None:
    """Its watch event is on the way."""
    assert _filter(SURPLUS, cluster_state(), "n0").failed == {"n0": "NodeUnknown"}


def test_nodes_outside_the_pools_are_no_use_at_all() -> None:
    """Preemption would not help there."""
    cluster = cluster_state([node("n0", labels={"pool": "a"}), node("n1", labels={"pool": "b"})])
    policy = Policy(node_pools=(NodePool(name="a", labels={"pool": "a"}),))
    verdict = _filter(SURPLUS, cluster, "n0", "n1", policy=policy)

    assert verdict == FilterVerdict(["n0"], {}, {"n1": "OutsideNodePools"})


def test_pools_bind_trainers_of_both_tiers_alone() -> None:
    """A master may run anywhere."""
    cluster = cluster_state([node("n0")])
    policy = Policy(node_pools=(NodePool(name="a", labels={"pool": "a"}),))

    assert _filter(GUARANTEED, cluster, "n0", policy=policy).unresolvable
    assert _filter(MASTER, cluster, "n0", policy=policy).passed == ["n0"]


def test_a_node_that_gave_capacity_back_gets_no_surplus_for_a_while() -> None:
    """The rest of what was freed is for the next service."""
    cluster = cluster_state([node("n0"), node("n1")], pods=[service("web")])
    cooling = {"n0": NOW_S + 1, "n1": NOW_S}

    assert _filter(SURPLUS, cluster, "n0", "n1", cooling=cooling) == FilterVerdict(
        ["n1"], {"n0": "NodeCoolingDown"}, {}
    )


def test_nothing_cools_down_when_no_service_waits() -> None:
    """No event would wake the trainer when the time is over."""
    gated = replace(service("later"), gated=True)
    cluster = cluster_state([node("n0")], pods=[gated])

    assert _filter(SURPLUS, cluster, "n0", cooling={"n0": NOW_S + 9}).passed == ["n0"]


def test_nothing_cools_down_for_those_that_outrank_nobody() -> None:
    """Waiting surplus is not a reason to keep a node free from other surplus."""
    cluster = cluster_state([node("n0")], pods=[trainer(JOB, 1)])

    assert _filter(SURPLUS, cluster, "n0", cooling={"n0": NOW_S + 9}).passed == ["n0"]


def test_what_is_left_of_a_cool_down_is_told_in_tenths() -> None:
    """A person reads it."""
    cluster = cluster_state([node("n0")], pods=[service("web")])
    view = View(cluster, (), {"n0": NOW_S + 1.26}, NOW_S)
    (decision,) = handlers.rejections(SURPLUS, {"n0": Reason.NODE_COOLING_DOWN}, view, 7.0)

    assert decision.figures == {"nodes": 1, "n0": "no new trainers for another 1.3 s"}
    assert decision.at_s == 7.0


def test_promised_room_is_not_given_away_again() -> None:
    """A trainer fits beside a promise, or it does not."""
    cluster = cluster_state([node("n0", 7), node("n1", 8), node("n2", 7)])
    promises = (PROMISE, replace(PROMISE, uid="other", node="n1"))
    verdict = _filter(SURPLUS, cluster, "n0", "n1", "n2", promises=promises)

    assert verdict == FilterVerdict(["n1", "n2"], {"n0": "NodePromisedToService"}, {})


def test_a_nominated_pod_holds_its_room() -> None:
    """kube-scheduler never tells extenders of nominations."""
    web = service("web", nominated="n0")

    assert _filter(SURPLUS, cluster_state([node("n0", 7)], pods=[web]), "n0").failed == {
        "n0": Reason.NODE_PROMISED
    }


def test_what_the_watch_shows_counts_once() -> None:
    """A nomination and the promise that led to it are the same room."""
    web = service("web", nominated="n0")
    cluster = cluster_state([node("n0", 8)], pods=[web])

    assert _filter(SURPLUS, cluster, "n0", promises=(PROMISE,)).passed == ["n0"]
    assert handlers.promised(cluster, (PROMISE,), -1000) == {"n0": shape(3)}


def test_room_of_lower_pods_is_not_held_against_higher_ones() -> None:
    """Only what outranks a pod takes its room."""
    other = service("web", nominated="n0", priority=-5000)
    cluster = cluster_state([node("n0")], pods=[other, service("idle")])

    assert handlers.promised(cluster, (replace(PROMISE, priority=-1000),), -1000) == {}


def test_a_nomination_of_the_same_rank_holds_no_room() -> None:
    """Surplus never preempts: who came first among equals is the scheduler's to say."""
    equal = service("idle", nominated="n0", priority=SURPLUS.priority)
    cluster = cluster_state([node("n0", 7)], pods=[equal])

    assert handlers.promised(cluster, (), SURPLUS.priority) == {}


def test_what_is_given_away_on_one_node_adds_up() -> None:
    """Promises, and nominations that the watch shows already."""
    pods = [service(f"web-{i}", nominated="n0") for i in range(2)]
    second_promise = replace(PROMISE, uid="uid-more")

    promised_amounts = handlers.promised(
        cluster_state([node("n0", 20)], pods=pods), (second_promise,), SURPLUS.priority
    )

    assert promised_amounts["n0"]["cpu"] == 9000


@pytest.mark.parametrize("pod", [GUARANTEED, MASTER])
def test_pods_that_outrank_surplus_are_not_held_back(pod: Pod) -> None:
    """A job's start is worth more than a service's elbow room."""
    cluster = cluster_state([node("n0", 7)])
    verdict = _filter(pod, cluster, "n0", promises=(PROMISE,), cooling={"n0": NOW_S + 9})

    assert verdict.passed == ["n0"]


def test_the_planned_node_stands_for_all_that_pass() -> None:
    """kube-scheduler scores no single node, and asks no second time; the others are not refused."""
    cluster = cluster_state([node(name, 7) for name in ("n0", "n1", "n2")])
    planned = replace(SURPLUS, planned="n1")

    verdict = _filter(planned, cluster, "n0", "n1", "n2", "n3")
    without = _filter(planned, cluster, "n0", "n2")
    closed = _filter(planned, cluster, "n0", "n1", promises=(replace(PROMISE, node="n1"),))

    assert verdict == handlers.FilterVerdict(["n1"], {"n3": Reason.NODE_UNKNOWN}, {})
    assert without.passed == ["n0", "n2"]
    assert (closed.passed, set(closed.failed)) == (["n0"], {"n1"})


_NAMES = [f"n{i}" for i in range(6)]


@CALM
@given(
    st.sets(st.sampled_from(_NAMES)),
    st.sets(st.sampled_from(_NAMES)),
    st.sets(st.sampled_from(_NAMES)),
    st.permutations(_NAMES),
    st.sampled_from([SURPLUS, GUARANTEED, MASTER]),
)
def test_every_node_is_in_exactly_one_place_without_a_planned_one(
    known_nodes: set[str], cooling: set[str], promised: set[str], names: list[str], pod: Pod
) -> None:
    """One in none would count as absent; reasons are constant words."""
    cluster = cluster_state(
        [node(name, 7, labels={"pool": "a" if name < "n4" else "b"}) for name in known_nodes]
    )
    verdict = _filter(
        pod,
        cluster,
        *names,
        policy=Policy(node_pools=(NodePool(name="a", labels={"pool": "a"}),)),
        promises=tuple(replace(PROMISE, uid=name, node=name) for name in promised),
        cooling=dict.fromkeys(cooling, NOW_S + 1),
    )
    places = [*verdict.passed, *verdict.failed, *verdict.unresolvable]

    assert sorted(places) == _NAMES
    assert verdict.passed == [name for name in names if name in verdict.passed]
    assert {*verdict.failed.values(), *verdict.unresolvable.values()} <= set(Reason)


def test_trainers_go_where_they_fragment_least() -> None:
    """10 where they fit best, 0 where worst; nodes that are not known get 0."""
    cluster = cluster_state([node("n0", 10), node("n1", 14), node("n2", 9)], [job("a", cpu=5)])
    pod = service("odd", 4)

    assert handlers.prioritize(pod, ["n0", "n1", "n2", "n3"], cluster) == {
        "n0": 0,
        "n1": 5,
        "n2": 10,
        "n3": 0,
    }


def test_without_nodes_there_are_no_scores() -> None:
    """Nothing is divided by nothing."""
    assert handlers.prioritize(SURPLUS, [], cluster_state()) == {}


def test_victims_are_those_of_the_richer_job() -> None:
    """kube-scheduler's own proposal is only where the search starts."""
    poor, rich = job("poor"), job("rich")
    pods = [
        trainer(poor, 0, "n0"),
        *(trainer(rich, i, "n0") for i in (0, 1)),
    ]
    cluster = cluster_state([node("n0", 15)], [poor, rich], pods)
    proposal = Candidate("n0", ("poor-000",))
    view = View(cluster, (), {}, NOW_S)
    (chosen,) = handlers.preempt(service("web"), (proposal,), view, Policy(), NOW_S)

    assert chosen.uids[0].startswith("rich")


def test_queue_weights_decide_who_is_rich() -> None:
    """A queue of weight 10 may hold ten times as much."""
    heavy, light = job("heavy", queue="q"), job("light")
    pods = [trainer(light, 0, "n0"), *(trainer(heavy, i, "n0") for i in (0, 1))]
    cluster = cluster_state([node("n0", 15)], [heavy, light], pods)
    policy = Policy.model_validate({"fairness": {"queueWeights": {"q": 10}}})
    proposal = Candidate("n0", ("heavy-000",))

    view = View(cluster, (), {}, NOW_S)
    assert handlers.preempt(service("web"), (proposal,), view, policy, NOW_S) == (
        Candidate("n0", ("light-000",)),
    )
