"""The extender's JSON, as defined by k8s.io/kube-scheduler/extender/v1.

The upstream structs have no JSON tags, so keys are PascalCase. Integers stay integers, and no field of an
answer is null, because kube-scheduler dereferences all of them.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_pascal

from policy.planning.victims import Candidate

MAX_NODES = 20_000
"""kube-scheduler is tested with up to 5 000 nodes, so a request with more names than this is not genuine."""


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_pascal, populate_by_name=True
    )


class ExtenderArgs(_Wire):
    """extender/v1 `ExtenderArgs`, in the form for `nodeCacheCapable: true`."""

    pod: dict[str, Any]
    node_names: Annotated[list[str], Field(max_length=MAX_NODES)]


class MetaPod(BaseModel):
    """extender/v1 `MetaPod`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    uid: Annotated[str, Field(alias="UID")]


class MetaVictims(BaseModel):
    """extender/v1 `MetaVictims`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    pods: Annotated[list[MetaPod] | None, Field(alias="Pods")] = None
    violations: Annotated[int, Field(alias="NumPDBViolations")] = 0


class PreemptionArgs(_Wire):
    """extender/v1 `ExtenderPreemptionArgs`, in the form for `nodeCacheCapable: true`."""

    pod: dict[str, Any]
    node_name_to_meta_victims: Annotated[dict[str, MetaVictims], Field(max_length=MAX_NODES)]

    def candidates(self) -> tuple[Candidate, ...]:
        """Returns the candidates as `policy.planning.victims` expects them."""
        return tuple(
            Candidate(node, tuple(pod.uid for pod in victims.pods or ()), victims.violations)
            for node, victims in self.node_name_to_meta_victims.items()
        )


def filter_result(
    passed: list[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, object]:
    """Returns an extender/v1 `ExtenderFilterResult`; each requested node is in exactly one of its fields."""
    return {
        "NodeNames": passed,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def priorities(scores: Mapping[str, int]) -> list[dict[str, object]]:
    """Returns an extender/v1 `HostPriorityList`, which is a bare array."""
    return [{"Host": node, "Score": value} for node, value in scores.items()]


def preemption_result(candidates: Iterable[Candidate]) -> dict[str, object]:
    """Returns an extender/v1 `ExtenderPreemptionResult`; without any node it means "no candidate"."""
    victims = {
        candidate.node: {
            "Pods": [{"UID": uid} for uid in candidate.uids],
            "NumPDBViolations": candidate.violations,
        }
        for candidate in candidates
    }
    return {"NodeNameToMetaVictims": victims}
