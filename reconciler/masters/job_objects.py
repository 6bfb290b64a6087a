"""Creates the objects of a job's master and the Services of its servers, before the first trainer.

Called by `reconciler.masters.controller` on the loop's thread; requests run concurrently.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from kube import errors, request
from kube.api import Api
from kube.reading import call, find
from kube.request import (
    CONFIGMAPS,
    NETWORKPOLICIES,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICES,
    Resource,
)
from policy.admission import sidecar
from policy.admission.frameworks import RolePod
from policy.cluster.snapshot import Job
from policy.names import MASTER_PORT, SERVER_PORT, Role
from reconciler.manifests import master as master_manifests
from reconciler.manifests import owned
from reconciler.manifests import server as server_manifests
from reconciler.masters.token_key import TokenKey, TokenKeyError
from reconciler.quarantine import attempt
from reconciler.records.events import Event
from reconciler.turns import in_turns
from runtime.backoff import Backoffs
from runtime.logs import keys

log = logging.getLogger(__name__)

_SCHEME = "http://"
_CHECK_EVERY_S = 300.0
"""Deleted objects are created again within this time."""
_FIRST_BACKOFF_S = 1.0
_MAX_BACKOFF_S = 60.0
_PER_TICK = 16
"""Maximum number of jobs per tick whose objects are created or checked. The tick waits for their requests."""
_FIRST_RENEWAL_PAUSE_S = 10.0
"""Pause after a job has received a new token, so that a tenant cannot request tokens without limit."""
_MAX_RENEWAL_PAUSE_S = 300.0
_GARBAGE_S = 60.0
"""Age of a Job at which the objects of a deleted Job of the same name have been garbage-collected."""


@dataclass(frozen=True, slots=True)
class JobEndpoints:
    """Addresses of a job's master and parameter servers, and the token for the master."""

    address: str
    """http://host:port of the master's Service, or "" if there is no master."""
    token: str
    name: str = ""
    """Name of the master's objects."""
    secret: str = ""
    """Name of the Secret with the token."""
    servers: tuple[str, ...] = ()
    """URLs of the parameter servers' Services, in order of index."""
    master: str = ""
    """host:port of the Service of the job's master, whether that is EDL's or the user's."""

    def role_pod(self, role: Role, number: int = 0) -> RolePod:
        """Returns the identity of a pod of the job, and the addresses of the roles that it connects to."""
        hosts = tuple(url.removeprefix(_SCHEME) for url in self.servers)
        return RolePod(role, number, self.master, hosts)

    def __repr__(self) -> str:
        """Returns the text without the token, which must not appear in logs."""
        return f"JobEndpoints({self.address!r})"


class _ObjectError(Exception):
    """An object cannot be created or is not usable; the message is one line and names the object."""


