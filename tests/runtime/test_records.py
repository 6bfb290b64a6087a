"""What is kept of decisions, and who is shown it."""

from dataclasses import replace
from typing import Any

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from policy.decisions import Decision
from policy.reasons import Reason
from runtime import web
from runtime.metrics import Metrics
from runtime.records import Records, routes
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


def _codes(records: Records, subject: str = JOB) -> list[object]:
    return [found["code"] for found in records.about(subject)]


def _used(amount: int, at_s: float) -> Decision:
    return replace(HELD, figures={**HELD.figures, "used": str(amount)}, at_s=NOW_S + at_s)


def test_the_same_again_is_no_news() -> None:
    """Every plan says it; it is kept once, with the time it was first said."""
    records = Records()
    for at_s in range(100):
        records.note(JOB, replace(FULL, at_s=NOW_S + at_s))

    (found,) = records.about(JOB)
    assert (found["at"], found["since"]) == (NOW_S, NOW_S)


def test_another_code_is_another_record() -> None:
    """Also the one that was said before."""
    records = Records()
    for at_s, decision in enumerate((FULL, HELD, FULL)):
        records.note(JOB, replace(decision, at_s=NOW_S + at_s))

    assert _codes(records) == ["AtMax", "ReserveHeld", "AtMax"]
    assert [found["since"] for found in records.about(JOB)] == [NOW_S, NOW_S + 1, NOW_S + 2]


def test_a_trainer_that_left_does_not_make_its_jobs_reason_news() -> None:
    """Records of pods stand between those of the job and are not mixed up with them."""
    records = Records()
    for decision in (FULL, GONE, FULL):
        records.note(JOB, decision)

    assert _codes(records) == ["AtMax", "AboveMax"]
    assert records.newest()[JOB]["code"] == "AtMax"


def test_moving_figures_do_not_push_out_the_rest() -> None:
    """For a minute they mend the newest record; then there is another one since the same time."""
    records = Records()
    records.note(JOB, FULL)
    for at_s in range(1, 150):
        records.note(JOB, _used(at_s, at_s))

    found = records.about(JOB)
    assert [one["code"] for one in found] == ["AtMax", "ReserveHeld", "ReserveHeld", "ReserveHeld"]
    assert {one["since"] for one in found[1:]} == {NOW_S + 1}
    assert [one["at"] for one in found[1:]] == [NOW_S + 60, NOW_S + 120, NOW_S + 149]


def test_another_target_is_always_kept() -> None:
    """How many trainers a job was to have is what is asked about later."""
    records = Records()
    for target in (1, 2, 3):
        records.note(JOB, replace(HELD, figures={**HELD.figures, "target": target}))

    assert len(records.about(JOB)) == 3


def test_several_things_about_one_at_a_time_are_told_apart() -> None:
    """A node is full and another cools down, each time that a pod is asked about."""
    records = Records()
    for _ in range(5):
        for code in (Reason.NODE_FULL, Reason.NODE_COOLING_DOWN):
            records.note("ml/p", Decision("pod ml/p", code, {"nodes": 1}, NOW_S), strand=code)

    assert _codes(records, "ml/p") == ["NodeFull", "NodeCoolingDown"]


def test_the_oldest_records_and_subjects_go_first() -> None:
    """And what goes is counted."""
    records = Records(most_subjects=2, most_each=3)
    for number in range(5):
        records.note("ml/a", Decision(f"pod ml/{number}", Reason.ABOVE_MAX))
    records.note("ml/b", FULL)
    records.note("ml/a", replace(FULL, about="job ml/a"))
    records.note("ml/c", FULL)

    assert [found["about"] for found in records.about("ml/a")] == [
        "pod ml/3",
        "pod ml/4",
        "job ml/a",
    ]
    assert list(records.newest()) == ["ml/a", "ml/c"]
    assert records.dropped == 4


