"""Job files of other systems, as TrainingJobs."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from edl.convert import convert as conversion
from edl.convert.convert import convert
from edl.errors import EdlError

FILES = Path(__file__).parent / "files"
CRD = Path(__file__).parents[3] / "deploy/base/training-job-crd.yaml"


def _convert(name: str, **bounds: int) -> tuple[dict[str, Any], list[str], list[str]]:
    """The TrainingJob, hints and losses of a file."""
    training_job, notes = convert((FILES / name).read_text(), name, **bounds)
    return training_job, notes.hints, notes.losses


def _about(lines: list[str]) -> list[str]:
    """The fields that notes are about."""
    return [re.sub(r"^line \d+: ", "", line).partition(": ")[0] for line in lines]


def test_a_job_of_paddle_edl_keeps_its_meaning() -> None:
    """Bounds, servers, amounts, volumes and the variables that its program reads."""
    training_job, _, _ = _convert("paddle.yaml")
    spec = training_job["spec"]
    pod = spec["trainer"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 6)
    assert (spec["environment"], spec["backoffLimit"]) == (["paddle"], 2)
    assert spec["parameterServers"] == {"replicas": 2, "cpu": "500m", "memory": "600Mi"}
    assert spec["master"] == {"enabled": True, "epochs": 10, "cpu": "500m", "memory": "600Mi"}
    assert container["command"] == ["sh", "-c", "python train.py"]
    assert container["workingDir"] == "/home/job-1"
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "500Mi", "nvidia.com/gpu": "1"},
        "limits": {"cpu": "4", "memory": "600Mi", "nvidia.com/gpu": "1"},
    }
    assert [port["containerPort"] for port in container["ports"]] == [7164, 7165]
    assert pod["nodeSelector"] == {"disk": "ssd"}
    assert pod["imagePullSecrets"] == [{"name": "job-registry-secret"}]
    assert variables["PADDLE_INIT_NUM_PASSES"] == "10"
    assert variables["PADDLE_INIT_NUM_GRADIENT_SERVERS"] == variables["TRAINERS"] == "2"
    assert (variables["PSERVERS"], variables["PADDLE_INIT_USE_GPU"]) == ("2", "1")


def test_what_paddle_edl_has_and_edl_has_not_is_named() -> None:
    """One line for each field, with its own line in the file."""
    _, hints, losses = _convert("paddle.yaml")

    assert _about(hints) == [
        "spec.pserver.max-instance",
        "spec.trainer.etcd-endpoint",
        "spec.master.etcd-endpoint",
    ]
    assert _about(losses) == ["spec.pserver", "spec.hostNetwork"]
    assert losses[1].startswith("line 11: ")


def test_a_volcano_job_keeps_its_largest_task() -> None:
    """Its servers become EDL's; minAvailable of the job, less the other tasks, is the minimum."""
    training_job, hints, losses = _convert("volcano.yaml")
    spec = training_job["spec"]
    pod = spec["trainer"]["template"]["spec"]

    assert training_job["metadata"] == {"name": "lm", "namespace": "nlp"}
    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 8)
    assert spec["trainer"]["queue"] == "research"
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"]) == (3, 600)
    assert spec["parameterServers"] == {"replicas": 2, "cpu": "1", "memory": "2Gi"}
    assert "schedulerName" not in pod
    assert pod["containers"][0]["volumeMounts"] == [{"name": "volume-0", "mountPath": "/data"}]
    assert "spec.tasks.0" in _about(losses)
    assert {"spec.policies", "spec.networkTopology", "spec.volumes.1.volumeClaim"} <= set(
        _about(losses)
    )
    assert {"spec.plugins.ssh", "spec.plugins.svc"} <= set(_about(losses))
    assert {"spec.schedulerName", "spec.runningEstimate"} <= set(_about(hints))


def test_a_pytorch_job_becomes_trainers_of_the_workers_template() -> None:
    """Bounds of elasticPolicy, the rest of runPolicy; rendezvous is EDL's."""
    training_job, hints, losses = _convert("pytorchjob.yaml")
    spec = training_job["spec"]
    (container,) = spec["trainer"]["template"]["spec"]["containers"]

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 8)
    assert (spec["trainer"]["queue"], container["image"]) == ("vision", "torch")
    assert (spec["suspend"], spec["activeDeadlineSeconds"], spec["backoffLimit"]) == (
        True,
        86400,
        100,
    )
    assert _about(losses) == [
        "spec.pytorchReplicaSpecs.Master.template",
        "spec.elasticPolicy.metrics",
    ]
    assert spec["environment"] == ["torch"]
    (store,) = spec["master"]["template"]["spec"]["containers"]
    assert (store["image"], store["ports"]) == ("torch", [{"containerPort": 29400}])
    assert any("torchrun" in line for line in hints)


