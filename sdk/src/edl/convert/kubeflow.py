"""Converts Kubeflow's PyTorchJob (`kubeflow.org/v1`) and TrainJob, and HyperPod's PyTorch jobs. Pure.

Sources: kubeflow/training-operator `pkg/apis/kubeflow.org/v1`, kubeflow/trainer
`pkg/apis/trainer/v1alpha1`, and the documentation of SageMaker HyperPod's elastic training.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from edl.convert import torchrun
from edl.convert.fields import Fields, Notes, first, whole_number, without_empty
from edl.convert.training_job import Draft, check_units, clean_template, kueue_queue, metadata
from edl.errors import SettingError

_MAX_SIZES = 100
_RENDEZVOUS = ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "rdzvConf", "standalone")
_BY_ADMIN = "ignored: the admin of the cluster chooses the controller"
_REPLACES = "ignored: EDL replaces trainers that end"
_ENDED_STAY = (
    "finished pods are kept for their logs until the job is deleted, for which you can set "
    "ttlSecondsAfterFinished"
)
_CLEAN_UP = {
    "Running": f"ignored, because this is what EDL does: {_ENDED_STAY}",
    "None": f"ignored: running pods end with the job; {_ENDED_STAY}",
    "All": f"ignored: {_ENDED_STAY}",
}
NO_METRICS = "ignored: EDL grows into free capacity, not by the metrics of an HPA"
CLEANED_UP = (
    "finished pods are kept for their logs until the job is deleted: to delete them, set "
    "spec.ttlSecondsAfterFinished"
)
_PERMANENT = range(1, 128)
"""Exit codes that restartPolicy ExitCode treats as permanent errors."""


def pytorch_job(fields: Fields, notes: Notes) -> Draft:
    """Converts a PyTorchJob: its master and workers become trainers with the workers' template.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    roles = spec.sub("pytorchReplicaSpecs")
    worker, total, template, failures = replica_specs(roles, "pytorch", notes)
    is_elastic, elastic = "elasticPolicy" in spec, spec.sub("elasticPolicy")
    low, high = elastic.number("minReplicas", None, 1), elastic.number("maxReplicas", None, 1)
    retries = elastic.number("maxRestarts")
    processes = first(
        torchrun.processes(elastic, "nProcPerNode"), torchrun.processes(spec, "nprocPerNode")
    )
    for name in _RENDEZVOUS:
        elastic.note(name, "ignored: EDL provides the store at which trainers meet (c10d)")
    elastic.lose("metrics", NO_METRICS)
    notes.hints.append(f"{fields.at('kind')}: {torchrun.HINT}")
    values, queue = run_policy(spec.sub("runPolicy"))
    elastic.check_rest()
    spec.check_rest()
    fields.raw("status")
    limit = first(values.get("backoffLimit"), retries)
    draft = Draft(
        own_metadata,
        template,
        least=first(low, high, total),
        most=first(high, low, total),
        at_bounds=elastic.at("minReplicas"),
        at_template=worker.at("template"),
        queue=queue or kueue_queue(fields),
        had_ranks=not is_elastic,
        spec=without_empty({**values, "backoffLimit": limit, **failures}),
    )
    return _with_torch(draft, processes, spec.at("nprocPerNode"), notes)


def replica_specs(
    roles: Fields, program: str, notes: Notes
) -> tuple[Fields, int, dict[str, Any], dict[str, Any]]:
    """Converts master and workers to trainers.

    Args:
        roles: The mapping with the fields `Master` and `Worker`.
        program: The name that the operator requires for the container that runs the program.
        notes: Receives the notes about fields.

    Returns:
        The role whose template the trainers use, the number of trainers, this template, and the fields
        of the spec that say what EDL does when a pod fails.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    by_name = {name: roles.sub(name) for name in ("Master", "Worker") if name in roles}
    if not by_name:
        raise SettingError(f"{roles.at()} has neither Master nor Worker")
    total = sum(role.number("replicas", 1, 0) or 0 for role in by_name.values())
    staffed = [role for role in by_name.values() if role.number("replicas", 1, 0)]
    worker = (staffed or list(by_name.values()))[-1]
    template = _with_program_first(clean_template(worker, "template"), program)
    for other in by_name.values():
        if other is not worker:
            _leave_out(other, worker, notes)
    failures = _failures(worker, template, notes)
    for role in by_name.values():
        role.check_rest()
    roles.check_rest()
    return worker, total, template, failures


def _with_program_first(template: dict[str, Any], program: str) -> dict[str, Any]:
    """Returns the template with the program's container first; EDL expects it before sidecars."""
    containers = template["spec"]["containers"]
    ordered = sorted(containers, key=lambda container: container.get("name") != program)
    return {**template, "spec": {**template["spec"], "containers": ordered}}


