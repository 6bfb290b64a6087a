"""Pods and Jobs as admission reads them: parsed once, with defaults filled in. Pure.

Admission receives objects before the API server has validated them. A field of the wrong type therefore
counts as missing, and an element of a list that is not an object counts as an empty one, so that positions
stay valid for patches.
"""

from typing import Annotated, Any, Self

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import PydanticUseDefault

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
    """Replaces elements that are not objects by empty ones."""
    if not isinstance(value, list):
        return ()
    return tuple(element if isinstance(element, dict) else {} for element in value)


def _keys(value: object) -> object:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, dict) else ()


def _names(value: object) -> object:
    if not isinstance(value, list):
        return ()
    names = (element.get("name") for element in value if isinstance(element, dict))
    return tuple(name for name in names if isinstance(name, str))


Strings = Annotated[dict[str, str], BeforeValidator(_strings)]
Objects = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_objects)]
Keys = Annotated[tuple[str, ...], BeforeValidator(_keys)]
"""The names of an object's fields, in their order."""
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""The `name` of each object in a list."""


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


class PodView(View):
    """A core/v1 `Pod`, or a `PodTemplateSpec`, which has the same metadata and spec."""

    labels: Strings = Field({}, validation_alias=AliasPath("metadata", "labels"))
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
    named_scheduler: StrictStr = Field("", validation_alias=AliasPath("spec", "schedulerName"))

    @property
    def scheduler(self) -> str:
        """The scheduler that the pod names, or the default one."""
        return self.named_scheduler or DEFAULT_SCHEDULER

    @property
    def job(self) -> str:
        """The job that the pod belongs to; "" for none."""
        return self.labels.get(LABEL_JOB, "")

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
        """The position of the container of EDL's parameter server if it lacks an image, or -1.

        The reconciler creates the pods of servers without an image, and admission adds it.
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

        A ResourceQuota on limits.cpu refuses pods with any container that has none. Where the user's
        containers have no limit, EDL's have none either: it would only slow them down.
        """
        return bool(self.containers) and all(
            "cpu" in container.limits for container in (*self.containers, *self.init_containers)
        )
