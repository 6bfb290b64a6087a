"""Everything that can go wrong between trainers and master, in random order."""

import random
import threading
from collections import Counter, deque

import edl
import pytest

from tests.sdk.conftest import Join
from tests.sdk.support.master_server import Server, before_away, garbage, lost

RECORDS = 120


def _disturb(server: Server, chance: random.Random) -> None:
    """One thing that goes wrong."""
    disturbance = chance.choice(["fault", "fault", "fault", "restart", "keep", "evict"])
    if disturbance == "fault":
        path = chance.choice(["/v1/work", "/v1/work", "/v1/heartbeat", "/v1/datasets/train"])
        faults = [chance.choice([lost, garbage, before_away]) for _ in range(chance.randint(1, 3))]
        server.faults[path] = deque(faults)
    elif disturbance == "restart":
        server.stop()
        threading.Event().wait(chance.uniform(0, 0.1))
        server.start()
    elif disturbance == "keep":
        server.master.store_snapshot()
    else:
        with server.master.changed:
            leased = [task for task in server.master.state.tasks.values() if task.holder]
            if leased:
                chance.choice(leased).holder = None


@pytest.mark.parametrize("takeovers", [0, 2])
@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_acknowledged_once_whatever_happens(
    server: Server, join: Join, seed: int, takeovers: int
) -> None:
    """Lost answers, restarts, lost leases and masters that take over: the books are right."""
    chance = random.Random(seed)  # noqa: S311 - the same disturbances in every run
    trained: Counter[int] = Counter()
    members = [join(f"trainer-{i}", patience_s=60.0) for i in range(3)]
    server.master.store_snapshot()

    def train(member: edl.Session) -> None:
        data = edl.from_function("train", int, RECORDS)
        for batch in edl.batches(data, 3, task_records=6, epochs=2, member=member):
            threading.Event().wait(0.002)
            trained.update(batch)

    threads = [threading.Thread(target=train, args=(member,)) for member in members]
    for thread in threads:
        thread.start()
    for place in range(12):
        threading.Event().wait(chance.uniform(0, 0.05))
        _disturb(server, chance)
        if takeovers and place % 5 == 4:
            server.stop()
            server.master.take_over()
            server.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)
    assert {1} == {task.accepted for task in server.master.state.tasks.values()}
    assert len(server.master.state.tasks) == 2 * RECORDS // 6
    assert set(trained) == set(range(RECORDS))
    wasted = sum(member.lease_table.counts.wasted for member in members)
    acknowledged = sum(member.lease_table.counts.acknowledged for member in members)
    assert sum(trained.values()) == acknowledged + wasted
    if not takeovers:
        assert acknowledged == 2 * RECORDS
