"""The extender's answers to kube-scheduler, to bad requests and to probes."""

from typing import Any

import pytest

from kube import request
from kube.request import JOBS
from policy.planning import victims
from tests.extender.bench import MAX_BYTES, Bench
from tests.extender.vectors import sent
from tests.reconciler import objects


def uid(pod: Any) -> str:
    """Of a pod as the API server has it."""
    pod_uid: str = pod["metadata"]["uid"]
    return pod_uid


def test_filter_answers_for_every_node(bench: Bench) -> None:
    """A request as kube-scheduler sends it: two nodes are known, one is not yet."""
    assert bench.ask("filter", sent("filter")) == {
        "NodeNames": ["n0", "n1"],
        "FailedNodes": {"n2": "NodeUnknown"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    assert bench.value('edl_extender_nodes_rejected_total{reason="NodeUnknown"}') == "1.0"


def test_prioritize_answers_with_integers(bench: Bench) -> None:
    """Within the contract's range."""
    bench.add_job("net")
    bench.look()

    assert bench.ask("prioritize", sent("prioritize")) == [
        {"Host": "n0", "Score": 10},
        {"Host": "n1", "Score": 0},
    ]


def test_preempt_knows_candidates_that_the_watch_has_not_shown(bench: Bench) -> None:
    """All of them stand as they came."""
    question = sent("preempt")
    answer = bench.ask("preempt", question)

    assert answer["NodeNameToMetaVictims"] == question["NodeNameToMetaVictims"]
    assert len(question["NodeNameToMetaVictims"]) > 1


def test_preempt_without_victims_has_no_candidate(bench: Bench) -> None:
    """The answer is an empty map, not an error, and nothing is promised."""
    answer = bench.ask("preempt", sent("preempt-empty"))
    trainer = bench.add_pod(objects.trainer("net", 0))

    assert answer == {"NodeNameToMetaVictims": {}}
    assert bench.keeps(trainer, "n0") == ["n0"]


def test_preempt_on_a_node_that_is_not_known_answers(bench: Bench) -> None:
    """With what was proposed there."""
    web, victim = bench.add_pod(objects.pod("web")), bench.add_pod(objects.trainer("net", 0, "n9"))

    assert bench.preempts(web, n9=[victim]) == {"n9": [uid(victim)]}


def test_a_node_is_promised_to_who_preempts_there(bench: Bench) -> None:
    """Surplus of another size does not slip in between."""
    web = bench.add_pod(objects.pod("web", 18))
    victim = bench.add_pod(objects.trainer("net", 0, "n1"))
    waiting = bench.add_pod(objects.trainer("net", 1))
    bench.look()
    before = bench.keeps(waiting, "n0", "n1")
    bench.preempts(web, n1=[victim])

    assert before == ["n0", "n1"]
    assert bench.keeps(waiting, "n0", "n1") == ["n0"]


def test_two_services_in_a_row_share_a_victim(bench: Bench) -> None:
    """Before any watch event arrives: the second fits beside the first, nobody else dies."""
    first, second = (bench.add_pod(objects.pod(f"web-{i}", 3)) for i in range(2))
    victim = bench.add_pod(objects.trainer("net", 0, "n0"))
    others = [bench.add_pod(objects.trainer("net", i, "n1")) for i in (1, 2, 3)]
    bench.look()
    chosen = bench.preempts(first, n0=[victim], n1=others[:1])
    again = bench.preempts(second, n0=[victim], n1=others[:1])

    assert chosen == again == {"n0": [uid(victim)]}
    assert bench.value('edl_extender_victims_total{tier="surplus"}') == "2.0"


def test_a_third_service_needs_a_victim_of_its_own(bench: Bench) -> None:
    """Two of 3 CPU fill the node of 6; and asking again for the same pod changes nothing."""
    services = [bench.add_pod(objects.pod(f"web-{i}", 3)) for i in range(3)]
    victim = bench.add_pod(objects.trainer("net", 0, "n0"))
    others = [bench.add_pod(objects.trainer("net", i, "n1", cpu=4)) for i in (1, 2, 3, 4)]
    bench.look()
    for pod in (services[0], services[1], services[1]):
        assert bench.preempts(pod, n0=[victim], n1=others[:1]) == {"n0": [uid(victim)]}

    assert list(bench.preempts(services[2], n0=[victim], n1=others[:1])) == ["n1"]


def test_packing_follows_the_jobs(bench: Bench) -> None:
    """Which slot a pod fragments depends on the current shapes of trainers."""
    bench.add_node("n2", 10)
    odd = bench.add_pod(objects.trainer("other", 0, cpu=3))
    body = {"Pod": odd, "NodeNames": ["n1", "n2"]}
    bench.add_job("net")
    bench.look()
    with_fives = bench.ask("prioritize", body)
    bench.api.ask(request.delete(JOBS, "ml", "net"))
    bench.look()

    assert with_fives == [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 0}]
    assert bench.ask("prioritize", body) == [
        {"Host": "n1", "Score": 0},
        {"Host": "n2", "Score": 10},
    ]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "body"),
        (b"null", 400, "body"),
        (b'{"Pod": {}, "NodeNames": null, "NodeNameToMetaVictims": null}', 400, "nodeCacheCapable"),
        (b'{"Pod": {}, "NodeNames": [], "NodeNameToMetaVictims": {}}', 400, "core/v1 Pod"),
        (b'{"Pod": 5, "NodeNames": [], "NodeNameToMetaVictims": {}}', 400, "Pod"),
        (
            b'{"Pod": {"metadata": [], "spec": 1}, "NodeNames": [], "NodeNameToMetaVictims": {}}',
            400,
            "core/v1 Pod",
        ),
        (b" " * MAX_BYTES, 413, "capacity limit"),
    ],
)
def test_bad_requests_are_refused_in_one_line(
    bench: Bench, verb: str, body: bytes, status: int, says: str
) -> None:
    """A 4xx with the problem, counted, without a traceback; the next request is answered."""
    answer = bench.client.post(f"/{verb}", data=body, content_type="application/json")

    assert answer.status_code == status
    assert answer.json is not None
    assert says in answer.json["error"]["message"]
    assert "\n" not in answer.json["error"]["message"]
    assert bench.value(f'edl_extender_errors_total{{verb="{verb}"}}') == "1.0"
    assert bench.ask("filter", sent("filter"))["Error"] == ""


