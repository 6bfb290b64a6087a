"""Who leads: one holder of a coordination.k8s.io/v1 Lease at a time.

Safe without synchronised clocks: a leader stops believing in itself `renew_s` after it *sent*
its last good renewal; others take over only `lease_s` after they *saw* the last change, both
on their own monotonic clock, and `renew_s` < `lease_s`. Every write carries the resource
version it was decided on, so two can not win at once. A leader that is stopped between asking
`is_leader` and acting can still be late: writes that matter carry versions of their own.
Source: client-go `tools/leaderelection`.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from math import ceil
from random import Random
from typing import Any

import orjson

from kube import errors, request
from kube.client import Api
from runtime import clock

log = logging.getLogger(__name__)

LEASE_S = 15.0
RENEW_S = 10.0
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Lease:
    """coordination.k8s.io/v1 `LeaseSpec`, and the version it was read at."""

    holder: str
    duration_s: float
    acquired: str
    renewed: str
    transitions: int
    resource_version: str


class Step(Enum):
    """What to do about a lease now."""

    CREATE = "there is none"
    RENEW = "it is ours"
    TAKE = "it is free, or its holder has been silent for too long"
    WAIT = "somebody else holds it"


def decide(lease: Lease | None, identity: str, observed_s: float, now_s: float) -> Step:
    """What `identity` does about `lease`.

    Args:
        lease: As last read; None if there is none.
        identity: Who asks.
        observed_s: When its present version was first seen, on the asker's clock.
        now_s: The same clock now.
    """
    if lease is None:
        return Step.CREATE
    if lease.holder == identity:
        return Step.RENEW
    if not lease.holder or now_s >= observed_s + lease.duration_s:
        return Step.TAKE
    return Step.WAIT


class Elector:
    """Tries to lead, from a thread of its own; ask `is_leader` before every action."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_s: float = LEASE_S,
        renew_s: float = RENEW_S,
        retry_s: float = RETRY_S,
        clock_s: Callable[[], float] = clock.monotonic_s,
        wall: Callable[[], datetime] = clock.now,
    ) -> None:
        """Starts nothing.

        Args:
            api: The API server.
            namespace: Of the lease.
            name: Of the lease.
            identity: Unique to this process: a restarted one must not take itself for the old.
            lease_s: How long others wait for a sign of life; rounded up to whole seconds.
            renew_s: How long after its last good renewal a leader still leads.
            retry_s: Between two tries.
            clock_s: A monotonic clock; decides.
            wall: The wall clock; only written into the lease, for people.

        Raises:
            ValueError: the times do not keep two leaders apart.
        """
        if not (0 < retry_s < renew_s < lease_s and lease_s >= 1):
            raise ValueError(f"0 < retry {retry_s} < renew {renew_s} < lease {lease_s} must hold")
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_s = lease_s
        self._renew_s = renew_s
        self._retry_s = retry_s
        self._clock_s = clock_s
        self._wall = wall
        self._lease: Lease | None = None
        self._known = False
        self._observed_s = clock_s()
        self._leads_until_s: float | None = None
        self._random = Random()  # noqa: S311 - jitter keeps no secret
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now; turns False by itself when renewals fail."""
        until_s = self._leads_until_s
        if until_s is None or self._stopping.is_set():
            return False
        return self._clock_s() < until_s

    @property
    def holder(self) -> str:
        """Who was last seen holding the lease; "" for nobody."""
        lease = self._lease
        return lease.holder if lease is not None else ""

    def start(self) -> None:
        """Begins to try; once only."""
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops leading, then gives the lease away so that another can take over at once.

        Whoever acts on `is_leader` must have stopped acting before.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._renew_s)  # a request gives up in half of that
            if self._thread.is_alive():
                return  # a write is on its way; the lease runs out by itself
        self.release()

    def tick(self) -> None:
        """One try: read where needed, decide, write. Failures are logged; the next try is due."""
        was_leader = self.is_leader
        try:
            if not self._known:
                self._read()
            self._act(decide(self._lease, self._identity, self._observed_s, self._clock_s()))
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            self._known = False  # somebody was quicker; look again
        except (errors.KubeError, ValueError, KeyError, TypeError) as error:  # or a garbled answer
            self._known = False
            log.warning("lease not renewed", extra={"lease": self._name, "error": str(error)})
        if was_leader != self.is_leader:
            state = "leading" if self.is_leader else "not leading any more"
            log.info(state, extra={"lease": self._name, "identity": self._identity})

    def release(self) -> None:
        """Stops leading; clears the holder if it was this process."""
        led = self._leads_until_s is not None
        self._leads_until_s = None
        lease = self._lease
        if not led or lease is None or lease.holder != self._identity:
            return
        free = replace(lease, holder="", duration_s=1.0, renewed=self._stamp())
        try:
            self._write(free)
        except errors.KubeError as error:
            log.warning("lease not released", extra={"lease": self._name, "error": str(error)})

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.tick()
            jitter = 1.0 if self.is_leader else self._random.uniform(1.0, 1.2)
            self._stopping.wait(self._retry_s * jitter)

    def _act(self, step: Step) -> None:
        begun_s = self._clock_s()
        if step is Step.WAIT:
            self._known = False  # nothing to write: the next try looks again
            self._leads_until_s = None
            return
        self._write(self._mine(step))
        # From before the write was sent: others may have seen it from then on.
        self._leads_until_s = begun_s + self._renew_s

    def _mine(self, step: Step) -> Lease:
        """The lease as this process wants it."""
        now = self._stamp()
        old = self._lease
        if old is None:
            return Lease(self._identity, self._lease_s, now, now, 0, "")
        ours = replace(old, holder=self._identity, duration_s=self._lease_s, renewed=now)
        if step is Step.RENEW:
            return ours
        return replace(ours, acquired=now, transitions=old.transitions + 1)

    def _stamp(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _read(self) -> None:
        asked = request.get(request.LEASES, self._namespace, self._name)
        try:
            self._observe(self._send(asked))
        except errors.NotFound:
            self._lease = None
        self._known = True

    def _write(self, lease: Lease) -> None:
        body = _body(self._name, lease)
        if self._lease is None:
            asked = request.create(request.LEASES, self._namespace, body)
        else:
            asked = request.replace(request.LEASES, self._namespace, self._name, body)
        self._observe(self._send(asked))

    def _send(self, asked: request.Request) -> Mapping[str, Any]:
        """Sends within half the deadline, so that a hung connection leaves time for another."""
        answer = self._api.send(replace(asked, timeout_s=self._renew_s / 2))
        obj: Mapping[str, Any] = orjson.loads(answer)
        return obj

    def _observe(self, obj: Mapping[str, Any]) -> None:
        lease = _decode(obj)
        if self._lease is None or lease.resource_version != self._lease.resource_version:
            self._observed_s = self._clock_s()
        self._lease = lease


def _decode(obj: Mapping[str, Any]) -> Lease:
    spec = obj.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        duration_s=float(spec.get("leaseDurationSeconds") or LEASE_S),
        acquired=spec.get("acquireTime") or "",
        renewed=spec.get("renewTime") or "",
        transitions=spec.get("leaseTransitions") or 0,
        resource_version=obj["metadata"]["resourceVersion"],
    )


def _body(name: str, lease: Lease) -> dict[str, Any]:
    metadata = {"name": name}
    if lease.resource_version:
        metadata["resourceVersion"] = lease.resource_version
    spec: dict[str, Any] = {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": ceil(lease.duration_s),
        "acquireTime": lease.acquired,
        "renewTime": lease.renewed,
        "leaseTransitions": lease.transitions,
    }
    return {"metadata": metadata, "spec": {k: v for k, v in spec.items() if v not in ("", None)}}
