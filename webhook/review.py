"""Decides on one admission request: the patch, or the reason of a refusal. Pure.

Who calls: `webhook.app` for the API server, `webhook.dryrun` for the command line. Mutation never
refuses: validation, which follows, reports the errors of a Job.

Requests and responses mirror k8s.io/api/admission/v1. Reading is strict on the fields that decisions
use, and tolerant of all others, so that newer API servers are supported.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from policy.admission import job_options, job_spec, mutation, servers, unstructured
from policy.admission.mutation import Mutation
from policy.admission.patch import Operation
from policy.cluster.queues import QueueRules
from policy.document import parser as document
from policy.document.model import Policy
from policy.errors import DocumentError, JobError
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_TEMPLATE,
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
"""The API server may truncate longer ones."""
_CHECKED_ANNOTATIONS = (
    ANNOTATION_MIN,
    ANNOTATION_MAX,
    ANNOTATION_WEIGHT,
    ANNOTATION_QUEUE,
    ANNOTATION_SIZES,
    ANNOTATION_TOKEN_GENERATION,
)
_IMMUTABLE_ANNOTATIONS = (
    ANNOTATION_MASTER,
    *job_spec.MASTER_SETTINGS,
    *job_options.IMMUTABLE,
    *servers.ANNOTATIONS,
)
"""Annotations that cannot change, because existing pods would not follow."""
_CHECKED_SPEC_FIELDS = ("completionMode", "completions", "managedBy")
"""The fields that `job_spec.check_spec` checks, except parallelism, which may change alone."""


class ReviewError(ValueError):
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


@dataclass(frozen=True, slots=True)
class AdmissionContext:
    """The inputs of a review besides the request: the active policy and the priority classes."""

    policy: Policy
    classes: Mapping[str, PriorityClassValues]
    version: str = ""
    """The policy's fingerprint, for the audit log."""
    namespace: str = SYSTEM_NAMESPACE
    """The namespace of EDL and its policy ConfigMap."""
    master_image: str = ""
    """The image of masters and parameter servers; "" if it is not configured."""
    scheduling: Scheduling = UNMARKED
    """How training pods ask for a scheduler now."""
    usable: bool = True
    """Whether `policy` may be used; otherwise only policies are reviewed."""


def read(body: object) -> AdmissionRequest:
    """Parses an AdmissionReview; returns its request.

    Raises:
        ReviewError: the body is something else.
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
    request: AdmissionRequest, job: Mapping[str, Any], context: AdmissionContext
) -> None:
    """Raises JobError if an elastic Job is invalid, or an update makes it invalid."""
    if context.policy.protects(request.namespace) or _is_finished(job):
        return
    annotations, spec = unstructured.annotations(job), unstructured.mapping(job, "spec")
    old = request.old_object  # API servers send none of a Job that is created
    job_spec.check_names(
        annotations.keys() - (unstructured.annotations(old).keys() if old else set())
    )
    if not job_spec.is_elastic(annotations):
        if spec.get("managedBy") == MANAGER:
            raise JobError(
                f"spec.managedBy is {MANAGER}, so the Job needs {ANNOTATION_MIN} and {ANNOTATION_MAX}: "
                "set both; to stop the job, delete it"
            )
        return
    if old is None or not job_spec.is_elastic(unstructured.annotations(old)):
        mutation.check_job(annotations, spec)
        QueueRules.of(context.policy).check(request.namespace, annotations)
        if _needs_image(annotations) and not context.master_image:
            raise JobError(mutation.NO_IMAGE)
        return
    _check_immutable(annotations, unstructured.annotations(old))
    # An invalid Job stored during an outage must not block updates of its other fields.
    if _pick(annotations, _CHECKED_ANNOTATIONS) != _pick(
        unstructured.annotations(old), _CHECKED_ANNOTATIONS
    ):
        job_spec.bounds(annotations)
        rules = QueueRules.of(context.policy)
        rules.check(request.namespace, annotations)
        before = unstructured.annotations(old)
        rules.check_move(request.namespace, before, annotations, may_run=_may_run(old))
        job_spec.token_generation(annotations)
        job_options.sizes(annotations)
    if _pick(spec, _CHECKED_SPEC_FIELDS) != _pick(
        unstructured.mapping(old, "spec"), _CHECKED_SPEC_FIELDS
    ):
        job_spec.check_spec(spec)


def _needs_image(annotations: Mapping[str, str]) -> bool:
    """Whether pods of a Job run EDL's own master."""
    return job_spec.master(annotations) and ANNOTATION_MASTER_TEMPLATE not in annotations


def _check_immutable(new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Raises JobError if an update changes the settings of the master or the servers."""
    for name in _IMMUTABLE_ANNOTATIONS:
        if new.get(name) != old.get(name):
            raise JobError(
                f"{name} cannot change, because the Job's pods would keep the old value: delete the "
                "Job and create it again"
            )


def _check_policy(request: AdmissionRequest, configmap: Mapping[str, Any], namespace: str) -> None:
    """Raises DocumentError if the policy is invalid."""
    name = request.name or unstructured.mapping(configmap, "metadata").get("name")
    if name != POLICY_CONFIGMAP or request.namespace != namespace:
        return
    if unstructured.mapping(configmap, "metadata").get("deletionTimestamp"):
        return
    text = unstructured.mapping(configmap, "data").get(POLICY_KEY)
    if not isinstance(text, str):
        raise DocumentError(f"data has no key {POLICY_KEY}: set it to the policy document, as text")
    try:
        document.parse(text)
    except DocumentError as error:
        raise DocumentError(f"{POLICY_KEY}: {error}") from error


def _is_finished(job: Mapping[str, Any]) -> bool:
    """Whether a Job is being deleted or has finished: updates then only clean up."""
    conditions = unstructured.objects(unstructured.mapping(job, "status"), "conditions")
    ended = any(
        c.get("type") in ("Complete", "Failed") and c.get("status") == "True" for c in conditions
    )
    return ended or bool(unstructured.mapping(job, "metadata").get("deletionTimestamp"))


def _may_run(job: Mapping[str, Any]) -> bool:
    """Whether a stored Job has trainers, or may get some before an update is seen."""
    suspended = unstructured.mapping(job, "spec").get("suspend") is True
    return not suspended or bool(unstructured.mapping(job, "status").get("active"))


def _pick(values: Mapping[str, Any], names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(values.get(name) for name in names)
