"""AdmissionReview v1 on the wire: what the API server sends and what it wants back.

Mirrors k8s.io/api/admission/v1. Strict on the fields we decide on, tolerant of all others,
so that a newer API server is understood. Who calls: `webhook.app` and `webhook.review`.
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
_LONGEST_WARNING = 120
"""Longer ones may be cut by the API server."""


class WireError(ValueError):
    """The body is no AdmissionReview we understand; one line that names the field."""


class _Model(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class Resource(_Model):
    """meta/v1 `GroupVersionResource`; the version does not matter to us."""

    group: str = ""
    resource: str


class Request(_Model):
    """admission/v1 `AdmissionRequest`."""

    uid: str = Field(min_length=1)
    resource: Resource
    sub_resource: str = ""
    name: str = ""
    """Empty where the object asks for generateName."""
    namespace: str = ""
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool = False

    @property
    def thing(self) -> str:
        """`pods`, `jobs.batch` and the like."""
        return f"{self.resource.resource}.{self.resource.group}".rstrip(".")


class _Review(_Model):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: Request


@dataclass(frozen=True, slots=True)
class Answer:
    """admission/v1 `AdmissionResponse`; `message` and `code` say why not."""

    uid: str
    allowed: bool = True
    message: str = ""
    code: int = 422
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    """Goes to the API server's audit log, under the webhook's name."""

    @property
    def outcome(self) -> str:
        """refused, patched or allowed: a metric label."""
        if not self.allowed:
            return "refused"
        return "patched" if self.operations else "allowed"


def read(body: object) -> Request:
    """The request inside an AdmissionReview.

    Raises:
        WireError: it is something else.
    """
    try:
        return _Review.model_validate(body).request
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        where = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults
        )
        raise WireError(f"not an AdmissionReview of {API_VERSION}: {where}") from error


def show(answer: Answer) -> dict[str, object]:
    """The AdmissionReview to send back."""
    response: dict[str, object] = {"uid": answer.uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {"code": answer.code, "reason": "Invalid", "message": answer.message}
    if answer.operations:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(answer.operations)).decode()
    if answer.warnings:
        response["warnings"] = [warning[:_LONGEST_WARNING] for warning in answer.warnings]
    if answer.audit:
        response["auditAnnotations"] = dict(answer.audit)
    return {"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response}
