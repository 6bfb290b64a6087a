"""`describe`: shows the details of a job."""

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console

from cli import completion, lookup, records, terminal
from cli.commands.why import print_story
from cli.frame import Frame, command
from cli.terminal import Column, age
from kube import decode, request, story
from policy.cluster.snapshot import Job, Pod
from policy.names import Tier
from policy.quantity import show
from policy.timestamps import timestamp
from runtime.printable import printable


@command("describe")
@click.argument("job", shell_complete=completion.jobs)
def describe(frame: Frame, job: str) -> None:
    """Show a job's bounds and pods, and why it has no more trainers."""
    obj = lookup.elastic_job(frame, job)
    elastic = decode.job(obj)
    assert elastic is not None  # noqa: S101 - `elastic_job` only returns elastic jobs
    log_records = records.of_namespace(frame, elastic.namespace, elastic.key)
    answer = story.of_job(elastic.key, elastic, log_records)
    pods = [
        pod
        for pod in map(decode.pod, frame.all(request.PODS, elastic.namespace))
        if pod.job in (elastic.name, elastic.key) and not pod.terminal
    ]
    pods.sort(key=lambda pod: (pod.server, pod.trainer_id, pod.name))
    document = {**_facts(elastic), "pods": [_pod(pod) for pod in pods], "why": answer.to_json()}

    def print_text(console: Console) -> None:
        for name, value in _facts(elastic).items():
            if value not in ("", None, 0, {}):
                console.print(f"{name + ':':14}{printable(_words(value))}", soft_wrap=True)
        console.print()
        print_story(frame, console, answer, 5)
        if pods:
            console.print()
            console.print(_table(frame, pods, console.width))

    frame.show(document, print_text)


def _facts(job: Job) -> dict[str, Any]:
    return {
        "namespace": job.namespace,
        "name": job.name,
        "trainers": job.status.active,
        "ready": job.status.ready,
        "min": job.min_trainers,
        "max": job.max_trainers,
        "queue": job.queue,
        "weight": job.weight,
        "requests": {name: show(name, amount) for name, amount in job.requests.items()},
        "master": "yes" if job.master else "no",
        "servers": job.servers.count if job.servers else 0,
        "suspended": "yes" if job.suspended else "",
        "succeeded": job.status.succeeded,
        "failed": job.status.failed,
        "created": job.created_s,
    }


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{amount} {name}" for name, amount in value.items() if name != "pods")
    if isinstance(value, float):
        return timestamp(value)
    return str(value)


def _pod(pod: Pod) -> dict[str, Any]:
    return {
        "name": pod.name,
        "role": str(pod.role),
        "tier": str(pod.tier) if isinstance(pod.tier, Tier) else "",
        "node": pod.node,
        "phase": "Terminating" if pod.deleting else str(pod.phase),
        "master": pod.master,
        "uncommittedSeconds": pod.uncommitted_s,
        "created": pod.created_s,
    }


def _table(frame: Frame, pods: list[Pod], width: int) -> Any:
    columns = [
        Column("POD", wraps=True),
        Column("TIER"),
        Column("NODE", wraps=True),
        Column("STATE"),
        Column("UNCOMMITTED", optional=True, right=True),
        Column("AGE", optional=True, right=True),
    ]
    rows = [
        [
            f"{pod.name}{' (master)' if pod.master else ''}",
            str(pod.tier or ""),
            pod.node or "none yet",
            "Terminating" if pod.deleting else str(pod.phase),
            terminal.short_seconds(pod.uncommitted_s) if pod.uncommitted_s else "",
            age(frame.now_s - pod.created_s),
        ]
        for pod in pods
    ]
    return terminal.table(columns, rows, width)
