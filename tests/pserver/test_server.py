"""How a server comes to a generation, and what it then answers; without network and time."""

import contextlib
from itertools import count
from typing import Any

import numpy as np
import pytest

from pserver import contents, frames, tickets
from pserver.checkpoint import Kept, Name
from pserver.errors import RefusedError, ShardError
from pserver.frames import Frame
from pserver.model import Model
from pserver.protocol import Ask, Enter, Lookup, Page, Pull, Push, Refusal, Settle
from pserver.saving import MOST_PINS, Saving
from pserver.server import Place, Server
from pserver.setbacks import NOTHING, Setbacks
from pserver.shard import Counts
from pserver.tickets import SAVE, SETTLE, Tickets
from tests.pserver.worlds import ALL, Json, model, push
from tests.pserver.worlds import shard as made

WHO: Json = {"trainer": "t", "incarnation": "i"}


def server(index: int = 0, **more: Any) -> Server:
    """One of two."""
    told = {"most_bytes": None, "generation": 0, "have": ()}
    return Server(Place("digits", index, 2), **(told | more))


def kept(generation: int = 1, version: int = 5, found: Model | None = None) -> Kept:
    """A checkpoint on the disk."""
    return Kept(Name(generation, version, 2), 50, found or model())


def file() -> Frame:
    """What is in it: one push of ones."""
    shard = made()
    shard.push(push(1))
    about = {"job": "digits", "index": 0, "of": 2, "generation": 1, "version": 5}
    meta, arrays = contents.taken(shard, about)
    return frames.decode(b"".join(frames.encode(meta, arrays)))


def order(generation: int = 1, ticket: int = 1, **more: Any) -> Settle:
    """A call that begins a generation."""
    told = {
        **WHO,
        "generation": generation,
        "ticket": ticket,
        "model": model().model_dump(),
        "pieces": [piece.model_dump() for piece in ALL],
        "checkpoint": None,
    }
    return Settle.model_validate(told | more)


def nothing(_: Name) -> list[Frame]:
    """No file is read."""
    raise AssertionError("there is nothing to read")


ZEROS = np.zeros(8, np.float32)


def settled(found: Server, **more: Any) -> Json:
    """Begins a generation with zeros."""
    return found.settle(order(**more), ZEROS, nothing, 0.0)


def gradients(found: Server, number: int = 1, **more: Any) -> Json:
    """What a push is answered."""
    told = {**WHO, "generation": 1, "number": number, "version": 0, "records": 10}
    body = Push.model_validate(told | more)
    return found.at(body.generation).push(body, {"dense": np.ones(8, np.float32)})[0]


def test_an_empty_server_refuses_every_generation() -> None:
    """So trainers notice that it began anew."""
    found = server(generation=3)
    for generation in (0, 3, 4):
        with pytest.raises(RefusedError, match="has begun anew") as caught:
            found.at(generation)
        assert (caught.value.status, caught.value.named) == (409, "generation")

    assert found.state()["ready"] is False


def test_a_generation_that_is_over_is_refused() -> None:
    """The one that began is served."""
    found = server()
    settled(found)
    assert found.at(1).shard.version == 0
    settled(found, generation=2)
    with pytest.raises(RefusedError, match="generation 1 is over: server 0 is at 2"):
        found.at(1)


def test_the_same_call_again_changes_nothing() -> None:
    """Its answer may have been lost; an older one comes too late."""
    found = server()
    settled(found, ticket=2)
    gradients(found)
    again = settled(found, ticket=2)
    for late in ({"ticket": 1}, {"generation": 0, "ticket": 9}):
        with pytest.raises(RefusedError, match="comes too late"):
            settled(found, **late)

    assert again["version"] == found.state()["version"] == 1
    assert settled(found, ticket=3)["version"] == 0


def test_a_checkpoint_is_gone_back_to_and_the_loss_is_known() -> None:
    """Steps and records that came after it."""
    found = server(generation=1, have=[kept()])
    settled(found, generation=2)
    for number in (1, 2, 3):
        gradients(found, number, generation=2)
    ref = {"generation": 1, "version": 5, "of": 2}
    answer = found.settle(
        order(3, checkpoint=ref, reason="server 1 began anew"), None, lambda _: [file()], 0.0
    )

    assert (answer["version"], answer["generation"]) == (1, 3)
    told = found.setbacks.told()
    setback = {"generation": 2, "reason": "server 1 began anew", "steps": 2, "records": 20}
    assert told["newest"][-1] == setback
    assert (told["count"], told["steps"], told["records"]) == (2, 2, 20)
    assert found.enter(Enter.model_validate({**WHO, "generation": 2}))["setback"] == setback


