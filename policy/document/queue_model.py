"""The parts of the policy document about queues, quotas and overcommit."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from policy.document.model_fields import Name, PolicyPart, Quantity, Weight


class Queue(PolicyPart):
    """A queue that only jobs of some namespaces may use. `*` and `?` are wildcards."""

    name: Name
    """What jobs write into `edl.training/queue`."""
    namespaces: Annotated[tuple[Name, ...], Field(min_length=1)]
    """Patterns of the namespaces whose jobs may use it."""
    default: bool = False
    """Whether jobs of these namespaces that name no queue are in this one."""
    max_weight: Weight | None = None
    """As `fairness.maxWeight`, for this queue."""
    priority: Annotated[int, Field(ge=0, le=1000)] = 0
    """Jobs of a queue with a higher one start first and grow first."""
    nominal_quota: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> requests that are the queue's own; others may borrow what it leaves unused."""
    borrowing_limit: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> requests that its surplus may have on top, of what other queues leave unused."""

    @model_validator(mode="after")
    def _limits_own_resources(self) -> "Queue":
        unknown = sorted(self.borrowing_limit.keys() - self.nominal_quota.keys())
        if unknown:
            raise ValueError(
                f"borrowingLimit has {unknown[0]} and nominalQuota does not: give it a nominal quota, "
                "0 for none"
            )
        return self


class Quota(PolicyPart):
    """A ceiling on the total resources of the trainers of one namespace or queue."""

    namespace: Name | None = None
    """Whose trainers it limits: this or `queue`."""
    queue: Name | None = None
    """Whose trainers it limits: this or `namespace`."""
    requests: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> ceiling on the sum of their requests."""
    limits: dict[Name, Quantity] = Field(default_factory=dict)
    """Resource -> ceiling on the sum of their limits; without a limit the request counts."""

    @model_validator(mode="after")
    def _one_scope(self) -> "Quota":
        if (self.namespace is None) == (self.queue is None):
            raise ValueError("name exactly one of namespace and queue")
        if not (self.requests or self.limits):
            raise ValueError("sets no ceiling; give requests, limits or both")
        return self


Ratio = Annotated[float, Field(ge=1.0, le=10.0)]


class Overcommit(PolicyPart):
    """How far trainers of some namespaces and queues may use more than they request."""

    namespaces: tuple[Name, ...] = ("*",)
    """Patterns of their namespaces."""
    queues: Annotated[tuple[str, ...], Field(min_length=1)] = ("*",)
    """Patterns of their queues; `*` includes jobs of no queue."""
    trainers: Annotated[dict[Literal["cpu", "memory"], Ratio], Field(min_length=1)]
    """Resource -> limit of a trainer divided by its request, 1 for no overcommit."""
