"""Node affinity of trainers that avoid nodes."""

from typing import Any

import pytest

from reconciler.manifests.affinity import avoid_nodes

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
