"""PaddleJobs of Kubeflow and of PaddlePaddle's operator, as TrainingJobs."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from edl.convert.convert import convert
from edl.errors import EdlError

FILES = Path(__file__).parent / "files"


def _spec(text: str) -> tuple[dict[str, Any], list[str], list[str]]:
    """The spec, hints and losses."""
    training_job, notes = convert(text, "job.yaml")
    return training_job["spec"], notes.hints, notes.losses


def _operators(**fields: Any) -> str:
    """A job of the operator with some fields; one that is None is left out."""
    template = {"spec": {"containers": [{"name": "paddle", "image": "wide"}]}}
    spec = {"worker": {"replicas": 2, "template": template}, **fields}
    body = {
        "apiVersion": "batch.paddlepaddle.org/v1",
        "kind": "PaddleJob",
        "metadata": {"name": "wide"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    return yaml.safe_dump(body, sort_keys=False)


def test_a_paddle_job_of_kubeflow_keeps_bounds_and_queue() -> None:
    """Its workers are trainers, which get Paddle's variables."""
    spec, _, losses = _spec((FILES / "paddlejob-kubeflow.yaml").read_text())

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 6)
    assert spec["trainer"]["queue"] == "research"
    assert spec["environment"] == ["paddle"]
    assert spec["backoffLimit"] == 5
    assert "master" not in spec
    assert any("paddle.distributed.launch and fleet find no peers" in line for line in losses)


def test_a_paddle_job_of_the_operator_keeps_its_servers() -> None:
    """As programs of the user's, at the port at which they listen there."""
    spec, _, _ = _spec((FILES / "paddlejob-operator.yaml").read_text())
    servers = spec["parameterServers"]
    (container,) = servers["template"]["spec"]["containers"]

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (1, 4)
    assert servers["replicas"] == 2
    assert container["ports"] == [{"containerPort": 2379}]
    assert container["command"] == ["python", "train.py"]
    assert "restartPolicy" not in servers["template"]["spec"]
    assert servers["template"]["spec"]["hostNetwork"]
    assert spec["trainer"]["template"]["spec"]["hostNetwork"]


def test_a_port_of_a_server_stays() -> None:
    """The operator's own is for servers that name none."""
    pod = {"containers": [{"name": "s", "image": "wide", "ports": [{"containerPort": 7000}]}]}

    spec, _, _ = _spec(_operators(ps={"template": {"spec": pod}}))

    assert spec["parameterServers"]["template"]["spec"] == pod
    assert spec["parameterServers"]["replicas"] == 1
    assert "hostNetwork" not in spec["trainer"]["template"]["spec"]


def test_what_a_paddle_job_has_and_edl_has_not_is_named() -> None:
    """With the line, as lost or as done in another way."""
    _, hints, losses = _spec((FILES / "paddlejob-operator.yaml").read_text())

    assert [line.split(": ")[1] for line in losses] == [
        "spec.heter",
        "spec.ps.requests",
        "spec.ps.limits",
        "spec.withGloo",
        "spec.sampleSetRef",
        "spec.cleanPodPolicy",
        "kind",
    ]
    assert all(line.startswith("line ") for line in [*hints, *losses])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"cleanPodPolicy": "None"}, "spec.cleanPodPolicy is 'None': write Always, Never"),
        ({"intranet": "Bridge"}, "spec.intranet is 'Bridge': write PodIP, Service or Host"),
        ({"worker": None}, "spec.worker.template has no spec.containers: write a pod template"),
        ({"workers": {}}, "spec.workers does not exist (did you mean worker?)"),
        ({"ps": {"replicas": 0}}, "spec.ps.template has no spec.containers"),
        ({"withGlo": 1}, "spec.withGlo does not exist"),
    ],
)
def test_what_no_paddle_job_is_is_refused(fields: dict[str, Any], text: str) -> None:
    """In one line, with the field and the way out."""
    with pytest.raises(EdlError) as error:
        convert(_operators(**fields), "job.yaml")

    assert text in str(error.value)
    assert "\n" not in str(error.value)
