"""TrainingJobs as records: the object as JSON, and the few fields that are read often. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from kube.decode import seconds

MAX_BYTES = 384 * 1024
"""Limit of a record's text. A Job's pod template may take a third of it, the templates of other roles 64 KiB, and
the accounting as much as these templates."""
_HEAD = ("name", "namespace", "uid", "generation", "deletionTimestamp")
"""Metadata that is kept of an object larger than that."""
ENDED = ("Succeeded", "Failed")
"""Final phases."""
_UNREAD = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that repeats the whole object."""


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A TrainingJob, or the Job of a TrainingJob, as stored on the API server."""

    namespace: str
    name: str
    uid: str
    text: bytes
    """The object as JSON without managed fields; parsed objects would take ten times as much memory."""
    generation: int = 0  # grows with each change of the spec
    expires_s: float | None = None
    """Time at which the object may be deleted; None if it has not ended, or has no time to live."""
    size_bytes: int = 0
    """Size of an object larger than `MAX_BYTES`, whose `text` has an empty spec; 0 for smaller objects."""

    @property
    def key(self) -> str:
        """namespace/name, the same for the TrainingJob and its Job."""
        return f"{self.namespace}/{self.name}"

    @property
    def fields(self) -> dict[str, Any]:
        """The object, parsed on each call."""
        fields: dict[str, Any] = orjson.loads(self.text)
        return fields


def decode(obj: Mapping[str, Any]) -> TrainingJob:
    """Decodes a TrainingJob, or the Job of a TrainingJob."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    if _UNREAD in (metadata.get("annotations") or {}):
        annotations = metadata["annotations"].items()
        metadata["annotations"] = {name: text for name, text in annotations if name != _UNREAD}
    text, size_bytes = orjson.dumps({**obj, "metadata": metadata}), 0
    if len(text) > MAX_BYTES:
        size_bytes = len(text)
        metadata = {name: metadata[name] for name in _HEAD if name in metadata}
        text = orjson.dumps({"metadata": metadata, "spec": {}, "status": obj.get("status") or {}})
    return TrainingJob(
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        text,
        generation=metadata.get("generation") or 0,
        expires_s=_expires_s(obj),
        size_bytes=size_bytes,
    )


def _expires_s(obj: Mapping[str, Any]) -> float | None:
    status = obj.get("status") or {}
    ttl_s = (obj.get("spec") or {}).get("ttlSecondsAfterFinished")
    ended_s = seconds(status.get("completionTime"))
    has_ended = status.get("phase") in ENDED and ended_s > 0
    return ended_s + ttl_s if has_ended and isinstance(ttl_s, int) else None
