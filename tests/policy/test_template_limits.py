"""How much a pod template may say: what is larger is refused, with the field and the way out."""

from typing import Any

import pytest

from policy.admission import job_spec, mutation
from policy.admission.views import PodView
from policy.errors import JobError
from tests.support.builders import job_view


def _template(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "net:1"}], **spec}}


def _check(template: dict[str, Any]) -> None:
    job_spec.check_size(template, PodView.parse(template))


def _affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _named(count: int, chars: int = 5) -> dict[str, Any]:
    return {"key": "host", "operator": "In", "values": [f"{n:0{chars}}" for n in range(count)]}


def test_what_clusters_really_use_is_allowed() -> None:
    """A list of a thousand nodes, a few terms, a dozen tolerations, a long script."""
    template = _template(
        nodeSelector={"pool": "gpu", "zone": "a"},
        affinity=_affinity([_named(1000)], [_named(3), _named(2)]),
        tolerations=[{"key": f"k{n}"} for n in range(12)],
        volumes=[{"name": "x" * 60_000}],
    )

    _check(template)
    _check({})


@pytest.mark.parametrize(
    "spec",
    [
        {"affinity": _affinity([_named(100, chars=200)])},
        {"affinity": _affinity(*[[_named(1)]] * 129)},
        {"affinity": _affinity([_named(1)] * 129)},
        {
            "affinity": _affinity(*[[_named(1)]] * 20),
            "nodeSelector": {f"k{n}": "v" for n in "abcdef"},
        },
        {"tolerations": [{"operator": "Exists"}] * 129},
        {"nodeSelector": {f"k{n}": "v" for n in range(129)}},
    ],
)
def test_constraints_that_every_plan_would_compare_with_every_node_are_refused(
    spec: dict[str, Any],
) -> None:
    """By their bytes, and by their number: each is compared with each node."""
    with pytest.raises(JobError) as refusal:
        _check(_template(**spec))

    assert "node selector, required node affinity and tolerations" in str(refusal.value)
    assert "give the nodes a label" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_large_template_is_refused() -> None:
    """It is kept while the Job exists, for each of its trainers."""
    with pytest.raises(
        JobError, match=r"spec\.template has 13\d+ bytes.*put scripts and data into"
    ):
        _check(_template(volumes=[{"name": "x" * 131_000}]))


def test_a_template_that_no_api_server_sends_is_refused() -> None:
    """Nested deeper than any type of Kubernetes."""
    nested: dict[str, Any] = {}
    for _ in range(400):
        nested = {"spec": nested}

    with pytest.raises(JobError, match=r"spec\.template"):
        _check(nested)


def test_admission_refuses_such_a_job() -> None:
    """With the field and what to do instead, before it is stored."""
    annotations = {"edl.training/min-trainers": "1", "edl.training/max-trainers": "2"}
    template = _template(tolerations=[{"operator": "Exists"}] * 129)

    with pytest.raises(JobError, match="give the nodes a label"):
        mutation.check_job(job_view(annotations, {"template": template}))
