"""Creates the objects of a job's master, and Services of its servers, before the first trainer.

Called by `reconciler.master_controller` on the loop's thread; requests run concurrently.
"""

import logging
import secrets
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import orjson

from kube import errors, request
from kube.api import Api
from kube.request import CONFIGMAPS, ROLEBINDINGS, ROLES, SECRETS, SERVICES, Resource
from policy.names import MASTER_PORT, MASTER_TOKEN_KEY, SERVER_PORT
from policy.snapshot import Job
from reconciler.events import Event
from reconciler.manifests import master as master_manifests
from reconciler.manifests import owned
from reconciler.manifests import server as server_manifests
from runtime.backoff import Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

_CHECK_EVERY_S = 300.0
"""Deleted objects are created again within this time."""
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0
_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class JobEndpoints:
    """Addresses of a job's master and parameter servers, and the token for the master."""

    address: str
    """http://host:port of the master's Service; "" where there is no master."""
    token: str
    servers: tuple[str, ...] = ()
    """URLs of the parameter servers' Services, in order of index."""

    def __repr__(self) -> str:
        """The text without the token, which must not appear in logs."""
        return f"JobEndpoints({self.address!r})"


class _ObjectError(Exception):
    """An object cannot be created, or is not usable; the one line names it."""


class JobObjects:
    """Creates and checks the objects of masters and servers. Used on the loop's thread alone."""

    def __init__(self, api: Api) -> None:
        """Starts nothing.

        Args:
            api: Receives the requests.
        """
        self._api = api
        self._endpoints: dict[str, JobEndpoints] = {}
        self._due_s: dict[str, float] = {}
        self._backoffs = Backoffs[str](_FIRST_BACKOFF_S, _MAX_BACKOFF_S, calm_s=_CHECK_EVERY_S)

    def endpoints(self, job: Job) -> JobEndpoints | None:
        """The endpoints of a job; None until all its objects exist."""
        return self._endpoints.get(job.uid)

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._endpoints.pop(job.uid, None)
        self._due_s.pop(job.uid, None)
        self._backoffs.end(job.uid)

    def ensure(self, jobs: Iterable[Job], now_s: float, pool: Executor) -> list[Event]:
        """Creates missing objects of jobs that are due; returns events about failures."""
        due = [
            job
            for job in jobs
            if now_s >= self._due_s.get(job.uid, 0.0)
            and not self._backoffs.is_waiting(job.uid, now_s)
        ]
        events: list[Event] = []
        for job, endpoints in zip(due, pool.map(self._create_missing, due), strict=True):
            if isinstance(endpoints, JobEndpoints):
                self._endpoints[job.uid] = endpoints
                self._due_s[job.uid] = now_s + _CHECK_EVERY_S
                self._backoffs.end(job.uid)
                continue
            self._backoffs.begin(job.uid, now_s)
            log.warning(
                "objects of the master not created", extra=keys(job=job.key, error=endpoints)
            )
            events.append(Event(job, "MasterNotProvided", endpoints, warning=True))
        return events

    def _create_missing(self, job: Job) -> JobEndpoints | str:
        """The endpoints of a job, or one line that says which object is missing. On any thread."""
        before = self._endpoints.get(job.uid)
        token = before.token if before is not None else secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            self._ensure(job, CONFIGMAPS, master_manifests.config_map(job))
            secret = self._ensure(job, SECRETS, master_manifests.secret(job, token))
            self._ensure(job, ROLES, master_manifests.role(job))
            self._ensure(job, ROLEBINDINGS, master_manifests.role_binding(job))
            service = self._ensure(job, SERVICES, master_manifests.service(job))
            servers = self._servers(job)
            return JobEndpoints(_url(service, MASTER_PORT), _token(secret), servers)
        except (_ObjectError, errors.KubeError) as error:
            return str(error)

    def _servers(self, job: Job) -> tuple[str, ...]:
        """URLs of the parameter servers, whether or not their pods exist.

        Raises:
            KubeError: as `_ensure`.
            _ObjectError: as `_ensure`, or a Service without an address.
        """
        count = job.servers.count if job.servers is not None else 0
        services = (
            self._ensure(job, SERVICES, server_manifests.service(job, number))
            for number in range(count)
        )
        return tuple(_url(service, SERVER_PORT) for service in services)

    def _ensure(self, job: Job, resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object as the API server has it, created if it was missing.

        Raises:
            KubeError: the API server refused, or did not answer.
            _ObjectError: the name is taken by an object that is not this Job's.
        """
        name = body["metadata"]["name"]
        try:
            return self._send(request.create(resource, job.namespace, body))
        except errors.AlreadyExists:
            existing = self._send(request.get(resource, job.namespace, name))
        if owned.is_own(job, existing):
            return existing
        raise _ObjectError(
            f"{resource.kind} {name} exists and is not this Job's: delete it, or name the Job "
            "otherwise (that of an earlier Job of this name is deleted by itself)"
        )

    def _send(self, api_request: request.Request) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = orjson.loads(self._api.send(api_request))
        return answer


def _url(service: Mapping[str, Any], port: int) -> str:
    url = owned.service_url(service, port)
    if not url:
        name = service["metadata"]["name"]
        raise _ObjectError(f"Service {name} has no cluster IP: delete it, and it is created again")
    return url


def _token(secret: Mapping[str, Any]) -> str:
    token = master_manifests.token(secret)
    if not token:
        name = secret["metadata"]["name"]
        raise _ObjectError(
            f"Secret {name} has no usable {MASTER_TOKEN_KEY}: delete it, and it is created again"
        )
    return token