@pytest.mark.parametrize(
    ("verb", "name", "field"),
    [
        ("filter", "filter-nodes", "NodeNames"),
        ("prioritize", "filter-nodes", "NodeNames"),
        ("preempt", "preempt-pods", "NodeNameToMetaVictims"),
    ],
)
def test_without_node_cache_the_setting_is_named(
    bench: Bench, verb: str, name: str, field: str
) -> None:
    """The admin forgot `nodeCacheCapable: true`: the answer names field and setting."""
    answer = bench.client.post(f"/{verb}", json=sent(name))

    assert answer.status_code == 400
    assert answer.json is not None
    kind = "list" if field == "NodeNames" else "dictionary"
    assert answer.json["error"]["message"] == (
        f"{field}: Input should be a valid {kind}; set nodeCacheCapable: true in kube-scheduler's "
        "configuration"
    )


def test_a_field_inside_is_named_by_its_way(bench: Bench) -> None:
    """From the outside in."""
    victims = {"n0": {"Pods": [{"UID": 5}]}}
    answer = bench.client.post("/preempt", json={"Pod": {}, "NodeNameToMetaVictims": victims})

    assert answer.json is not None
    assert answer.json["error"]["message"].startswith(
        "NodeNameToMetaVictims.n0.Pods.0.UID: Input should be a valid string"
    )


def test_what_is_no_object_is_called_the_body(bench: Bench) -> None:
    """There is no field to name."""
    answer = bench.client.post("/filter", json=[])

    assert answer.json is not None
    assert answer.json["error"]["message"].startswith("body: ")


def test_another_content_type_is_refused(bench: Bench) -> None:
    """415, before anything is read."""
    assert bench.client.post("/filter", data=b"{}", content_type="text/plain").status_code == 415


def test_before_the_first_lists_it_does_not_answer() -> None:
    """To the scheduler 503 means: go on without me."""
    bench = Bench()
    answer = bench.client.post("/filter", json=sent("filter"))

    assert answer.status_code == 503
    assert answer.json is not None
    assert answer.json["error"]["message"] == "the extender has not listed the cluster yet"


def test_without_a_valid_policy_it_does_not_answer_and_is_not_ready() -> None:
    """Node pools may not be what the default says."""
    bench = Bench("pools: []")
    bench.look()
    answer = bench.client.post("/filter", json=sent("filter"))

    assert answer.status_code == 503
    assert _ready(bench)[0] == 503


