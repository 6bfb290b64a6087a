"""Where the books are kept beside the journal, and who may write them: one master of a job.

On a cluster that is a ConfigMap, which outlives the pod. Each write names the version it was
made from, so a master that was replaced cannot write any more, and stops.
"""

import base64
import logging
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from kube import request
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.request import CONFIGMAPS, Request
from master.errors import FencedError, JournalError
from master.journal import as_json

Json = dict[str, Any]
log = logging.getLogger(__name__)

SNAPSHOT, GENERATION, HOLDER, OUTCOME = "snapshot", "generation", "holder", "outcome"
MOST_BYTES = 900 << 10
"""Of a snapshot; a ConfigMap holds 1 MiB."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is stored."""

    generation: int
    holder: str
    books: Json | None
    """None where nobody has stored any."""


class Fence(Protocol):
    """A place for the newest books, for one master at a time. Blocks; used by one thread at a time."""

    def read(self) -> Kept:
        """What is there.

        Raises:
            JournalError: It cannot be read.
        """

    def write(self, generation: int, books: Json, outcome: str) -> None:
        """Stores the newest books.

        Args:
            generation: The writer's.
            books: Whole.
            outcome: "done", "failed: why", or "" while the job goes on.

        Raises:
            FencedError: Somebody else has written since: another master serves the job.
            JournalError: It cannot be written now.
        """


class Api(Protocol):
    """What is used of `kube.client.Api`, which takes a second to import."""

    def send(self, request: Request) -> bytes:
        """Sends a call and returns the answer's body.

        Raises:
            KubeError: The API server refused, or cannot be reached.
        """


class ConfigMapFence:
    """A ConfigMap `namespace/name`, which exists already or is made."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str) -> None:
        """Reads and writes nothing yet; `holder` is this master's own, such as its pod's name."""
        self._api = api
        self._namespace, self._name, self._holder = namespace, name, holder
        self._object: Json | None = None

    def read(self) -> Kept:
        """See `Fence.read`."""
        try:
            found = orjson.loads(
                self._api.send(request.get(CONFIGMAPS, self._namespace, self._name))
            )
        except NotFound:
            self._object = None
            return Kept(0, "", None)
        except KubeError as error:
            raise self._cannot("read", error) from error
        self._object = found
        data = found.get("data") or {}
        text = data.get(SNAPSHOT)
        return Kept(
            self._generation(data.get(GENERATION) or "0"),
            data.get(HOLDER, ""),
            None if not text else self._unpack(text),
        )

    def write(self, generation: int, books: Json, outcome: str) -> None:
        """See `Fence.write`."""
        text = pack(books)
        if len(text) > MOST_BYTES:
            raise JournalError(f"the books are too large for a ConfigMap: {len(text)} bytes")
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
        """Somebody has written: perhaps a label, or this master itself, whose answer was lost."""
        kept = self.read()
        if (kept.holder, str(kept.generation)) != (self._holder, data[GENERATION]):
            raise FencedError(
                f"another master, {kept.holder or 'unknown'}, has taken ConfigMap "
                f"{self._namespace}/{self._name} over"
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
                f"generation {text!r:.40} in ConfigMap {self._namespace}/{self._name} is no number"
            )
        return int(text)

    def _unpack(self, text: str) -> Json:
        try:
            return unpack(text)
        except (ValueError, zlib.error) as error:
            raise JournalError(
                f"the snapshot in ConfigMap {self._namespace}/{self._name} is damaged: {error}"
            ) from error

    def _cannot(self, act: str, error: KubeError) -> JournalError:
        return JournalError(f"cannot {act} ConfigMap {self._namespace}/{self._name}: {error}")


def pack(books: Json) -> str:
    """Books as text.

    Raises:
        JournalError: JSON cannot hold them.
    """
    return base64.b64encode(zlib.compress(as_json(books), 6)).decode()


def unpack(text: str) -> Json:
    """Books that `pack` made.

    Raises:
        ValueError: It is something else.
        zlib.error: It is damaged.
    """
    found = orjson.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    if not isinstance(found, dict):
        raise ValueError("no books")  # noqa: TRY004 - a damaged text, not a caller's mistake
    return found
