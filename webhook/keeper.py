"""Keeps certificates and registrations: Secret, served file, caBundle, selected pods.

Who calls: `webhook.__main__`, one round before it serves, then a thread in the worker. What is
to be done is decided in `webhook.certificates`; a lost race (somebody else wrote first) means
reading again, so replicas end in the same state.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import orjson

from kube import request
from kube.backoff import Backoff
from kube.client import Api
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.reflector import Reflector
from kube.request import SECRETS, Resource
from runtime import certs
from runtime.logs import keys
from webhook import certificates, selection
from webhook.certificates import REGISTRATION, SECRET, Store

log = logging.getLogger(__name__)

PERIOD_S = 60.0
"""Between two looks when nothing happens; another replica's new leaf is taken over then."""
_SETTLE_S = 1.0
"""Between two rounds at least, should somebody else keep writing what we write."""
_RACES = 5
_STOP_S = 5.0
_KINDS = (request.MUTATINGWEBHOOKS, request.VALIDATINGWEBHOOKS)


@dataclass(frozen=True, slots=True)
class Kept:
    """How the last round ended."""

    expires: datetime | None = None
    """When the served certificate ends."""
    error: str = ""
    """What could not be done; tried again."""


class Keeper:
    """One replica's hand in the certificates.

    Args:
        api: The API server.
        namespace: Where the Secret lives.
        hosts: Names and addresses the leaf must cover.
        directory: Where the served file goes.
        now: The wall clock.
        selected: The expression for pods that the policy selects (`webhook.selection`).
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
        self.kept = Kept()
        self._api = api
        self._namespace = namespace
        self._hosts = hosts
        self._now = now
        self._selected = selected
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._watches: list[Reflector[bytes]] = [_watch(api, kind) for kind in _KINDS]
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)

    def round(self) -> None:
        """Brings Secret, registrations and file one step on.

        Raises:
            KubeError: something could not be read or written; the rest is done nevertheless
                where it may be (the file is written even if a registration cannot be).
        """
        found = {kind: self._registration(kind) for kind in _KINDS}
        published = [b for reg in found.values() if reg for b in certificates.bundles(reg)]
        store = self._store(published)
        try:
            for kind, registration in found.items():
                if registration is not None:
                    self._publish(kind, registration, certificates.bundle(store))
        finally:
            self._serve(store)

    def wake(self) -> None:
        """Something that is published may have changed: looks at once."""
        self._wake.set()

    def start(self) -> None:
        """Begins to look after them in a thread of its own."""
        for watch in self._watches:
            watch.listen(lambda _old, _new: self._wake.set())
            watch.start()
        self._thread.start()

    def stop(self) -> None:
        """Ends it."""
        self._stopping.set()
        self._wake.set()
        for watch in self._watches:
            watch.request_stop()
        for watch in self._watches:
            watch.stop()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def try_round(self) -> bool:
        """One round; whether it went well. What went wrong is logged and kept."""
        try:
            self.round()
        except (KubeError, OSError) as error:
            self.kept = Kept(self.kept.expires, str(error))
            log.warning("certificates not looked after", extra=keys(error=str(error)))
            return False
        return True

    def _run(self) -> None:
        backoff = Backoff(Random())  # noqa: S311 - jitter keeps no secret
        while not self._stopping.is_set():
            if self.try_round():
                backoff.reset()
                self._wake.wait(PERIOD_S)
                self._wake.clear()
                self._stopping.wait(_SETTLE_S)
            else:
                self._stopping.wait(_SETTLE_S + backoff.next_s())

    def _store(self, published: list[bytes]) -> Store:
        """The store after the step that is due, as it is in the Secret now."""
        for _ in range(_RACES):
            secret = self._secret()
            old = None if secret is None else certificates.read(secret)
            new = certificates.advance(old, published, self._hosts, self._now())
            if new == old or self._wrote(secret, new):
                return new
        raise Conflict(f"others keep changing Secret {SECRET}", request="certificates")

    def _secret(self) -> Mapping[str, Any] | None:
        return self._read(request.get(SECRETS, self._namespace, SECRET))

    def _registration(self, kind: Resource) -> Mapping[str, Any] | None:
        return self._read(request.get(kind, None, REGISTRATION))

    def _read(self, asked: request.Request) -> Mapping[str, Any] | None:
        try:
            found: Mapping[str, Any] = orjson.loads(self._api.send(asked))
        except NotFound:
            return None
        return found

    def _wrote(self, secret: Mapping[str, Any] | None, store: Store) -> bool:
        """Writes the Secret over what was read; False if somebody else was first."""
        data = certificates.secret_data(store)
        try:
            if secret is None:
                body = {"metadata": {"name": SECRET}, "type": "Opaque", "data": data}
                self._api.send(request.create(SECRETS, self._namespace, body))
            else:
                body = {**secret, "data": data}
                self._api.send(request.replace(SECRETS, self._namespace, SECRET, body))
        except (AlreadyExists, Conflict, NotFound):
            return False
        log.info("certificates written", extra=keys(secret=SECRET, step=_step(store)))
        return True

    def _publish(self, kind: Resource, registration: Mapping[str, Any], wanted: bytes) -> None:
        operations = certificates.publish(registration, wanted)
        if self._selected is not None:
            operations += selection.publish(registration, self._selected())
        if operations:
            self._api.send(request.json_patch(kind, None, REGISTRATION, operations))
            log.info("registration published", extra=keys(registration=kind.kind))

    def _serve(self, store: Store) -> None:
        """Writes certificate and key as one file, in one rename, readable by us alone."""
        content = store.leaf.cert + store.leaf.key
        if not self.file.exists() or self.file.read_bytes() != content:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            partial = self.file.with_suffix(f".{os.getpid()}")
            partial.unlink(missing_ok=True)
            partial.touch(mode=0o600, exist_ok=False)
            partial.write_bytes(content)
            partial.replace(self.file)
        self.kept = Kept(certs.expires(store.leaf.cert))


def _step(store: Store) -> str:
    if store.next_ca is not None:
        return "next CA"
    return "new CA" if store.old_ca else "leaf"


def _watch(api: Api, kind: Resource) -> Reflector[bytes]:
    """Follows our registration of one kind; a record is what would have to be published anew."""
    return Reflector(api, kind, _published, field_selector=f"metadata.name={REGISTRATION}")


def _published(registration: Mapping[str, Any]) -> bytes:
    return orjson.dumps([b.decode("latin-1") for b in certificates.bundles(registration)])
