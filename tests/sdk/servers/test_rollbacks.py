"""What servers that go back to a checkpoint cost, batch by batch: nothing is lost without a count."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from edl import servers
from edl.servers import GenerationChanged, ServersUnavailable, checkpointing, client
from edl.servers.connection import PserverConnection
from edl.servers.data_rewinder import DataRewinder
from edl.servers.fan_out import FanOut

from pserver.server import SAVE_S
from tests.pserver.serving import RunningServer, RunningServers
from tests.pserver.test_app import call
from tests.sdk.conftest import Join
from tests.sdk.servers.marks import Kills, Marks, Pusher, applied_counts, data
from tests.sdk.servers.trainer_threads import Trainer
from tests.sdk.support.fake_master import Json
from tests.sdk.support.loops import until
from tests.sdk.support.master_server import Handler, Server

BATCHES = 60


def again(*which: RunningServer) -> None:
    """All are killed, and then all come back."""
    for index in which:
        index.kill()
    for index in which:
        index.start()


@pytest.mark.parametrize(
    "victims", [[(0, 1)], [(0,), (1,)], [(1,), (0, 1)]], ids=["all", "0, then 1", "1, then all"]
)
def test_trainers_that_come_back_to_a_restored_set_all_go_on(
    two: RunningServers, join: Join, server: Server, victims: list[tuple[int, ...]]
) -> None:
    """Each batch is either in the model, once, or counted as lost, once."""
    acts: dict[int, Callable[[], object]] = {
        20 * (place + 1): lambda which=which: again(*(two.all[server] for server in which))  # type: ignore[misc]
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
    results = [trainer.join() for trainer in crew]
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks

    assert sum(result.steps for result in results) == BATCHES
    assert marks.min() >= 0
    assert marks.max() == 1
    assert BATCHES - setbacks["steps"] == marks.all(axis=0).sum()
    assert setbacks["steps"] == setbacks["records"] == sum(result.lost_steps for result in results)
    assert sum(result.lost_records for result in results) == setbacks["records"]
    assert setbacks["count"] >= len(victims)


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_that_one_server_saved_and_another_did_not_is_lost(
    two: RunningServers, join: Join, server: Server, first: int
) -> None:
    """Servers write their parts one after another, while pushes go on."""
    pusher = Pusher(join, "t-0", two, 5)
    pusher.push(0, 1, 2)
    who: Json = {"trainer": "t", "incarnation": "i", "generation": 1, "version": 4}
    assert call(two.all[first], "POST", "/v1/prepare", who)[0] == 200
    pusher.push(3)
    for server_index, path in ((1 - first, "prepare"), (0, "commit"), (1, "commit")):
        assert call(two.all[server_index], "POST", f"/v1/{path}", who)[0] == 200
    pusher.push(4)
    again(*two.all)
    pusher.enter()
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks
    pusher.leave()

    assert marks[first].tolist() == [1, 1, 1, 0, 0]
    assert marks[1 - first].tolist() == [1, 1, 1, 1, 0]
    assert (pusher.servers.lost_steps, pusher.servers.lost_records) == (2, 20)
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (1, 2, 20)


def test_batches_of_a_trainer_that_has_left_are_counted_by_the_others(
    two: RunningServers, join: Join, server: Server
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
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks
    stays.leave()

    assert marks.sum(axis=0).tolist() == [2, 0, 0, 0, 0, 0]
    assert stays.servers.lost_steps == 1
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (1, 4, 40)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_was_on_its_way_and_comes_again_is_not_lost(
    two: RunningServers, join: Join, server: Server, order: tuple[int, int]
) -> None:
    """The surviving server had applied it already; in either order of return."""
    crew = [Pusher(join, f"t-{place}", two, 4) for place in range(2)]
    crew[0].push(0)
    crew[1].push(1)
    again(two.all[1])
    for place, trainer in enumerate(crew):
        with pytest.raises(GenerationChanged):
            trainer.push(2 + place)
    for place in order:
        crew[place].enter()
    server_setbacks, setbacks = two.all[0].server.rollbacks.to_json(), server.master.rollbacks
    marks = applied_counts(join, two.all)
    for trainer in crew:
        trainer.leave()

    assert server_setbacks["steps"] == 4, "server 0 had applied those on their way"
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (1, 2, 20)
    assert marks.sum() == 0


def test_a_trainer_that_misses_a_generation_counts_its_batches_too(
    two: RunningServers, join: Join, server: Server
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
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks
    quick.leave()
    slow.leave()

    assert marks[0].tolist() == marks[1].tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert (quick.servers.lost_steps, slow.servers.lost_steps) == (3, 2)
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (2, 5, 50)


def test_servers_that_another_trainer_has_just_settled_are_not_settled_again(
    two: RunningServers, join: Join, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though one of them answered before it was: what was pushed since then is kept."""
    quick, slow = (Pusher(join, f"t-{place}", two, 4) for place in range(2))
    entry = slow.servers._barrier  # noqa: SLF001 - only there answers are seen one by one
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
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks
    quick.leave()
    slow.leave()

    assert marks.tolist() == [[1, 1, 0, 0]] * 2
    assert (setbacks["count"], setbacks["steps"]) == (1, 0)


