"""Reads all parameters of a job at once, for export or inspection."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from edl.master.session import Session, session
from edl.servers.client import PserverClient
from edl.servers.model_spec import ModelSpec
from edl.servers.options import check_rules
from edl.servers.parameter_reader import ParameterReader
from edl.servers.worker import Worker
from edl_protocol.pserver import Rules


class ParameterSnapshot(NamedTuple):
    """A copy of all parameters of a job."""

    dense: dict[str, Any]
    tables: dict[str, tuple[Any, Any]]
    """Table -> sorted ids and their rows; only rows that were trained at least once."""
    version: int
    """Number of batches that the parameters contain."""


def fetch(*, member: Session | None = None) -> ParameterSnapshot:
    """Fetches all parameters; during training, servers may be at slightly different versions.

    Args:
        member: This trainer's session; the process's session by default.

    Raises:
        ServersError: The servers hold no model yet, or are unreachable.
    """
    member_session = session() if member is None else member
    member_session.join()
    with contextlib.closing(ParameterReader(member_session, None)) as servers:
        servers.refresh()
        tables = {name: servers.rows(name) for name in sorted(servers.dims)}
        return ParameterSnapshot(servers.dense, tables, servers.version)


def connect(
    worker: Worker,
    *,
    code: Mapping[str, str] | None = None,
    rules: Rules,
    member: Session | None = None,
) -> PserverClient:
    """Returns a client for programs with their own training loop; the caller must close it.

    Args:
        worker: Computes the gradients.
        code: See `train`.
        rules: The rules that the servers enforce.
        member: This trainer's session; the process's session by default.
    """
    member_session = session() if member is None else member
    member_session.join()
    servers = PserverClient(member_session, ModelSpec(worker, code or {}, check_rules(rules)))
    try:
        servers.refresh()
    except BaseException:
        servers.close()
        raise
    return servers
