"""Documents that clusters have stored: each later version reads them as the one that wrote them did.

One folder of `tests/vectors` for each minor version; what is in it never changes.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy import document
from policy.names import JOB_ANNOTATIONS
from policy.trainer_accounting import parse
from reconciler.manifests import training_job

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
    """Another would be taken for a change of the user's."""
    stored = yaml.safe_load((folder / "training-job.yaml").read_text())

    assert training_job.job(stored) == json.loads((folder / "training-job.json").read_text())


def test_the_newest_version_has_every_field() -> None:
    """Of the policy, and of Jobs: a field that is added is put into the newest folder."""
    newest = json.loads((VERSIONS[-1] / "policy.json").read_text())
    job = json.loads((VERSIONS[-1] / "training-job.json").read_text())
    annotations = set(job["metadata"]["annotations"])
    current = document.parse("").model_dump(mode="json", by_alias=True)

    assert current.keys() == newest.keys()
    assert annotations | {"edl.training/books"} == set(JOB_ANNOTATIONS)


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_the_accounting_of_a_running_job_is_read(folder: Path) -> None:
    """An upgrade goes on with the ids that were used, and counts no ending twice."""
    for stored in json.loads((folder / "accounting.json").read_text()):
        fields = asdict(parse(stored["text"]))

        assert _lost(stored["means"], {**fields, "open": sorted(fields["open"])}) == []
