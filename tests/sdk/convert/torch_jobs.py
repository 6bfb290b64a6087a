"""Jobs of torch in other systems, as files have them."""

import json
from typing import Any

from edl.convert.convert import convert

JobAndLines = tuple[dict[str, Any], list[str], list[str]]


def converted(body: dict[str, Any], **bounds: int) -> JobAndLines:
    """The spec, notes and losses of a job."""
    training_job, notes = convert(json.dumps(body), "file.yaml", **bounds)
    return training_job, notes.hints, notes.losses


def pod_template(*command: str, gpus: object = None, **metadata: Any) -> dict[str, Any]:
    """A pod template of one container with this command."""
    container: dict[str, Any] = {"name": "pytorch", "image": "torch", "command": list(command)}
    if gpus is not None:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def pytorch_job(
    template: dict[str, Any], role: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A PyTorchJob of two workers."""
    worker = {"replicas": 2, "template": template, **(role or {})}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "mnist"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **spec},
    }


def train_job(**spec: Any) -> dict[str, Any]:
    """A TrainJob of the runtime for torch."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "mnist"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, **spec},
    }


def hyperpod(template: dict[str, Any], **role: Any) -> dict[str, Any]:
    """A HyperPodPyTorchJob of two pods."""
    return {
        "apiVersion": "sagemaker.amazonaws.com/v1",
        "kind": "HyperPodPyTorchJob",
        "metadata": {"name": "mnist"},
        "spec": {"replicaSpecs": [{"name": "pod", "replicas": 2, "template": template, **role}]},
    }


def volcano(*tasks: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A job of Volcano."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "mnist"},
        "spec": {"tasks": list(tasks), **spec},
    }


TORCHRUN = ("torchrun", "train.py")
