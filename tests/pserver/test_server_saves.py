"""Who may save, when a checkpoint is due, and what is resumed from it."""

from dataclasses import asdict
from itertools import count
from typing import Any

import numpy as np
import pytest
from edl_protocol.pserver import Enter, Push, TicketRequest

from pserver.checkpoint import CheckpointSchedule
from pserver.server import SAVE, SAVE_S, SETTLE, SETTLE_S, CoordinatorLeases, ParameterServer
from runtime.call_checks import RefusedError, check_fields
from tests.pserver.builders import Json, model
from tests.pserver.calls import WHO, file, make_server, push_ones, settle


def test_tickets_are_server_0_s() -> None:
    """One at a time, and none for an old generation."""

    def request_ticket(
        server: ParameterServer, generation: int, kind: str = SETTLE, now_s: float = 0.0
    ) -> Json:
        fields = {"trainer": "t", "incarnation": f"i{next(numbers)}"}
        body = check_fields(TicketRequest, {**fields, "generation": generation, "kind": kind})
        return server.request_ticket(body, now_s)

    numbers = count()

    server = make_server()
    assert request_ticket(server, 0) == {"granted": True, "ticket": 1}
    assert not request_ticket(server, 0)["granted"]
    assert request_ticket(server, 0, now_s=SETTLE_S)["ticket"] == 2
    settle(server, ticket=2)
    assert not request_ticket(server, 0)["granted"]
    assert request_ticket(server, 1)["granted"]
    assert not request_ticket(server, 1, SAVE)["granted"]
    push_ones(server)
    assert request_ticket(server, 1, SAVE) == {"granted": True, "version": 1}
    assert not request_ticket(server, 1, SAVE)["granted"]
    server.checkpoint_committed(1, [], 1.0)
    assert not request_ticket(server, 1, SAVE)["granted"]
    with pytest.raises(RefusedError, match="only server 0"):
        request_ticket(make_server(1), 0)


@pytest.mark.parametrize(
    ("rules", "pushes", "now_s", "due"),
    [
        ({}, 9, 1e6, False),
        ({"checkpoint_steps": 3}, 2, 1e6, False),
        ({"checkpoint_steps": 3}, 3, 0.0, True),
        ({"checkpoint_seconds": 10}, 1, 9.0, False),
        ({"checkpoint_seconds": 10}, 1, 10.0, True),
        ({"checkpoint_seconds": 10}, 0, 99.0, False),
        ({"checkpoint_steps": 3, "checkpoint_seconds": 10}, 1, 10.0, True),
    ],
)
def test_a_checkpoint_is_due_after_versions_or_seconds(
    rules: Json, pushes: int, now_s: float, due: bool
) -> None:
    """One trainer is asked to write it."""
    server = make_server()
    settle(server, model=asdict(model(rules=rules)))
    for number in range(pushes):
        push_ones(server, number + 1)

    assert server.checkpoint_due("p", now_s) is due
    assert server.checkpoint_due("p", now_s) is False
    assert make_server(1).checkpoint_due("p", now_s) is False


def test_a_save_that_nobody_finished_is_asked_for_again() -> None:
    """The trainer may have died."""
    server = make_server()
    settle(server, model=asdict(model(rules={"checkpoint_steps": 1})))
    push_ones(server)

    assert server.checkpoint_due("p", 0.0)
    assert not server.checkpoint_due("q", SAVE_S - 1)
    assert server.checkpoint_due("q", SAVE_S)


def test_a_server_resumes_from_its_shutdown_checkpoint() -> None:
    """In the same generation: no rollback, and a repeated push is recognised."""
    server = make_server(generation=1)
    server.resume(file(), 0.0)
    body = {**WHO, "generation": 1, "incarnation": "p", "number": 1, "version": 0, "records": 10}
    meta, _ = server.serving_at(1).push(check_fields(Push, body), {"dense": np.ones(8, np.float32)})

    assert server.state()["version"] == 1
    assert meta["outcome"] == "repeated"


def test_an_ended_ticket_is_free_at_once() -> None:
    """Ending a lease that is not held has no effect."""
    leases = CoordinatorLeases()
    leases.end(SAVE)
    assert leases.acquire(SAVE, "p", 0.0, 10.0) == 1
    leases.end(SAVE)
    assert leases.acquire(SAVE, "q", 0.0, 10.0) == 2


def test_who_has_a_ticket_may_ask_again() -> None:
    """The answer may have been lost; another caller still gets none."""
    leases = CoordinatorLeases()
    assert [leases.acquire(SAVE, who, 0.0, 10.0) for who in ("p", "p", "q")] == [1, 2, None]


def test_a_ticket_that_is_given_back_is_free_at_once() -> None:
    """Only its holder can release it."""
    server = make_server()

    def request_ticket(who: str, **changes: Any) -> Json:
        fields = {"trainer": "t", "incarnation": who, "generation": 0, "kind": "settle"}
        return server.request_ticket(check_fields(TicketRequest, fields | changes), 0.0)

    assert request_ticket("p")["granted"]
    assert not request_ticket("q", back=True)["granted"]
    assert not request_ticket("q")["granted"]
    assert not request_ticket("p", back=True)["granted"]
    assert request_ticket("q")["granted"]


def test_an_optimizer_that_does_not_exist_is_refused_on_entry() -> None:
    """Before a ticket is granted."""
    fields = {**asdict(model()), "optimizer": {"kind": "newton"}}
    body = check_fields(Enter, {**WHO, "generation": 0, "model": fields})
    with pytest.raises(RefusedError, match="'newton' is not one of sgd"):
        make_server().enter(body)


def test_saving_never_goes_back() -> None:
    """Even if an older checkpoint is committed late."""
    schedule = CheckpointSchedule(5, 0.0)
    schedule.committed(3, 1.0)

    assert (schedule.version, schedule.at_s) == (5, 1.0)
