"""Generations of a server and who enters them; without network and clock."""

import contextlib
from dataclasses import asdict

import pytest
from edl_protocol.frames import Frame
from edl_protocol.pserver import Enter, Refusal

from pserver.checkpoint import CheckpointName
from pserver.errors import ShardError
from pserver.rollbacks import NOTHING, ServerRollbacks
from pserver.shard import ShardCounts
from runtime.call_checks import RefusedError, check_fields
from tests.pserver.builders import Json, model
from tests.pserver.calls import (
    WHO,
    enter,
    file,
    load_nothing,
    make_server,
    push_ones,
    settle,
    settle_request,
    stored_checkpoint,
)


def test_an_empty_server_refuses_every_generation() -> None:
    """So trainers notice that it has restarted."""
    server = make_server(generation=3)
    for generation in (0, 3, 4):
        with pytest.raises(RefusedError, match="has restarted") as caught:
            server.serving_at(generation)
        assert (caught.value.status, caught.value.field) == (409, "generation")

    assert server.state()["ready"] is False


def test_a_generation_that_is_over_is_refused() -> None:
    """The newest generation is served."""
    server = make_server()
    settle(server)
    assert server.serving_at(1).shard.version == 0
    settle(server, generation=2)
    with pytest.raises(RefusedError, match="generation 1 is over: server 0 is at 2"):
        server.serving_at(1)


def test_the_same_call_again_changes_nothing() -> None:
    """Its answer may have been lost; an older call is refused."""
    server = make_server()
    settle(server, ticket=2)
    push_ones(server)
    again = settle(server, ticket=2)
    for late in ({"ticket": 1}, {"generation": 0, "ticket": 9}):
        with pytest.raises(RefusedError, match="is too old"):
            settle(server, **late)

    assert again["version"] == server.state()["version"] == 1
    assert settle(server, ticket=3)["version"] == 0


def test_a_checkpoint_is_gone_back_to_and_the_loss_is_known() -> None:
    """Steps and records that came after it."""
    server = make_server(generation=1, checkpoints=[stored_checkpoint()])
    settle(server, generation=2)
    for number in (1, 2, 3):
        push_ones(server, number, generation=2)
    ref = {"generation": 1, "version": 5, "of": 2}
    answer = server.settle(
        settle_request(3, checkpoint=ref, reason="server 1 began anew"),
        None,
        lambda _: [file()],
        0.0,
    )

    assert (answer["version"], answer["generation"]) == (1, 3)
    fields = server.rollbacks.to_json()
    setback = {"generation": 2, "reason": "server 1 began anew", "steps": 2, "records": 20}
    assert fields["newest"][-1] == setback
    assert (fields["count"], fields["steps"], fields["records"]) == (2, 2, 20)
    assert server.enter(check_fields(Enter, {**WHO, "generation": 2}))["setback"] == setback


def test_workers_report_the_progress_of_a_killed_server() -> None:
    """Each reports the progress it observed; known losses count once."""
    server = make_server(generation=1, checkpoints=[stored_checkpoint()])
    ref = {"generation": 1, "version": 5, "of": 2}
    progress = {"version": 4, "records": 40}
    begin = settle_request(2, checkpoint=ref, seen=progress, ended=1)
    server.settle(begin, None, lambda _: [file()], 0.0)

    def entered(generation: int, version: int) -> Json | None:
        fields = {
            **WHO,
            "generation": generation,
            "seen": {"version": version, "records": 10 * version},
        }
        setback: Json | None = server.enter(check_fields(Enter, fields))["setback"]
        return setback

    first = {"generation": 1, "reason": "", "steps": 3, "records": 30}
    whole = {"generation": 1, "reason": "", "steps": 5, "records": 50}
    assert entered(1, 3) == first
    assert entered(1, 6) == whole
    assert entered(1, 6) == entered(1, 2) == whole
    assert entered(0, 9) is None
    assert entered(2, 9) is None
    assert server.rollbacks.to_json()["newest"] == [whole]


def test_the_generation_that_ended_is_the_one_that_was_served() -> None:
    """A generation started meanwhile never reached this server."""
    server = make_server()
    settle(server)
    for number in (1, 2, 3):
        push_ones(server, number)
    settle(server, generation=3, ended=1, seen={"version": 2, "records": 20})

    assert enter(server, 1)["setback"]["steps"] == 3
    assert enter(server, 2)["setback"] is None


def test_a_server_without_its_disk_uses_the_progress_of_trainers() -> None:
    """They report their generation and its progress."""
    server = make_server()
    settle(server, generation=4, ended=3, seen={"version": 7, "records": 70})
    fields = enter(server, 3, seen={"version": 8, "records": 80})["setback"]

    assert fields == {"generation": 3, "reason": "", "steps": 8, "records": 80}


