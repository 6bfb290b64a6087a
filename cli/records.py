"""Reads the decision log for commands, with the caller's permissions."""

from cli.frame import Frame, explained
from kube import record_log
from kube.errors import Forbidden, NotFound
from kube.request import DECISIONLOGS
from policy import records
from policy.records import Record


def of_namespace(frame: Frame, namespace: str | None, containing: str = "") -> list[Record]:
    """Returns the records of one namespace, or of all namespaces, in order of time.

    If the caller may read the cluster's log too, the records name objects of other namespaces.

    Args:
        frame: The frame of the command.
        namespace: The namespace; None for all.
        containing: A text, such as a job's key. Only records with this text are returned.

    Raises:
        CliError: The caller may not read them, or EDL is not installed.
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
    """Returns the records of the whole cluster; empty if the caller may not read them."""
    try:
        return record_log.read(
            frame.api, records.CLUSTER, only_current=only_current, containing=containing
        )
    except (Forbidden, NotFound):
        return []


def current(frame: Frame, namespace: str | None) -> list[Record]:
    """Returns the newest decision about each job in one namespace, or in all namespaces.

    Raises:
        CliError: As for `of_namespace`.
    """
    with explained(DECISIONLOGS, "list", namespace, has_flag=namespace is None):
        return record_log.read(frame.api, namespace, only_current=True)
