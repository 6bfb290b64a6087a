"""Reads the decision log for commands: what the caller may see of it."""

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
    of_jobs = [
        record
        for record in of_cluster(frame)
        if record.at_s >= own[0].at_s and record.job.partition("/")[0] == namespace
    ]
    return records.merged([*own, *of_jobs])


def of_cluster(frame: Frame, *, only_current: bool = False) -> list[Record]:
    """Records of the whole cluster; none for whoever may not read them."""
    try:
        return record_log.read(frame.api, records.CLUSTER, only_current=only_current)
    except (Forbidden, NotFound):
        return []


def newest_of_jobs(all_records: list[Record]) -> dict[str, Record]:
    """Job key -> the newest record about the job itself."""
    return {record.job: record for record in all_records if record.kind == "job"}
