"""Jobs of Kubeflow: PyTorchJob (`kubeflow.org/v1`), TrainJob, and HyperPod's PyTorch jobs. Pure.

Sources: kubeflow/training-operator `pkg/apis/kubeflow.org/v1`, kubeflow/trainer
`pkg/apis/trainer/v1alpha1`, and the documentation of SageMaker HyperPod's elastic training.
"""

from __future__ import annotations

from typing import Any

from edl.convert.fields import Fields, Notes, first, whole_number, without_empty
from edl.convert.training_job import TORCH_HINT, Draft, clean_template, metadata
from edl.errors import SettingError

_PROCESSES = "it depends on the machine: write spec.trainer.processes"
_MAX_PROCESSES, _MAX_SIZES = 128, 100
_RENDEZVOUS = ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone")
_BY_ADMIN = "left out: who runs a job is decided by the admin of the cluster"


def pytorch_job(fields: Fields, notes: Notes) -> Draft:
    """A PyTorchJob: master and workers become trainers, of the workers' template.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    roles = spec.sub("pytorchReplicaSpecs")
    by_name = {name: roles.sub(name) for name in ("Master", "Worker") if name in roles}
    if not by_name:
        raise SettingError(f"{roles.at()} has neither Master nor Worker")
    total = sum(role.number("replicas", 1, 0) or 0 for role in by_name.values())
    worker = by_name.get("Worker") or by_name["Master"]
    template = clean_template(worker, "template")
    if len(by_name) > 1:
        master = by_name["Master"]
        if master.raw("template") != worker.raw("template"):
            notes.losses.append(
                f"{master.at('template')}: left out: all trainers have the template of the workers"
            )
    for role in by_name.values():
        role.note("restartPolicy", "left out: EDL replaces trainers that end")
        role.check_rest()
    roles.check_rest()
    elastic = spec.sub("elasticPolicy")
    least = elastic.number("minReplicas", total, 1) or total
    most = elastic.number("maxReplicas", total, 1) or total
    retries = elastic.number("maxRestarts")
    own_processes = _processes(spec, "nprocPerNode")
    processes = first(_processes(elastic, "nProcPerNode"), own_processes)
    _read_torch(elastic)
    notes.hints.append(f"{fields.at('kind')}: {TORCH_HINT}")
    values, queue = _run_policy(spec.sub("runPolicy"))
    elastic.check_rest()
    spec.check_rest()
    fields.raw("status")
    return Draft(
        own_metadata,
        template,
        *(least, most, elastic.at("minReplicas")),
        queue=queue,
        **_torch(processes),
        spec=without_empty({**values, "backoffLimit": first(values.get("backoffLimit"), retries)}),
    )


def train_job(fields: Fields, notes: Notes) -> Draft:
    """A TrainJob of Kubeflow Trainer: its nodes become trainers.

    Raises:
        SettingError: A field is invalid, or the image is in the runtime alone.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    trainer = spec.sub("trainer")
    image = trainer.text("image")
    if not image:
        raise SettingError(
            f"{trainer.at('image')} is missing: the runtime has it, which only the cluster knows; "
            "write the image here"
        )
    count = trainer.number("numNodes", 1, 1) or 1
    container = {
        "name": "trainer",
        "image": image,
        "command": trainer.raw("command", list),
        "args": trainer.raw("args", list),
        "env": trainer.raw("env", list),
        "resources": trainer.raw("resourcesPerNode", dict),
    }
    processes = _processes(trainer, "numProcPerNode")
    trainer.check_rest()
    spec.lose(
        "runtimeRef", "left out: what the runtime adds to pods (volumes, commands) is not read"
    )
    for name in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
        spec.lose(name, "left out: write it into spec.trainer.template")
    spec.lose("initializer", "left out: load data and model in an init container of the template")
    spec.note("managedBy", _BY_ADMIN)
    extra = {name: spec.raw(name, dict) for name in ("labels", "annotations")}
    values = {
        "suspend": spec.flag("suspend") or None,
        "activeDeadlineSeconds": spec.number("activeDeadlineSeconds"),
    }
    spec.check_rest()
    fields.raw("status")
    notes.hints.append(f"{fields.at('kind')}: {TORCH_HINT}")
    pod = {"restartPolicy": "Never", "containers": [without_empty(container)]}
    template = without_empty({"metadata": without_empty(extra), "spec": pod})
    return Draft(
        own_metadata,
        template,
        *(count, count, trainer.at("numNodes")),
        **_torch(processes),
        spec=without_empty(values),
    )


