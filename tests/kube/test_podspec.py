"""Requests, limits and constraints of pod specs, rule by rule."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube import podspec
from policy.cluster.snapshot import ANYWHERE, Requirement


def container(cpu: str = "", *, sidecar: bool = False, **resources: object) -> dict[str, Any]:
    """A container that asks for `cpu`."""
    requirements = {"requests": {"cpu": cpu}} if cpu else resources
    return {"resources": requirements, **({"restartPolicy": "Always"} if sidecar else {})}


def cpu_of(**spec: object) -> int:
    """The CPU that a spec comes to, in millicores."""
    return podspec.requests(spec).get("cpu", 0)


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        ([], ["1", "2"], 3000),
        ([container("5")], ["1"], 5000),
        ([container("1"), container("2")], ["1"], 2000),
        ([container("1", sidecar=True)], ["1"], 2000),
        ([container("1", sidecar=True), container("2")], ["1"], 3000),
        ([container("2"), container("1", sidecar=True)], ["1"], 2000),
        ([container("1", sidecar=True), container("1", sidecar=True)], [], 2000),
    ],
)
def test_containers_init_containers_and_sidecars(
    init: list[dict[str, Any]], main: list[str], expected: int
) -> None:
    """Containers add up; init containers run alone, but with the sidecars started before them."""
    assert cpu_of(initContainers=init, containers=[container(c) for c in main]) == expected


def test_limits_stand_in_for_missing_requests() -> None:
    """Resource by resource, as the API server defaults them."""
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}

    assert podspec.requests({"containers": [{"resources": resources}]}) == {
        "cpu": 1000,
        "nvidia.com/gpu": 1,
        "pods": 1,
    }


@pytest.mark.parametrize(
    ("pod_level", "expected"),
    [
        ({"requests": {"cpu": "4"}}, 4000),
        ({"limits": {"cpu": "4"}}, 1000),
        ({"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}, 4000),
        ({"requests": {"nvidia.com/gpu": "4"}}, 1000),
    ],
)
def test_pod_level_requests_replace_the_sum(pod_level: dict[str, Any], expected: int) -> None:
    """Only for cpu, memory and huge pages; pod-level limits only fill a gap."""
    assert cpu_of(containers=[container("1")], resources=pod_level) == expected
    assert "nvidia.com/gpu" not in podspec.requests({"resources": pod_level})


def test_a_pod_level_limit_fills_a_gap() -> None:
    """No container has a request or limit for it."""
    assert cpu_of(containers=[container()], resources={"limits": {"cpu": "4"}}) == 4000


def test_overhead_is_added_last() -> None:
    """Overhead is also added to pod-level requests."""
    spec = {"resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}

    assert cpu_of(**spec) == 4250


def test_the_marker_resource_is_not_counted() -> None:
    """`edl.training/trainer` is ignoredByScheduler, so no node has to have it."""
    resources = {"limits": {"edl.training/trainer": "1"}}

    assert podspec.requests({"containers": [{"resources": resources}]}) == {"pods": 1}


@pytest.mark.parametrize(
    "required", [{"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}, {"matchFields": None}]}]
)
def test_an_affinity_of_empty_terms_matches_no_node(required: dict[str, Any]) -> None:
    """Upstream: an empty term selects nothing, so such a pod never runs."""
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    terms = podspec.constraints({"affinity": affinity, "nodeSelector": {"a": "b"}}).terms

    assert terms == ((Requirement("metadata.name", "In", ()),),)


def test_preferred_affinity_constrains_nothing() -> None:
    """Only required affinity is a constraint."""
    preferred: dict[str, Any] = {"preferredDuringSchedulingIgnoredDuringExecution": []}

    assert podspec.constraints({"affinity": {"nodeAffinity": preferred}}) is ANYWHERE
    assert podspec.constraints({"affinity": {"podAffinity": {}}}) is ANYWHERE


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(0, 99).map(str)),
        max_size=4,
    )
)
def test_the_sum_is_never_less_than_a_part(parts: list[dict[str, str]]) -> None:
    """The total covers the requests of each container, of whatever kind."""
    spec = {
        "containers": [{"resources": {"requests": part}} for part in parts[::2]],
        "initContainers": [{"resources": {"requests": part}} for part in parts[1::2]],
    }
    total = podspec.requests(spec)

    for part in parts:
        assert all(total.get(name, 0) >= amount for name, amount in podspec.amounts(part).items())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        (
            {"containers": [container(limits={"cpu": "2", "memory": "1Ki"})]},
            {"cpu": 2000, "memory": 1024},
        ),
        ({"containers": [container(limits={"cpu": "2"}), container("1")]}, {}),
        (
            {"containers": [container(limits={"cpu": "2"}), container(limits={"cpu": "1"})]},
            {"cpu": 3000},
        ),
        (
            {
                "containers": [container(limits={"cpu": "2"})],
                "initContainers": [
                    container(sidecar=True, limits={"cpu": "1"}),
                    container(limits={"cpu": "9"}),
                ],
            },
            {"cpu": 3000},
        ),
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}}, {"cpu": 4000}),
        ({"containers": [container(limits={"cpu": "much"})]}, {}),
    ],
)
def test_limits_are_those_of_the_whole_pod(spec: dict[str, Any], expected: dict[str, int]) -> None:
    """Containers and sidecars add up; where one has no limit the pod has none."""
    assert podspec.limits(spec) == expected


def _resized(
    requested: str, allocated: str, actuated: str, reason: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Spec and status of a pod whose only container is resized in place."""
    spec = {"containers": [{"name": "main", **container(requested)}]}
    main = {
        "name": "main",
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": actuated}},
    }
    conditions = [{"type": "Ready"}, {"type": "PodResizePending", "reason": reason}]
    return spec, {"containerStatuses": [main], "conditions": conditions if reason else None}


