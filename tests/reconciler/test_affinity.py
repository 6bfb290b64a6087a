"""Node affinity of trainers: avoided nodes and node pools."""

from typing import Any

import pytest

from policy.document.model import NodePool
from reconciler.manifests.affinity import avoid_nodes, require_pools

_AWAY = [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in ("n1", "n2")]
_GPU = [{"key": "gpu", "operator": "Exists"}]
_HERE = [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]


def _affinity(affinity: dict[str, Any] | None, *avoided: str) -> Any:
    spec: dict[str, Any] = {"affinity": affinity} if affinity else {}
    avoid_nodes(spec, avoided)
    return spec.get("affinity")


def _required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([{"matchExpressions": _GPU}], [{"matchExpressions": _GPU, "matchFields": _AWAY}]),
        ([{"matchFields": _HERE}, {}], [{"matchFields": _HERE + _AWAY}, {}]),
    ],
)
def test_each_alternative_of_the_template_excludes_the_nodes(
    terms: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    """One requirement for each node, as the API server demands; an empty term stays empty."""
    affinity = _affinity({"nodeAffinity": _required(*terms)}, "n2", "n1")

    assert affinity == {"nodeAffinity": _required(*expected)}


def test_other_affinity_of_the_template_stays() -> None:
    """Preferences, and rules about other pods."""
    others: dict[str, Any] = {"podAntiAffinity": {"x": []}, "nodeAffinity": {"preferred": []}}
    affinity = _affinity(others, "n1", "n2")

    assert affinity["podAntiAffinity"] == {"x": []}
    assert affinity["nodeAffinity"] == {"preferred": [], **_required({"matchFields": _AWAY})}


@pytest.mark.parametrize("affinity", [None, {"nodeAffinity": _required({"matchFields": _HERE})}])
def test_a_job_that_avoids_nothing_has_the_affinity_of_its_template(
    affinity: dict[str, Any] | None,
) -> None:
    """None, or its own."""
    assert _affinity(affinity) == affinity


_POOLS = (
    NodePool(name="old", labels={"pool": "gpu"}),
    NodePool(name="new", labels={"zone": "b", "kind": "gpu"}),
)
_IN_OLD = [{"key": "pool", "operator": "In", "values": ["gpu"]}]
_IN_NEW = [
    {"key": "kind", "operator": "In", "values": ["gpu"]},
    {"key": "zone", "operator": "In", "values": ["b"]},
]


def test_any_of_the_pools_may_have_the_node() -> None:
    """One term for each pool, and in it all of the pool's labels."""
    spec: dict[str, Any] = {}
    require_pools(spec, _POOLS)

    expected = _required({"matchExpressions": _IN_OLD}, {"matchExpressions": _IN_NEW})
    assert spec == {"affinity": {"nodeAffinity": expected}}


def test_each_alternative_of_the_template_is_in_each_pool() -> None:
    """Terms are alternatives, so each is repeated with the labels of each pool."""
    required = _required({"matchExpressions": _GPU}, {"matchFields": _HERE})
    spec: dict[str, Any] = {"affinity": {"nodeAffinity": required}}
    require_pools(spec, _POOLS)

    assert spec["affinity"]["nodeAffinity"] == _required(
        {"matchExpressions": _GPU + _IN_OLD},
        {"matchExpressions": _GPU + _IN_NEW},
        {"matchFields": _HERE, "matchExpressions": _IN_OLD},
        {"matchFields": _HERE, "matchExpressions": _IN_NEW},
    )


@pytest.mark.parametrize("pools", [(), (*_POOLS, NodePool(name="all"))])
def test_without_pools_or_with_one_of_all_nodes_nothing_is_required(
    pools: tuple[NodePool, ...],
) -> None:
    """A pool without labels has every node."""
    spec: dict[str, Any] = {}
    require_pools(spec, pools)

    assert spec == {}
