"""How a parameter server begins: with what it finds in its folder."""

import logging
from pathlib import Path

from pserver.checkpoint import Name
from pserver.server import Place, Server
from pserver.store import Store
from runtime.logs import keys

log = logging.getLogger(__name__)


def server_of(store: Store, place: Place, most_bytes: int, now_s: float) -> Server:
    """A server that is empty and knows its checkpoints; or one that goes on where it ended.

    The second is what a server that was told to end has left: all that was ever answered is in it,
    so nobody needs to go back. It is used once.

    Args:
        store: Its files.
        place: Which server it is.
        most_bytes: That arrays may take.
        now_s: The time.

    Raises:
        ShardError: The folder cannot be read.
        FullError: What it left does not fit any more.
    """
    last = store.last()
    found = Server(place, most_bytes, store.generation(), store.have())
    if last is not None:
        found.resume(last, now_s)
        store.forget_last()
        found.have = tuple(store.have())
        log.info("goes on where it ended", extra=keys(generation=found.generation))
    elif found.have:
        newest: Name = found.have[-1].name
        log.info("has checkpoints", extra=keys(newest=newest.folder, number=len(found.have)))
    return found


def open_store(directory: Path, place: Place) -> Store:
    """The files of a server.

    Raises:
        ShardError: The folder cannot be used.
    """
    return Store(directory, place.job, place.index, place.of)