@pytest.mark.parametrize(
    ("requested", "allocated", "actuated", "reason", "expected"),
    [
        ("2", "2", "2", "", 2000),
        ("4", "2", "2", "Deferred", 4000),
        ("4", "2", "3", "Infeasible", 3000),
        ("4", "3", "2", "Infeasible", 3000),
        ("1", "2", "2", "", 2000),
        ("1", "1", "2", "", 2000),
        ("1", "2", "1", "Deferred", 2000),
    ],
)
def test_a_pod_that_is_resized_counts_with_its_largest_size(
    requested: str, allocated: str, actuated: str, reason: str, expected: int
) -> None:
    """Requested, allocated, actual; without the first where the node can never give it.

    k8s.io/component-helpers v0.36 `determineEffectiveRequests`.
    """
    spec, status = _resized(requested, allocated, actuated, reason)

    assert podspec.requests(spec, status) == {"cpu": expected, "pods": 1}


@pytest.mark.parametrize(
    ("requested", "allocated", "reason", "expected"),
    [
        ("4", "1", "Deferred", {"cpu": 3000}),
        ("4", "1", "Infeasible", None),
        ("4", "1", "", None),
        ("1", "4", "Deferred", None),
    ],
)
def test_a_deferred_resize_lacks_the_difference(
    requested: str, allocated: str, reason: str, expected: dict[str, int] | None
) -> None:
    """Between what the pod requests and what its node has given it."""
    assert podspec.lacking(*_resized(requested, allocated, allocated, reason)) == expected


def test_sidecars_are_resized_and_other_init_containers_are_not() -> None:
    """Those have ended, or run before a resize can be."""
    init = [{"name": "a", **container("1", sidecar=True)}, {"name": "b", **container("1")}]
    statuses = [
        {"name": name, "resources": {"requests": {"cpu": "9"}}} for name in ("a", "b", "gone")
    ]
    spec = {"initContainers": init, "containers": [container("1")]}

    assert podspec.requests(spec, {"initContainerStatuses": statuses})["cpu"] == 10_000


def test_pod_level_requests_are_resized_too() -> None:
    """By the status of the pod, for the resources that its spec names."""
    spec = {"containers": [], "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "1Ki"}}}
    status = {
        "allocatedResources": {"cpu": "3", "memory": "9Ki"},
        "resources": {"requests": {"cpu": "1"}},
    }

    assert podspec.requests(spec, status) == {"cpu": 3000, "memory": 1024, "pods": 1}
    assert podspec.requests(spec, {"resources": {}}) == podspec.requests(spec)


def test_a_status_that_says_what_the_spec_does_shares_its_requests() -> None:
    """Thousands of pods have one record of requests."""
    spec, status = _resized("2", "2", "2")

    assert podspec.requests(spec, status) is podspec.requests(spec)
