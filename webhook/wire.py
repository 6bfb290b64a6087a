"""The wire format AdmissionReview v1: requests of the API server and responses to it.

Mirrors k8s.io/api/admission/v1. Strict on the fields that decisions use, tolerant of all others,
so that newer API servers are supported. Who calls: `webhook.app` and `webhook.review`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from policy.patch import Operation

API_VERSION: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
_MAX_WARNING_CHARS = 120
"""The API server may truncate longer ones."""


class WireError(ValueError):
    """The body is not a supported AdmissionReview; the text is one line that names the field."""


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class GroupResource(_Model):
    """A meta/v1 `GroupVersionResource` without its version, which decisions do not use."""

    group: str = ""
    resource: str


class AdmissionRequest(_Model):
    """An admission/v1 `AdmissionRequest`."""

    uid: str = Field(min_length=1)
    resource: GroupResource
    sub_resource: str = ""
    name: str = ""
    """Empty if the object uses generateName."""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False

    @property
    def resource_name(self) -> str:
        """Resource and group, such as `pods` or `jobs.batch`."""
        return f"{self.resource.resource}.{self.resource.group}".rstrip(".")


class _AdmissionReview(_Model):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: AdmissionRequest


@dataclass(frozen=True, slots=True)
class AdmissionResponse:
    """An admission/v1 `AdmissionResponse`; `message` and `code` explain a refusal."""

    uid: str
    allowed: bool = True
    message: str = ""
    code: int = 422
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    """Annotations for the API server's audit log."""

    @property
    def outcome(self) -> str:
        """The metric label: refused, patched or allowed."""
        if not self.allowed:
            return "refused"
        return "patched" if self.operations else "allowed"


def read(body: object) -> AdmissionRequest:
    """Parses an AdmissionReview; returns its request.

    Raises:
        WireError: the body is something else.
    """
    try:
        return _AdmissionReview.model_validate(body).request
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        where = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults
        )
        raise WireError(f"not an AdmissionReview of {API_VERSION}: {where}") from error


def to_json(answer: AdmissionResponse) -> dict[str, object]:
    """Encodes the AdmissionReview with the response."""
    response: dict[str, object] = {"uid": answer.uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {"code": answer.code, "reason": "Invalid", "message": answer.message}
    if answer.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(answer.operations)).decode()
    if answer.warnings:
        response["warnings"] = [warning[:_MAX_WARNING_CHARS] for warning in answer.warnings]
    if answer.audit:
        response["auditAnnotations"] = dict(answer.audit)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
