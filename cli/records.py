"""Reads the decision log for commands: what the caller may see of it."""

from cli.errors import CliError, ExitCode
from cli.frame import Frame, explained
from kube import record_log
from kube.errors import Forbidden, NotFound
from kube.request import DECISIONLOGS
from policy import records
from policy.records import Record


def of_namespace(frame: Frame, namespace: str | None) -> list[Record]:
    """The records of a namespace, or of all, in order of time; with all names where the caller may.

    Raises:
        CliError: the caller may not read them, or the cluster has no EDL.
    """
    with explained(DECISIONLOGS, "list", namespace):
        own = record_log.read(frame.api, namespace)
    if namespace in (None, records.CLUSTER) or not own:
        return own
    return records.merged([*own, *_of_cluster(frame, own[0].at_s, namespace)])


def _of_cluster(frame: Frame, since_s: float, namespace: str | None) -> list[Record]:
    """Records of the whole cluster about jobs of a namespace; none for whoever may not read them."""
    try:
        everything = record_log.read(frame.api, records.CLUSTER)
    except (Forbidden, NotFound):
        return []
    return [
        record
        for record in everything
        if record.at_s >= since_s and record.job.partition("/")[0] == namespace
    ]


def newest_of_jobs(all_records: list[Record]) -> dict[str, Record]:
    """Job key -> the newest record about the job itself."""
    return {record.job: record for record in all_records if record.kind == "job"}


def unknown(kind: str, name: str, near: str) -> CliError:
    """The error for a job or pod that nobody knows."""
    return CliError(f"{kind} {name} does not exist{near}", ExitCode.NOT_FOUND)
