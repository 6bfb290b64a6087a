"""A rank's connections, tensors and sums; the programs of `rank` are written in its terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Self

import torch
import torch.distributed as dist

from e2e.gpu.nccl.options import GO, LIMIT_S, NEWS, Options, key
from e2e.gpu.nccl.report import Report
from e2e.gpu.nccl.ways import WAYS, Way, await_, await_work

FLOATS = 1 << 20
_MODULUS = 1021
"""Values are at most this, times the sum of a few ranks: all sums are exact in float32."""
_LIMIT = timedelta(seconds=LIMIT_S)


class Member:
    """One rank, connected to the store, with its device and its way to make groups."""

    def __init__(self, options: Options, report: Report, store: Any, news_store: Any) -> None:
        """Prepares the device: what is needed in a sum is loaded before the first one.

        Args:
            options: What this rank plays.
            report: Where its figures go.
            store: Shared by all ranks of the part.
            news_store: The same by another connection: a connection serves one wait at a time.
        """
        self.options, self.report, self.rank = options, report, options.rank
        self.store, self._news_store = store, news_store
        self._on_card = options.device == "cuda"
        self.device = torch.device("cuda", 0) if self._on_card else torch.device("cpu")
        if self._on_card:
            torch.cuda.set_device(self.device)
        self._values = (torch.arange(FLOATS, device=self.device) % _MODULUS + 1).float()
        self._begun: list[Any] = []
        """Tensors of sums that were abandoned: something may still write to them."""
        self._threads = ThreadPoolExecutor(max_workers=2)
        self.way = self.another_way()
        self.check(self.own_values() * 1.0, [self.rank])

    @classmethod
    def connect(cls, options: Options, report: Report) -> Self:
        """Returns the member once the parent's store is there, and says that it is ready."""
        await_(options.port().exists, "the store's port", LIMIT_S)
        port = int(options.port().read_text(encoding="utf-8"))
        stores = [
            dist.PrefixStore(
                options.part,
                dist.TCPStore(
                    "127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=_LIMIT
                ),
            )
            for _ in range(2)
        ]
        member = cls(options, report, *stores)
        member.announce("ready")
        member.store.wait([GO], _LIMIT)
        return member

    def another_way(self) -> Way:
        """Returns a new instance of the way, with no group."""
        return WAYS[self.options.way](self.store, self.rank, self.device)

    def announce(self, step: str) -> None:
        """Tells the others that this rank has come to a step."""
        self.store.set(key(step, self.rank), "1")

    def meet(self, step: str, ranks: Sequence[int]) -> None:
        """Waits until these ranks have come to a step."""
        self.store.wait([key(step, rank) for rank in ranks], _LIMIT)

    def news(self) -> float:
        """Waits for the news of a loss; returns when the parent sent it, in monotonic time."""
        self._news_store.wait([NEWS], _LIMIT)
        return float(self._news_store.get(NEWS))

    def start(self, call: Callable[[], Any]) -> Future[Any]:
        """Calls something on another thread."""
        return self._threads.submit(call)

    def own_values(self) -> Any:
        """Returns a tensor of what this rank adds; other ranks add other values."""
        return self._values * float(self.rank + 1)

    def sum(self, ranks: Sequence[int]) -> None:
        """Sums with these ranks.

        Raises:
            SumError: The sum is wrong.
        """
        tensor = self.own_values()
        await_work(self.way, self.way.begin(tensor), LIMIT_S)
        self.check(tensor, ranks)

    def begin_lost_sum(self) -> Any:
        """Begins a sum that never ends, because a rank does not; returns its work."""
        self._begun.append(self.own_values())
        return self.way.begin(self._begun[-1])

    def free_mb(self) -> float:
        """Returns the memory that is free on the card, or 0 without a card."""
        if not self._on_card:
            return 0.0
        torch.cuda.synchronize()
        free_bytes, _ = torch.cuda.mem_get_info()
        return float(free_bytes) / 1e6

    def expected(self, ranks: Sequence[int]) -> Any:
        """Returns the sum of what these ranks add."""
        return self._values * float(sum(rank + 1 for rank in ranks))

    def check(self, tensor: Any, ranks: Sequence[int]) -> None:
        """Compares every element of a sum with what its ranks have added.

        Raises:
            SumError: One differs.
        """
        expected = self.expected(ranks)
        if torch.equal(tensor, expected):
            return
        places = (0, FLOATS // 2, FLOATS - 1)
        got, wanted = ([float(values[at]) for at in places] for values in (tensor, expected))
        wrong = int((tensor != expected).sum())
        raise SumError(
            f"the sum of ranks {list(ranks)} is wrong in {wrong} of {FLOATS} elements: first, "
            f"middle and last are {got} instead of {wanted}"
        )


class SumError(Exception):
    """A sum differs from what its ranks contributed."""
