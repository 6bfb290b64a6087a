"""`python -m bench.exposed_member NAME FOLDER`: a port of a trainer's pod, as members of a round reach it.

It writes its port to FOLDER/address. Used by `bench.stranger_targets`.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from threading import Timer

from edl.agent.part_exchange import PartServer
from edl.collective import Interrupt, Listener, Ring
from edl.collective.handshake import RoundPosition
from edl.collective.transport import listen
from edl.data.snapshot_parts import Slots, SnapshotPart
from edl.errors import RoundOver

KEY = b"token-of-the-benchmark"
LOCAL = "127.0.0.1"
POSITION = RoundPosition(3, 1, 2)
"""Of the agent that has the part."""
PART = SnapshotPart(round=3, step=7, rank=0, count=1, bytes=4_096)
FORMED_S = 30.0
"""A round that takes longer is given up."""


def main(name: str, folder: Path) -> None:
    """Serves until SIGTERM, or until its input ends."""
    if name == "parts":
        _serve_part(folder)
    else:
        _form_rings(folder)


def form(listener: Listener, addresses: list[str], rank: int, number: int) -> None:
    """Connects a member's ring, meets the others there and leaves.

    Args:
        listener: Of this member.
        addresses: Of all.
        rank: Of this member.
        number: Of the round.

    Raises:
        RoundOver: It was not formed.
    """
    with contextlib.closing(Interrupt()) as interrupt:
        limit = Timer(FORMED_S, interrupt.set)
        limit.daemon = True
        limit.start()
        try:
            with Ring.connect(
                listener, addresses, rank, number=number, key=KEY, interrupt=interrupt
            ) as ring:
                ring.barrier()
        finally:
            limit.cancel()


def _serve_part(folder: Path) -> None:
    slots = Slots(folder, "own-0")
    descriptor = slots.open(PART.bytes)
    if descriptor is None:
        raise RuntimeError(f"{folder} has no room for a part")
    os.pwrite(descriptor, bytes(PART.bytes), 0)
    slots.commit(descriptor, PART)
    listener = listen(LOCAL, 0)
    PartServer(listener, KEY, folder).enter(POSITION)
    _announce(folder, listener.getsockname()[1])
    signal.pause()


def _form_rings(folder: Path) -> None:
    """Each line of its input has the number of a round, and the address of the other member."""
    listener = Listener(LOCAL)
    own_port = listener.address[1]
    _announce(folder, own_port)
    for line in sys.stdin:
        number, address = line.split()
        with contextlib.suppress(RoundOver):
            form(listener, [f"{LOCAL}:{own_port}", address], 0, int(number))


def _announce(folder: Path, port: int) -> None:
    partial = folder / "partial"
    partial.write_text(f"{LOCAL}:{port}\n")
    partial.rename(folder / "address")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
