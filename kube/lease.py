"""Leader election: a coordination.k8s.io/v1 Lease has at most one holder at a time.

No synchronized clocks are needed. A leader stops leading `renew_s` after it *sent* its last successful
renewal, and others take over only `lease_s` after they *observed* the last change. Both times are measured
on the process's own monotonic clock, and `renew_s` < `lease_s`. Every write carries the resource version
that it is based on, so two writers cannot both succeed. A leader that is paused between reading `is_leader`
and acting can still act late, so important writes carry their own preconditions.
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

from kube import errors, request
from kube.api import Api
from kube.reading import call
from runtime import clock

log = logging.getLogger(__name__)

LEASE_S = 15.0
RENEW_S = 10.0
RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class Lease:
    """A coordination.k8s.io/v1 `LeaseSpec`, with the resource version of its Lease."""

    holder: str
    duration_s: float
    acquired: str
    renewed: str
    transitions: int
    resource_version: str


class LeaseAction(Enum):
    """The next action of an elector, with its reason."""

    CREATE = "there is no lease"
    RENEW = "this process holds the lease"
    ACQUIRE = "the lease is free, or its holder has not renewed it in time"
    WAIT = "another process holds the lease"


def decide(lease: Lease | None, identity: str, observed_s: float, now_s: float) -> LeaseAction:
    """Decides the next action of the process `identity`.

    Args:
        lease: The lease as last read, or None if it does not exist.
        identity: Name of the process that asks.
        observed_s: When this process first observed the lease's version, on its own clock.
        now_s: The current time of that clock.
    """
    if lease is None:
        return LeaseAction.CREATE
    if lease.holder == identity:
        return LeaseAction.RENEW
    if not lease.holder or now_s >= observed_s + lease.duration_s:
        return LeaseAction.ACQUIRE
    return LeaseAction.WAIT


class Elector:
    """A candidate for leadership, with a thread that acquires and renews the lease.

    Check `is_leader` before every action.
    """

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
        may_lead: Callable[[bool], bool] = lambda _: True,
        clock_s: Callable[[], float] = clock.monotonic_s,
        wall: Callable[[], datetime] = clock.now,
    ) -> None:
        """Initializes the elector.

        Args:
            api: Sends the requests.
            namespace: Namespace of the Lease.
            name: Name of the Lease.
            identity: Name of this process; a restarted process must use another one.
            lease_s: How long others wait for a renewal; rounded up to whole seconds.
            renew_s: How long a leader leads after its last successful renewal.
            retry_s: Interval between two attempts.
            may_lead: Called before each attempt. Its argument says whether this process leads; it returns
                whether this process may take or keep the lease. If not, a leader gives up the lease.
            clock_s: The monotonic clock for all decisions.
            wall: The wall clock, which is only written into the lease for readers.

        Raises:
            ValueError: The given times would allow two leaders.
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
        self._may_lead = may_lead
        self._clock_s = clock_s
        self._wall = wall
        self._lease: Lease | None = None
        self._lease_is_current = False
        self._observed_s = clock_s()
        self._answered_s = clock_s()
        self._leads_until_s: float | None = None
        self._random = Random()  # noqa: S311 - jitter is not security-sensitive
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now; becomes False by itself when renewals fail."""
        until_s = self._leads_until_s
        if until_s is None or self._stopping.is_set():
            return False
        return self._clock_s() < until_s

    @property
    def answer_age_s(self) -> float:
        """Seconds since the API server last responded to a request for the lease, or since the start.

        A candidate sends such a request every few seconds, whether it leads, waits or must not lead. A watch
        may be quiet for a minute, but the lease shows within seconds that the API server does not respond.
        """
        return max(0.0, self._clock_s() - self._answered_s)

    def start(self) -> None:
        """Starts the thread; may be called once."""
        self._thread = threading.Thread(target=self._run, name="leader-election", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops leading, then releases the lease so that another process can acquire it at once.

        Code that acts on `is_leader` must have been stopped before this call.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._renew_s)  # a request times out after half of this time
            if self._thread.is_alive():
                return  # a write is in flight; the lease will expire
        self.release()

    def tick(self) -> None:
        """Makes one attempt: reads if needed, decides, writes. Failures are logged.

        A process that must not lead gives up the lease if it holds it, and then only reads it.
        """
        was_leader = self.is_leader
        may_lead = self._may_lead(was_leader)
        if not may_lead:
            self.release()
        try:
            if not (may_lead and self._lease_is_current):
                self._read()
            if may_lead:
                self._act(decide(self._lease, self._identity, self._observed_s, self._clock_s()))
            else:
                self._lease_is_current = (
                    False  # another process may have changed it by the next attempt
                )
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            self._lease_is_current = False  # another process has written in the meantime
        except (errors.KubeError, ValueError, KeyError, TypeError) as error:  # or malformed JSON
            self._lease_is_current = False
            log.warning(
                "could not renew the lease", extra={"lease": self._name, "error": str(error)}
            )
        if was_leader != self.is_leader:
            state = "leading" if self.is_leader else "no longer leading"
            log.info(state, extra={"lease": self._name, "identity": self._identity})

    def release(self) -> None:
        """Stops leading; clears the lease's holder if it is this process."""
        led = self._leads_until_s is not None
        self._leads_until_s = None
        lease = self._lease
        if not led or lease is None or lease.holder != self._identity:
            return
        free = replace(lease, holder="", duration_s=1.0, renewed=self._stamp())
        try:
            self._write(free)
        except errors.KubeError as error:
            log.warning(
                "could not release the lease", extra={"lease": self._name, "error": str(error)}
            )

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.tick()
            jitter = 1.0 if self.is_leader else self._random.uniform(1.0, 1.2)
            self._stopping.wait(self._retry_s * jitter)

    def _act(self, action: LeaseAction) -> None:
        started_s = self._clock_s()
        if action is LeaseAction.WAIT:
            self._lease_is_current = False  # nothing to write, but the next attempt must read again
            self._leads_until_s = None
            return
        self._write(self._desired(action))
        # The time counts from before the write was sent, because others may have observed the write since then.
        self._leads_until_s = started_s + self._renew_s

    def _desired(self, action: LeaseAction) -> Lease:
        """Returns the lease to write."""
        now = self._stamp()
        old = self._lease
        if old is None:
            return Lease(self._identity, self._lease_s, now, now, 0, "")
        ours = replace(old, holder=self._identity, duration_s=self._lease_s, renewed=now)
        if action is LeaseAction.RENEW:
            return ours
        return replace(ours, acquired=now, transitions=old.transitions + 1)

    def _stamp(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _read(self) -> None:
        get_request = request.get(request.LEASES, self._namespace, self._name)
        try:
            self._observe(self._send(get_request))
        except errors.NotFound:
            self._lease = None
        self._lease_is_current = True

    def _write(self, lease: Lease) -> None:
        body = _body(self._name, lease)
        if self._lease is None:
            write_request = request.create(request.LEASES, self._namespace, body)
        else:
            write_request = request.replace(request.LEASES, self._namespace, self._name, body)
        self._observe(self._send(write_request))

    def _send(self, api_request: request.Request) -> Mapping[str, Any]:
        """Sends a request with half the deadline, so that there is time for a second attempt."""
        try:
            answer = call(self._api, replace(api_request, timeout_s=self._renew_s / 2))
        except errors.KubeError as error:
            if error.status:  # a refusal is a response too
                self._answered_s = self._clock_s()
            raise
        self._answered_s = self._clock_s()
        return answer

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
