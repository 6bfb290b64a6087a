"""The real master keeps what the SDK relies on: the same contract as the fake."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.fake_api import FakeApi
from master.fence import ConfigMapFence
from tests.master.serving import TOKEN, Served
from tests.reconciler.waiting import until
from tests.sdk.support.contract import Master, MasterContract
from tests.sdk.support.contract_rendezvous import RendezvousContract


class _Site:
    """Masters that follow each other at one port."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._api = FakeApi()
        self._count = 0
        self.served = self._serve(0)

    def take_over(self) -> None:
        """Deletes the pod and its journal."""
        self.served.kill()
        self.served = self._serve(self.served.port)

    def keep(self) -> None:
        """Returns when all that was answered is in a snapshot."""
        until(lambda: self.served.service.snapshot_is_current)

    def _serve(self, port: int) -> Served:
        self._count += 1
        name = f"pod-{self._count}"
        fence = ConfigMapFence(self._api, "ml", "digits-master", name)
        return Served(self._directory / name, port=port, fence=fence, heartbeat_s=5.0)


class TestRealMaster(MasterContract, RendezvousContract):
    """The contract over HTTP, with a journal and a snapshot in a ConfigMap."""

    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[_Site]:
        """One master at a time."""
        site = _Site(tmp_path)
        yield site
        site.served.kill()

    @pytest.fixture
    def master(self, site: _Site) -> Master:
        """See `MasterContract`."""
        return Master(site.served.port, TOKEN)

    @pytest.fixture
    def keep(self, site: _Site) -> Callable[[], None]:
        """See `MasterContract`."""
        return site.keep

    @pytest.fixture
    def take_over(self, site: _Site) -> Callable[[], None]:
        """See `MasterContract`."""
        return site.take_over
