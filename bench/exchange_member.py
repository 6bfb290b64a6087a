"""A member process of `bench.exchange`: sums arrays with the others and prints the durations.

It also runs with an interpreter that has PaddlePaddle but not EDL's packages. It exchanges lines of
JSON: writes its address, reads all addresses, writes its figures.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

WARM_UP = 3
Sum = Callable[[Any], None]


def main(kind: str, rank: int, world: int, sizes: list[int], counts: list[int]) -> None:
    """Connects, sums arrays of each size `count` times, and writes milliseconds by size."""
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
    _send(figures)
    sys.stdin.readline()  # wait until all members have written their figures
    close()


def hand_over(rank: int, world: int, size: int, count: int) -> None:
    """Hands `size` floats over to the last member; writes milliseconds, and the memory it took.

    Peak memory grows by the state at the last member, and by nothing at the others.
    """
    buffer = np.ones(size, np.float32) if rank < world - 1 else None
    ring = _connect(rank, world)
    before_kb = _peak_kb()
    times = []
    for _ in range(count):
        ring.barrier()
        begun_s = perf_counter()
        ring.hand_over(None if buffer is None else [buffer], b"", {world - 1})
        ring.barrier()
        times.append((perf_counter() - begun_s) * 1000)
    _send([times, [(_peak_kb() - before_kb) / 1024]])
    sys.stdin.readline()
    ring.close()


def _peak_kb() -> int:
    """Returns the peak memory of this program; `ru_maxrss` includes the process that started it."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def _ring(rank: int, world: int) -> tuple[Sum, Callable[[Any], Any], Callable[[], None]]:
    ring = _connect(rank, world)
    return ring.all_reduce, lambda array: array, ring.close


def _connect(rank: int, world: int) -> Any:
    from edl.collective import Interrupt, Listener, Ring  # noqa: PLC0415 - not needed for gloo

    listener = Listener("127.0.0.1")
    _send(listener.address)
    addresses = [f"{host}:{port}" for host, port in json.loads(sys.stdin.readline())]
    interrupt = Interrupt()
    return Ring.connect(
        listener, addresses[:world], rank, number=1, key=b"bench", interrupt=interrupt
    )


def _gloo(rank: int, world: int) -> tuple[Sum, Callable[[Any], Any], Callable[[], None]]:
    os.environ |= {"PADDLE_TRAINER_ID": str(rank), "PADDLE_TRAINERS_NUM": str(world)}
    import paddle  # noqa: PLC0415 - ours has none
    import paddle.distributed as dist  # noqa: PLC0415 - as above
    from paddle.base import core  # noqa: PLC0415 - as above
    from paddle.distributed.communication.group import Group  # noqa: PLC0415 - as above

    paddle.set_device("cpu")
    _send(None)
    port = json.loads(sys.stdin.readline())
    store = core.TCPStore("127.0.0.1", port, rank == 0, 0, 60)
    process_group = core.ProcessGroupGloo.create(store, rank, world, 1)
    group = Group(rank, 1, list(range(world)), pg=process_group, name="bench")

    def begin(tensor: Any) -> None:
        dist.all_reduce(tensor, group=group)

    return begin, paddle.to_tensor, lambda: None


def _send(message: Any) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - a pipe to the benchmark


if __name__ == "__main__" and sys.argv[1] == "hand_over":
    hand_over(*map(int, sys.argv[2:6]))
elif __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *map(json.loads, sys.argv[4:6]))
