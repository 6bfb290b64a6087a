"""All parameters of a job at once, for export or for a look."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from edl.process import session
from edl.servers.fleet import Servers
from edl.servers.model import Model
from edl.servers.options import Rules
from edl.servers.reader import Reader
from edl.servers.worker import Worker
from edl.session import Session


class Final(NamedTuple):
    """Parameters as they were when they were fetched."""

    dense: dict[str, Any]
    tables: dict[str, tuple[Any, Any]]
    """Table -> ids in order, and their rows; of ids that were ever trained."""
    version: int
    """Batches that are in them."""


def fetch(*, member: Session | None = None) -> Final:
    """Fetches everything; of a job that still trains, it may be of slightly different versions.

    Raises:
        ServersError: The servers hold nothing yet, or are away.
    """
    found = session() if member is None else member
    found.join()
    with contextlib.closing(Reader(found, None)) as servers:
        servers.refresh()
        tables = {name: servers.rows(name) for name in sorted(servers.dims)}
        return Final(servers.dense, tables, servers.version)


def connect(
    worker: Worker,
    *,
    code: Mapping[str, str] | None = None,
    rules: Rules,
    member: Session | None = None,
) -> Servers:
    """A connection of one's own, for loops that `train` does not fit; close it at the end.

    Args:
        worker: What is trained.
        code: As in `train`.
        rules: Likewise.
        member: This trainer's session; the process's by default.
    """
    found = session() if member is None else member
    found.join()
    servers = Servers(found, Model(worker, code or {}, rules.check()._asdict()))
    try:
        servers.refresh()
    except BaseException:
        servers.close()
        raise
    return servers
