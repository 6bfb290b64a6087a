"""Decides on one admission request: what to change, or why to refuse. Pure.

Who calls: `webhook.app` for the API server, `webhook.dryrun` for people. Mutation never
refuses: what is wrong with a Job is said by validation, which sees it right after.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy import document, elastic, mutation, servers
from policy.errors import DocumentError, JobError
from policy.model import Policy
from policy.mutation import Mutation, PriorityClass
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_HEARTBEAT,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MAX,
    ANNOTATION_MIN,
    ANNOTATION_QUEUE,
    ANNOTATION_WEIGHT,
    MANAGER,
    POLICY_CONFIGMAP,
    POLICY_KEY,
    SYSTEM_NAMESPACE,
)
from webhook.wire import Answer, Request

_ASKED = (ANNOTATION_MIN, ANNOTATION_MAX, ANNOTATION_WEIGHT, ANNOTATION_QUEUE)
_FIXED = (
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_STEPS,
    ANNOTATION_MASTER_HEARTBEAT,
    *servers.ANNOTATIONS,
)
"""What pods that exist could not follow."""
_SHAPE = ("completionMode", "completions", "managedBy")
"""What `elastic.check_spec` looks at, without parallelism, which may move on its own."""


@dataclass(frozen=True, slots=True)
class State:
    """What decisions rest on: the active policy and the live priority classes."""

    policy: Policy
    classes: Mapping[str, PriorityClass]
    version: str = ""
    """The policy's fingerprint, for the audit log."""
    namespace: str = SYSTEM_NAMESPACE
    """Where EDL and its policy ConfigMap live."""
    master_image: str = ""
    """What masters and parameter servers of jobs run; "" where none is known."""


def mutate(request: Request, state: State) -> Answer:
    """The patch for a Pod or Job at creation; anything else is allowed as it is."""
    if request.operation != "CREATE" or request.sub_resource or request.object is None:
        return Answer(request.uid)
    if request.thing == "pods":
        change = mutation.pod_patch(
            request.object, request.namespace, state.policy, state.classes, state.master_image
        )
    elif request.thing == "jobs.batch":
        change = _job_change(request.object, request.namespace, state.policy)
    else:
        return Answer(request.uid)
    return Answer(
        request.uid,
        operations=change.operations,
        warnings=change.warnings,
        audit=_audit(change, state) if change.operations else {},
    )


def validate(request: Request, state: State) -> Answer:
    """Whether a Job, or the policy ConfigMap, may be stored as it is."""
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return Answer(request.uid)
    if request.object is None:
        return Answer(request.uid)
    try:
        if request.thing == "jobs.batch":
            _check_job(request, request.object, state)
        elif request.thing == "configmaps":
            _check_policy(request, request.object, state.namespace)
    except (JobError, DocumentError) as error:
        return Answer(request.uid, allowed=False, message=str(error))
    return Answer(request.uid)


def _job_change(job: Mapping[str, Any], namespace: str, policy: Policy) -> Mutation:
    try:
        return mutation.job_patch(job, namespace, policy)
    except JobError:
        return mutation.UNTOUCHED


def _audit(change: Mutation, state: State) -> dict[str, str]:
    notes = {"policy": state.version, "role": change.role or "", "tier": change.tier or ""}
    return {key: str(value) for key, value in notes.items() if value}


def _check_job(request: Request, job: Mapping[str, Any], state: State) -> None:
    """Raises JobError on an elastic Job that is written wrongly, or made wrong by an update."""
    if state.policy.protects(request.namespace) or _over(job):
        return
    annotations, spec = _annotations(job), _mapping(job.get("spec"))
    if not elastic.is_elastic(annotations):
        if spec.get("managedBy") == MANAGER:
            raise JobError(
                f"spec.managedBy is {MANAGER}, which only runs Jobs with {ANNOTATION_MIN} and "
                f"{ANNOTATION_MAX}: keep both; to end the job, delete it"
            )
        return
    old = request.old_object if request.operation == "UPDATE" else None
    if old is None or not elastic.is_elastic(_annotations(old)):
        mutation.check_job(annotations, spec)
        if elastic.master(annotations) and not state.master_image:
            raise JobError(mutation.NO_IMAGE)
        return
    _check_fixed(annotations, _annotations(old))
    # A Job that was stored wrong while nobody looked must not block updates of its other fields.
    if _some(annotations, _ASKED) != _some(_annotations(old), _ASKED):
        elastic.bounds(annotations)
        elastic.weight(annotations)
        elastic.queue(annotations)
    if _some(spec, _SHAPE) != _some(_mapping(old.get("spec")), _SHAPE):
        elastic.check_spec(spec)


def _check_fixed(new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Raises JobError where a Job that exists would want another master, or other servers."""
    for name in _FIXED:
        if new.get(name) != old.get(name):
            raise JobError(
                f"{name} cannot change once the Job exists: its pods could not follow; "
                "create the Job again"
            )


def _check_policy(request: Request, configmap: Mapping[str, Any], namespace: str) -> None:
    """Raises DocumentError on a policy that could not be put in force."""
    name = request.name or _mapping(configmap.get("metadata")).get("name")
    if name != POLICY_CONFIGMAP or request.namespace != namespace:
        return
    if _mapping(configmap.get("metadata")).get("deletionTimestamp"):
        return
    text = _mapping(configmap.get("data")).get(POLICY_KEY)
    if not isinstance(text, str):
        raise DocumentError(
            f"data has no key {POLICY_KEY}: put the policy document under it as text"
        )
    try:
        document.parse(text)
    except DocumentError as error:
        raise DocumentError(f"{POLICY_KEY}: {error}") from error


def _over(job: Mapping[str, Any]) -> bool:
    """It is being deleted or has finished: updates only tidy up (finalizers, labels)."""
    conditions = _mapping(job.get("status")).get("conditions")
    ended = isinstance(conditions, list) and any(
        _mapping(c).get("type") in ("Complete", "Failed") and _mapping(c).get("status") == "True"
        for c in conditions
    )
    return ended or bool(_mapping(job.get("metadata")).get("deletionTimestamp"))


def _annotations(thing: Mapping[str, Any]) -> dict[str, str]:
    found = _mapping(_mapping(thing.get("metadata")).get("annotations"))
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _some(values: Mapping[str, Any], names: tuple[str, ...]) -> tuple[object, ...]:
    return tuple(values.get(name) for name in names)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