def test_a_train_job_becomes_trainers_of_its_nodes() -> None:
    """What its runtime adds is not known, and is named; --min makes it elastic."""
    training_job, _, losses = _convert("trainjob.yaml", least=1)
    spec = training_job["spec"]
    (container,) = spec["trainer"]["template"]["spec"]["containers"]

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (1, 4)
    assert (container["command"], container["args"]) == (["python", "train.py"], ["--lr", "0.1"])
    assert spec["trainer"]["template"]["metadata"] == {"labels": {"team": "nlp"}}
    assert _about(losses) == ["spec.runtimeRef", "spec.podTemplateOverrides", "spec.initializer"]


def test_a_hyperpod_job_keeps_bounds_grace_and_queue() -> None:
    """Steps of its size are sizes."""
    training_job, hints, losses = _convert("hyperpod.yaml")
    spec = training_job["spec"]

    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 6)
    assert spec["trainer"]["queue"] == "team-a"
    assert spec["trainer"]["template"]["spec"]["terminationGracePeriodSeconds"] == 180
    assert (spec["trainer"]["sizes"], spec["trainer"]["processes"]) == ([2, 4, 6], 8)
    assert "spec.elasticPolicy.scalingTimeoutInSeconds" in _about(hints)
    assert _about(losses) == ["spec.runPolicy.jobMaxRetryCount"]


def test_a_command_of_paddlecloud_is_read() -> None:
    """With the flags' own defaults."""
    training_job, _, losses = _convert("submit.sh")
    spec = training_job["spec"]
    (container,) = spec["trainer"]["template"]["spec"]["containers"]
    variables = {entry["name"]: entry.get("value") for entry in container["env"]}

    assert training_job["metadata"] == {"name": "word2vec"}
    assert (spec["trainer"]["min"], spec["trainer"]["max"]) == (2, 9)
    assert spec["parameterServers"] == {"replicas": 2, "cpu": "1", "memory": "2Gi"}
    assert container["resources"]["requests"] == {
        "cpu": "2",
        "memory": "4Gi",
        "nvidia.com/gpu": "1",
    }
    assert (variables["TOPOLOGY"], variables["PADDLE_INIT_NUM_PASSES"]) == ("python conf.py", "5")
    assert _about(losses) == ["-pservers"]


@pytest.mark.parametrize(
    ("flag", "most"),
    [("-faulttolerant", 4), ("-faulttolerant=T", 4), ("-faulttolerant=false", 2), ("", 2)],
)
def test_a_boolean_flag_of_paddlecloud_takes_no_word(flag: str, most: int) -> None:
    """As Go's flags: its value is behind a =, and the next word is the package."""
    text = (
        f"paddlecloud submit -jobname a -parallelism 2 -max_instance 4 {flag} -min_instance 1 ./job"
    )

    training_job, _ = convert(text, "submit.sh")
    trainer = training_job["spec"]["trainer"]

    assert trainer["max"] == most
    assert "./job" in json.dumps(trainer["template"])


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir()))
def test_what_comes_out_is_a_training_job(name: str) -> None:
    """Its fields are those of the CRD."""
    training_job, _, _ = _convert(name)
    crd = next(iter(yaml.safe_load_all(CRD.read_text())))  # its roles follow
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert _unknown(training_job, schema, "") == []


def _unknown(value: Any, schema: dict[str, Any], path: str) -> list[str]:
    """Fields that the schema does not have, as the API server's strict validation finds them."""
    if not isinstance(value, dict) or path == "/metadata":
        return []
    properties = schema.get("properties", {})
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    return [
        line
        for name, inner in value.items()
        for line in (
            _unknown(inner, properties[name], f"{path}/{name}")
            if name in properties
            else [f"{path}/{name}"]
        )
    ]


