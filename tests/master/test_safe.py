"""The field `safe`: trainers forget what it covers, so another master must know it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.fake_api import FakeApi
from master.fence import ConfigMapFence
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import until
from tests.sdk.support.contract import Master, Trainer, done


@pytest.fixture(name="served")
def _served(tmp_path: Path) -> Iterator[Served]:
    """A master with a place for snapshots."""
    fence = ConfigMapFence(FakeApi(), "ml", "digits-master", "pod-1")
    master = Served(tmp_path, fence=fence, heartbeat_s=5.0)
    yield master
    master.kill()


def test_what_was_safe_of_another_process_is_not_safe_of_this_one(served: Served) -> None:
    """A new process counts its calls from 1: the previous one had counted further."""
    master = Master(served.port, TOKEN)
    master.describe()
    old = master.join("trainer-0")
    for _ in range(5):
        old.work()
    old.work(1)
    until(lambda: served.service.snapshot_is_current)
    new = Trainer(master, {"trainer": "trainer-0", "incarnation": "another"})
    new.ok("POST", "/v1/join")
    lease = new.work(1)["tasks"][0]

    assert new.work(done=[done(lease)])["safe"] < new.calls


def test_what_a_snapshot_holds_is_safe(served: Served) -> None:
    """For the process that called."""
    master = Master(served.port, TOKEN)
    master.describe()
    trainer = master.join("trainer-0")
    trainer.work(1)
    until(lambda: served.service.snapshot_is_current)

    assert trainer.work()["safe"] >= 1


def test_an_answer_tells_that_others_have_not_joined_the_new_master_yet(tmp_path: Path) -> None:
    """It leases nothing before, which does not mean that there is nothing left to train."""
    api = FakeApi()
    fences = [ConfigMapFence(api, "ml", "digits-master", pod) for pod in ("pod-1", "pod-2")]
    first = Served(tmp_path / "first", fence=fences[0], heartbeat_s=60.0)
    old = Master(first.port, TOKEN)
    old.describe()
    for name in ("trainer-0", "trainer-1"):
        old.join(name).work(1)
    until(lambda: first.service.snapshot_is_current)
    first.kill()
    second = Served(tmp_path / "second", fence=fences[1], heartbeat_s=60.0)
    master = Master(second.port, TOKEN)
    early = master.join("trainer-0")
    while_settling = early.work(1)
    master.join("trainer-1")
    settled = early.work(1)
    second.kill()

    assert (while_settling["settling"], while_settling["tasks"]) == (True, [])
    assert "settling" not in settled
    assert len(settled["tasks"]) == 1
