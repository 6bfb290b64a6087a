"""Reads the decision log for commands, as far as the caller's rights go."""

from cli.frame import Frame, explained
from kube import record_log
from kube.errors import Forbidden, NotFound
from kube.request import DECISIONLOGS
from policy import records
from policy.records import Record


def of_namespace(frame: Frame, namespace: str | None, containing: str = "") -> list[Record]:
    """The records of a namespace, or of all, in order of time; with all names where the caller may.

    Args:
        frame: Of the command.
        namespace: None for all.
        containing: Only records with this text, such as a job's key.

    Raises:
        CliError: the caller may not read them, or the cluster has no EDL.
    """
    with explained(DECISIONLOGS, "list", namespace, has_flag=namespace is None):
        own = record_log.read(frame.api, namespace, containing=containing)
    if namespace in (None, records.CLUSTER) or not own:
        return own
    of_jobs = [
        record
        for record in of_cluster(frame, containing=containing)
        if record.at_s >= own[0].at_s and record.job.partition("/")[0] == namespace
    ]
    return records.merged([*own, *of_jobs])


def of_cluster(frame: Frame, *, only_current: bool = False, containing: str = "") -> list[Record]:
    """Records of the whole cluster; none where the caller may not read them."""
    try:
        return record_log.read(
            frame.api, records.CLUSTER, only_current=only_current, containing=containing
        )
    except (Forbidden, NotFound):
        return []


def current(frame: Frame, namespace: str | None) -> list[Record]:
    """The newest decision about each job of a namespace, or of all.

    Raises:
        CliError: as `of_namespace`.
    """
    with explained(DECISIONLOGS, "list", namespace, has_flag=namespace is None):
        return record_log.read(frame.api, namespace, only_current=True)