def test_a_server_that_was_killed_hears_from_workers_how_far_it_was() -> None:
    """Each tells what it knows; what is known already counts once."""
    found = server(generation=1, have=[kept()])
    ref = {"generation": 1, "version": 5, "of": 2}
    seen = {"version": 4, "records": 40}
    begin = order(2, checkpoint=ref, seen=seen, ended=1)
    found.settle(begin, None, lambda _: [file()], 0.0)

    def entered(generation: int, version: int) -> Json | None:
        told = {
            **WHO,
            "generation": generation,
            "seen": {"version": version, "records": 10 * version},
        }
        setback: Json | None = found.enter(Enter.model_validate(told))["setback"]
        return setback

    first = {"generation": 1, "reason": "", "steps": 3, "records": 30}
    whole = {"generation": 1, "reason": "", "steps": 5, "records": 50}
    assert entered(1, 3) == first
    assert entered(1, 6) == whole
    assert entered(1, 6) == entered(1, 2) == whole
    assert entered(0, 9) is None
    assert entered(2, 9) is None
    assert found.setbacks.told()["newest"] == [whole]


def entered(found: Server, generation: int, **more: Any) -> Json:
    """What a trainer of a generation is answered."""
    return found.enter(Enter.model_validate({**WHO, "generation": generation, **more}))


def test_the_generation_that_ended_is_the_one_that_was_served() -> None:
    """Another one was begun meanwhile, and never reached this server."""
    found = server()
    settled(found)
    for number in (1, 2, 3):
        gradients(found, number)
    settled(found, generation=3, ended=1, seen={"version": 2, "records": 20})

    assert entered(found, 1)["setback"]["steps"] == 3
    assert entered(found, 2)["setback"] is None


def test_a_server_whose_disk_is_gone_believes_trainers() -> None:
    """They know which generation they were in, and how far it was."""
    found = server()
    settled(found, generation=4, ended=3, seen={"version": 7, "records": 70})
    told = entered(found, 3, seen={"version": 8, "records": 80})["setback"]

    assert told == {"generation": 3, "reason": "", "steps": 8, "records": 80}


def test_a_checkpoint_that_failed_first_costs_no_count() -> None:
    """The server had let go what it held, and still knows how far it was."""
    found = server(generation=1, have=[kept(), kept(version=9)])
    settled(found, generation=2)
    for number in (1, 2, 3):
        gradients(found, number, generation=2)

    def broken(_: Name) -> list[Frame]:
        raise ShardError("the disk is gone")

    for version, load in ((9, broken), (5, lambda _: [file()])):
        ref = {"generation": 1, "version": version, "of": 2}
        with contextlib.suppress(RefusedError):
            found.settle(order(3, checkpoint=ref), None, load, 0.0)

    assert found.state()["version"] == 1
    assert entered(found, 2)["setback"]["steps"] == 2


def test_a_trainer_hears_which_of_its_pushes_are_held() -> None:
    """The newest number; none of another process, and none before there is a model."""
    found = server()
    assert entered(found, 1)["newest"] == 0
    settled(found)
    gradients(found, 1)
    gradients(found, 4)

    assert entered(found, 1)["newest"] == 4
    assert entered(found, 1, incarnation="another")["newest"] == 0


def test_a_checkpoint_of_another_model_is_refused_at_the_door() -> None:
    """One line that names what differs, and the way out."""
    found = server(have=[kept(found=model(parameters={"w": [9]}))])
    body = Enter.model_validate({**WHO, "generation": 0, "model": model().model_dump()})
    with pytest.raises(RefusedError, match=r"checkpoint 000001-.*name another folder") as caught:
        found.enter(body)

    assert caught.value.named == "parameters.b"
    ref = {"generation": 1, "version": 5, "of": 2}
    with pytest.raises(RefusedError, match="of another model"):
        found.settle(order(2, checkpoint=ref), None, nothing, 0.0)


def test_a_trainer_of_another_model_is_refused() -> None:
    """The first one's counts; who only looks is let in."""
    found = server()
    settled(found)
    other = model(parameters={"w": [2, 4], "b": [2]})
    body = Enter.model_validate({**WHO, "generation": 0, "model": other.model_dump()})
    with pytest.raises(RefusedError, match=r"\[2, 3\] at the servers"):
        found.enter(body)

    assert found.enter(Enter.model_validate({**WHO, "generation": 0}))["ready"]


def test_a_checkpoint_that_cannot_be_read_is_not_had_any_more() -> None:
    """Trainers agree on another one then."""
    found = server(have=[kept(), kept(version=9)])
    ref = {"generation": 1, "version": 9, "of": 2}

    def broken(_: Name) -> list[Frame]:
        raise ShardError("the disk is gone")

    for load in (broken, nothing):
        with pytest.raises(RefusedError) as caught:
            found.settle(order(2, checkpoint=ref), None, load, 0.0)
        assert (caught.value.status, caught.value.named) == (409, "checkpoint")

    assert [one.name.version for one in found.have] == [5]


