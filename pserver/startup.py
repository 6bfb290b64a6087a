"""The start of a parameter server: its memory limit, and the checkpoint from which it resumes."""

import logging
import os
from pathlib import Path

from pserver.model import MAX_DENSE_NUMBERS
from pserver.server import ParameterServer, ServerIdentity
from pserver.store import CheckpointStore
from runtime.logs import keys

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files that hold the memory limit in cgroup v2 and v1."""
ARRAY_FRACTION = 0.7
"""Share of memory for arrays; the rest is for the interpreter and bodies in flight."""
log = logging.getLogger(__name__)


def array_bytes() -> int:
    """Returns the limit of arrays in bytes: a share of the memory of the container, or of the machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(ARRAY_FRACTION * min([machine, *_cgroup_limits()]))


def _cgroup_limits() -> list[int]:
    limits = []
    for name in _LIMITS:
        try:
            limits.append(int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such file, or the limit is "max"
            continue
    return [limit for limit in limits if limit > 0]


def create_server(
    store: CheckpointStore,
    identity: ServerIdentity,
    max_bytes: int,
    now_s: float,
    *,
    max_dense_numbers: int = MAX_DENSE_NUMBERS,
) -> ParameterServer:
    """Creates a server, resumed from its shutdown checkpoint if there is one, otherwise empty.

    The shutdown checkpoint contains everything that was answered, so no rollback is needed. It is used
    once. An empty server knows the other checkpoints on its disk.

    Args:
        store: The files of the server.
        identity: Which server this is.
        max_bytes: Memory limit for arrays.
        now_s: The current time.
        max_dense_numbers: Largest number of dense parameters of a model.

    Raises:
        ShardError: The folder cannot be read.
        FullError: The shutdown checkpoint exceeds the memory limit.
    """
    last = store.load_shutdown_checkpoint()
    server = ParameterServer(
        identity,
        max_bytes,
        store.generation(),
        store.checkpoints(),
        max_dense_numbers=max_dense_numbers,
    )
    if last is not None:
        server.resume(last, now_s)
        store.delete_shutdown_checkpoint()
        server.checkpoints = tuple(store.checkpoints())
        log.info("resumed from the shutdown checkpoint", extra=keys(generation=server.generation))
    elif server.checkpoints:
        newest = server.checkpoints[-1].name.folder
        log.info("found checkpoints", extra=keys(newest=newest, number=len(server.checkpoints)))
    return server
