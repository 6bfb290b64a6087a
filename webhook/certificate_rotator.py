"""Rotates the webhook's certificates and updates its registrations.

`webhook.__main__` rotates once before it serves, and a thread in the worker does so afterwards.
`webhook.certificates` decides which step is due. After a write conflict the rotator reads the Secret again,
so that all replicas end in the same state.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson

from kube import request
from kube.api import Api
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.reading import find
from kube.reflector import Reflector, stop_all
from kube.request import SECRETS, Resource
from runtime import certs, private_file
from runtime.backoff import Backoff
from runtime.logs import keys
from webhook import certificates, extender_secret, selection
from webhook.certificates import REGISTRATION, SECRET, CertificateSet

log = logging.getLogger(__name__)

SYNC_INTERVAL_S = 60.0
"""Time between two syncs without events; such a sync adopts another replica's new leaf."""
_SETTLE_S = 1.0
"""Shortest time between two syncs, in case another program keeps changing the same objects."""
_MAX_CONFLICTS = 5
_STOP_S = 5.0
_KINDS = (request.MUTATINGWEBHOOKS, request.VALIDATINGWEBHOOKS)


@dataclass(frozen=True, slots=True)
class RotationStatus:
    """The result of the last sync."""

    expires: datetime | None = None
    """When the served certificate expires."""
    error: str = ""
    """The error of the last sync; "" if it succeeded. A failed sync is retried."""


class CertificateRotator:
    """A controller that rotates the certificates on behalf of one replica.

    It syncs the Secret, the served file, and the registrations' caBundle and pod selection. It also creates
    the extender's Secret if that is missing.

    Args:
        api: The API server.
        namespace: The namespace of the Secret.
        hosts: Names and addresses that the leaf must cover.
        directory: The directory of the served file.
        now: The wall clock.
        selected: Returns the expression for pods that the policy selects (`webhook.selection`).
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        hosts: tuple[str, ...],
        directory: Path,
        now: Callable[[], datetime],
        *,
        selected: Callable[[], str] | None = None,
    ) -> None:
        self.file = directory / "server.pem"
        self.status = RotationStatus()
        self._api = api
        self._namespace = namespace
        self._hosts = hosts
        self._now = now
        self._selected = selected
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._watches: list[Reflector[bytes]] = [_watch(api, kind) for kind in _KINDS]
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def sync(self) -> None:
        """Takes the one step that is due in the Secret, the registrations and the file.

        Raises:
            KubeError: an object could not be read or written. The file is written even if a
                registration cannot be written.
        """
        registrations = {kind: self._registration(kind) for kind in _KINDS}
        published = [b for reg in registrations.values() if reg for b in certificates.bundles(reg)]
        cert_set = self._sync_secret(published)
        try:
            for kind, registration in registrations.items():
                if registration is not None:
                    self._publish(kind, registration, certificates.bundle(cert_set))
        finally:
            self._write_file(cert_set)
        extender_secret.ensure(self._api, self._namespace, self._now())

    def wake(self) -> None:
        """Triggers a sync at once."""
        self._wake.set()

    def start(self) -> None:
        """Starts the watches and the thread."""
        for watch in self._watches:
            watch.listen(lambda _old, _new: self._wake.set())
            watch.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops the watches and the thread."""
        self._stopping.set()
        self._wake.set()
        stop_all(self._watches)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def try_sync(self) -> bool:
        """Syncs once; returns whether it succeeded. An error is logged and kept in `status`."""
        try:
            self.sync()
        except (KubeError, OSError) as error:
            self.status = RotationStatus(self.status.expires, str(error))
            log.warning("certificate rotation failed", extra=keys(error=str(error)))
            return False
        return True

    def _run(self) -> None:
        backoff = Backoff(jitter=Random().random)  # noqa: S311 - jitter needs no secrecy
        while not self._stopping.is_set():
            if self.try_sync():
                backoff.reset()
                self._wake.wait(SYNC_INTERVAL_S)
                self._wake.clear()
                self._stopping.wait(_SETTLE_S)
            else:
                self._stopping.wait(_SETTLE_S + backoff.next_s())

    def _sync_secret(self, published: list[bytes]) -> CertificateSet:
        """Takes the step that is due in the Secret; returns the Secret's certificates."""
        for _ in range(_MAX_CONFLICTS):
            secret = self._secret()
            old = None if secret is None else certificates.read(secret)
            new = certificates.advance(old, published, self._hosts, self._now())
            if new == old or self._write_secret(secret, new):
                return new
        raise Conflict(f"another client keeps changing Secret {SECRET}", request="certificates")

    def _secret(self) -> Mapping[str, Any] | None:
        return find(self._api, request.get(SECRETS, self._namespace, SECRET))

    def _registration(self, kind: Resource) -> Mapping[str, Any] | None:
        return find(self._api, request.get(kind, None, REGISTRATION))

    def _write_secret(self, secret: Mapping[str, Any] | None, cert_set: CertificateSet) -> bool:
        """Writes the Secret, unless it has changed since it was read; returns False in that case."""
        data = certificates.secret_data(cert_set)
        try:
            if secret is None:
                body = {"metadata": {"name": SECRET}, "type": "Opaque", "data": data}
                self._api.send(request.create(SECRETS, self._namespace, body))
            else:
                body = {**secret, "data": data}
                self._api.send(request.replace(SECRETS, self._namespace, SECRET, body))
        except (AlreadyExists, Conflict, NotFound):
            return False
        log.info("certificates written", extra=keys(secret=SECRET, step=_step(cert_set)))
        return True

    def _publish(self, kind: Resource, registration: Mapping[str, Any], ca_bundle: bytes) -> None:
        operations = certificates.publish(registration, ca_bundle)
        if self._selected is not None:
            operations += selection.publish(registration, self._selected())
        if operations:
            self._api.send(request.json_patch(kind, None, REGISTRATION, operations))
            log.info("registration published", extra=keys(registration=kind.kind))

    def _write_file(self, cert_set: CertificateSet) -> None:
        """Writes certificate and key to one file."""
        private_file.write(self.file, cert_set.leaf.cert + cert_set.leaf.key)
        self.status = RotationStatus(certs.expires(cert_set.leaf.cert))


def _step(cert_set: CertificateSet) -> str:
    if cert_set.next_ca is not None:
        return "next CA"
    return "new CA" if cert_set.old_ca else "leaf"


def _watch(api: Api, kind: Resource) -> Reflector[bytes]:
    """Watches the registration of one kind; the cached record contains only the CA bundles."""
    return Reflector(api, kind, _published, name=REGISTRATION)


def _published(registration: Mapping[str, Any]) -> bytes:
    return orjson.dumps([b.decode("latin-1") for b in certificates.bundles(registration)])
