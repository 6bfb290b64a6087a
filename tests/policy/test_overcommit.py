"""Requests of trainers below their limits, as the policy says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import quantity
from policy.cluster import overcommit
from policy.cluster.snapshot import Job
from policy.document import parser as document
from policy.document.queue_model import Overcommit
from policy.errors import DocumentError
from tests.support.builders import job

_HALF_MORE = {"cpu": 1.5}


def _job(spec: dict[str, Any], **fields: Any) -> Job:
    return job("a", template_json=json.dumps({"spec": spec}).encode(), **fields)


def _lowered(resources: dict[str, Any], ratios: dict[str, float]) -> Any:
    spec = {"containers": [{"name": "main", "resources": resources}]}
    new: Any = overcommit.lowered(_job(spec), ratios).template
    return new["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(
    ("resources", "lowered"),
    [
        (
            {"requests": {"cpu": "3", "memory": "1Gi"}, "limits": {"cpu": "3"}},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "3"}},
        ),
        ({"requests": {"cpu": "3"}}, {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}),
        ({"limits": {"cpu": 3}}, {"requests": {"cpu": "2"}, "limits": {"cpu": 3}}),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}, None),
        ({"requests": {"memory": "1Gi"}}, None),
        ({"requests": {"cpu": "much"}}, None),
        ({}, None),
    ],
)
def test_requests_become_limits_divided_by_the_ratio(
    resources: dict[str, Any], lowered: dict[str, Any] | None
) -> None:
    """Limits stay; a request that is lower already stays, and so does what has neither."""
    assert _lowered(resources, _HALF_MORE) == (resources if lowered is None else lowered)


def test_init_containers_and_resources_of_the_pod_are_lowered_too() -> None:
    """The scheduler counts the largest of them."""
    resources = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    spec = {
        "initContainers": [{"name": "a", "resources": resources}],
        "containers": [{"name": "b"}],
        "resources": resources,
    }
    lowered = {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}

    new: Any = overcommit.lowered(_job(spec), _HALF_MORE).template

    assert new["spec"]["initContainers"][0]["resources"] == lowered
    assert new["spec"]["resources"] == lowered
    assert new["spec"]["containers"] == [{"name": "b"}]


def test_jobs_that_no_rule_selects_stay_as_they_are() -> None:
    """Nor do those of the built-in controller change, whose pods EDL does not make."""
    spec = {"containers": [{"resources": {"requests": {"cpu": "3"}}}]}
    plain, unmanaged = _job(spec), _job(spec, managed=False)

    assert overcommit.lowered(plain, {}) is plain
    assert overcommit.lowered(plain, {"memory": 2.0}) is plain
    assert overcommit.lowered(unmanaged, _HALF_MORE) is unmanaged


def test_the_first_rule_of_namespace_and_queue_counts() -> None:
    """A ratio of 1 takes jobs out of later rules."""
    rules = (
        Overcommit(namespaces=("bank",), trainers={"cpu": 1.0}),
        Overcommit(queues=("batch-*",), trainers={"cpu": 2.0, "memory": 1.2}),
        Overcommit(trainers={"cpu": 1.5}),
    )

    assert overcommit.ratios_of(rules, "bank", "batch-1") == {}
    assert overcommit.ratios_of(rules, "ml", "batch-1") == {"cpu": 2.0, "memory": 1.2}
    assert overcommit.ratios_of(rules, "ml", "") == {"cpu": 1.5}
    assert overcommit.ratios_of((), "ml", "") == {}


@given(
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.one_of(st.none(), st.integers(1, 10**6)),
    st.floats(1.0, 10.0),
)
def test_lowered_once_is_lowered_for_good(
    request: int | None, limit: int | None, ratio: float
) -> None:
    """Limit divided by request never exceeds the ratio, no limit and no request grows."""
    amounts = {"requests": request, "limits": limit}
    resources = {
        kind: {"cpu": f"{amount}m"}
        for kind, amount in amounts.items()
        if amount is not None and (kind == "limits" or limit is None or amount <= limit)
    }

    once = _lowered(resources, {"cpu": ratio})

    assert _lowered(once, {"cpu": ratio}) == once
    if ratio > 1 and resources:
        new_request = quantity.parse("cpu", once["requests"]["cpu"])
        new_limit = quantity.parse("cpu", str(once["limits"]["cpu"]))
        assert new_request <= (request if "requests" in resources and request else new_limit)
        assert new_limit == (limit or request)
        # A request that the author wrote lower has a larger ratio than the policy's.
        assert new_limit <= ratio * new_request or new_request == request


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("overcommit: [{trainers: {cpu: 0.5}}]", "greater than or equal to 1"),
        ("overcommit: [{trainers: {cpu: 11}}]", "less than or equal to 10"),
        ("overcommit: [{trainers: {nvidia.com/gpu: 2}}]", "'cpu' or 'memory'"),
        ("overcommit: [{trainers: {}}]", "at least 1 item"),
        ("overcommit: [{queues: [], trainers: {cpu: 2}}]", "at least 1 item"),
        ("overcommit: [{}]", "trainers"),
    ],
)
def test_a_ratio_that_kubernetes_could_not_have_is_refused(text: str, message: str) -> None:
    """With the field."""
    with pytest.raises(DocumentError, match=message):
        document.parse(text)
