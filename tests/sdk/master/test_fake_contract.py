"""The contract of a master, held by the fake."""

from collections.abc import Callable

import pytest

from tests.sdk.support.contract import Master, MasterContract
from tests.sdk.support.contract_rendezvous import RendezvousContract
from tests.sdk.support.master_server import TOKEN, Server


class TestFake(MasterContract, RendezvousContract):
    """The facts of the contract, on the fake."""

    @pytest.fixture
    def master(self, server: Server) -> Master:
        """In memory."""
        return Master(server.port, TOKEN)

    @pytest.fixture
    def keep(self, server: Server) -> Callable[[], None]:
        """A copy."""
        return server.master.store_snapshot

    @pytest.fixture
    def take_over(self, server: Server) -> Callable[[], None]:
        """Back to the copy."""
        return server.master.take_over
