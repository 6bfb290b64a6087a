"""Nodes that are promised to services, and what is kept about pods that were turned away."""

from typing import Any

from policy.names import Role, Tier
from tests.extender.bench import EPOCH_S, NO_COOLING, Bench
from tests.reconciler import objects


def _promised(policy: str = NO_COOLING) -> tuple[Bench, Any, Any]:
    """An extender that promised n0 to a service, the service, and a trainer that waits."""
    bench = Bench(policy)
    bench.add_node("n0", 6)
    web = bench.add_pod(objects.pod("web", 6))
    victim = bench.add_pod(objects.trainer("net", 0, "n0"))
    waiting = bench.add_pod(objects.trainer("net", 1))
    bench.look()
    bench.preempts(web, n0=[victim])
    bench.drop_pod(victim)
    bench.look()
    assert bench.keeps(waiting, "n0") == []
    return bench, web, waiting


def test_a_promise_ends_when_its_pod_is_gone() -> None:
    """Its room is free for others."""
    bench, web, waiting = _promised()
    bench.drop_pod(web)
    bench.look()

    assert bench.keeps(waiting, "n0") == ["n0"]


def test_a_promise_ends_when_its_pod_is_bound() -> None:
    """To another node, even: after that the state shows it."""
    bench, web, waiting = _promised()
    bench.add_node("n1", 18)
    bench.change_pod(web, {"spec": {"nodeName": "n1"}})
    bench.look()

    assert bench.keeps(waiting, "n0") == ["n0"]


def test_a_promise_ends_after_a_while() -> None:
    """Its pod was never seen to come; the scheduler may have thought better of it."""
    bench, _, waiting = _promised()
    bench.clock.advance(4.9)
    before = bench.keeps(waiting, "n0")
    bench.clock.advance(0.2)

    assert before == []
    assert bench.keeps(waiting, "n0") == ["n0"]


def test_a_promise_outlives_other_changes_of_its_pod() -> None:
    """A nomination is the first that is seen of it, and then holds the room itself."""
    bench, web, waiting = _promised()
    bench.change_pod(web, {"status": {"nominatedNodeName": "n0"}}, "status")
    bench.look()
    bench.clock.advance(60)

    assert bench.keeps(waiting, "n0") == []


def test_a_promise_ends_when_its_pod_is_nominated_elsewhere() -> None:
    """kube-scheduler took another candidate than the one that was expected."""
    bench, web, waiting = _promised()
    bench.add_node("n1", 18)
    bench.change_pod(web, {"status": {"nominatedNodeName": "n1"}}, "status")
    bench.look()

    assert bench.keeps(waiting, "n0") == ["n0"]


def test_a_node_that_gave_capacity_cools_down() -> None:
    """Even if the promise has ended; while services wait, for as long as the policy says."""
    bench, web, waiting = _promised('{"stability": {"coolDownSeconds": 20}}')
    bench.add_pod(objects.pod("next", 6))
    bench.drop_pod(web)
    bench.look()
    bench.clock.advance(19)
    before = bench.ask("filter", {"Pod": waiting, "NodeNames": ["n0"]})["FailedNodes"]
    bench.clock.advance(2)

    assert before == {"n0": "NodeCoolingDown"}
    assert bench.keeps(waiting, "n0") == ["n0"]


def test_support_pods_are_not_held_back() -> None:
    """A parameter server goes where a surplus trainer may not."""
    bench, _, _ = _promised()
    server = bench.add_pod(objects.member("net", "ps-0", Role.PSERVER, Tier.SUPPORT))

    assert bench.keeps(server, "n0") == ["n0"]


def _why(bench: Bench, pod: Any) -> Any:
    """What is kept about a pod."""
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    answer = bench.client.get(f"/decisions?pod={key}")
    assert answer.status_code == 200, answer.text
    assert answer.json is not None
    return answer.json["decisions"]


def test_rejected_nodes_are_kept_by_reason() -> None:
    """How many, a few of them by name, and the figures of those."""
    bench, _, waiting = _promised()
    unknown = [f"n{number}" for number in range(5, 10)]
    bench.keeps(waiting, "n0", *unknown)

    figures = {record["code"]: record["figures"] for record in _why(bench, waiting)}
    assert figures["NodeUnknown"] == {"nodes": 5, "n5": "", "n6": "", "n7": ""}
    assert figures["NodePromisedToService"]["nodes"] == 1
    assert "6 cpu promised to other pods, 5 cpu needed" in figures["NodePromisedToService"]["n0"]


def test_a_pod_that_is_asked_about_again_leaves_one_record_for_each_reason() -> None:
    """kube-scheduler asks for the same pod many times."""
    bench, _, waiting = _promised()
    for _ in range(40):
        bench.keeps(waiting, "n0", "n5")

    codes = [record["code"] for record in _why(bench, waiting)]
    assert sorted(codes) == ["NodePromisedToService", "NodeUnknown"]


def test_a_node_that_cools_down_says_for_how_long() -> None:
    """From now on."""
    bench, web, waiting = _promised('{"stability": {"coolDownSeconds": 20}}')
    bench.add_pod(objects.pod("next", 6))
    bench.drop_pod(web)
    bench.look()
    bench.clock.advance(5)
    bench.keeps(waiting, "n0")

    figures = {record["code"]: record["figures"] for record in _why(bench, waiting)}
    assert figures["NodeCoolingDown"] == {"nodes": 1, "n0": "no new trainers for another 15 s"}


def test_a_record_has_the_time_of_day(bench: Bench) -> None:
    """Not that of the clock that promises go by."""
    waiting = bench.add_pod(objects.trainer("net", 1))
    bench.keeps(waiting, "n5")
    (decision,) = _why(bench, waiting)

    assert decision["at"] == EPOCH_S
    assert decision["about"] == "pod ml/net-trainer-1"


def test_a_pod_that_was_never_turned_away_has_no_records(bench: Bench) -> None:
    """404, with what to write."""
    waiting = bench.add_pod(objects.trainer("net", 1))
    bench.keeps(waiting, "n0", "n1")
    answer = bench.client.get("/decisions?pod=ml/net-trainer-1")

    assert answer.status_code == 404
    assert bench.value("edl_extender_decisions_dropped_total") == "0.0"