def test_a_checkpoint_that_failed_first_costs_no_count() -> None:
    """The server has dropped its shard, and still has its progress."""
    server = make_server(
        generation=1, checkpoints=[stored_checkpoint(), stored_checkpoint(version=9)]
    )
    settle(server, generation=2)
    for number in (1, 2, 3):
        push_ones(server, number, generation=2)

    def broken(_: CheckpointName) -> list[Frame]:
        raise ShardError("the disk is gone")

    for version, load in ((9, broken), (5, lambda _: [file()])):
        ref = {"generation": 1, "version": version, "of": 2}
        with contextlib.suppress(RefusedError):
            server.settle(settle_request(3, checkpoint=ref), None, load, 0.0)

    assert server.state()["version"] == 1
    assert enter(server, 2)["setback"]["steps"] == 2


def test_a_trainer_learns_its_newest_applied_push() -> None:
    """The newest number; none of another process, and none before there is a model."""
    server = make_server()
    assert enter(server, 1)["newest"] == 0
    settle(server)
    push_ones(server, 1)
    push_ones(server, 4)

    assert enter(server, 1)["newest"] == 4
    assert enter(server, 1, incarnation="another")["newest"] == 0


def test_a_checkpoint_of_another_model_is_refused_on_entry() -> None:
    """One line that names the difference, and a remedy."""
    server = make_server(checkpoints=[stored_checkpoint(model_=model(parameters={"w": [9]}))])
    body = check_fields(Enter, {**WHO, "generation": 0, "model": asdict(model())})
    with pytest.raises(RefusedError, match=r"checkpoint 000001-.*name another folder") as caught:
        server.enter(body)

    assert caught.value.field == "parameters.b"
    ref = {"generation": 1, "version": 5, "of": 2}
    with pytest.raises(RefusedError, match="belongs to another model"):
        server.settle(settle_request(2, checkpoint=ref), None, load_nothing, 0.0)


def test_a_trainer_of_another_model_is_refused() -> None:
    """The first trainer's model counts; a caller without a model is accepted."""
    server = make_server()
    settle(server)
    other = model(parameters={"w": [2, 4], "b": [2]})
    body = check_fields(Enter, {**WHO, "generation": 0, "model": asdict(other)})
    with pytest.raises(RefusedError, match=r"\[2, 3\] at the servers"):
        server.enter(body)

    assert server.enter(check_fields(Enter, {**WHO, "generation": 0}))["ready"]


def test_a_dense_model_that_is_too_large_is_refused_on_entry() -> None:
    """With a word to synchronous training, before anything is trained; embeddings do not count."""
    body = check_fields(Enter, {**WHO, "generation": 0, "model": asdict(model())})
    message = "8 dense numbers, parameter servers take 7: train it with --sync"
    with pytest.raises(RefusedError, match=message) as caught:
        make_server(max_dense_numbers=7).enter(body)

    assert (caught.value.status, caught.value.field) == (422, "parameters")
    assert not make_server(max_dense_numbers=8).enter(body)["ready"]


def test_an_unreadable_checkpoint_is_dropped() -> None:
    """Trainers agree on another one then."""
    server = make_server(checkpoints=[stored_checkpoint(), stored_checkpoint(version=9)])
    ref = {"generation": 1, "version": 9, "of": 2}

    def broken(_: CheckpointName) -> list[Frame]:
        raise ShardError("the disk is gone")

    for load in (broken, load_nothing):
        with pytest.raises(RefusedError) as caught:
            server.settle(settle_request(2, checkpoint=ref), None, load, 0.0)
        assert (caught.value.status, caught.value.field) == (409, "checkpoint")

    assert [checkpoint.name.version for checkpoint in server.checkpoints] == [5]


def test_first_parameters_must_come_and_fit() -> None:
    """422 without them, 507 above the memory limit."""
    with pytest.raises(RefusedError, match="initial parameters are missing"):
        make_server().settle(settle_request(), None, load_nothing, 0.0)
    with pytest.raises(RefusedError, match="--max-bytes") as caught:
        settle(make_server(max_bytes=10))

    assert caught.value.status == 507


def test_what_workers_refuse_is_counted_and_named() -> None:
    """Trainer, step and parameter, the newest first."""
    server = make_server()
    settle(server)
    fields = {**WHO, "generation": 1, "number": 3, "parameter": "the loss"}
    server.record_refusal(check_fields(Refusal, fields))

    assert server.to_json(0.0)["non_finite"] == {
        "count": 1,
        "newest": [{"trainer": "t", "step": 3, "parameter": "the loss"}],
    }
    assert make_server().to_json(0.0)["serving"] is None


def test_no_rollback_without_an_ended_generation() -> None:
    """Reports of unknown generations are ignored; initial parameters are not a rollback."""
    rollbacks = ServerRollbacks()
    rollbacks.record(0, NOTHING, NOTHING, "")
    rollbacks.record_late_report(0, ShardCounts(5, 50))

    assert rollbacks.of_generation(0) is None
    assert rollbacks.to_json() == {"count": 0, "steps": 0, "records": 0, "newest": []}
