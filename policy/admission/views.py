"""Pods, Jobs and ConfigMaps as admission reads them: parsed once, with defaults filled in. Pure.

`kube.elastic_spec` reads stored Jobs with the same view.

Admission receives objects before the API server has validated them. A field of the wrong type therefore
counts as missing. A list element that should be an object and is not counts as an empty object, so that
positions stay valid for patches.
"""

from typing import Annotated, Any, Self

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticUseDefault

from policy.cluster.failure_rules import FailureAction, FailureRule
from policy.names import (
    DEFAULT_SCHEDULER,
    LABEL_JOB,
    LABEL_MASTER,
    LABEL_SERVER,
    MASTER_CONTAINER,
    SERVER_CONTAINER,
)

DEFAULT_GRACE_S = 30
"""core/v1 default of terminationGracePeriodSeconds."""


def _strings(value: object) -> object:
    """Leaves out names and values that are not strings."""
    if not isinstance(value, dict):
        return {}
    return {
        name: text
        for name, text in value.items()
        if isinstance(name, str) and isinstance(text, str)
    }


def _objects(value: object) -> object:
    """Replaces elements that are not objects by empty objects."""
    if not isinstance(value, list):
        return ()
    return tuple(element if isinstance(element, dict) else {} for element in value)


def _keys(value: object) -> object:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, dict) else ()


def _numbers(value: object) -> object:
    return tuple(n for n in value if isinstance(n, int)) if isinstance(value, list) else ()


def _names(value: object) -> object:
    if not isinstance(value, list):
        return ()
    names = (element.get("name") for element in value if isinstance(element, dict))
    return tuple(name for name in names if isinstance(name, str))