def test_a_subject_that_is_gone_is_forgotten() -> None:
    """One that was never known too."""
    records = Records()
    records.note(JOB, FULL)
    records.forget(JOB)
    records.forget("ml/none")

    assert records.about(JOB) == []
    assert records.newest() == {}


def _app(records: Records, *, clients_named: bool = False, absent: str = "") -> Flask:
    app = web.application(
        "room",
        registry=Metrics("room"),
        readiness=lambda: web.Readiness(ready=True),
        max_body_bytes=1024,
        clients_named=clients_named,
    )
    routes(app, records, "job", lambda: absent)
    return app


@pytest.fixture
def kept() -> Records:
    """One job's."""
    records = Records()
    records.note(JOB, FULL)
    return records


def _get(records: Records, query: str = "", address: str = "127.0.0.1", **options: Any) -> Any:
    answer: TestResponse = (
        _app(records, **options)
        .test_client()
        .get(f"/decisions{query}", environ_overrides={"REMOTE_ADDR": address})
    )
    assert answer.json is not None
    return answer.status_code, answer.json


def test_records_of_one_are_shown(kept: Records) -> None:
    """With code, figures and the sentence made of them."""
    status, body = _get(kept, f"?job={JOB}")

    assert status == 200
    assert body["job"] == JOB
    assert body["decisions"] == [
        {
            "about": "job ml/net",
            "code": "AtMax",
            "text": "it has all of its 4 trainers",
            "figures": {"target": 4, "max": 4},
            "at": NOW_S,
            "since": NOW_S,
        }
    ]


def test_without_a_name_the_newest_of_all_are_shown(kept: Records) -> None:
    """By name, and how many had to go."""
    status, body = _get(kept)

    assert status == 200
    assert body["newest"][JOB]["code"] == "AtMax"
    assert body["dropped"] == 0


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("?job=ml/none", 404, "nothing is known of 'ml/none'"),
        ("?job=", 404, "write namespace/name"),
        ("?pod=ml/p", 400, "pod: the parameter here is job"),
    ],
)
def test_wrong_questions_are_answered_in_one_line(
    kept: Records, query: str, status: int, says: str
) -> None:
    """With the way out."""
    code, body = _get(kept, query)

    assert code == status
    assert says in body["error"]["message"]


def test_who_has_none_says_who_has(kept: Records) -> None:
    """Old ones of a process that led before would be wrong by now."""
    code, body = _get(kept, f"?job={JOB}", absent="ask r-2")

    assert code == 503
    assert body["error"]["message"] == "ask r-2"


@pytest.mark.parametrize("clients_named", [True, False])
@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("127.0.0.1", 200),
        ("127.8.8.8", 200),
        ("::1", 200),
        ("::ffff:127.0.0.1", 200),
        ("10.0.0.7", 403),
        ("::ffff:10.0.0.7", 403),
        ("fd00::7", 403),
        ("", 403),
        ("localhost", 403),
    ],
)
def test_strangers_are_not_shown_anything(
    kept: Records, address: str, status: int, *, clients_named: bool
) -> None:
    """With or without a CA for clients: only who is on this host, as a port-forward is."""
    code, body = _get(kept, address=address, clients_named=clients_named)

    assert code == status
    assert status == 200 or "kubectl port-forward" in body["error"]["message"]


def test_no_header_makes_a_stranger_local(kept: Records) -> None:
    """Whoever sends it could write anything."""
    headers = {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1", "X-Real-IP": "::1"}
    answer = (
        _app(kept)
        .test_client()
        .get("/decisions", headers=headers, environ_overrides={"REMOTE_ADDR": "10.0.0.7"})
    )

    assert answer.status_code == 403


def test_private_routes_leave_the_others_as_they_are(kept: Records) -> None:
    """Probes stay open, and what wants a certificate still does, from this host too."""
    client = _app(kept, clients_named=True).test_client()

    assert client.get("/healthz", environ_overrides={"REMOTE_ADDR": "10.0.0.7"}).status_code == 200
    assert client.get("/other").status_code == 403
    assert client.post("/decisions").status_code == 405
