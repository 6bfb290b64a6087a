"""What a master says is safe: a trainer forgets it, so another master must know it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.fake import FakeApi
from master.fence import ConfigMapFence
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import until
from tests.sdk.contract import Master, Trainer, done


@pytest.fixture(name="served")
def _served(tmp_path: Path) -> Iterator[Served]:
    """A master whose snapshots go somewhere."""
    fence = ConfigMapFence(FakeApi(), "ml", "digits-master", "pod-1")
    found = Served(tmp_path, fence=fence, heartbeat_s=5.0)
    yield found
    found.kill()


def test_what_was_safe_of_another_process_is_not_safe_of_this_one(served: Served) -> None:
    """A new process counts its calls from 1: those of the one before it reached further."""
    master = Master(served.port, TOKEN)
    master.describe()
    old = master.join("trainer-0")
    for _ in range(5):
        old.work()
    old.work(1)
    until(lambda: served.service.covered)
    new = Trainer(master, {"trainer": "trainer-0", "incarnation": "another"})
    new.ok("POST", "/v1/join")
    lease = new.work(1)["tasks"][0]

    assert new.work(done=[done(lease)])["safe"] < new.calls


def test_what_a_snapshot_holds_is_safe(served: Served) -> None:
    """Of the process that called."""
    master = Master(served.port, TOKEN)
    master.describe()
    one = master.join("trainer-0")
    one.work(1)
    until(lambda: served.service.covered)

    assert one.work()["safe"] >= 1