def _leave_out(other: Fields, worker: Fields, notes: Notes) -> None:
    """Notes what is ignored in the role whose template the trainers do not use."""
    is_same = other.raw("template") == worker.raw("template")
    if not other.number("replicas", 1, 0):
        other.note("template", "ignored: this role has no pods")
    elif not is_same:
        notes.losses.append(
            f"{other.at('template')}: ignored: all trainers use the workers' template"
        )
    other.note("restartPolicy", _REPLACES)


def _failures(role: Fields, template: dict[str, Any], notes: Notes) -> dict[str, Any]:
    """Translates the role's restartPolicy to the fields of the spec that handle failed pods."""
    policy = role.text("restartPolicy")
    if policy == "Never":
        notes.hints.append(f"{role.at('restartPolicy')}: backoffLimit is 0, which says the same")
        return {"backoffLimit": 0}
    if policy == "ExitCode":
        notes.hints.append(
            f"{role.at('restartPolicy')}: podFailurePolicy says the same: exit codes 1 to 127 end the job"
        )
        template["spec"]["restartPolicy"] = "Never"
        codes = {"operator": "In", "values": list(_PERMANENT)}
        return {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]}}
    role.note("restartPolicy", _REPLACES)
    return {}


def train_job(fields: Fields, notes: Notes) -> Draft:
    """Converts Kubeflow Trainer's TrainJob: its nodes become trainers.

    Raises:
        SettingError: A field is invalid, or the file names no image because only the runtime has one.
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
    count = trainer.number("numNodes", None, 1)
    if count is None:
        notes.losses.append(
            f"{trainer.at('numNodes')} is missing: the runtime has it; 1 is written"
        )
    container = {
        "name": "trainer",
        "image": image,
        "command": trainer.raw("command", list),
        "args": trainer.raw("args", list),
        "env": trainer.raw("env", list),
        "resources": trainer.raw("resourcesPerNode", dict),
    }
    check_units(trainer.sub("resourcesPerNode"))
    processes = torchrun.processes(trainer, "numProcPerNode")
    trainer.check_rest()
    spec.lose("runtimeRef", "ignored: volumes, commands etc. of the runtime are not converted")
    for name in ("podTemplateOverrides", "podSpecOverrides", "runtimePatches"):
        spec.lose(name, "ignored: write it into spec.trainer.template")
    spec.lose("initializer", "ignored: load data and model in an init container of the template")
    spec.note("managedBy", _BY_ADMIN)
    extra = {name: spec.raw(name, dict) for name in ("labels", "annotations")}
    values = {
        "suspend": spec.flag("suspend") or None,
        "activeDeadlineSeconds": spec.number("activeDeadlineSeconds"),
    }
    spec.check_rest()
    fields.raw("status")
    notes.hints.append(f"{fields.at('kind')}: {torchrun.HINT}")
    pod = {"restartPolicy": "Never", "containers": [without_empty(container)]}
    template = without_empty({"metadata": without_empty(extra), "spec": pod})
    draft = Draft(
        own_metadata,
        template,
        least=count or 1,
        most=count or 1,
        at_bounds=trainer.at("numNodes"),
        at_template=trainer.at("command"),
        queue=kueue_queue(fields),
        spec=without_empty(values),
    )
    return _with_torch(draft, processes, trainer.at("numProcPerNode"), notes)


def hyperpod(fields: Fields, notes: Notes) -> Draft:
    """Converts a HyperPodPyTorchJob: the pods of its first replica spec become trainers.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    roles = spec.subs("replicaSpecs")
    if not roles:
        raise SettingError(f"{spec.at('replicaSpecs')} is empty: write that of the trainers")
    role, *others = roles
    for other in others:
        notes.losses.append(f"{other.at()}: ignored: an EDL job has one elastic role")
    count = role.number("replicas", 1, 1) or 1
    highest = role.number("maxReplicas", count, 1) or count
    role.raw("name")
    role.lose(
        "spares", "ignored: EDL creates trainers when it needs them, and keeps none in reserve"
    )
    template = clean_template(role, "template")
    role.check_rest()
    elastic = spec.sub("elasticPolicy")
    least = elastic.number("minReplicas", count, 1) or count
    most = elastic.number("maxReplicas", highest, 1) or highest
    sizes = _sizes(elastic, least, most)
    grace_s = elastic.number("gracefulShutdownTimeoutInSeconds")
    elastic.note("scalingTimeoutInSeconds", "ignored: nobody waits for a time-out here")
    elastic.note("faultyScaleDownTimeoutInSeconds", "ignored: nobody waits for a time-out here")
    elastic.check_rest()
    if grace_s is not None:
        template["spec"].setdefault("terminationGracePeriodSeconds", grace_s)
    processes = torchrun.processes(spec, "nprocPerNode")
    values, queue = run_policy(spec.sub("runPolicy"))
    spec.check_rest()
    fields.raw("status")
    notes.hints.append(f"{fields.at('kind')}: {torchrun.HINT}")
    draft = Draft(
        own_metadata,
        template,
        least=least,
        most=most,
        at_bounds=elastic.at("minReplicas"),
        at_template=role.at("template"),
        queue=queue or kueue_queue(fields),
        sizes=sizes,
        spec=without_empty(values),
    )
    return _with_torch(draft, processes, spec.at("nprocPerNode"), notes)


