"""Makes what masters need in the cluster, and addresses of parameter servers, before the first trainer.

Who calls: `reconciler.masters`, on the loop's thread; the calls themselves run side by side.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import orjson

from kube import errors, request
from kube.client import Api
from kube.request import CONFIGMAPS, ROLEBINDINGS, ROLES, SECRETS, SERVICES, Resource
from policy.names import MASTER_PORT, MASTER_TOKEN_KEY, SERVER_PORT
from policy.snapshot import Job
from reconciler import masterobjects, serverobjects
from reconciler.events import Event
from runtime.logs import keys

log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_AGAIN_S = 300.0
"""What somebody deleted is made again within this time."""
_FIRST_HOLD_S = 1.0
_LAST_HOLD_S = 60.0
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Provision:
    """What pods of a job are told of its master and its parameter servers."""

    address: str
    """http://host:port of the master's Service; "" where there is no master."""
    token: str
    servers: tuple[str, ...] = ()
    """The same of each parameter server, in order of index."""

    def __repr__(self) -> str:
        """Without the token, which must not get into logs."""
        return f"Provision({self.address!r})"


class _ObjectError(Exception):
    """An object cannot be made, or is not what it should be; one line that names it."""


class Provider:
    """Owned by the loop's thread."""

    def __init__(self, api: Api) -> None:
        """Starts nothing.

        Args:
            api: Where writes go.
        """
        self._api = api
        self._made: dict[str, Provision] = {}
        self._due_s: dict[str, float] = {}
        self._hold_s: dict[str, float] = {}

    def of(self, job: Job) -> Provision | None:
        """What was made for a job; None before all of it is there."""
        return self._made.get(job.uid)

    def forget(self, uid: str) -> None:
        """Drops what is remembered of a job that is gone."""
        for memory in (self._made, self._due_s, self._hold_s):
            memory.pop(uid, None)

    def ensure(self, jobs: Iterable[Job], now_s: float, pool: Executor) -> list[Event]:
        """Makes what is missing for jobs that are due; what to tell of those where it failed."""
        due = [job for job in jobs if now_s >= self._due_s.get(job.uid, 0.0)]
        events: list[Event] = []
        for job, found in zip(due, pool.map(self._provide, due), strict=True):
            if isinstance(found, Provision):
                self._made[job.uid] = found
                self._due_s[job.uid] = now_s + _AGAIN_S
                self._hold_s.pop(job.uid, None)
                continue
            hold_s = self._hold_s.get(job.uid, _FIRST_HOLD_S)
            self._due_s[job.uid] = now_s + hold_s
            self._hold_s[job.uid] = min(_LAST_HOLD_S, hold_s * 2)
            log.warning("master not provided for", extra=keys(job=job.key, error=found))
            events.append(Event(job, "MasterNotProvided", found, warning=True))
        return events

    def _provide(self, job: Job) -> Provision | str:
        """All objects of a job, or the line that says which is missing and why. On any thread."""
        before = self._made.get(job.uid)
        token = before.token if before is not None else secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            self._have(job, CONFIGMAPS, masterobjects.config_map(job))
            kept = self._have(job, SECRETS, masterobjects.secret(job, token))
            self._have(job, ROLES, masterobjects.role(job))
            self._have(job, ROLEBINDINGS, masterobjects.role_binding(job))
            service = self._have(job, SERVICES, masterobjects.service(job))
            servers = self._servers(job)
            return Provision(_address(service, MASTER_PORT), _token(kept), servers)
        except (_ObjectError, errors.KubeError) as error:
            return str(error)

    def _servers(self, job: Job) -> tuple[str, ...]:
        """Addresses of the parameter servers, whether or not their pods exist.

        Raises:
            KubeError: as `_have`.
            _ObjectError: as `_have`, or a Service without an address.
        """
        count = job.servers.count if job.servers is not None else 0
        made = (
            self._have(job, SERVICES, serverobjects.service(job, number)) for number in range(count)
        )
        return tuple(_address(service, SERVER_PORT) for service in made)

    def _have(self, job: Job, resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object as it is in the cluster, made if it was missing.

        Raises:
            KubeError: the API server refused, or did not answer.
            _ObjectError: the name is taken by an object that is not this Job's.
        """
        name = body["metadata"]["name"]
        try:
            return self._ask(request.create(resource, job.namespace, body))
        except errors.AlreadyExists:
            found = self._ask(request.get(resource, job.namespace, name))
        if masterobjects.is_own(job, found):
            return found
        raise _ObjectError(
            f"{resource.kind} {name} exists and is not this Job's: delete it, or name the Job "
            "otherwise (one of an earlier Job of this name goes by itself)"
        )

    def _ask(self, asked: request.Request) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = orjson.loads(
            self._api.send(replace(asked, timeout_s=_TIMEOUT_S))
        )
        return answer


def _address(service: Mapping[str, Any], port: int) -> str:
    found = masterobjects.address(service, port)
    if not found:
        name = service["metadata"]["name"]
        raise _ObjectError(f"Service {name} has no cluster IP: delete it, and it is made anew")
    return found


def _token(secret: Mapping[str, Any]) -> str:
    found = masterobjects.token(secret)
    if not found:
        name = secret["metadata"]["name"]
        raise _ObjectError(
            f"Secret {name} has no usable {MASTER_TOKEN_KEY}: delete it, and it is made anew"
        )
    return found
