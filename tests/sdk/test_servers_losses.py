"""What servers that go back to a checkpoint cost, batch by batch: nothing is lost without a count."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edl import servers
from edl.servers import Away, Moved, fleet, saving
from edl.servers.fan import Fan
from edl.servers.link import Link

from pserver.tickets import SAVE_S
from tests.pserver.serving import Served, Servers
from tests.pserver.test_app import ask
from tests.sdk.books import Json
from tests.sdk.conftest import Join
from tests.sdk.crews import Trainer
from tests.sdk.loops import until
from tests.sdk.marks import Kills, Marks, Pusher, data, held
from tests.sdk.servers import Handler, Server

BATCHES = 60


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Servers]:
    """Two servers of one job, in one folder."""
    found = Servers(tmp_path / "servers", 2)
    yield found
    found.stop()


def again(*which: Served) -> None:
    """All are killed, and then all come back."""
    for one in which:
        one.kill()
    for one in which:
        one.start()


@pytest.mark.parametrize(
    "victims", [[(0, 1)], [(0,), (1,)], [(1,), (0, 1)]], ids=["all", "0, then 1", "1, then all"]
)
def test_trainers_that_come_back_to_a_restored_set_all_go_on(
    two: Servers, join: Join, server: Server, victims: list[tuple[int, ...]]
) -> None:
    """Each batch is either in the model, once, or counted as lost, once."""
    acts: dict[int, Callable[[], object]] = {
        20 * (place + 1): lambda which=which: again(*(two.all[one] for one in which))  # type: ignore[misc]
        for place, which in enumerate(victims)
    }
    kills = Kills(acts)
    crew = [
        Trainer(
            join(f"t-{place}", servers=two.urls, patience_s=60.0),
            Marks(BATCHES, before=kills),
            data(BATCHES),
            batch_size=1,
            checkpoint_steps=5,
            checkpoint_seconds=0.0,
        )
        for place in range(3)
    ]
    results = [one.join() for one in crew]
    marks, told = held(join, two.all), server.books.setbacks

    assert sum(one.steps for one in results) == BATCHES
    assert marks.min() >= 0
    assert marks.max() == 1
    assert BATCHES - told["steps"] == marks.all(axis=0).sum()
    assert told["steps"] == told["records"] == sum(one.lost_steps for one in results)
    assert sum(one.lost_records for one in results) == told["records"]
    assert told["count"] >= len(victims)


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_that_one_server_saved_and_another_did_not_is_lost(
    two: Servers, join: Join, server: Server, first: int
) -> None:
    """Servers write their parts one after another, while pushes go on."""
    found = Pusher(join, "t-0", two, 5)
    found.push(0, 1, 2)
    who: Json = {"trainer": "t", "incarnation": "i", "generation": 1, "version": 4}
    assert ask(two.all[first], "POST", "/v1/prepare", who)[0] == 200
    found.push(3)
    for one, path in ((1 - first, "prepare"), (0, "commit"), (1, "commit")):
        assert ask(two.all[one], "POST", f"/v1/{path}", who)[0] == 200
    found.push(4)
    again(*two.all)
    found.enter()
    marks, told = held(join, two.all), server.books.setbacks
    found.leave()

    assert marks[first].tolist() == [1, 1, 1, 0, 0]
    assert marks[1 - first].tolist() == [1, 1, 1, 1, 0]
    assert (found.servers.lost_steps, found.servers.lost_records) == (2, 20)
    assert (told["count"], told["steps"], told["records"]) == (1, 2, 20)


def test_batches_of_a_trainer_that_has_left_are_counted_by_the_others(
    two: Servers, join: Join, server: Server
) -> None:
    """They were answered later, with a version that holds them."""
    stays, leaves = (Pusher(join, f"t-{place}", two, 6) for place in range(2))
    leaves.push(0)
    assert stays.servers.save()
    leaves.push(1, 2, 3)
    leaves.leave()
    stays.push(4)
    again(*two.all)
    stays.enter()
    marks, told = held(join, two.all), server.books.setbacks
    stays.leave()

    assert marks.sum(axis=0).tolist() == [2, 0, 0, 0, 0, 0]
    assert stays.servers.lost_steps == 1
    assert (told["count"], told["steps"], told["records"]) == (1, 4, 40)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_was_on_its_way_and_comes_again_is_not_lost(
    two: Servers, join: Join, server: Server, order: tuple[int, int]
) -> None:
    """A server that lived had applied it already; whoever comes back first."""
    crew = [Pusher(join, f"t-{place}", two, 4) for place in range(2)]
    crew[0].push(0)
    crew[1].push(1)
    again(two.all[1])
    for place, one in enumerate(crew):
        with pytest.raises(Moved):
            one.push(2 + place)
    for place in order:
        crew[place].enter()
    gone, told = two.all[0].server.setbacks.told(), server.books.setbacks
    marks = held(join, two.all)
    for one in crew:
        one.leave()

    assert gone["steps"] == 4, "server 0 had applied those on their way"
    assert (told["count"], told["steps"], told["records"]) == (1, 2, 20)
    assert marks.sum() == 0


def test_a_trainer_that_misses_a_generation_counts_its_batches_too(
    two: Servers, join: Join, server: Server
) -> None:
    """Servers went back twice before it looked."""
    quick, slow = (Pusher(join, f"t-{place}", two, 8) for place in range(2))
    slow.push(0, 1)
    again(*two.all)
    quick.enter()
    quick.push(2, 3, 4)
    again(two.all[0])
    quick.enter()
    quick.push(5)
    slow.enter()
    slow.push(6)
    marks, told = held(join, two.all), server.books.setbacks
    quick.leave()
    slow.leave()

    assert marks[0].tolist() == marks[1].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert (quick.servers.lost_steps, slow.servers.lost_steps) == (3, 2)
    assert (told["count"], told["steps"], told["records"]) == (2, 5, 50)


def test_servers_that_another_trainer_has_just_settled_are_not_settled_again(
    two: Servers, join: Join, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one of them answered before it was: what was pushed since then is kept."""
    quick, slow = (Pusher(join, f"t-{place}", two, 4) for place in range(2))
    entry = slow.servers._entry  # noqa: SLF001 - only there answers are seen one by one
    ask_all, early = entry._states, list[Json]()  # noqa: SLF001 - see above
    again(*two.all)

    def torn(model: Any) -> list[Json]:
        states = ask_all(model)
        if not early:
            early.extend(states)
            quick.enter()
            quick.push(0)
            states = [ask_all(model)[0], early[1]]
        return states

    monkeypatch.setattr(entry, "_states", torn)
    slow.enter()
    slow.push(1)
    marks, told = held(join, two.all), server.books.setbacks
    quick.leave()
    slow.leave()

    assert marks.tolist() == [[1, 1, 0, 0]] * 2
    assert (told["count"], told["steps"]) == (1, 0)


