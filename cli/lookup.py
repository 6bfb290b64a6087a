"""Finds the job or pod that a user names, in the cluster or, if it was deleted, in the records."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from cli.errors import CliError, ExitCode
from cli.frame import Frame, explained
from cli.records import of_namespace
from kube import decode, request
from kube.errors import Forbidden
from kube.reading import find
from policy.cluster.snapshot import Job
from policy.nearest import advice
from policy.records import Record

KINDS = ("job", "pod")


@dataclass(frozen=True, slots=True)
class Name:
    """A name as the user wrote it (`NAME`, `job/NAME` or `pod/NAME`), with the namespace of the command."""

    namespace: str
    name: str
    kinds: tuple[str, ...]

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """A job or a pod; `obj` is None if only the records mention it."""

    kind: str
    key: str
    obj: dict[str, Any] | None = None

    @property
    def job(self) -> Job | None:
        """The elastic job, if it still exists."""
        return decode.job(self.obj) if self.obj is not None and self.kind == "job" else None


def parse(frame: Frame, text: str) -> Name:
    """Parses the name of a job or pod.

    Raises:
        CliError: The name is invalid.
    """
    kind, slash, name = text.partition("/")
    if not slash:
        kind, name = "", text
    kind = kind.removesuffix("s").removesuffix(".batch")
    if kind not in ("", *KINDS) or not name or "/" in name:
        raise CliError(
            f"invalid name {text[:80]!r}: write NAME, job/NAME or pod/NAME, and set the namespace with -n",
            ExitCode.USAGE,
        )
    return Name(frame.namespace or "default", name, (kind,) if kind else KINDS)


def target(frame: Frame, name: Name, records: Iterable[Record]) -> Target:
    """Returns the job or pod with a name; an elastic job takes precedence.

    Raises:
        CliError: A permission is missing, or neither the cluster nor the records contain the name. In that
            case, the message suggests the most similar name.
    """
    is_ordinary = False
    if "job" in name.kinds:
        obj = _get(frame, request.JOBS, name)
        if obj is not None and decode.job(obj) is not None:
            return Target("job", name.key, obj)
        is_ordinary = obj is not None
    if "pod" in name.kinds:
        obj = _get(frame, request.PODS, name)
        if obj is not None:
            return Target("pod", name.key, obj)
    if is_ordinary:
        text = f"job {name.key} is not an elastic job, so EDL does not manage it"
        raise CliError(text, ExitCode.NOT_FOUND)
    names = {f"{record.kind} {record.name}" for record in records}
    for kind in name.kinds:
        if f"{kind} {name.key}" in names:
            return Target(kind, name.key)
    raise CliError(_unknown(frame, name), ExitCode.NOT_FOUND)


def elastic_job(frame: Frame, text: str) -> dict[str, Any]:
    """Returns the Job that a user names.

    Raises:
        CliError: There is no such elastic job, or a permission is missing.
    """
    name = parse(frame, text)
    if "job" not in name.kinds:
        raise CliError(f"{text[:80]}: this command changes only jobs", ExitCode.USAGE)
    job_target = target(frame, Name(name.namespace, name.name, ("job",)), ())
    assert job_target.obj is not None  # noqa: S101 - `target` without records only finds existing objects
    return job_target.obj


def _get(frame: Frame, resource: request.Resource, name: Name) -> dict[str, Any] | None:
    with explained(resource, "get", name.namespace):
        return find(frame.api, request.get(resource, name.namespace, name.name))


def _unknown(frame: Frame, name: Name) -> str:
    """Returns the message about an unknown name; it suggests the most similar name, even of a deleted object."""
    names = {
        record.name.rpartition("/")[2]
        for record in of_namespace(frame, name.namespace)
        if record.kind in name.kinds
    }
    for kind, resource in (("job", request.JOBS), ("pod", request.PODS)):
        if kind in name.kinds:
            try:
                objects = frame.all(resource, name.namespace)
            except (CliError, Forbidden):
                continue
            names |= {obj["metadata"]["name"] for obj in objects}
    kinds = " or ".join(name.kinds)
    near = advice(name.name[:100], sorted(names))
    where = f"{kinds} {name.name[:100]} not found in namespace {name.namespace}"
    program = click.get_current_context().find_root().info_name
    return f"{where}{near}; `{program} jobs -A` lists the jobs of all namespaces"