class JobObjects:
    """Creates and checks the objects of masters and servers. Used only on the loop's thread."""

    def __init__(
        self, api: Api, namespace: str, isolates: Callable[[], bool] = lambda: False
    ) -> None:
        """Initializes the job objects.

        Args:
            api: Sends the requests.
            namespace: EDL's namespace, which contains the key of the tokens.
            isolates: Returns whether jobs get a NetworkPolicy.
        """
        self._api = api
        self._namespace = namespace
        self._isolates = isolates
        self._key = TokenKey(api, namespace)
        self._endpoints: dict[str, JobEndpoints] = {}
        self._due_s: dict[str, float] = {}
        self._problems: dict[str, str] = {}
        """Job uid -> why the last attempt to create its objects failed."""
        self._created_secrets: set[str] = set()
        """uids of jobs whose Secret this process has created."""
        self._backoffs = Backoffs[str](_FIRST_BACKOFF_S, _MAX_BACKOFF_S, calm_s=_CHECK_EVERY_S)
        self._renewals = Backoffs[str](
            _FIRST_RENEWAL_PAUSE_S, _MAX_RENEWAL_PAUSE_S, calm_s=_MAX_RENEWAL_PAUSE_S
        )
        """Job uid -> the pause during which no new token is created for the job."""
        self.has_deferred_jobs = False
        """Whether some jobs were deferred to the next tick, which should be soon."""

    def endpoints(self, job: Job) -> JobEndpoints | None:
        """Returns the endpoints of a job, or None until all its objects exist."""
        return self._endpoints.get(job.uid)

    def lack(self, job: Job) -> str | None:
        """Returns why a job has no endpoints, "" before the first attempt, or None if it has them."""
        return None if job.uid in self._endpoints else self._problems.get(job.uid, "")

    def forget(self, job: Job) -> None:
        """Drops the state of a deleted job."""
        self._problems.pop(job.uid, None)
        self._endpoints.pop(job.uid, None)
        self._due_s.pop(job.uid, None)
        self._created_secrets.discard(job.uid)
        self._backoffs.end(job.uid)
        self._renewals.end(job.uid)

    def ensure(self, jobs: Iterable[Job], now_s: float, pool: Executor) -> list[Event]:
        """Creates missing objects of the jobs that are due; returns events about failures.

        The number of jobs per tick is limited, and namespaces take turns.
        """
        all_due = in_turns(
            job
            for job in jobs
            if (now_s >= self._due_s.get(job.uid, 0.0) or self._is_renewed(job, now_s))
            and not self._backoffs.is_waiting(job.uid, now_s)
        )
        due, self.has_deferred_jobs = all_due[:_PER_TICK], len(all_due) > _PER_TICK
        for job in due:
            if self._is_renewed(job, now_s):
                self._renewals.begin(job.uid, now_s)
        events: list[Event] = []
        ages_s = [now_s - job.created_s for job in due]
        for job, endpoints in zip(due, pool.map(self._try_create, due, ages_s), strict=True):
            if isinstance(endpoints, JobEndpoints):
                self._endpoints[job.uid] = endpoints
                self._due_s[job.uid] = now_s + _CHECK_EVERY_S
                self._backoffs.end(job.uid)
                continue
            self._backoffs.begin(job.uid, now_s)
            self._problems[job.uid] = endpoints
            log.warning(
                "could not create objects of the master", extra=keys(job=job.key, error=endpoints)
            )
            events.append(Event(job, "MasterNotProvided", endpoints, warning=True))
        return events

    def _is_renewed(self, job: Job, now_s: float) -> bool:
        """Returns whether the job asks for a new token and may have it now."""
        endpoints = self._endpoints.get(job.uid)
        if endpoints is None or not job.edl_master or self._renewals.is_waiting(job.uid, now_s):
            return False
        return endpoints.secret != master_manifests.secret_name(job, endpoints.name)

    def _try_create(self, job: Job, age_s: float) -> JobEndpoints | str:
        answer = attempt(lambda: self._create_missing(job, age_s))
        return str(answer) if isinstance(answer, errors.KubeError) else answer

    def _create_missing(self, job: Job, age_s: float) -> JobEndpoints | str:
        """Returns the endpoints of a job, or a line that names the missing object. Runs on any thread."""
        try:
            if not job.edl_master:
                return self._create_services(job)
            name, is_known = self._find_name(job)
            key = self._key.read()
            secret = master_manifests.secret(job, name, key)
            self._ensure_secret(job, secret, is_expected=is_known or age_s >= _GARBAGE_S)
            self._ensure(job, CONFIGMAPS, master_manifests.config_map(job, name))
            self._ensure(job, ROLES, master_manifests.role(job, name))
            self._ensure(job, ROLEBINDINGS, master_manifests.role_binding(job, name))
            if self._isolates():
                network_policy = master_manifests.network_policy(job, name, self._namespace)
                self._ensure(job, NETWORKPOLICIES, network_policy)
            service = self._ensure(job, SERVICES, master_manifests.service(job, name))
            address = _url(service, MASTER_PORT)
            return JobEndpoints(
                address,
                master_manifests.token(job, key),
                name,
                secret["metadata"]["name"],
                self._servers(job),
                address.removeprefix(_SCHEME),
            )
        except (_ObjectError, TokenKeyError) as error:
            return str(error)

    def _create_services(self, job: Job) -> JobEndpoints:
        """Returns the endpoints of a job without EDL's master; its user programs connect by themselves.

        Raises:
            KubeError: As for `_ensure`.
            _ObjectError: As for `_ensure`.
        """
        name = sidecar.object_name(job.name)
        if self._isolates():
            network_policy = master_manifests.network_policy(job, name, self._namespace)
            self._ensure(job, NETWORKPOLICIES, network_policy)
        if not job.master:
            return JobEndpoints("", "", name, servers=self._servers(job))
        service = self._ensure(job, SERVICES, master_manifests.service(job, name))
        port = service["spec"]["ports"][0]["port"]
        host = _url(service, port).removeprefix(_SCHEME)
        return JobEndpoints("", "", name, servers=self._servers(job), master=host)

    def _find_name(self, job: Job) -> tuple[str, bool]:
        """Returns the name of a job's objects, and whether its Secret is known to exist already.

        The ConfigMap is created after the Secret, so its existence implies the Secret's. Jobs whose
        objects were created under the former naming scheme keep that name, because their pods use it.

        Raises:
            KubeError: As for `_ensure`.
            _ObjectError: The name is taken by an object that does not belong to this Job.
        """
        before = self._endpoints.get(job.uid)
        if before is not None:
            return before.name, True
        name = sidecar.object_name(job.name)
        config_map = self._read(job, CONFIGMAPS, name)
        if config_map is not None:
            _require_own(job, CONFIGMAPS, config_map)
            return name, True
        former = sidecar.former_object_name(job.name)
        config_map = self._read(job, CONFIGMAPS, former)
        is_former = config_map is not None and owned.is_own(job, config_map)
        return (former, True) if is_former else (name, job.uid in self._created_secrets)

    def _ensure_secret(self, job: Job, secret: Mapping[str, Any], *, is_expected: bool) -> None:
        """Creates a job's Secret. EDL may not read existing Secrets, so their owner is unknown.

        Args:
            job: The job.
            secret: The Secret to create.
            is_expected: Whether an existing Secret may be used. It must not belong to a deleted Job, since
                it would soon be deleted too, and trainers with different tokens could not work together.

        Raises:
            KubeError: As for `_ensure`.
            _ObjectError: An unexpected Secret of this name exists.
        """
        try:
            call(self._api, request.create(SECRETS, job.namespace, secret))
            self._created_secrets.add(job.uid)
        except errors.AlreadyExists:
            if not is_expected:
                raise _ObjectError(
                    f"Secret {secret['metadata']['name']} exists already: if it belongs to a deleted "
                    "Job of this name, Kubernetes deletes it soon; otherwise EDL uses it after "
                    f"{_GARBAGE_S:.0f} s"
                ) from None

    def _servers(self, job: Job) -> tuple[str, ...]:
        """Returns the URLs of the parameter servers, whether or not their pods exist.

        Raises:
            KubeError: As for `_ensure`.
            _ObjectError: As for `_ensure`, or a Service has no address.
        """
        if job.servers is None:
            return ()
        services = (
            self._ensure(job, SERVICES, server_manifests.service(job, number))
            for number in range(job.servers.count)
        )
        port = job.servers.ports[0] if job.servers.ports else SERVER_PORT
        return tuple(_url(service, port) for service in services)

    def _ensure(self, job: Job, resource: Resource, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the object as stored on the API server, after creating it if it was missing.

        Raises:
            KubeError: The API server refused the request or did not respond.
            _ObjectError: The name is taken by an object that does not belong to this Job.
        """
        try:
            return call(self._api, request.create(resource, job.namespace, body))
        except errors.AlreadyExists:
            name = body["metadata"]["name"]
            existing = call(self._api, request.get(resource, job.namespace, name))
        _require_own(job, resource, existing)
        return existing

    def _read(self, job: Job, resource: Resource, name: str) -> Mapping[str, Any] | None:
        return find(self._api, request.get(resource, job.namespace, name))


def _url(service: Mapping[str, Any], port: int) -> str:
    url = owned.service_url(service, port)
    if not url:
        name = service["metadata"]["name"]
        raise _ObjectError(f"Service {name} has no cluster IP: delete it, and EDL creates it again")
    return url


def _require_own(job: Job, resource: Resource, existing: Mapping[str, Any]) -> None:
    if not owned.is_own(job, existing):
        raise _ObjectError(
            f"{resource.kind} {existing['metadata']['name']} does not belong to this Job: delete it, or "
            "rename the Job (if it belongs to a deleted Job of this name, Kubernetes deletes it soon)"
        )