def test_servers_that_a_newcomer_began_anew_are_noticed(
    two: Servers, join: Join, server: Server
) -> None:
    """They were killed before their first checkpoint; nobody pushes what belongs to other ones."""
    old = Pusher(join, "old", two, 4)
    old.push(0, 1)
    again(*two.all)
    new = Pusher(join, "new", two, 4)
    new.push(2)
    with pytest.raises(Moved):
        old.push(3)
    old.enter()
    old.push(3)
    marks, told = held(join, two.all), server.books.setbacks
    old.leave()
    new.leave()

    assert marks.tolist() == [[0, 0, 1, 1]] * 2
    assert (told["count"], told["steps"], told["records"]) == (1, 2, 20)


def test_servers_that_go_back_after_the_last_push_are_noticed(
    two: Servers, join: Join, server: Server
) -> None:
    """Without checkpoints all is lost, and said."""

    def told(step: servers.Step) -> None:
        if step.number == 10:
            again(*two.all)

    options = {"batch_size": 1, "checkpoint_seconds": 0.0}
    member = join(servers=two.urls, patience_s=60.0)
    result = servers.train(Marks(10), data(10), on_step=told, member=member, **options)  # type: ignore[arg-type]

    assert (result.steps, result.version, result.lost_steps) == (10, 0, 10)
    assert server.books.setbacks["steps"] == 10


