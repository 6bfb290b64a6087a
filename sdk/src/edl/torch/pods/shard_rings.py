"""The rings that carry parts of the state; each ring connects processes of one rank in several pods."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from edl.collective import Interrupt, Listener, Ring
from edl.errors import RoundOver
from edl.master.protocol import Round
from edl.master.round_store import RoundStore
from edl.master.settings import Settings
from edl.sync.growth import Streams
from edl.torch.groups.waiting import Waiting


class ShardRings:
    """One process's rings in one round; used by all processes of a pod except the first."""

    def __init__(
        self, settings: Settings, round_: Round, keys: RoundStore, waiting: Waiting
    ) -> None:
        """Listens at any free port.

        Args:
            settings: The pod's settings.
            round_: The round.
            keys: Keys of the processes of this rank.
            waiting: Its waits end with the round.
        """
        self._round, self._keys, self._waiting = round_, keys, waiting
        self._key = settings.token.encode()
        self._listener = Listener(settings.address)
        host, port = self._listener.address[:2]
        self._address = f"{host}:{port}"
        self._interrupt = Interrupt()
        self.streams = Streams(self._interrupt, self._connect)
        """Connects the rings, for `Growth`."""

    def close(self) -> None:
        """Ends the connections; called after the threads that use them have ended."""
        self._interrupt.set()
        self._listener.close()

    def _connect(self, ranks: Sequence[int], channel: int) -> Ring:
        try:
            return self._waiting.call(partial(self._connect_blocking, ranks, channel))
        except RoundOver:
            self._interrupt.set()  # the call may still wait, on its thread
            raise

    def _connect_blocking(self, ranks: Sequence[int], channel: int) -> Ring:
        self._keys.set(_address_of(self._round.rank), self._address.encode())
        keys = [_address_of(rank) for rank in ranks]
        addresses = self._keys.get_all(keys)
        return Ring.connect(
            self._listener,
            [addresses[key].decode() for key in keys],
            ranks.index(self._round.rank),
            number=self._round.number,
            key=self._key,
            interrupt=self._interrupt,
            channel=channel,
        )


def _address_of(rank: int) -> str:
    return f"stream/{rank}"
