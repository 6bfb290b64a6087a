"""Decides on one admission request: the patch, or the reason for a refusal. Pure.

Called by `webhook.app` for the API server and by `webhook.dryrun` for the command line. Mutation never
refuses a request; validation comes later and reports the errors in a Job.

Requests and responses mirror k8s.io/api/admission/v1. Parsing is strict for the fields that decisions use
and tolerant of all others, so that newer API servers are supported.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from policy.admission import job_settings, job_spec, mutation
from policy.admission.mutation import Mutation
from policy.admission.patch import Operation
from policy.admission.views import ConfigMapView, JobView
from policy.cluster.queues import QueueRules
from policy.document import parser as policy_parser
from policy.document.model import Policy
from policy.errors import DocumentError, JobError
from policy.names import (
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_SIZES,
    ANNOTATION_TOKEN_GENERATION,
    ANNOTATION_WEIGHT,
    MANAGER,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SYSTEM_NAMESPACE,
)
from policy.priority_classes import PriorityClassValues
from policy.scheduling import UNMARKED, Scheduling

API_VERSION: Literal["admission.k8s.io/v1"] = "admission.k8s.io/v1"
_MAX_WARNING_CHARS = 120
"""The API server may truncate longer warnings."""
_CHECKED_ANNOTATIONS = (
    ANNOTATION_MIN,
    ANNOTATION_MAX,
    ANNOTATION_WEIGHT,
    ANNOTATION_QUEUE,
    ANNOTATION_SIZES,
    ANNOTATION_TOKEN_GENERATION,
)


class ReviewError(ValueError):
    """The body is not a supported AdmissionReview; the message is one line that names the field."""


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


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """The inputs of a review besides the request, such as the active policy and the priority classes."""

    policy: Policy
    classes: Mapping[str, PriorityClassValues]
    version: str = ""
    """The policy's fingerprint, for the audit log."""
    namespace: str = SYSTEM_NAMESPACE
    """The namespace of EDL and of its policy ConfigMap."""
    master_image: str = ""
    """The image of masters and parameter servers; "" if it is not configured."""
    scheduling: Scheduling = UNMARKED
    """How training pods ask for a scheduler now."""
    usable: bool = True
    """Whether `policy` may be used; if not, only changes of the policy are reviewed."""


def read(body: object) -> AdmissionRequest:
    """Parses an AdmissionReview; returns its request.

    Raises:
        ReviewError: the body is not an AdmissionReview.
    """
    try:
        return _AdmissionReview.model_validate(body).request
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        where = "; ".join(
            f"{'.'.join(map(str, fault['loc'])) or 'body'}: {fault['msg']}" for fault in faults
        )
        raise ReviewError(f"not an AdmissionReview of {API_VERSION}: {where}") from error


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


def mutate(request: AdmissionRequest, context: AdmissionContext) -> AdmissionResponse:
    """Patches a Pod or Job at creation; allows everything else unchanged."""
    if request.operation != "CREATE" or request.sub_resource or request.object is None:
        return AdmissionResponse(request.uid)
    if request.resource_name == "pods":
        change = mutation.pod_patch(
            request.object,
            request.namespace,
            context.policy,
            context.classes,
            context.master_image,
            scheduling=context.scheduling,
        )
    elif request.resource_name == "jobs.batch":
        change = _job_change(request.object, request.namespace, context.policy)
    else:
        return AdmissionResponse(request.uid)
    return AdmissionResponse(
        request.uid,
        operations=change.operations,
        warnings=change.warnings,
        audit=_audit(change, context) if change.operations else {},
    )


def validate(request: AdmissionRequest, context: AdmissionContext) -> AdmissionResponse:
    """Validates a Job or the policy ConfigMap."""
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return AdmissionResponse(request.uid)
    if request.object is None:
        return AdmissionResponse(request.uid)
    try:
        if request.resource_name == "jobs.batch":
            _check_job(request, request.object, context)
        elif request.resource_name == "configmaps":
            _check_policy(request, request.object, context.namespace)
    except (JobError, DocumentError) as error:
        return AdmissionResponse(request.uid, allowed=False, message=str(error))
    return AdmissionResponse(request.uid)


def _job_change(job: Mapping[str, Any], namespace: str, policy: Policy) -> Mutation:
    try:
        return mutation.job_patch(job, namespace, policy)
    except JobError:
        return mutation.UNTOUCHED


def _audit(change: Mutation, context: AdmissionContext) -> dict[str, str]:
    notes = {"policy": context.version, "role": change.role or "", "tier": change.tier or ""}
    return {key: str(value) for key, value in notes.items() if value}


def _check_job(
    request: AdmissionRequest, document: Mapping[str, Any], context: AdmissionContext
) -> None:
    """Raises JobError if an elastic Job is invalid, or an update makes it invalid."""
    job = JobView.parse(document)
    if context.policy.protects(request.namespace) or job.is_finished:
        return
    old = JobView.parse(request.old_object)  # absent when a Job is created
    job_spec.check_names(job.annotations.keys() - old.annotations.keys())
    if not job_settings.is_elastic(job.annotations):
        if job.managed_by == MANAGER:
            raise JobError(
                f"spec.managedBy is {MANAGER}, so the Job needs {ANNOTATION_MIN} and {ANNOTATION_MAX}: "
                "set both; to stop the job, delete it"
            )
        return
    rules = QueueRules.of(context.policy)
    if not job_settings.is_elastic(old.annotations):
        settings = mutation.check_job(job)
        rules.check(request.namespace, job.annotations)
        if settings.edl_master and not context.master_image:
            raise JobError(mutation.NO_IMAGE)
        return
    _check_immutable(job.annotations, old.annotations)
    # An invalid Job stored during an outage must not block updates of its other fields.
    if any(job.annotations.get(n) != old.annotations.get(n) for n in _CHECKED_ANNOTATIONS):
        job_settings.bounds(job.annotations)
        rules.check(request.namespace, job.annotations)
        rules.check_move(request.namespace, old.annotations, job.annotations, may_run=old.may_run)
        job_settings.token_generation(job.annotations)
        job_settings.sizes(job.annotations)
    # `check_spec` also reads parallelism; a change of parallelism alone must not trigger the check.
    if (job.completion_mode, job.completions, job.managed_by) != (
        *(old.completion_mode, old.completions, old.managed_by),
    ):
        job_spec.check_spec(job)


def _check_immutable(new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Raises JobError if an update changes the settings of the master or the servers."""
    for name in job_settings.IMMUTABLE:
        if new.get(name) != old.get(name):
            raise JobError(
                f"{name} cannot change, because the Job's pods would keep the old value: delete the "
                "Job and create it again"
            )


def _check_policy(request: AdmissionRequest, document: Mapping[str, Any], namespace: str) -> None:
    """Raises DocumentError if the policy is invalid."""
    configmap = ConfigMapView.parse(document)
    name = request.name or configmap.name
    if name != POLICY_CONFIGMAP or request.namespace != namespace or configmap.deleted_at:
        return
    text = configmap.data.get(POLICY_KEY)
    if text is None:
        raise DocumentError(f"data has no key {POLICY_KEY}: set it to the policy document, as text")
    try:
        policy_parser.parse(text)
    except DocumentError as error:
        raise DocumentError(f"{POLICY_KEY}: {error}") from error