def test_what_is_asked_after_a_step_of_servers_that_went_back_ends_nothing(
    two: Servers, join: Join, server: Server
) -> None:
    """The evaluation is left out, and training goes on."""

    def told(step: servers.Step) -> None:
        if step.number == 5:
            again(*two.all)
            step.servers.pin(1)

    options = {"batch_size": 1, "checkpoint_seconds": 0.0}
    member = join(servers=two.urls, patience_s=60.0)
    result = servers.train(Marks(10), data(10), on_step=told, member=member, **options)  # type: ignore[arg-type]

    assert (result.steps, result.version, result.lost_steps) == (10, 5, 5)
    assert server.books.setbacks["steps"] == 5


EVERY_2 = servers.Rules(None, False, 2, 0.0, 3)
"""A checkpoint after every second version."""


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The first checkpoint waits for a server that does not come back; empty once it does."""
    save, hangs = saving.save, [True]

    def away(_: Link, __: int) -> None:
        raise Away("a server that does not come back")

    def act(fan: Fan, told: Json, version: int) -> None:
        if hangs:
            hangs.pop()
            fan.each(away)
        save(fan, told, version)

    monkeypatch.setattr(saving, "save", act)
    return hangs


def saved(two: Servers) -> list[tuple[int, int]]:
    """Generation and version of each checkpoint."""
    return [(one.name.generation, one.name.version) for one in two.all[0].server.have]


def test_a_checkpoint_that_died_with_its_servers_does_not_hold_up_the_next(
    two: Servers, join: Join, hanging: list[bool]
) -> None:
    """Whoever writes it gives it up, and writes the next one that is due."""
    found = Pusher(join, "t-0", two, 8, EVERY_2)
    found.push(0, 1)
    until(lambda: not hanging)
    again(*two.all)
    with pytest.raises(Moved):
        found.push(2)
    found.enter()
    found.push(3, 4)
    until(lambda: saved(two) == [(2, 2)])
    found.leave()


def test_who_cannot_save_now_leaves_it_to_another(
    two: Servers, join: Join, hanging: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time for the one before is over, and it still hangs."""
    monkeypatch.setattr(saving, "_MOMENT_S", 0.0)
    now_s = [0.0]
    two.all[0].clock_s = lambda: now_s[0]
    again(two.all[0])
    slow, quick = (Pusher(join, f"t-{place}", two, 8, EVERY_2) for place in range(2))
    slow.push(0, 1)
    until(lambda: not hanging)
    now_s[0] += SAVE_S
    slow.push(2)
    quick.push(3)
    until(lambda: saved(two) == [(1, 4)])
    slow.servers._saver.finish(0.0)  # noqa: SLF001 - it would be waited for
    slow.leave()
    quick.leave()


def before_unknown(handler: Handler, _: Json) -> bool:
    """A master that has just taken over and does not know the trainer yet."""
    handler.say(404, b'{"error": {"status": 404, "message": "t-0 has not joined"}}')
    return True


def test_a_master_that_cannot_hear_of_it_now_hears_of_it_later(
    two: Servers, join: Join, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a later push; once."""
    monkeypatch.setattr(fleet, "_TELL_EVERY_S", 0.0)
    found = Pusher(join, "t-0", two, 4)
    found.push(0, 1)
    server.faults["/v1/setbacks"] = deque([before_unknown, before_unknown])
    again(*two.all)
    found.enter()
    counts = [server.books.setbacks["steps"]]
    for batch in (2, 3):
        found.push(batch)
        counts.append(server.books.setbacks["steps"])
    found.leave()

    assert counts == [0, 0, 2]
    assert len(server.told("/v1/setbacks")) == 3