Strings = Annotated[dict[str, str], BeforeValidator(_strings)]
Objects = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_objects)]
Keys = Annotated[tuple[str, ...], BeforeValidator(_keys)]
"""The names of an object's fields, in their order."""
FilledString = Annotated[str, StringConstraints(strict=True, min_length=1)]
Numbers = Annotated[tuple[int, ...], BeforeValidator(_numbers)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""The `name` of each object in a list."""


Document = dict[str, Any]
"""A JSON object as written."""


class View(BaseModel):
    """Base of the views: `parse` never fails, because a field of the wrong type counts as missing."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @field_validator("*", mode="wrap")
    @classmethod
    def _wrong_type_counts_as_missing(
        cls, value: object, validate: ValidatorFunctionWrapHandler
    ) -> object:
        try:
            return validate(value)
        except ValidationError as error:
            raise PydanticUseDefault from error

    @classmethod
    def parse(cls, document: object) -> Self:
        """Returns the view of a JSON object."""
        return cls.model_validate(document if isinstance(document, dict) else {})


class ContainerView(View):
    """A core/v1 `Container`."""

    name: StrictStr = ""
    image: StrictStr = ""
    env: Objects = ()
    """Its variables (core/v1 `EnvVar`), as written."""
    requests: Keys = Field((), validation_alias=AliasPath("resources", "requests"))
    """The resources that it requests."""
    limits: Keys = Field((), validation_alias=AliasPath("resources", "limits"))
    """The resources that have a limit."""


Containers = Annotated[tuple[ContainerView, ...], BeforeValidator(_objects)]


class NodeSelectorTerm(View):
    """A core/v1 `NodeSelectorTerm`."""

    match_expressions: Objects = Field((), validation_alias="matchExpressions")
    match_fields: Objects = Field((), validation_alias="matchFields")


NodeSelectorTerms = Annotated[tuple[NodeSelectorTerm, ...], BeforeValidator(_objects)]
_REQUIRED_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")


class PodView(View):
    """A core/v1 `Pod`, or a `PodTemplateSpec`, which has the same metadata and spec."""

    labels: Strings = Field({}, validation_alias=AliasPath("metadata", "labels"))
    job: StrictStr = Field("", validation_alias=AliasPath("metadata", "labels", LABEL_JOB))
    """The job that the pod belongs to; "" for none."""
    annotations: Strings = Field({}, validation_alias=AliasPath("metadata", "annotations"))
    containers: Containers = Field((), validation_alias=AliasPath("spec", "containers"))
    init_containers: Containers = Field((), validation_alias=AliasPath("spec", "initContainers"))
    volumes: Names = Field((), validation_alias=AliasPath("spec", "volumes"))
    """The names of its volumes."""
    priority: StrictInt | None = Field(None, validation_alias=AliasPath("spec", "priority"))
    preemption_policy: StrictStr = Field("", validation_alias=AliasPath("spec", "preemptionPolicy"))
    priority_class: StrictStr = Field("", validation_alias=AliasPath("spec", "priorityClassName"))
    grace_s: StrictInt = Field(
        DEFAULT_GRACE_S, validation_alias=AliasPath("spec", "terminationGracePeriodSeconds")
    )
    host_network: StrictBool = Field(False, validation_alias=AliasPath("spec", "hostNetwork"))
    node_name: StrictStr = Field("", validation_alias=AliasPath("spec", "nodeName"))
    resource_claims: Any = Field(None, validation_alias=AliasPath("spec", "resourceClaims"))
    node_selector: Document = Field({}, validation_alias=AliasPath("spec", "nodeSelector"))
    required_node_affinity: Document = Field(
        {}, validation_alias=AliasPath("spec", *_REQUIRED_AFFINITY)
    )
    node_selector_terms: NodeSelectorTerms = Field(
        (), validation_alias=AliasPath("spec", *_REQUIRED_AFFINITY, "nodeSelectorTerms")
    )
    tolerations: Objects = Field((), validation_alias=AliasPath("spec", "tolerations"))
    scheduler: FilledString = Field(
        DEFAULT_SCHEDULER, validation_alias=AliasPath("spec", "schedulerName")
    )

    @property
    def hosts_master(self) -> bool:
        """Whether the pod is labelled to host its job's master."""
        return self.labels.get(LABEL_MASTER) == "true" and bool(self.job)

    @property
    def has_master(self) -> bool:
        """Whether the pod has the master's sidecar already."""
        return any(container.name == MASTER_CONTAINER for container in self.init_containers)

    @property
    def server_without_image(self) -> int:
        """The position of the container of EDL's parameter server if that lacks an image, or -1.

        The reconciler creates parameter server pods without an image, and admission adds the image.
        """
        if not (self.labels.get(LABEL_SERVER) and self.job):
            return -1
        for position, container in enumerate(self.containers):
            if container.name == SERVER_CONTAINER and not container.image:
                return position
        return -1

    @property
    def limits_cpu(self) -> bool:
        """Whether every container has a CPU limit.

        A ResourceQuota on limits.cpu refuses pods in which any container has no CPU limit. If the user's
        containers have no limit, EDL's containers get none either: it would only slow them down.
        """
        return bool(self.containers) and all(
            "cpu" in container.limits for container in (*self.containers, *self.init_containers)
        )


class JobCondition(View):
    """A batch/v1 `JobCondition`."""

    type: StrictStr = ""
    status: StrictStr = ""


JobConditions = Annotated[tuple[JobCondition, ...], BeforeValidator(_objects)]


class _PodConditionPattern(View):
    """A batch/v1 `PodFailurePolicyOnPodConditionsPattern`."""

    type: StrictStr = ""
    status: StrictStr = "True"


class _FailureRule(View):
    """A batch/v1 `PodFailurePolicyRule`."""

    action: StrictStr = ""
    container: StrictStr = Field("", validation_alias=AliasPath("onExitCodes", "containerName"))
    operator: StrictStr = Field("", validation_alias=AliasPath("onExitCodes", "operator"))
    values: Numbers = Field((), validation_alias=AliasPath("onExitCodes", "values"))
    conditions: Annotated[tuple[_PodConditionPattern, ...], BeforeValidator(_objects)] = Field(
        (), validation_alias="onPodConditions"
    )


_ACTIONS = frozenset(FailureAction)


class JobView(View):
    """A batch/v1 `Job`."""

    name: StrictStr = Field("", validation_alias=AliasPath("metadata", "name"))
    annotations: Strings = Field({}, validation_alias=AliasPath("metadata", "annotations"))
    deleted_at: Any = Field(None, validation_alias=AliasPath("metadata", "deletionTimestamp"))
    managed_by: StrictStr | None = Field(None, validation_alias=AliasPath("spec", "managedBy"))
    completion_mode: StrictStr = Field("", validation_alias=AliasPath("spec", "completionMode"))
    completions: StrictInt | None = Field(None, validation_alias=AliasPath("spec", "completions"))
    parallelism: StrictInt | None = Field(None, validation_alias=AliasPath("spec", "parallelism"))
    suspended: StrictBool = Field(False, validation_alias=AliasPath("spec", "suspend"))
    template: PodView = Field(
        default_factory=lambda: PodView.parse({}), validation_alias=AliasPath("spec", "template")
    )
    template_document: Document = Field({}, validation_alias=AliasPath("spec", "template"))
    active: StrictInt = Field(0, validation_alias=AliasPath("status", "active"))
    conditions: JobConditions = Field((), validation_alias=AliasPath("status", "conditions"))
    rules: Annotated[tuple[_FailureRule, ...], BeforeValidator(_objects)] = Field(
        (), validation_alias=AliasPath("spec", "podFailurePolicy", "rules")
    )

    @property
    def failure_rules(self) -> tuple[FailureRule, ...]:
        """The rules of `podFailurePolicy` in their order, without rules that have an unknown action."""
        return tuple(
            FailureRule(
                FailureAction(rule.action),
                container=rule.container,
                codes=frozenset(rule.values),
                others=rule.operator == "NotIn",
                conditions=tuple((pattern.type, pattern.status) for pattern in rule.conditions),
            )
            for rule in self.rules
            if rule.action in _ACTIONS
        )

    @property
    def has_default_completions(self) -> bool:
        """Whether completions and parallelism are the pair that the API server fills in."""
        return self.completions == 1 and self.parallelism in (None, 1)

    @property
    def is_finished(self) -> bool:
        """Whether the Job is being deleted or has finished: updates then only clean up."""
        ended = any(
            c.type in ("Complete", "Failed") and c.status == "True" for c in self.conditions
        )
        return ended or bool(self.deleted_at)

    @property
    def may_run(self) -> bool:
        """Whether the stored Job has trainers, or may get some before EDL sees an update."""
        return not self.suspended or bool(self.active)


class ConfigMapView(View):
    """A core/v1 `ConfigMap`."""

    name: StrictStr = Field("", validation_alias=AliasPath("metadata", "name"))
    deleted_at: Any = Field(None, validation_alias=AliasPath("metadata", "deletionTimestamp"))
    data: Strings = {}