def _with_torch(draft: Draft, processes: int | None, at: str, notes: Notes) -> Draft:
    """Returns the draft with the settings for trainers that torchrun starts."""
    if processes is None:
        processes = torchrun.automatic_processes(draft, at, notes)
    return replace(draft, has_store=True, environment=("torch",), processes=processes)


def _sizes(elastic: Fields, least: int, most: int) -> tuple[int, ...]:
    """Returns the allowed numbers of trainers in ascending order; empty if all are allowed."""
    at = elastic.at("replicaDiscreteValues")
    values = elastic.raw("replicaDiscreteValues", list) or []
    step = elastic.number("replicaIncrementStep", None, 1)
    sizes = {whole_number(at, value, 1) for value in values}
    if not sizes and step is not None and step > 1:
        sizes = set(range(least, most + 1, step))
    if len(sizes) > _MAX_SIZES:
        raise SettingError(f"{at} has more than {_MAX_SIZES} sizes: write fewer, or a larger step")
    return tuple(sorted(sizes))


def run_policy(policy: Fields) -> tuple[dict[str, Any], str]:
    """Converts a run policy to fields of the spec, and returns them with the queue.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    _read_clean_up(policy)
    policy.note("managedBy", _BY_ADMIN)
    for name in ("jobMaxRetryCount", "restartPolicy", "logMonitoringConfiguration"):
        policy.lose(name, "ignored: EDL replaces single trainers and never restarts a whole job")
    queue = scheduling_queue(policy.sub("schedulingPolicy"))
    values = {
        "backoffLimit": policy.number("backoffLimit"),
        "activeDeadlineSeconds": policy.number("activeDeadlineSeconds"),
        "ttlSecondsAfterFinished": policy.number("ttlSecondsAfterFinished"),
        "suspend": policy.flag("suspend") or None,
    }
    policy.check_rest()
    return without_empty(values), queue


def scheduling_queue(scheduling: Fields) -> str:
    """Returns the queue in a Volcano scheduling policy, and notes that its other fields are ignored.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    queue = scheduling.text("queue")
    scheduling.note(
        "minAvailable", "ignored: EDL starts the minimum of trainers together or not at all"
    )
    scheduling.note("priorityClass", "ignored: EDL gives trainers priority classes of its own")
    scheduling.note("minResources", "ignored: EDL counts what the trainers request")
    scheduling.note("scheduleTimeoutSeconds", "ignored: a job waits until its minimum fits")
    scheduling.check_rest()
    return queue


def _read_clean_up(policy: Fields) -> None:
    """Notes which pods EDL deletes when a job ends: those that still run (decision 0070)."""
    choice = policy.text("cleanPodPolicy", "Running")
    if choice not in _CLEAN_UP:
        raise SettingError(
            f"{policy.at('cleanPodPolicy')} is {choice!r:.40}: write None, Running or All"
        )
    if choice == "All" and "ttlSecondsAfterFinished" not in policy:
        policy.lose("cleanPodPolicy", f"All: {CLEANED_UP}")
        return
    policy.note("cleanPodPolicy", _CLEAN_UP[choice])
