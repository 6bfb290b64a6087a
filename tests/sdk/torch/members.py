"""Members of a round as threads of one process, and keys that they share in memory."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from edl.collective import Interrupt
from edl.errors import RoundOver
from edl.master.protocol import Member, Round
from edl.torch.groups.forming import Groups
from edl.torch.groups.keys import GroupKeys
from edl.torch.groups.link import GroupLink
from edl.torch.groups.store import MasterStore
from edl.torch.groups.waiting import Waiting

LIMIT_S = 60.0


class MemoryKeys:
    """The keys of a round, as `edl.master.round_store.RoundStore` has them."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._over = False

    def set(self, key: str, value: bytes) -> None:
        """Sets a key."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def get(self, key: str, timeout_s: float = LIMIT_S) -> bytes:
        """Waits for a key."""
        return self.get_all([key], timeout_s)[key]

    def wait(self, keys: Sequence[str], timeout_s: float = LIMIT_S) -> None:
        """Waits for keys."""
        self.get_all(keys, timeout_s)

    def get_all(self, keys: Sequence[str], timeout_s: float = LIMIT_S) -> dict[str, bytes]:
        """Waits for keys."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self.check(keys), timeout_s)
            if self._over or not self.check(keys):
                raise RoundOver("the round of these keys is over")
            return {key: self._values[key] for key in keys}

    def get_present(self, keys: Sequence[str], wait_s: float) -> dict[str, bytes]:
        """Waits for keys; returns those that are set."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self.check(keys), wait_s)
            if self._over:
                raise RoundOver("the round of these keys is over")
            return {key: self._values[key] for key in keys if key in self._values}

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all are set."""
        return all(key in self._values for key in keys)

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter."""
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            self._changed.notify_all()
            return total

    def end(self) -> None:
        """Ends the round."""
        with self._changed:
            self._over = True
            self._changed.notify_all()


class Seat:
    """One member: its groups over all rounds, and what ends its waits."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.interrupt = Interrupt()
        self.waits: list[float | None] = []
        """What it reported of its waits."""
        self.waiting = Waiting(self.interrupt, self.waits.append)

    def link(self, number: int, rank: int, world_size: int, keys: Any) -> GroupLink:
        """Connects it in a round."""
        self.interrupt.clear()
        round_ = Round(number, rank, (Member("a", "b", "c:0"),) * world_size)
        group = self.groups.form(round_, MasterStore(GroupKeys(keys, world_size)), self.waiting)
        return GroupLink(group, rank, world_size, self.waiting)


def together(calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Runs a call for each member at the same time; returns what they return or raise."""
    results: list[Any] = [None] * len(calls)

    def run(index: int) -> None:
        try:
            results[index] = calls[index]()
        except Exception as error:  # noqa: BLE001 - it is the result
            results[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "a member hangs"
    return results