def hyperpod(fields: Fields, notes: Notes) -> Draft:
    """A HyperPodPyTorchJob: the pods of its first replica spec become trainers.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    queue = own_metadata.get("labels", {}).get("kueue.x-k8s.io/queue-name", "")
    spec = fields.sub("spec")
    roles = spec.subs("replicaSpecs")
    if not roles:
        raise SettingError(f"{spec.at('replicaSpecs')} is empty: write that of the trainers")
    role, *others = roles
    for other in others:
        notes.losses.append(f"{other.at()}: left out: an EDL job has one elastic role")
    count = role.number("replicas", 1, 1) or 1
    highest = role.number("maxReplicas", count, 1) or count
    role.raw("name")
    role.raw("spares")
    template = clean_template(role, "template")
    role.check_rest()
    elastic = spec.sub("elasticPolicy")
    least = elastic.number("minReplicas", count, 1) or count
    most = elastic.number("maxReplicas", highest, 1) or highest
    sizes = _sizes(elastic, least, most)
    grace_s = elastic.number("gracefulShutdownTimeoutInSeconds")
    elastic.note("scalingTimeoutInSeconds", "left out: nobody waits for a time-out here")
    elastic.note("faultyScaleDownTimeoutInSeconds", "left out: nobody waits for a time-out here")
    elastic.check_rest()
    if grace_s is not None:
        template["spec"].setdefault("terminationGracePeriodSeconds", grace_s)
    processes = _processes(spec, "nprocPerNode")
    values, own_queue = _run_policy(spec.sub("runPolicy"))
    spec.check_rest()
    fields.raw("status")
    notes.hints.append(f"{fields.at('kind')}: {TORCH_HINT}")
    return Draft(
        own_metadata,
        template,
        *(least, most, elastic.at("minReplicas")),
        queue=own_queue or queue,
        sizes=sizes,
        **_torch(processes),
        spec=without_empty(values),
    )


def _torch(processes: int | None) -> dict[str, Any]:
    """What torchrun's trainers need of a `Draft`."""
    return {"has_store": True, "environment": ("torch",), "processes": processes}


def _processes(fields: Fields, name: str) -> int | None:
    """The number of processes of a pod; `auto`, `cpu` and `gpu` are named."""
    text = fields.text(name)
    if text in ("auto", "cpu", "gpu"):
        fields.note(name, f"left out: {_PROCESSES}")
        return None
    number = fields.number(name, None, 1)
    if number is not None and number > _MAX_PROCESSES:
        raise SettingError(f"{fields.at(name)} is {number}: write at most {_MAX_PROCESSES}")
    return number


def _sizes(elastic: Fields, least: int, most: int) -> tuple[int, ...]:
    """The allowed numbers of trainers, as a list."""
    at = elastic.at("replicaDiscreteValues")
    values = elastic.raw("replicaDiscreteValues", list) or []
    step = elastic.number("replicaIncrementStep", None, 1)
    sizes = {whole_number(at, value, 1) for value in values}
    if not sizes and step is not None and step > 1:
        sizes = set(range(least, most + 1, step))
    if len(sizes) > _MAX_SIZES:
        raise SettingError(f"{at} has more than {_MAX_SIZES} sizes: write fewer, or a larger step")
    return tuple(sorted(sizes))


def _read_torch(elastic: Fields) -> None:
    for name in _RENDEZVOUS:
        elastic.note(name, "left out: trainers meet at a store of their own, by c10d")
    elastic.lose("metrics", "left out: EDL grows into free capacity, not by the metrics of an HPA")


def _run_policy(policy: Fields) -> tuple[dict[str, Any], str]:
    """Fields of the spec, and the queue."""
    policy.note(
        "cleanPodPolicy",
        "left out: what runs ends with the job; pods that have ended are kept for their logs until ttlSecondsAfterFinished",
    )
    policy.note("managedBy", _BY_ADMIN)
    for name in ("jobMaxRetryCount", "restartPolicy", "logMonitoringConfiguration"):
        policy.lose(name, "left out: EDL replaces single trainers and never restarts a whole job")
    scheduling = policy.sub("schedulingPolicy")
    queue = scheduling.text("queue")
    scheduling.note(
        "minAvailable", "left out: the minimum of trainers starts together or not at all"
    )
    scheduling.note("priorityClass", "left out: EDL gives trainers priority classes of its own")
    scheduling.note("minResources", "left out: EDL counts what the trainers request")
    scheduling.note("scheduleTimeoutSeconds", "left out: a job waits until its minimum fits")
    scheduling.check_rest()
    values = {
        "backoffLimit": policy.number("backoffLimit"),
        "activeDeadlineSeconds": policy.number("activeDeadlineSeconds"),
        "ttlSecondsAfterFinished": policy.number("ttlSecondsAfterFinished"),
        "suspend": policy.flag("suspend") or None,
    }
    policy.check_rest()
    return without_empty(values), queue
