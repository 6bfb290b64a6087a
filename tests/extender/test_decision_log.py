"""The decision log: which entries it keeps, and which callers may read it."""

from dataclasses import replace
from typing import Any

import pytest
from werkzeug.test import TestResponse

from extender.decision_log import DecisionLog, add_decisions_route
from policy.decisions import Decision
from policy.reasons import Reason
from runtime import web
from runtime.metrics import Metrics
from tests.support.builders import NOW_S

JOB = "ml/net"
FULL = Decision("job ml/net", Reason.AT_MAX, {"target": 4, "max": 4}, NOW_S)
HELD = Decision(
    "job ml/net",
    Reason.RESERVE_HELD,
    {"target": 2, "resource": "cpu", "used": "17", "limit": "18"},
    NOW_S,
)
GONE = Decision("pod ml/net-trainer-4", Reason.ABOVE_MAX, {"live": 5, "wanted": 4}, NOW_S)


def _codes(log: DecisionLog, subject: str = JOB) -> list[object]:
    return [decision["code"] for decision in log.about(subject)]


def _used(amount: int, at_s: float) -> Decision:
    return replace(HELD, figures={**HELD.figures, "used": str(amount)}, at_s=NOW_S + at_s)


def test_the_same_again_is_no_news() -> None:
    """Every plan repeats it; it is recorded once, with the time of the first."""
    log = DecisionLog()
    for at_s in range(100):
        log.record(JOB, replace(FULL, at_s=NOW_S + at_s))

    (decision,) = log.about(JOB)
    assert (decision["at"], decision["since"]) == (NOW_S, NOW_S)


def test_another_code_is_another_record() -> None:
    """Also if the code was recorded before."""
    log = DecisionLog()
    for at_s, decision in enumerate((FULL, HELD, FULL)):
        log.record(JOB, replace(decision, at_s=NOW_S + at_s))

    assert _codes(log) == ["AtMax", "ReserveHeld", "AtMax"]
    assert [decision["since"] for decision in log.about(JOB)] == [NOW_S, NOW_S + 1, NOW_S + 2]


def test_a_trainer_that_left_does_not_make_its_jobs_reason_news() -> None:
    """DecisionLog of pods stand between those of the job and are not mixed up with them."""
    log = DecisionLog()
    for decision in (FULL, GONE, FULL):
        log.record(JOB, decision)

    assert _codes(log) == ["AtMax", "AboveMax"]
    assert log.newest()[JOB]["code"] == "AtMax"


def test_moving_figures_do_not_push_out_the_rest() -> None:
    """For a minute the newest entry is updated; then there is a new one with the same `since`."""
    log = DecisionLog()
    log.record(JOB, FULL)
    for at_s in range(1, 150):
        log.record(JOB, _used(at_s, at_s))

    decisions = log.about(JOB)
    assert [decision["code"] for decision in decisions] == [
        "AtMax",
        "ReserveHeld",
        "ReserveHeld",
        "ReserveHeld",
    ]
    assert {decision["since"] for decision in decisions[1:]} == {NOW_S + 1}
    assert [decision["at"] for decision in decisions[1:]] == [NOW_S + 60, NOW_S + 120, NOW_S + 149]


def test_another_target_is_always_kept() -> None:
    """How many trainers a job was to have is what is asked about later."""
    log = DecisionLog()
    for target in (1, 2, 3):
        log.record(JOB, replace(HELD, figures={**HELD.figures, "target": target}))

    assert len(log.about(JOB)) == 3


def test_several_things_about_one_at_a_time_are_told_apart() -> None:
    """A node is full and another cools down, each time that a pod is asked about."""
    log = DecisionLog()
    for _ in range(5):
        for code in (Reason.NODE_TAINTED, Reason.NODE_COOLING_DOWN):
            log.record("ml/p", Decision("pod ml/p", code, {"nodes": 1}, NOW_S), series=code)

    assert _codes(log, "ml/p") == ["NodeTainted", "NodeCoolingDown"]


