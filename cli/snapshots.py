"""Snapshots for commands: taken from a cluster with the caller's permissions, or read from files.

Files whose name ends in .gz are compressed. Nothing is ever written to the cluster.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from cli.errors import CliError, ExitCode
from cli.frame import Frame, explained
from kube import decode, request
from kube.reading import find
from kube.state_feed import overcommitted
from policy.cluster.cluster_state import ClusterState
from policy.cluster.queues import QueueRules
from policy.cluster.snapshot import Snapshot
from policy.document import parser as document
from policy.document.model import Policy
from policy.errors import DocumentError, SnapshotError
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SCHEDULING_CONFIGMAP, SYSTEM_NAMESPACE
from policy.planning import snapshot_file
from policy.planning.plan import History
from policy.planning.plan_input import PlanInput
from policy.planning.snapshot_file import SnapshotFile
from policy.scheduling import SchedulerCheck, in_force

_COMPRESSED = ".gz"
_PART_BYTES = 1 << 20
_CONFIG_MAP = re.compile(r"^kind:\s*[\"']?ConfigMap\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """The records of a cluster as stored on the API server, before a policy is applied to them."""

    at_s: float
    records: Snapshot
    check: SchedulerCheck

    def under(self, policy: Policy) -> PlanInput:
        """Returns the input of a plan with this policy."""
        queues = QueueRules.of(policy)
        jobs = (overcommitted(policy.overcommit, queues.applied(job)) for job in self.records.jobs)
        cluster = ClusterState.of(replace(self.records, jobs=tuple(jobs)), policy)
        history = History(scheduling=in_force(policy, self.check))
        return PlanInput.of(cluster, policy, self.at_s, history)


def read_cluster(frame: Frame) -> LiveCluster:
    """Returns the records of the cluster.

    Raises:
        CliError: The caller may not read the records.
    """
    pods = [decode.pod(pod) for pod in frame.all(request.PODS)]
    jobs = [decode.job(job) for job in frame.all(request.JOBS)]
    nodes = [decode.node(node) for node in frame.all(request.NODES)]
    return LiveCluster(
        frame.now_s,
        Snapshot(
            tuple(nodes),
            tuple(pod for pod in pods if pod.job or not pod.terminal),
            tuple(job for job in jobs if job is not None),
        ),
        SchedulerCheck.from_data(_config_map(frame, SCHEDULING_CONFIGMAP)),
    )


def of_cluster(frame: Frame) -> SnapshotFile:
    """Returns the input of a plan made now, without the reconciler's memory of earlier plans.

    Raises:
        CliError: The caller may not read this input, or the cluster's policy is invalid.
    """
    policy = policy_in_force(frame)
    return SnapshotFile(read_cluster(frame).under(policy), complete=False)


def policy_in_force(frame: Frame) -> Policy:
    """Returns the cluster's policy, or the default if there is no ConfigMap.

    Raises:
        CliError: The caller may not read the policy, or it is invalid.
    """
    try:
        return document.parse(policy_text(frame))
    except DocumentError as error:
        raise CliError(f"ConfigMap {SYSTEM_NAMESPACE}/{POLICY_CONFIGMAP}: {error}") from error


def policy_text(frame: Frame) -> str:
    """Returns the text of the cluster's policy, or "" if there is none.

    Raises:
        CliError: The caller may not read the policy, or there is none because EDL is not installed.
    """
    frame.require_edl()
    return _config_map(frame, POLICY_CONFIGMAP).get(POLICY_KEY, "")


def _config_map(frame: Frame, name: str) -> dict[str, str]:
    with explained(request.CONFIGMAPS, "get", SYSTEM_NAMESPACE):
        config_map = find(frame.api, request.get(request.CONFIGMAPS, SYSTEM_NAMESPACE, name))
    return dict(decode.configmap(config_map).data) if config_map is not None else {}


def read_policy(path: Path) -> Policy:
    """Returns the policy in a file.

    Raises:
        CliError: The file does not exist, or contains no valid policy.
    """
    try:
        text = _read(path, document.MAX_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CliError(f"{path}: not UTF-8 text", ExitCode.USAGE) from error
    try:
        return document.parse(text)
    except DocumentError as error:
        if _CONFIG_MAP.search(text):
            config_map = f"a ConfigMap: write the value of its key {POLICY_KEY} to a file"
            raise CliError(f"{path} is {config_map}", ExitCode.USAGE) from error
        raise CliError(f"{path}: {error}", ExitCode.USAGE) from error


def read(path: Path) -> SnapshotFile:
    """Returns the snapshot in a file.

    Raises:
        CliError: The file does not exist, or is not a snapshot of this version.
    """
    try:
        return snapshot_file.loads(_read(path, snapshot_file.MAX_BYTES))
    except SnapshotError as error:
        text = f"{path}: {error}: use a file that the command `snapshot` wrote"
        raise CliError(text, ExitCode.USAGE) from error


@contextmanager
def planning(path: Path | None) -> Iterator[None]:
    """Converts an error of the planner to one line if the input came from a file, which may be invalid.

    With the input of a live cluster (`path` is None), an error is a bug and is not converted.

    Raises:
        CliError: Planning failed on the file.
    """
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if path is None:
            raise
        text = f"{path}: planning failed: {type(error).__name__}: {error}"
        raise CliError(text) from error


def write(path: Path, file: SnapshotFile) -> int:
    """Writes a snapshot atomically; returns its size in bytes.

    Raises:
        CliError: The folder does not exist, or the path is not an ordinary file.
        OSError: The file cannot be written.
    """
    text = snapshot_file.dumps(file)
    if path.suffix == _COMPRESSED:
        text = gzip.compress(text, 6, mtime=0)
    if not path.parent.is_dir():
        raise CliError(f"folder {path.parent} does not exist: create it first", ExitCode.NOT_FOUND)
    if path.exists() and not path.is_file():
        raise CliError(f"{path} is not an ordinary file: name another one", ExitCode.USAGE)
    path = path.resolve()  # if the path is a link, its target is replaced
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.touch(0o600)
        beside.write_bytes(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return len(text)


def _read(path: Path, max_bytes: int) -> bytes:
    """Returns the contents of a file, decompressed if its name ends in .gz, up to a size limit.

    A small file may decompress to any size, so it is read in parts, and only up to the limit.
    """
    text = bytearray()
    try:
        with path.open("rb") as file, _unpacked(path, file) as unpacked:
            while len(text) <= max_bytes and (part := unpacked.read(_PART_BYTES)):
                text += part
    except FileNotFoundError as error:
        raise CliError(f"file {path} does not exist", ExitCode.NOT_FOUND) from error
    except (OSError, EOFError, zlib.error) as error:
        problem = (
            getattr(error, "strerror", None) or error
        )  # without `strerror`, the text would contain the path twice
        raise CliError(f"{path} cannot be read: {problem}", ExitCode.USAGE) from error
    if len(text) > max_bytes:
        raise CliError(f"{path} is larger than {max_bytes} bytes", ExitCode.USAGE)
    return bytes(text)


def _unpacked(path: Path, file: BinaryIO) -> AbstractContextManager[BinaryIO]:
    if path.suffix != _COMPRESSED:
        return nullcontext(file)
    return closing(cast("BinaryIO", gzip.open(file)))
