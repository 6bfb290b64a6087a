"""One member of `bench.exchange`: sums arrays with others, and prints how long each sum took.

Run in a process of its own, also by an interpreter that has PaddlePaddle and none of our rooms.
Talks in lines of JSON: tells its address, is told everybody's, tells its figures.
"""

import json
import os
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

WARM_UP = 3
Sum = Callable[[Any], None]


def main(kind: str, rank: int, world: int, sizes: list[int], counts: list[int]) -> None:
    """Connects, sums arrays of each size so often, and tells milliseconds by size."""
    connect = {"ring": _ring, "gloo": _gloo}[kind]
    begin, make, close = connect(rank, world)
    figures = []
    for size, count in zip(sizes, counts, strict=True):
        buffer = make(np.ones(size, np.float32))
        times = []
        for turn in range(WARM_UP + count):
            begun_s = perf_counter()
            begin(buffer)
            times.append((perf_counter() - begun_s) * 1000)
            if turn < WARM_UP:
                times.clear()
        figures.append(times)
    _tell(figures)
    sys.stdin.readline()  # nobody leaves before all have told theirs
    close()


def _ring(rank: int, world: int) -> tuple[Sum, Callable[[Any], Any], Callable[[], None]]:
    from edl.exchange import Interrupt, Listener, Ring  # noqa: PLC0415 - gloo's side needs none

    listener = Listener("127.0.0.1")
    _tell(listener.address)
    addresses = [f"{host}:{port}" for host, port in json.loads(sys.stdin.readline())]
    ring = Ring.connect(
        listener, addresses[:world], rank, number=1, key=b"bench", interrupt=Interrupt()
    )
    return ring.all_reduce, lambda array: array, ring.close


def _gloo(rank: int, world: int) -> tuple[Sum, Callable[[Any], Any], Callable[[], None]]:
    os.environ |= {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(world)}
    import paddle  # noqa: PLC0415 - ours has none
    import paddle.distributed as dist  # noqa: PLC0415 - as above
    from paddle.base import core  # noqa: PLC0415 - as above
    from paddle.distributed.communication.group import Group  # noqa: PLC0415 - as above

    paddle.set_device("cpu")
    _tell(None)
    port = json.loads(sys.stdin.readline())
    store = core.TCPStore("127.0.0.1", port, rank == 0, 0, 60)
    made = core.ProcessGroupGloo.create(store, rank, world, 1)
    group = Group(rank, 1, list(range(world)), pg=made, name="bench")

    def begin(tensor: Any) -> None:
        dist.all_reduce(tensor, group=group)

    return begin, paddle.to_tensor, lambda: None


def _tell(what: Any) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201 - a pipe to the benchmark


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(json.loads, sys.argv[4:6]))
