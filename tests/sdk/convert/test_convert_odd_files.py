"""Job files of torch that are odd and legal, as people have them."""

from edl.convert.convert import convert

from tests.sdk.convert.torch_jobs import TORCHRUN, converted, pod_template, pytorch_job, volcano

_AS_KUBECTL_READS_IT = """---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: mnist}
spec:
  elasticPolicy: {minReplicas: 1, maxReplicas: 4}
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - name: pytorch
            image: torch
            command: [torchrun, --nnodes, 1:4, train.py, --until, 12:30, --steps, 0x10, "0o17"]
          volumes:
          - {name: data, configMap: {name: data, defaultMode: 0o644}}
---
# the end
"""


def test_a_file_says_what_it_says_to_kubectl() -> None:
    """1:4 is a text there, no number in base 60, and 0o644 a number; nothing after a last `---` is no document."""
    training_job, notes = convert(_AS_KUBECTL_READS_IT, "file.yaml")

    pod = training_job["spec"]["trainer"]["template"]["spec"]
    assert pod["volumes"][0]["configMap"]["defaultMode"] == 0o644
    (container,) = pod["containers"]
    assert container["command"] == [
        "torchrun",
        "--nnodes",
        "1:4",
        "train.py",
        "--until",
        "12:30",
        "--steps",
        16,
        "0o17",
    ]
    assert notes.losses == []


def test_one_worker_beside_the_master_is_a_trainer_too() -> None:
    """Of two tasks of Volcano with one pod each; the template is the workers', as with more of them."""
    tasks = [
        {"name": name, "replicas": 1, "template": pod_template("torchrun", f"{name}.py")}
        for name in ("master", "worker")
    ]
    training_job, _, losses = converted(volcano(*tasks, plugins={"pytorch": []}))
    trainer = training_job["spec"]["trainer"]

    assert (trainer["min"], trainer["max"]) == (2, 2)
    assert trainer["template"]["spec"]["containers"][0]["command"] == ["torchrun", "worker.py"]
    assert losses == [
        "line 1: spec.tasks.0.template: ignored: its pods become trainers, which all have the same template"
    ]


def test_a_role_without_pods_gives_trainers_no_template() -> None:
    """A PyTorchJob of a master alone often keeps its workers with 0 replicas."""
    body = pytorch_job(pod_template("torchrun", "worker.py"), {"replicas": 0})
    master = {"replicas": 1, "template": pod_template("torchrun", "master.py")}
    body["spec"]["pytorchReplicaSpecs"]["Master"] = master
    training_job, hints, losses = converted(body)
    trainer = training_job["spec"]["trainer"]

    assert (trainer["min"], trainer["max"]) == (1, 1)
    assert trainer["template"]["spec"]["containers"][0]["command"] == ["torchrun", "master.py"]
    assert any("Worker.template: ignored: this role has no pods" in hint for hint in hints)
    assert losses == []


def test_the_store_is_admitted_where_the_trainers_are() -> None:
    """It has their security context, limits where they have some, and their way to the image."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    template = pod_template(*TORCHRUN, gpus=1)
    (container,) = template["spec"]["containers"]
    container |= {"securityContext": strict, "imagePullPolicy": "IfNotPresent"}
    plain, _, _ = converted(pytorch_job(template))
    container["resources"]["limits"] |= {"memory": "64Gi", "cpu": "8"}
    limited, _, _ = converted(pytorch_job(template))
    (store,) = plain["spec"]["master"]["template"]["spec"]["containers"]
    (limited_store,) = limited["spec"]["master"]["template"]["spec"]["containers"]

    assert (store["securityContext"], store["imagePullPolicy"]) == (strict, "IfNotPresent")
    assert store["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}
    assert limited_store["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
