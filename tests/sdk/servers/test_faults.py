"""Parameter servers that die, lose answers, come back; in this process, with a master in memory."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import edl
import numpy as np
import pytest
from edl import servers
from edl.servers import loop

from tests.pserver.proxy import LossyProxy
from tests.pserver.serving import RunningServer, RunningServers
from tests.sdk.conftest import Join
from tests.sdk.servers.trained import Line, Words, points, words
from tests.sdk.support.loops import until
from tests.sdk.support.master_server import Server

RATE = 0.05


def plane(**options: Any) -> edl.Dataset:
    """Points in a data set."""
    return edl.from_arrays("points", *points(**options))


def acting(acts: dict[int, Callable[[], object]]) -> Line:
    """A worker that performs actions after given numbers of batches."""
    pending_acts = dict(acts)

    def before(worker: Line) -> None:
        act = pending_acts.pop(len(worker.losses), None)
        if act is not None:
            act()

    return Line(rate=RATE, before=before)


def run(
    join: Join, running: RunningServers, worker: Line, **changes: Any
) -> servers.TrainingResult:
    """Forty steps, with a checkpoint after every ten versions."""
    options = {"epochs": 2, "checkpoint_steps": 10, "checkpoint_seconds": 0.0, **changes}
    return servers.train(
        worker, plane(), 20, member=join(servers=running.urls, patience_s=60.0), **options
    )


def saving(running: RunningServers, version: int) -> Callable[[], None]:
    """Waits until a checkpoint is committed at all servers and its writer can start the next.

    Right after the push that asks for it: what is pushed meanwhile may be in it or not.
    """
    folder = running.directory / "digits"

    def is_written() -> bool:
        shards = list(folder.glob(f"*-*{version}/shard-?-of-{len(running.all)}"))
        return len(shards) == 2 and not any(
            thread.name == "edl-saver" for thread in threading.enumerate()
        )

    return lambda: until(is_written)


@pytest.mark.parametrize("which", [(0,), (1,), (0, 1)], ids=["server 0", "server 1", "all"])
def test_killed_servers_come_back_with_their_newest_checkpoint(
    two: RunningServers, join: Join, server: Server, which: tuple[int, ...]
) -> None:
    """Work since then is lost; that is counted and reported to the master, and training continues.

    The batch that is on its way then comes again, whichever servers had it: it is not lost.
    """

    def kill() -> None:
        for index in which:
            two.all[index].kill()
        for index in which:
            two.all[index].start()

    worker = acting({10: saving(two, 10), 20: saving(two, 20), 23: kill})
    result = run(join, two, worker)

    assert (result.steps, result.records) == (40, 800)
    assert (result.lost_steps, result.lost_records) == (3, 60)
    assert result.version == 37
    assert len(worker.losses) == 41
    assert result.metrics["loss"] < 0.1
    setbacks = server.master.rollbacks
    assert (setbacks["count"], setbacks["steps"], setbacks["records"]) == (1, 3, 60)
    names = " and ".join(str(index) for index in which).replace(" and ", ", ")
    assert setbacks["newest"][0]["reason"] == (
        f"parameter servers {names} restarted: all continue from version 20"
    )


def test_servers_one_after_another(two: RunningServers, join: Join) -> None:
    """Each comes back, and all go back together each time."""

    def kill(index: int) -> None:
        two.all[index].kill()
        two.all[index].start()

    acts: dict[int, Callable[[], object]] = {
        10: saving(two, 10),
        13: lambda: kill(0),
        24: saving(two, 20),  # three are lost by then, and one is computed twice
        27: lambda: kill(1),
    }
    result = run(join, two, acting(acts))

    assert (result.steps, result.lost_steps, result.version) == (40, 6, 34)


def test_servers_that_were_told_to_end_lose_nothing(
    two: RunningServers, join: Join, server: Server
) -> None:
    """One alone, then both: they go on where they were."""

    def again(which: RunningServer | RunningServers) -> None:
        which.stop()
        which.start()

    worker = acting({5: lambda: again(two.all[1]), 9: lambda: again(two)})
    result = run(join, two, worker)

    assert (result.steps, result.version, result.lost_steps) == (40, 40, 0)
    assert server.master.rollbacks["count"] == 0


def test_before_the_first_checkpoint_all_begins_anew(
    two: RunningServers, join: Join, server: Server
) -> None:
    """With initial parameters; the loss is reported."""

    def kill() -> None:
        two.kill()
        two.start()

    result = run(join, two, acting({5: kill}))

    assert (result.steps, result.version, result.lost_steps) == (40, 35, 5)
    assert "all continue from initial parameters" in server.master.rollbacks["newest"][0]["reason"]


def test_a_damaged_part_makes_all_go_back_further(
    two: RunningServers, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """To the newest checkpoint of which every part is whole; the damaged file is named."""

    def harm() -> None:
        two.kill()
        paths = sorted((two.directory / "digits").glob("*-*20/shard-1-of-2*"))
        raw = bytearray(paths[0].read_bytes())
        raw[-9] ^= 1
        paths[0].write_bytes(raw)
        two.start()

    result = run(join, two, acting({10: saving(two, 10), 20: saving(two, 20), 23: harm}))

    assert (result.steps, result.lost_steps, result.version) == (40, 13, 27)
    assert "invalid checkpoint file ignored" in [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("path", ["/v1/push", "/v1/settle", "/v1/enter", "/v1/pull", "/v1/tickets"])
def test_lost_answers_change_nothing(two: RunningServers, join: Join, path: str) -> None:
    """Calls are repeated unchanged; pushes are applied once."""
    proxies = [LossyProxy(server.port) for server in two.all]
    for proxy in proxies:
        proxy.lose(path, 3)
    member = join(servers=tuple(proxy.url for proxy in proxies), patience_s=60.0)
    worker = Line(rate=RATE)
    result = servers.train(worker, plane(), 20, epochs=2, member=member, checkpoint_seconds=0)
    for proxy in proxies:
        proxy.close()

    assert (result.steps, result.version) == (40, 40)
    assert sum(proxy.lost for proxy in proxies) >= 1
    repeated = [server.server.stats.to_json()["pushes"]["repeated"] for server in two.all]
    assert repeated == ([3, 3] if path == "/v1/push" else [0, 0])


def test_the_same_job_with_another_number_of_servers(
    two: RunningServers, join: Join, tmp_path: Path
) -> None:
    """It continues with the parameters of the one before, at other servers."""
    data = edl.from_arrays("words", *words())
    servers.train(Words(rate=2.0), data, 20, epochs=4, member=join("first", servers=two.urls))
    was = servers.fetch(member=join("reader", servers=two.urls))
    two.kill()
    three = RunningServers(tmp_path / "servers", 3)
    late = Words(rate=2.0)
    larger = edl.from_arrays("more", *words(seed=5))
    result = servers.train(late, larger, 20, member=join("late", servers=three.urls))
    now = servers.fetch(member=join("reader", servers=three.urls))
    three.stop()

    assert was.version == 80
    assert late.losses[0] < 0.01
    assert result.version == now.version == 100
    assert np.array_equal(now.tables["words"][0], was.tables["words"][0])


def test_a_checkpoint_of_another_model_is_one_line(two: RunningServers, join: Join) -> None:
    """And what to do about it; the servers go on waiting for one that fits."""
    servers.train(Line(), plane(count=20), 20, member=join("first", servers=two.urls))
    two.kill()
    two.start()
    with pytest.raises(
        servers.RequestRefused, match="name another folder, or another job"
    ) as caught:
        servers.train(Line(dim=4), plane(), 20, member=join("other", servers=two.urls))

    assert "'w' has shape [3] at checkpoint 000001-" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_stays_away_ends_the_trainer(two: RunningServers, join: Join) -> None:
    """After its patience, with one line that names it."""
    member = join(servers=two.urls, patience_s=0.5)
    with pytest.raises(
        servers.ServersUnavailable, match=r"parameter server 1 was unreachable for more than 0\.5 s"
    ):
        servers.train(acting({2: two.all[1].kill}), plane(), 20, member=member)


def test_a_trainer_that_cannot_wait_for_others_any_longer_says_so(
    two: RunningServers, join: Join
) -> None:
    """Another one has the ticket, and died with it."""
    two.all[0].server.leases.acquire("settle", "dead", two.all[0].clock_s(), 1000.0)
    with pytest.raises(servers.ServersUnavailable, match=r"not ready for 0\.3 s"):
        servers.train(Line(), plane(), 20, member=join(servers=two.urls, patience_s=0.3))


def test_a_model_that_does_not_fit_is_refused_and_the_next_trainer_may_try(
    tmp_path: Path, join: Join
) -> None:
    """The first one gives its ticket back."""
    running = RunningServers(tmp_path, 2, max_bytes=6000)
    with pytest.raises(servers.RequestRefused, match="--max-bytes") as caught:
        servers.train(Line(dim=5000), plane(dim=5000), 20, member=join("a", servers=running.urls))
    result = servers.train(Line(), plane(), 20, member=join("b", servers=running.urls))
    running.stop()

    assert caught.value.status == 507
    assert result.version == 20


def test_checkpoints_that_cannot_be_written_cost_nothing_else(
    two: RunningServers, join: Join, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; training continues."""

    def spoil() -> None:
        (two.directory / "digits").rename(two.directory / "elsewhere")

    result = run(join, two, acting({4: spoil}))

    assert result.steps == result.version == 40
    messages = [record.getMessage() for record in caplog.records if record.name == "edl"]
    assert any(
        "could not save a checkpoint of version" in message and "cannot write" in message
        for message in messages
    )


def test_the_end_of_training_is_saved(two: RunningServers, join: Join) -> None:
    """So nothing is lost when the servers end a moment later."""
    run(join, two, Line(rate=RATE))

    assert max(checkpoint.name.version for checkpoint in two.all[1].server.checkpoints) == 40
    assert loop.SAVE_EVERY_S > 0
