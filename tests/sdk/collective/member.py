"""A member of a ring as a process of its own, for tests that kill or freeze it.

`python -m tests.sdk.collective.member RANK` prints its address, reads a line with all addresses,
then reads a command per line, and answers with a line each: `sum SIZE COUNT`, `hold` (fork a child
that shares its sockets), `break SECONDS` (interrupt after that time).
"""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
from edl.collective import Interrupt, Listener, Ring
from edl.errors import RoundOver

from tests.sdk.collective.rings import KEY, LOCAL, address_of


def _commands() -> Iterator[list[str]]:
    for line in sys.stdin:
        yield line.split()


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - its only way to tell


def _sums(ring: Ring, size: int, count: int) -> str:
    digest = hashlib.sha256()
    for turn in range(count):
        chance = np.random.default_rng([ring.rank, turn])
        buffer = chance.standard_normal(size).astype(np.float32)
        ring.all_reduce(buffer)
        digest.update(buffer.data)
    return digest.hexdigest()


def main(rank: int) -> None:
    """Runs commands until standard input ends."""
    listener, interrupt, commands = Listener(LOCAL), Interrupt(), _commands()
    _say(address_of(listener))
    ring = Ring.connect(listener, next(commands), rank, number=1, key=KEY, interrupt=interrupt)
    _say("ready")
    for command, *numbers in commands:
        try:
            if command == "sum":
                _say(_sums(ring, *map(int, numbers)))
            elif command == "hold" and not os.fork():
                time.sleep(600)  # longer than any test
                os._exit(0)
            elif command == "break":
                threading.Timer(float(numbers[0]), interrupt.set).start()
        except RoundOver as error:
            _say(f"over {error}")
    ring.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
