"""The extender's JSON, as k8s.io/kube-scheduler/extender/v1 has it.

The upstream structs carry no JSON tags, so keys are PascalCase. Integers stay integers, and
nothing is ever null inside an answer: kube-scheduler dereferences it.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_pascal

from policy.victims import Candidate

MAX_NODES = 20_000
"""kube-scheduler itself is tested to 5 000 nodes; more names than this are no honest request."""


class _Wire(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_pascal, populate_by_name=True
    )


class ExtenderArgs(_Wire):
    """extender/v1 `ExtenderArgs`, in the form of `nodeCacheCapable: true`."""

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
    """extender/v1 `ExtenderPreemptionArgs`, in the form of `nodeCacheCapable: true`."""

    pod: dict[str, Any]
    node_name_to_meta_victims: Annotated[dict[str, MetaVictims], Field(max_length=MAX_NODES)]

    def candidates(self) -> tuple[Candidate, ...]:
        """The core's form."""
        return tuple(
            Candidate(node, tuple(pod.uid for pod in victims.pods or ()), victims.violations)
            for node, victims in self.node_name_to_meta_victims.items()
        )


def filter_result(
    kept: list[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> dict[str, object]:
    """extender/v1 `ExtenderFilterResult`; every node asked about is in exactly one of the three."""
    return {
        "NodeNames": kept,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }


def priorities(scores: Mapping[str, int]) -> list[dict[str, object]]:
    """extender/v1 `HostPriorityList`: a bare array."""
    return [{"Host": node, "Score": value} for node, value in scores.items()]


def preemption_result(chosen: Candidate | None) -> dict[str, object]:
    """extender/v1 `ExtenderPreemptionResult`; no node at all means "no candidate"."""
    if chosen is None:
        return {"NodeNameToMetaVictims": {}}
    victims = {
        "Pods": [{"UID": uid} for uid in chosen.uids],
        "NumPDBViolations": chosen.violations,
    }
    return {"NodeNameToMetaVictims": {chosen.node: victims}}