def test_the_oldest_records_and_subjects_go_first() -> None:
    """Evicted decisions are counted."""
    log = DecisionLog(max_subjects=2, max_per_subject=3)
    for number in range(5):
        log.record("ml/a", Decision(f"pod ml/{number}", Reason.ABOVE_MAX))
    log.record("ml/b", FULL)
    log.record("ml/a", replace(FULL, about="job ml/a"))
    log.record("ml/c", FULL)

    assert [decision["about"] for decision in log.about("ml/a")] == [
        "pod ml/3",
        "pod ml/4",
        "job ml/a",
    ]
    assert list(log.newest()) == ["ml/a", "ml/c"]
    assert log.dropped == 4


def _app(log: DecisionLog) -> web.WebApp:
    app = web.application(
        "room",
        registry=Metrics("room"),
        readiness=lambda: web.Readiness(ready=True),
        max_body_bytes=1024,
    )
    add_decisions_route(app, log)
    return app


@pytest.fixture
def log() -> DecisionLog:
    """A log with one decision on one job."""
    log = DecisionLog()
    log.record(JOB, FULL)
    return log


def _get(log: DecisionLog, query: str = "", address: str = "127.0.0.1") -> Any:
    answer: TestResponse = (
        _app(log)
        .test_client()
        .get(f"/decisions{query}", environ_overrides={"REMOTE_ADDR": address})
    )
    assert answer.json is not None
    return answer.status_code, answer.json


def test_records_of_one_are_shown(log: DecisionLog) -> None:
    """The response has code, figures and the sentence composed of them."""
    status, body = _get(log, f"?pod={JOB}")

    assert status == 200
    assert body["pod"] == JOB
    assert body["decisions"] == [
        {
            "about": "job ml/net",
            "code": "AtMax",
            "text": "the job has its maximum of 4 trainers",
            "figures": {"target": 4, "max": 4},
            "at": NOW_S,
            "since": NOW_S,
        }
    ]


def test_without_a_name_the_newest_of_all_are_shown(log: DecisionLog) -> None:
    """The response has the newest decision by name, and the number of evicted ones."""
    status, body = _get(log)

    assert status == 200
    assert body["newest"][JOB]["code"] == "AtMax"
    assert body["dropped"] == 0


@pytest.mark.parametrize(
    ("query", "status", "expected"),
    [
        ("?pod=ml/none", 404, "there are no decisions about 'ml/none'"),
        ("?pod=", 404, "write namespace/name"),
        ("?job=ml/p", 400, "job: unknown parameter, only pod is allowed"),
    ],
)
def test_wrong_questions_are_answered_in_one_line(
    log: DecisionLog, query: str, status: int, expected: str
) -> None:
    """The message names a remedy."""
    code, body = _get(log, query)

    assert code == status
    assert expected in body["error"]["message"]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.6", 403),  # Istio passes on from it what arrives for a pod
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("fd00::7", 403),
        ("", 403),
        ("localhost", 403),
    ],
)
def test_strangers_are_not_shown_anything(log: DecisionLog, address: str, status: int) -> None:
    """Only callers on this host itself, such as a port-forward."""
    code, body = _get(log, address=address)

    assert code == status
    assert status == 200 or "kubectl port-forward" in body["error"]["message"]


def test_no_header_makes_a_stranger_local(log: DecisionLog) -> None:
    """A sender can write any header."""
    headers = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "::1"}
    answer = (
        _app(log)
        .test_client()
        .get("/decisions", headers=headers, environ_overrides={"REMOTE_ADDR": "10.0.0.7"})
    )

    assert answer.status_code == 403


def test_private_routes_leave_the_others_as_they_are(log: DecisionLog) -> None:
    """Probes stay open to anybody."""
    client = _app(log).test_client()

    assert client.get("/healthz", environ_overrides={"REMOTE_ADDR": "10.0.0.7"}).status_code == 200
    assert client.get("/other").status_code == 404
    assert client.post("/decisions").status_code == 405