def test_first_parameters_must_come_and_fit() -> None:
    """422 without them, 507 where there is no room."""
    with pytest.raises(RefusedError, match="first parameters are missing"):
        server().settle(order(), None, nothing, 0.0)
    with pytest.raises(RefusedError, match="--max-bytes") as caught:
        settled(server(most_bytes=10))

    assert caught.value.status == 507


def test_tickets_are_server_0_s() -> None:
    """One at a time, and none where the servers moved on meanwhile."""

    def asked(found: Server, generation: int, kind: str = SETTLE, now_s: float = 0.0) -> Json:
        told = {"trainer": "t", "incarnation": f"i{next(numbers)}"}
        body = Ask.model_validate({**told, "generation": generation, "kind": kind})
        return found.ask(body, now_s)

    numbers = count()

    found = server()
    assert asked(found, 0) == {"granted": True, "ticket": 1}
    assert not asked(found, 0)["granted"]
    assert asked(found, 0, now_s=tickets.SETTLE_S)["ticket"] == 2
    settled(found, ticket=2)
    assert not asked(found, 0)["granted"]
    assert asked(found, 1)["granted"]
    assert not asked(found, 1, SAVE)["granted"]
    gradients(found)
    assert asked(found, 1, SAVE) == {"granted": True, "version": 1}
    assert not asked(found, 1, SAVE)["granted"]
    found.saved(1, [], 1.0)
    assert not asked(found, 1, SAVE)["granted"]
    with pytest.raises(RefusedError, match="server 0's"):
        asked(server(1), 0)


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
    """One trainer is asked to make it."""
    found = server()
    settled(found, model=model(rules=rules).model_dump())
    for number in range(pushes):
        gradients(found, number + 1)

    assert found.due("p", now_s) is due
    assert found.due("p", now_s) is False
    assert server(1).due("p", now_s) is False


def test_a_save_that_nobody_finished_is_asked_for_again() -> None:
    """The trainer may have died."""
    found = server()
    settled(found, model=model(rules={"checkpoint_steps": 1}).model_dump())
    gradients(found)

    assert found.due("p", 0.0)
    assert not found.due("q", tickets.SAVE_S - 1)
    assert found.due("q", tickets.SAVE_S)


def test_a_pull_brings_only_what_is_newer() -> None:
    """Nothing where the caller has it."""
    found = server()
    settled(found)
    gradients(found)

    def pulled(version: int) -> bool:
        body = Pull.model_validate({**WHO, "generation": 1, "version": version})
        return "dense" in found.at(1).pull(body)[1]

    assert pulled(-1)
    assert pulled(0)
    assert not pulled(1)


def test_a_pinned_version_stays_as_it_was() -> None:
    """Dense parameters and rows; of too many the oldest goes."""
    found = server()
    settled(found)
    serving = found.at(1)
    ids = np.array([1, 2])

    def rows(pin: int | None) -> Any:
        body = Lookup.model_validate({**WHO, "generation": 1, "table": "words", "pin": pin})
        return serving.lookup(body, {"ids": ids})[1]["rows"]

    def dense(pin: int) -> Any:
        body = Pull.model_validate({**WHO, "generation": 1, "version": -1, "pin": pin})
        return np.asarray(serving.pull(body)[1]["dense"])[0]

    def trained(number: int) -> None:
        body = Push.model_validate(
            {
                **WHO,
                "generation": 1,
                "number": number,
                "version": 0,
                "records": 1,
                "tables": ["words"],
            }
        )
        arrays: Json = {
            "ids.0": ids[:number],
            "rows.0": np.ones((len(ids[:number]), 2), np.float32),
        }
        serving.push(body, {"dense": np.ones(8, np.float32), **arrays})

    begun = rows(None)
    trained(1)
    assert serving.pin(7) == 1
    trained(2)
    assert serving.pin(7) == 1
    assert serving.pin(8) == 2
    assert np.allclose(rows(7) - begun, [[-1, -1], [0, 0]])
    assert np.allclose(rows(8) - begun, [[-2, -2], [-1, -1]])
    assert (dense(7), dense(8)) == (-1, -2)
    serving.pin(9)
    assert len(serving.told()["pins"]) == MOST_PINS
    with pytest.raises(RefusedError, match="version 7 is not pinned") as caught:
        rows(7)
    assert (caught.value.status, caught.value.named) == (404, "pin")
    serving.unpin(8)
    serving.unpin(8)
    serving.unpin(9)
    assert serving.shard.views.held_bytes == 0