def test_servers_that_a_newcomer_began_anew_are_noticed(
    two: RunningServers, join: Join, server: Server
) -> None:
    """They were killed before their first checkpoint; nobody pushes what belongs to other ones."""
    old = Pusher(join, "old", two, 4)
    old.push(0, 1)
    again(*two.all)
    new = Pusher(join, "new", two, 4)
    new.push(2)
    with pytest.raises(GenerationChanged):
        old.push(3)
    old.enter()
    old.push(3)
    marks, setbacks = applied_counts(join, two.all), server.master.rollbacks
    old.leave()
    new.leave()

    assert marks.tolist() == [[0, 0, 1, 1]] * 2
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (1, 2, 20)


def test_servers_that_go_back_after_the_last_push_are_noticed(
    two: RunningServers, join: Join, server: Server
) -> None:
    """Without checkpoints everything is lost, and reported."""

    def report(step: servers.Step) -> None:
        if step.number == 10:
            again(*two.all)

    options = {"batch_size": 1, "checkpoint_seconds": 0.0}
    member = join(servers=two.urls, patience_s=60.0)
    result = servers.train(Marks(10), data(10), on_step=report, member=member, **options)  # type: ignore[arg-type]

    assert (result.steps, result.version, result.lost_steps) == (10, 0, 10)
    assert server.master.rollbacks["steps"] == 10


def test_what_is_asked_after_a_step_of_servers_that_went_back_ends_nothing(
    two: RunningServers, join: Join, server: Server
) -> None:
    """The evaluation is skipped, and training continues."""

    def report(step: servers.Step) -> None:
        if step.number == 5:
            again(*two.all)
            step.servers.pin(1)

    options = {"batch_size": 1, "checkpoint_seconds": 0.0}
    member = join(servers=two.urls, patience_s=60.0)
    result = servers.train(Marks(10), data(10), on_step=report, member=member, **options)  # type: ignore[arg-type]

    assert (result.steps, result.version, result.lost_steps) == (10, 5, 5)
    assert server.master.rollbacks["steps"] == 5


EVERY_2 = servers.Rules(None, False, 2, 0.0, 3)
"""A checkpoint after every second version."""


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The first checkpoint waits for a server that does not come back; empty once it does."""
    save, hangs = checkpointing.write_checkpoint, [True]

    def away(_: PserverConnection, __: int) -> None:
        raise ServersUnavailable("a server that does not come back")

    def act(fan: FanOut, identity: Json, version: int, data: DataRewinder | None) -> None:
        if hangs:
            hangs.pop()
            fan.call_all(away)
        save(fan, identity, version, data)

    monkeypatch.setattr(checkpointing, "write_checkpoint", act)
    return hangs


def saved(two: RunningServers) -> list[tuple[int, int]]:
    """Generation and version of each checkpoint."""
    return [
        (server.name.generation, server.name.version) for server in two.all[0].server.checkpoints
    ]


def test_a_checkpoint_that_died_with_its_servers_does_not_hold_up_the_next(
    two: RunningServers, join: Join, hanging: list[bool]
) -> None:
    """Its writer gives it up, and writes the next one that is due."""
    pusher = Pusher(join, "t-0", two, 8, EVERY_2)
    pusher.push(0, 1)
    until(lambda: not hanging)
    again(*two.all)
    with pytest.raises(GenerationChanged):
        pusher.push(2)
    pusher.enter()
    pusher.push(3, 4)
    until(lambda: saved(two) == [(2, 2)])
    pusher.leave()


def test_who_cannot_save_now_leaves_it_to_another(
    two: RunningServers, join: Join, hanging: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time for the one before is over, and it still hangs."""
    monkeypatch.setattr(checkpointing, "_MOMENT_S", 0.0)
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
    two: RunningServers, join: Join, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a later push; once."""
    monkeypatch.setattr(client, "_REPORT_EVERY_S", 0.0)
    pusher = Pusher(join, "t-0", two, 4)
    pusher.push(0, 1)
    server.faults["/v1/setbacks"] = deque([before_unknown, before_unknown])
    again(*two.all)
    pusher.enter()
    counts = [server.master.rollbacks["steps"]]
    for batch in (2, 3):
        pusher.push(batch)
        counts.append(server.master.rollbacks["steps"])
    pusher.leave()

    assert counts == [0, 0, 2]
    assert len(server.bodies("/v1/setbacks")) == 3