def _pairs(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """A hundred random choices of one value each; the same in each run."""
    chooser = random.Random(17)  # noqa: S311 - it keeps no secret
    return [{name: chooser.choice(some) for name, some in values.items()} for _ in range(100)]


def test_a_hundred_jobs_of_paddle_edl_keep_their_numbers() -> None:
    """Whatever they combine; a field that is not there takes the default of the original."""
    choices: dict[str, list[Any]] = {
        "low": [1, 2, 5],
        "more": [0, 1, 20],
        "passes": [None, 1, 7],
        "pservers": [0, 1, 4],
        "cpu": ["500m", "2", "1.5"],
        "gpu": [None, 1, 8],
        "port": [None, 7164, 30000],
        "image": [None, "my/image:1"],
    }
    for chosen in _pairs(choices):
        limits = {} if chosen["gpu"] is None else {"alpha.kubernetes.io/nvidia-gpu": chosen["gpu"]}
        trainer = {
            "entrypoint": "python train.py",
            "min-instance": chosen["low"],
            "max-instance": chosen["low"] + chosen["more"],
            "resources": {"requests": {"cpu": chosen["cpu"]}, "limits": limits},
        }
        spec = {
            "fault_tolerant": chosen["more"] > 0,
            "trainer": trainer,
            "pserver": {"min-instance": chosen["pservers"]},
            **{name: chosen[name] for name in ("passes", "port", "image") if chosen[name]},
        }
        body = {
            "apiVersion": "paddlepaddle.org/v1",
            "kind": "TrainingJob",
            "metadata": {"name": "example"},
            "spec": spec,
        }
        training_job, _ = convert(yaml.safe_dump(body), "example.yaml")
        new = training_job["spec"]
        container = new["trainer"]["template"]["spec"]["containers"][0]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}

        assert (new["trainer"]["min"], new["trainer"]["max"]) == (
            chosen["low"],
            chosen["low"] + chosen["more"],
        )
        assert new.get("parameterServers", {}).get("replicas", 0) == chosen["pservers"]
        assert ("master" in new) == (chosen["more"] > 0 or chosen["pservers"] > 0)
        assert new.get("master", {}).get("epochs") == (
            chosen["passes"] if "master" in new else None
        )
        assert variables["PADDLE_INIT_NUM_PASSES"] == str(chosen["passes"] or 1)
        assert variables["PADDLE_INIT_PORT"] == str(chosen["port"] or 7164)
        assert variables["PADDLE_INIT_TRAINER_COUNT"] == str(
            chosen["gpu"] or {"500m": 1, "2": 2, "1.5": 1}[chosen["cpu"]]
        )
        assert container["image"] == (chosen["image"] or "paddlepaddle/paddlecloud-job")


def test_every_field_of_every_file_is_converted_or_named() -> None:
    """A field that is taken out changes the TrainingJob, or what is said about it."""
    silent = [
        f"{path.name}: {'.'.join(field)}"
        for path in sorted(FILES.glob("*.yaml"))
        for field in _silent_fields(yaml.safe_load(path.read_text()))
    ]

    assert silent == SILENT


def _silent_fields(body: Any) -> list[tuple[str, ...]]:
    before = _outcome(json.dumps(body))
    named = {tuple(field.split(".")) for field in (*before[1], *before[2])}
    return [
        field
        for field in _leaves(body)
        if not any(field[: len(path)] == path for path in named)
        and _outcome(json.dumps(_without(body, field))) == before
    ]


SILENT = [
    "examplejob.yaml: spec.image",
    "examplejob.yaml: spec.port",
    "examplejob.yaml: spec.ports_num",
    "examplejob.yaml: spec.ports_num_for_sparse",
    "hyperpod.yaml: spec.elasticPolicy.minReplicas",
    "hyperpod.yaml: spec.elasticPolicy.maxReplicas",
    "hyperpod.yaml: spec.replicaSpecs.0.name",
    "hyperpod.yaml: spec.replicaSpecs.0.replicas",
    "hyperpod.yaml: spec.replicaSpecs.0.maxReplicas",
    "paddle.yaml: spec.image",
    "paddle.yaml: spec.port",
    "paddle.yaml: spec.ports_num",
    "paddle.yaml: spec.ports_num_for_sparse",
    "paddlejob-kubeflow.yaml: spec.elasticPolicy.maxRestarts",
    "paddlejob-kubeflow.yaml: spec.paddleReplicaSpecs.Worker.replicas",
    "paddlejob-operator.yaml: spec.worker.replicas",
    "pytorchjob.yaml: spec.nprocPerNode",
    "pytorchjob.yaml: spec.elasticPolicy.nProcPerNode",
    "pytorchjob.yaml: spec.pytorchReplicaSpecs.Master.replicas",
    "pytorchjob.yaml: spec.pytorchReplicaSpecs.Worker.replicas",
    "trainjob.yaml: spec.suspend",
    "volcano.yaml: spec.tasks.2.name",
]
"""Fields that say what is so without them: defaults, and numbers that elasticPolicy overrides."""


def _leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if isinstance(value, dict):
        return [leaf for name, inner in value.items() for leaf in _leaves(inner, (*path, name))]
    if isinstance(value, list) and value:
        return [leaf for i, inner in enumerate(value) for leaf in _leaves(inner, (*path, str(i)))]
    return [path]


def _without(body: Any, path: tuple[str, ...]) -> Any:
    copy = json.loads(json.dumps(body))
    at = copy
    for part in path[:-1]:
        at = at[int(part)] if isinstance(at, list) else at[part]
    if isinstance(at, list):
        at.pop(int(path[-1]))
    else:
        at.pop(path[-1])
    return copy


def _outcome(text: str) -> Any:
    try:
        training_job, notes = convert(text, "file")
    except EdlError as error:
        return str(error)
    return training_job, _about(notes.hints), _about(notes.losses)


def test_the_documentation_lists_what_is_read() -> None:
    """Each kind has its row."""
    page = (Path(__file__).parents[3] / "docs/training-job.md").read_text()

    assert [kind for kind in conversion.KINDS if f"`{kind}`" not in page] == []
