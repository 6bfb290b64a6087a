"""A member of a ring as a process of its own, for tests that kill or freeze it.

`python -m tests.sdk.exchange_member RANK`: tells its address, is told everybody's, then does what
it is told line by line: `sum SIZE COUNT`, `hold` (a child that shares its sockets), `break`
(interrupt in a second) and answers with a line each.
"""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
from edl.errors import RoundOver
from edl.exchange import Interrupt, Listener, Ring

from tests.sdk.rings import KEY, LOCAL, address_of


def _said() -> Iterator[list[str]]:
    for line in sys.stdin:
        yield line.split()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its only way to tell


def _sums(ring: Ring, size: int, count: int) -> str:
    found = hashlib.sha256()
    for turn in range(count):
        chance = np.random.default_rng([ring.rank, turn])
        buffer = chance.standard_normal(size).astype(np.float32)
        ring.all_reduce(buffer)
        found.update(buffer.data)
    return found.hexdigest()


def main(rank: int) -> None:
    """Lives until its input ends."""
    listener, interrupt, said = Listener(LOCAL), Interrupt(), _said()
    _say(address_of(listener))
    ring = Ring.connect(listener, next(said), rank, number=1, key=KEY, interrupt=interrupt)
    _say("ready")
    for what, *numbers in said:
        try:
            if what == "sum":
                _say(_sums(ring, *map(int, numbers)))
            elif what == "hold" and not os.fork():
                time.sleep(600)  # longer than any test
                os._exit(0)
            elif what == "break":
                threading.Timer(float(numbers[0]), interrupt.set).start()
        except RoundOver as error:
            _say(f"over {error}")
    ring.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
