"""Documents that clusters have stored: each later version reads them as the one that wrote them did.

One folder of `tests/vectors` for each minor version; what is in it never changes.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.admission.mutation import check_job
from policy.admission.views import JobView
from policy.cluster.trainer_accounting import parse
from policy.document import parser as document
from policy.names import JOB_ANNOTATIONS
from reconciler.manifests import training_job

CRD = Path(__file__).parents[2] / "deploy/base/training-job-crd.yaml"
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("training-job*.yaml"))
_WHERE = {"namespace": "ml", "uid": "u"}
VERSIONS = sorted((Path(__file__).parents[1] / "vectors").glob("v*"))


def _lost(old: Any, new: Any, path: str = "") -> list[str]:
    """Fields that mean something else now; new fields do not count."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [
            line
            for name, value in old.items()
            for line in (
                _lost(value, new[name], f"{path}/{name}") if name in new else [f"{path}/{name}"]
            )
        ]
    return [] if old == new else [f"{path}: {old!r} is {new!r}"]


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_a_policy_means_what_it_did(folder: Path) -> None:
    """Every field of it has a value in this one, with the same meaning."""
    old = json.loads((folder / "policy.json").read_text())
    policy = document.parse((folder / "policy.yaml").read_text())

    assert _lost(old, policy.model_dump(mode="json", by_alias=True)) == []


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_a_training_job_becomes_the_same_job(folder: Path) -> None:
    """Another would be taken for a change of the user's. Each of them is a valid Job."""
    files = sorted(folder.glob("training-job*.yaml"))
    assert files
    for file in files:
        job = training_job.job(yaml.safe_load(file.read_text()))

        assert job == json.loads(file.with_suffix(".json").read_text())
        assert check_job(JobView.parse(job)).max_trainers


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_become_valid_jobs(path: Path) -> None:
    """As admission checks them."""
    training = yaml.safe_load(path.read_text())
    job = training_job.job({**training, "metadata": {**training["metadata"], **_WHERE}})

    assert check_job(JobView.parse(job)).max_trainers


def test_the_newest_version_has_every_field() -> None:
    """Of the policy, and of Jobs: a field that is added is put into the newest folder."""
    newest = json.loads((VERSIONS[-1] / "policy.json").read_text())
    jobs = [json.loads(file.read_text()) for file in VERSIONS[-1].glob("training-job*.json")]
    annotations = {name for job in jobs for name in job["metadata"]["annotations"]}
    text = (VERSIONS[-1] / "policy.yaml").read_text()
    current = document.parse(text).model_dump(mode="json", by_alias=True)

    assert _lost(current, newest) == []
    assert annotations | {"edl.training/books"} == set(JOB_ANNOTATIONS)


def test_the_newest_version_has_every_field_of_a_training_job() -> None:
    """A field that is added to the CRD is put into its files."""
    files = VERSIONS[-1].glob("training-job*.yaml")
    specs = [yaml.safe_load(file.read_text())["spec"] for file in files]
    crd = next(iter(yaml.safe_load_all(CRD.read_text())))  # its roles follow
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    missing = [path for path in _paths(schema) if not any(_has(spec, path) for spec in specs)]

    assert missing == []


def _paths(schema: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Fields that the schema names, but for those of core types."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return [path]
    inner = schema.get("properties", {})
    return [p for name in inner for p in _paths(inner[name], (*path, name))] or [path]


def _has(value: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_the_accounting_of_a_running_job_is_read(folder: Path) -> None:
    """An upgrade goes on with the ids that were used, and counts no ending twice."""
    for stored in json.loads((folder / "accounting.json").read_text()):
        fields = asdict(parse(stored["text"]))

        assert _lost(stored["means"], {**fields, "open": sorted(fields["open"])}) == []
