"""Converts the PaddleJobs of Kubeflow (`kubeflow.org/v1`) and of PaddlePaddle's own operator. Pure.

Sources: kubeflow/training-operator `pkg/apis/kubeflow.org/v1/paddlepaddle_types.go`, PaddleFlow/paddle-operator
`api/v1/paddlejob_types.go` and `controllers/paddlejob_helper.go`.
"""

from __future__ import annotations

from typing import Any

from edl.convert import kubeflow
from edl.convert.fields import Fields, Notes, first, without_empty
from edl.convert.training_job import Draft, clean_template, kueue_queue, metadata
from edl.errors import SettingError

_PORT = 2379
"""The port on which parameter servers listen with the operator, which sets it as PADDLE_PORT."""
_LISTS = (
    "PADDLE_TRAINER_ENDPOINTS, PADDLE_TRAINERS and ranks in PADDLE_TRAINER_ID are not set, because trainers come "
    "and go, so that paddle.distributed.launch and fleet find no peers: train through `edl train` "
    "(docs/training.md)"
)
_CLEAN_UP = ("Always", "Never", "OnFailure", "OnCompletion")


def of_kubeflow(fields: Fields, notes: Notes) -> Draft:
    """Converts Kubeflow's PaddleJob: its master and workers become trainers with the workers' template.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    worker, total, template, failures = kubeflow.replica_specs(
        spec.sub("paddleReplicaSpecs"), "paddle", notes
    )
    elastic = spec.sub("elasticPolicy")
    low, high = elastic.number("minReplicas", None, 1), elastic.number("maxReplicas", None, 1)
    retries = elastic.number("maxRestarts")
    elastic.lose("metrics", kubeflow.NO_METRICS)
    elastic.check_rest()
    values, queue = kubeflow.run_policy(spec.sub("runPolicy"))
    spec.check_rest()
    fields.raw("status")
    notes.losses.append(f"{fields.at('kind')}: {_LISTS}")
    limit = first(values.get("backoffLimit"), retries)
    return Draft(
        own_metadata,
        template,
        least=first(low, high, total),
        most=first(high, low, total),
        at_bounds=elastic.at("minReplicas"),
        at_template=worker.at("template"),
        queue=queue or kueue_queue(fields),
        environment=("paddle",),
        spec=without_empty({**values, "backoffLimit": limit, **failures}),
    )


def of_operator(fields: Fields, notes: Notes) -> Draft:
    """Converts the PaddleJob of PaddlePaddle's operator: workers become trainers, servers remain servers.

    Raises:
        SettingError: A field is invalid; the message names it and its line.
    """
    own_metadata = metadata(fields)
    spec = fields.sub("spec")
    worker = spec.sub("worker")
    template = clean_template(worker, "template")
    count = worker.number("replicas", 1, 1)
    low, high = worker.number("requests", None, 1), worker.number("limits", None, 1)
    worker.check_rest()
    is_on_host = _is_on_host(spec)
    spec.lose("heter", "ignored: an EDL job has one elastic role")
    servers = _servers(spec.sub("ps"), is_on_host=is_on_host) if "ps" in spec else None
    if is_on_host:
        template["spec"]["hostNetwork"] = True
    _read_rest(spec)
    queue = kubeflow.scheduling_queue(spec.sub("schedulingPolicy"))
    spec.check_rest()
    fields.raw("status")
    notes.losses.append(f"{fields.at('kind')}: {_LISTS}")
    return Draft(
        own_metadata,
        template,
        least=first(low, count),
        most=first(high, count),
        at_bounds=worker.at("replicas"),
        at_template=worker.at("template"),
        queue=queue or kueue_queue(fields),
        servers=servers,
        environment=("paddle",),
    )


def _servers(role: Fields, *, is_on_host: bool) -> dict[str, Any]:
    """Returns the `parameterServers` of the spec: pods that run the user's program, with a port."""
    template = clean_template(role, "template")
    container, *others = template["spec"]["containers"]
    ports = container.get("ports") or [{"containerPort": _PORT}]
    template["spec"]["containers"] = [{**container, "ports": ports}, *others]
    if template["spec"].pop("restartPolicy", None):
        pod = role.sub("template").sub("spec")
        pod.note("restartPolicy", "ignored: servers are always restarted")
    if is_on_host:
        template["spec"]["hostNetwork"] = True
    count = role.number("replicas", 1, 1)
    for name in ("requests", "limits"):
        role.lose(name, "ignored: the number of servers is fixed while a job runs")
    role.check_rest()
    return {"replicas": count, "template": template}


def _is_on_host(spec: Fields) -> bool:
    """Returns whether pods use their node's network."""
    network = spec.text("intranet", "PodIP")
    if network not in ("PodIP", "Service", "Host"):
        raise SettingError(
            f"{spec.at('intranet')} is {network!r:.40}: write PodIP, Service or Host"
        )
    spec.note("intranet", "each server has a stable address, and each pod its own in POD_IP")
    return network == "Host"


def _read_rest(spec: Fields) -> None:
    spec.note("elastic", "ignored: minimum and maximum make a job elastic")
    spec.lose("withGloo", "ignored: PADDLE_WITH_GLOO and its addresses are not set")
    spec.lose(
        "sampleSetRef", "ignored: mount the PersistentVolumeClaim of the data in spec.volumes"
    )
    policy = spec.text("cleanPodPolicy", "Never")
    if policy not in _CLEAN_UP:
        raise SettingError(
            f"{spec.at('cleanPodPolicy')} is {policy!r:.40}: write {', '.join(_CLEAN_UP)}"
        )
    if policy == "Never":
        spec.note("cleanPodPolicy", "ignored: what still runs ends with the job")
    else:
        spec.lose("cleanPodPolicy", f"{policy}: {kubeflow.CLEANED_UP}")
