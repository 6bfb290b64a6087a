"""The events of a stream: changes of the sections that a reader subscribes to and may see.

Each section is a function of the view, the subscription, and the version after which the reader continues
(None to start over). It yields lines of JSON, or nothing if nothing has changed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

import orjson

from page import rows
from page.access import Access
from page.cluster_view import ClusterView
from page.record_query import RecordQuery, merged
from page.table import Delta, Row, RowTable
from policy.records import CLUSTER

JOBS_AT_ONCE, NODES_AT_ONCE = 500, 1_000
"""Maximum number of rows in one event; a new reader gets a large table in several events."""
_FIRST_RECORDS = 200
_FIRST_BURSTS = 100


class Section(StrEnum):
    """The sections of a stream."""

    USAGE = "usage"
    JOBS = "jobs"
    RECORDS = "records"
    RECLAIMS = "reclaims"
    OBJECTIVE = "objective"
    NODES = "nodes"
    JOB = "job"


OF_CLUSTER = frozenset({Section.USAGE, Section.NODES})
"""Sections for callers who may see the whole cluster."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The sections of a stream, and the permissions of its reader."""

    access: Access
    sections: tuple[Section, ...]
    namespace: str = ""
    """Restricts jobs, records and bursts to a namespace; "" for all."""
    job: str = ""
    """The job of the section `job`."""
    fits: str = ""
    """The job for whose trainers the nodes' free capacity is counted."""

    def sees(self, namespace: str) -> bool:
        """Returns whether the reader has asked for a namespace and may see it."""
        return self.namespace in ("", namespace) and self.access.sees(namespace)

    @property
    def fingerprint(self) -> str:
        """Identifies sections and permissions; a stream can only be continued if both are the same."""
        words = (*self.sections, self.namespace, self.job, self.fits)
        text = "\n".join((self.access.fingerprint, *words))
        return sha256(text.encode()).hexdigest()[:16]


def events(view: ClusterView, subscription: Subscription, since: int | None) -> list[bytes]:
    """Returns the events of all sections that have changed since a version, as lines of an event stream.

    Args:
        view: The view of the cluster.
        subscription: The reader's sections and permissions.
        since: The version; None to start over.
    """
    return [
        b"event: %s\ndata: %s\n" % (section.encode(), line)
        for section in subscription.sections
        for line in _SECTIONS[section](view, subscription, since)
    ]


def _usage(view: ClusterView, _: Subscription, since: int | None) -> Iterator[bytes]:
    values = view.usage(since)
    if values is not None:
        yield orjson.dumps(values)


def _jobs(view: ClusterView, subscription: Subscription, since: int | None) -> Iterator[bytes]:
    cluster = subscription.access.cluster

    def text(_: str, row: Row) -> bytes:
        return row.full_text if cluster else row.text

    yield from _table(view, view.jobs, subscription.sees, since, text, JOBS_AT_ONCE)


def _nodes(view: ClusterView, subscription: Subscription, since: int | None) -> Iterator[bytes]:
    fits = None
    if subscription.fits and subscription.access.sees(subscription.fits.partition("/")[0]):
        fits = view.fits(subscription.fits)
    now, without_surplus = fits if fits is not None else ({}, {})

    def text(name: str, row: Row) -> bytes:
        if fits is None:
            return b"%s,null,null,%s]" % (row.text, row.full_text)
        fit_now, fit_without_surplus = now.get(name, 0), without_surplus.get(name, 0)
        return b"%s,%d,%d,%s]" % (row.text, fit_now, fit_without_surplus, row.full_text)

    head = b'"resources":%s,"fits":%s,' % (
        orjson.dumps(view.resources),
        orjson.dumps(subscription.fits if fits is not None else None),
    )
    yield from _table(
        view,
        view.nodes,
        lambda _: subscription.access.cluster,
        since,
        text,
        NODES_AT_ONCE,
        head=head,
    )


def _table(
    view: ClusterView,
    table: RowTable,
    sees: Callable[[str], bool],
    since: int | None,
    text: Callable[[str, Row], bytes],
    at_once: int,
    *,
    head: bytes = b"",
) -> Iterator[bytes]:
    """Yields the events of a table: changed rows and removed keys.

    Args:
        view: The view, for its clock.
        table: The rows.
        sees: Whether the visitor may see rows of a namespace.
        since: The version that the client has; None for all rows.
        text: Encodes a row, given its key.
        at_once: Largest number of rows in one event.
        head: JSON members to put before the rows, each followed by a comma.
    """
    delta = table.since(since) if since is not None else None
    is_reset = delta is None
    if delta is None:
        delta = Delta(table.all(), [])
    lines = [text(key, row) for key, row in delta.rows if sees(row.namespace)]
    dropped = [key for key, namespace in delta.dropped if sees(namespace)]
    if not (lines or dropped or is_reset):
        return
    for start in range(0, max(1, len(lines)), at_once):
        is_last = start + at_once >= len(lines)
        yield b'{%s"at":%.3f,%s"rows":[%s],"gone":%s,"more":%s}' % (
            b'"reset":true,' if is_reset and not start else b"",
            view.epoch_s(),
            head,
            b",".join(lines[start : start + at_once]),
            orjson.dumps(dropped if not start else []),
            b"false" if is_last else b"true",
        )


def _records(view: ClusterView, subscription: Subscription, since: int | None) -> Iterator[bytes]:
    if since is None:
        query = RecordQuery(namespace=subscription.namespace, limit=_FIRST_RECORDS)
        logged, _ = view.history(query, subscription.sees)
    else:
        new = (entry for entry in view.records(since) if subscription.sees(entry.namespace))
        logged = merged(new)
        if not logged:
            return
    first = {"reset": True} if since is None else {}
    yield orjson.dumps(
        {**first, "at": view.epoch_s(), "records": [rows.record(entry) for entry in logged]}
    )


def _reclaims(view: ClusterView, subscription: Subscription, since: int | None) -> Iterator[bytes]:
    has_names = subscription.access.cluster_log and not subscription.namespace

    def sees(namespace: str) -> bool:
        """Selects only the cluster's log for readers who may see it: it has all bursts, with all names."""
        return namespace == CLUSTER if has_names else subscription.sees(namespace)

    delta = view.bursts.since(since) if since is not None else None
    bursts = view.bursts.all() if delta is None else delta.rows
    lines = [row.text for _, row in bursts if sees(row.namespace)]
    if lines or delta is None:
        reset = b'"reset":true,' if delta is None else b""
        yield b'{%s"rows":[%s]}' % (reset, b",".join(lines[-_FIRST_BURSTS:]))


def _objective(view: ClusterView, _: Subscription, since: int | None) -> Iterator[bytes]:
    text = view.objective(since)
    if text is not None:
        yield b'{"objective":%s}' % text


def _job(view: ClusterView, subscription: Subscription, since: int | None) -> Iterator[bytes]:
    key, access = subscription.job, subscription.access
    if since is not None and 0 < view.job_version(key) <= since:
        return
    document = view.job(key, access.sees, shares=access.cluster)
    yield orjson.dumps(document if document is not None else {"gone": True, "key": key})


_SECTIONS: dict[Section, Callable[[ClusterView, Subscription, int | None], Iterator[bytes]]] = {
    Section.USAGE: _usage,
    Section.JOBS: _jobs,
    Section.RECORDS: _records,
    Section.RECLAIMS: _reclaims,
    Section.OBJECTIVE: _objective,
    Section.NODES: _nodes,
    Section.JOB: _job,
}
