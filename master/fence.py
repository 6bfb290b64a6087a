"""Stores snapshots outside of the pod. Only one master of a job at a time can write them.

On a cluster, a ConfigMap holds the newest snapshot and outlives the pod. Each write names the
resource version on which it is based, so the write of a master that was replaced fails, and that
master stops.
"""

import base64
import logging
import zlib
from dataclasses import dataclass
from typing import Protocol

import orjson
from typing_extensions import override

from kube import request
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.request import CONFIGMAPS, Request
from master.errors import FencedError, JournalError
from master.journal import as_json
from runtime.call_checks import Json

log = logging.getLogger(__name__)

SNAPSHOT, GENERATION, HOLDER, OUTCOME = "snapshot", "generation", "holder", "outcome"
MAX_STATE_BYTES = 256 << 20
"""Limit of a decompressed snapshot: data that expands beyond it is not a snapshot."""
MAX_BYTES = 900 << 10
"""Limit of a compressed snapshot in bytes; a ConfigMap holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """The stored snapshot, and the master that wrote it."""

    generation: int
    """Generation of the master that wrote it; 0 if nothing is stored."""
    holder: str
    """Name of the master that wrote it."""
    state: Json | None
    """The ledger as `Ledger.dump` returned it; None if nothing is stored."""


class Fence(Protocol):
    """Stores the newest snapshot for one master at a time. Calls block; only one thread at a time may call."""

    def read(self) -> StoredSnapshot:
        """Reads the stored snapshot.

        Raises:
            JournalError: The snapshot cannot be read.
        """

    def write(self, generation: int, state: Json, outcome: str) -> None:
        """Stores the newest snapshot.

        Args:
            generation: The generation of the writer.
            state: The whole ledger.
            outcome: "done", "failed: reason", or "" while the job continues.

        Raises:
            FencedError: Another master has written since, and serves the job.
            JournalError: The snapshot cannot be written now.
        """


class KubeApi(Protocol):
    """The part of `kube.api.Api` that fences use; the import of `kube.api` itself takes a second."""

    def send(self, request: Request) -> bytes:
        """Sends a request and returns the body of the answer.

        Raises:
            KubeError: The API server refuses it, or cannot be reached.
        """


class ConfigMapFence(Fence):
    """A fence in a ConfigMap `namespace/name`, which is created if it is missing."""

    def __init__(self, api: KubeApi, namespace: str, name: str, holder: str) -> None:
        """Creates the fence, without a request.

        Args:
            api: The API server.
            namespace: Namespace of the ConfigMap.
            name: Name of the ConfigMap.
            holder: Name of this master, such as its pod's name.
        """
        self._api = api
        self._namespace, self._name, self._holder = namespace, name, holder
        self._object: Json | None = None

    @override
    def read(self) -> StoredSnapshot:
        try:
            config_map = orjson.loads(
                self._api.send(request.get(CONFIGMAPS, self._namespace, self._name))
            )
        except NotFound:
            self._object = None
            return StoredSnapshot(0, "", None)
        except KubeError as error:
            raise self._cannot("read", error) from error
        self._object = config_map
        data = config_map.get("data") or {}
        text = data.get(SNAPSHOT)
        return StoredSnapshot(
            self._generation(data.get(GENERATION) or "0"),
            data.get(HOLDER, ""),
            None if not text else self._unpack(text),
        )

    @override
    def write(self, generation: int, state: Json, outcome: str) -> None:
        text = pack(state)
        if len(text) > MAX_BYTES:
            raise JournalError(f"the snapshot is too large for a ConfigMap: {len(text)} bytes")
        data = {SNAPSHOT: text, GENERATION: str(generation), HOLDER: self._holder}
        if outcome:
            data[OUTCOME] = outcome
        try:
            self._send(data)
        except (Conflict, AlreadyExists):
            self._send_again(data)
        except KubeError as error:
            raise self._cannot("write", error) from error

    def _send(self, data: Json) -> None:
        self._object = orjson.loads(self._api.send(self._request(data)))

    def _send_again(self, data: Json) -> None:
        """Repeats a write after a conflict, unless another master has written.

        The conflict may come from a new label, or from a write of this master whose answer was lost.
        """
        stored = self.read()
        if (stored.holder, str(stored.generation)) != (self._holder, data[GENERATION]):
            raise FencedError(
                f"another master, {stored.holder or 'unknown'}, has taken over ConfigMap "
                f"{self._namespace}/{self._name}"
            )
        try:
            self._send(data)
        except KubeError as error:
            raise self._cannot("write", error) from error

    def _request(self, data: Json) -> Request:
        if self._object is None:
            body = {"metadata": {"name": self._name}, "data": data}
            return request.create(CONFIGMAPS, self._namespace, body)
        return request.replace(
            CONFIGMAPS, self._namespace, self._name, {**self._object, "data": data}
        )

    def _generation(self, text: str) -> int:
        if not (text.isascii() and text.isdecimal()):
            raise JournalError(
                f"generation {text!r:.40} in ConfigMap {self._namespace}/{self._name} is not a number"
            )
        return int(text)

    def _unpack(self, text: str) -> Json:
        try:
            return unpack(text)
        except (ValueError, zlib.error) as error:
            raise JournalError(
                f"the snapshot in ConfigMap {self._namespace}/{self._name} is damaged: {error}"
            ) from error

    def _cannot(self, action: str, error: KubeError) -> JournalError:
        return JournalError(f"cannot {action} ConfigMap {self._namespace}/{self._name}: {error}")


def pack(state: Json) -> str:
    """Returns a ledger's state as compressed text.

    Raises:
        JournalError: The state cannot be written as JSON.
    """
    return base64.b64encode(zlib.compress(as_json(state), 6)).decode()


def unpack(text: str) -> Json:
    """Returns the state that `pack` compressed.

    Raises:
        ValueError: The text is not a snapshot, is cut short, or too long.
        zlib.error: The text is damaged.
    """
    reader = zlib.decompressobj()
    raw = reader.decompress(base64.b64decode(text, validate=True), MAX_STATE_BYTES)
    if reader.unconsumed_tail or not reader.eof:
        raise ValueError(f"it is cut short, or longer than {MAX_STATE_BYTES} bytes")
    state = orjson.loads(raw)
    if not isinstance(state, dict):
        raise ValueError("not a snapshot")  # noqa: TRY004 - the text is wrong, not its type
    return state