def test_pins_give_way_where_there_is_no_room() -> None:
    """Training goes on; whoever evaluates is told."""
    found = server(most_bytes=2_500)
    zeros = np.zeros(500, np.float32)
    body = order(
        model=model(tables={}, parameters={"w": [500]}).model_dump(),
        pieces=[{"name": "w", "start": 0, "stop": 500}],
    )
    found.settle(body, zeros, nothing, 0.0)
    serving = found.at(1)
    serving.pin(1)
    told = {**WHO, "generation": 1, "number": 1, "version": 0, "records": 1}
    serving.push(Push.model_validate(told), {"dense": np.ones(500, np.float32)})

    assert serving.told()["pins"] == {}
    assert serving.shard.version == 1


def test_all_rows_come_some_at_a_time() -> None:
    """In the order in which they were made."""
    found = server()
    settled(found)
    serving = found.at(1)
    told = {**WHO, "generation": 1, "number": 1, "version": 0, "records": 1, "tables": ["words"]}
    arrays: Json = {"ids.0": np.arange(5), "rows.0": np.ones((5, 2), np.float32)}
    serving.push(Push.model_validate(told), arrays)
    ids, after = [], 0
    while after is not None:
        page = {**WHO, "generation": 1, "table": "words", "after": after, "most": 2}
        meta, arrays_found = serving.page(Page.model_validate(page))
        ids += np.asarray(arrays_found["ids"]).tolist()
        after = meta["next"]

    assert ids == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [{}, {"ids": ZEROS}, {"ids": np.zeros((1, 1), np.int64)}])
def test_a_lookup_needs_ids(wrong: Json) -> None:
    """422, named."""
    found = server()
    settled(found)
    body = Lookup.model_validate({**WHO, "generation": 1, "table": "words"})
    with pytest.raises(RefusedError, match="ids: an array of int64") as caught:
        found.at(1).lookup(body, wrong)

    assert caught.value.named == "ids"


def test_a_server_goes_on_where_it_was_told_to_end() -> None:
    """At the same generation: nobody has to go back, and a push that comes again is known."""
    found = server(generation=1)
    found.resume(file(), 0.0)
    body = {**WHO, "generation": 1, "incarnation": "p", "number": 1, "version": 0, "records": 10}
    meta, _ = found.at(1).push(Push.model_validate(body), {"dense": np.ones(8, np.float32)})

    assert found.state()["version"] == 1
    assert meta["outcome"] == "repeated"


def test_what_workers_refuse_is_counted_and_named() -> None:
    """Trainer, step and parameter, the newest first."""
    found = server()
    settled(found)
    told = {**WHO, "generation": 1, "number": 3, "parameter": "the loss"}
    found.refused(Refusal.model_validate(told))

    assert found.told(0.0)["non_finite"] == {
        "count": 1,
        "newest": [{"trainer": "t", "step": 3, "parameter": "the loss"}],
    }
    assert server().told(0.0)["serving"] is None


def test_setbacks_without_a_begin_are_none() -> None:
    """A worker that tells of a generation nobody lost; first parameters are no setback."""
    found = Setbacks()
    found.fell(0, NOTHING, NOTHING, "")
    found.late(0, Counts(5, 50))

    assert found.of(0) is None
    assert found.told() == {"count": 0, "steps": 0, "records": 0, "newest": []}


def test_an_ended_ticket_is_free_at_once() -> None:
    """Ending one that nobody has changes nothing."""
    found = Tickets()
    found.end(SAVE)
    assert found.ask(SAVE, "p", 0.0, 10.0) == 1
    found.end(SAVE)
    assert found.ask(SAVE, "q", 0.0, 10.0) == 2


def test_who_has_a_ticket_may_ask_again() -> None:
    """The answer may have been lost; nobody else gets one for that."""
    found = Tickets()
    assert [found.ask(SAVE, who, 0.0, 10.0) for who in ("p", "p", "q")] == [1, 2, None]


def test_a_ticket_that_is_given_back_is_free_at_once() -> None:
    """Only by who has it."""
    found = server()

    def asked(who: str, **more: Any) -> Json:
        told = {"trainer": "t", "incarnation": who, "generation": 0, "kind": "settle"}
        return found.ask(Ask.model_validate(told | more), 0.0)

    assert asked("p")["granted"]
    assert not asked("q", back=True)["granted"]
    assert not asked("q")["granted"]
    assert not asked("p", back=True)["granted"]
    assert asked("q")["granted"]


def test_an_optimizer_that_does_not_exist_is_refused_at_the_door() -> None:
    """Before anybody gets a ticket for it."""
    told = {**model().model_dump(), "optimizer": {"kind": "newton"}}
    body = Enter.model_validate({**WHO, "generation": 0, "model": told})
    with pytest.raises(RefusedError, match="'newton' is none of sgd"):
        server().enter(body)


def test_saving_never_goes_back() -> None:
    """A checkpoint that is committed late."""
    found = Saving(5, 0.0)
    found.done(3, 1.0)

    assert (found.version, found.at_s) == (5, 1.0)