def test_a_node_whose_pods_lead_to_an_error_does_not_fail_the_call(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its candidate goes back as it came; the others are narrowed as usual."""

    def narrow(pod: Any, candidates: Any, *args: Any, **kwargs: Any) -> Any:
        if any(candidate.node == "n0" for candidate in candidates):
            raise OverflowError("too large")
        return victims.narrow(pod, candidates, *args, **kwargs)

    web = bench.add_pod(objects.pod("web", 3))
    bad = bench.add_pod(objects.trainer("net", 0, "n0"))
    good = [bench.add_pod(objects.trainer("net", number, "n1")) for number in (1, 2)]
    bench.look()
    monkeypatch.setattr("extender.handlers.narrow", narrow)
    chosen = bench.preempts(web, n0=[bad], n1=good)

    assert chosen["n0"] == [uid(bad)]
    assert {*chosen["n1"]} <= {uid(pod) for pod in good}


def _ready(bench: Bench) -> tuple[int, dict[str, Any]]:
    """Status and details of its readiness."""
    answer = bench.client.get("/readyz")
    assert answer.json is not None
    return answer.status_code, answer.json


def test_before_the_first_lists_it_is_not_ready() -> None:
    """One that is missing is enough: half a cluster is none."""
    bench = Bench()
    for name, reflector in bench.cache.reflectors.items():
        if name != "pods":
            reflector.follow_once()
    before, details = _ready(bench)
    bench.look()

    assert (before, details["synced"]) == (503, False)
    assert _ready(bench)[0] == 200


def test_an_extender_with_dead_watches_is_not_ready(bench: Bench) -> None:
    """It would answer from what the cluster was three minutes ago: its Service goes without it."""
    bench.clock.advance(179.9)
    before, details = _ready(bench)
    bench.clock.advance(0.1)
    after = _ready(bench)[0]
    bench.look()

    assert (before, details["watch_age_seconds"]) == (200, 179.9)
    assert after == 503
    assert _ready(bench)[0] == 200


@pytest.mark.parametrize("dead", ["nodes", "pods", "jobs", "configmaps"])
def test_one_dead_watch_beside_healthy_ones_is_seen(dead: str, bench: Bench) -> None:
    """The others are heard of all the time."""
    for _ in range(2):
        bench.clock.advance(90)
        for name, reflector in bench.cache.reflectors.items():
            if name != dead:
                reflector.follow_once()

    assert _ready(bench)[0] == 503


def test_readiness_says_which_policy_is_in_force(bench: Bench) -> None:
    """And where it is from."""
    assert _ready(bench)[1]["policy"]["source"] == "configmap"


def test_readiness_and_a_metric_say_when_kube_scheduler_last_asked(bench: Bench) -> None:
    """Entries whose address does not resolve are ignored in silence: nobody ever asks."""
    before = _ready(bench)[1]["last_requests"]
    bench.client.post("/filter", data=b"{}")
    lines = bench.metrics.text().decode().splitlines()

    assert before == {"filter": "never", "prioritize": "never", "preempt": "never"}
    assert _ready(bench)[1]["last_requests"] == before | {"filter": "2023-11-14T22:13:20Z"}
    assert 'edl_extender_last_request_timestamp_seconds{verb="filter"} 1.7e+09' in lines
    assert 'edl_extender_last_request_timestamp_seconds{verb="preempt"} 0.0' in lines


def test_time_and_errors_are_there_from_the_start(bench: Bench) -> None:
    """So that a rate sees the first event."""
    assert bench.value('edl_extender_errors_total{verb="preempt"}') == "0.0"
    bench.ask("filter", sent("filter"))

    assert bench.value('edl_extender_answer_seconds_count{verb="filter"}') == "1.0"


def test_victims_are_counted_by_tier_and_logged(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """Those of training: what becomes of services is kube-scheduler's to count."""
    web = bench.add_pod(objects.pod("web", 18))
    victim = bench.add_pod(objects.trainer("net", 0, "n1"))
    other = bench.add_pod(objects.pod("low", 13, nodeName="n1"))
    bench.look()
    with caplog.at_level("INFO"):
        chosen = bench.preempts(web, n1=[other, victim])
        bench.preempts(web, n1=[other])
    (record,) = [
        log_record for log_record in caplog.records if log_record.message == "victims chosen"
    ]

    assert uid(victim) in chosen["n1"]
    assert vars(record)["edl_keys"] == {
        "pod": "shop/web",
        "node": "n1",
        "victims": ["ml/net-trainer-0"],
    }
    assert bench.value('edl_extender_victims_total{tier="surplus"}') == "1.0"
