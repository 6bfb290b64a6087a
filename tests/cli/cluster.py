"""A cluster in memory for the commands, and a way to run them as a user does."""

import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

import cli.__main__
from cli import frame, terminal
from kube import record_log, request
from kube.errors import Forbidden, NotFound
from kube.request import Request, Resource
from lab.fake_api import FakeApi
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN, GROUP, MANAGER
from policy.records import Record

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
NOW_S = NOW.timestamp()
SNAPSHOTS = Path(__file__).parent / "snapshots"


class CliCluster(FakeApi):
    """An API server with EDL; its fields say what the caller may not do, or what is missing."""

    def __init__(self) -> None:
        """An empty cluster at NOW."""
        super().__init__(wall=lambda: NOW)
        self.forbidden: set[tuple[str, str | None]] = set()
        """(plural, namespace or None for all) that the caller has no rights on."""
        self.forbidden_writes = False
        self.forbidden_kinds = False
        self.has_edl = True
        self.writes: list[Request] = []
        self.segments = 0

    def send(self, request: Request) -> bytes:
        """As the API server, with what the one in memory lacks."""
        if request.path.endswith("/selfsubjectreviews"):
            return orjson.dumps({"metadata": {"creationTimestamp": NOW.isoformat()}})
        for plural, namespace in self.forbidden:
            where = f"/namespaces/{namespace}/{plural}" if namespace else f"/v1/{plural}"
            if where in request.path:
                raise Forbidden("you may not", status=403, request=request.line)
        is_discovery = request.path == f"/apis/{GROUP}/v1"
        if is_discovery and self.forbidden_kinds:
            raise Forbidden("you may not", status=403, request=request.line)
        is_of_edl = is_discovery or "/decisionlogs" in request.path
        if is_of_edl and not self.has_edl:
            raise NotFound("no such resource", status=404, request=request.line)
        if request.method != "GET" and self.forbidden_writes:
            raise Forbidden("you may not", status=403, request=request.line)
        if request.method != "GET":
            self.writes.append(request)
        return super().send(request)

    def add(self, kind: Resource, body: dict[str, Any], namespace: str | None = None) -> None:
        """Creates an object, with its status."""
        FakeApi.send(self, request.create(kind, namespace, body))
        if "status" in body:
            name = body["metadata"]["name"]
            patch = {"status": body["status"]}
            FakeApi.send(
                self, request.merge_patch(kind, namespace, name, patch, subresource="status")
            )

    def add_job(
        self,
        name: str,
        *,
        low: int = 1,
        high: int = 8,
        active: int = 0,
        namespace: str = "ml",
        **spec: Any,
    ) -> None:
        """An elastic Job."""
        container = {"name": "main", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        body = {
            "metadata": {
                "name": name,
                "annotations": {ANNOTATION_MIN: str(low), ANNOTATION_MAX: str(high)},
            },
            "spec": {
                "managedBy": MANAGER,
                "template": {"spec": {"containers": [container]}},
                **spec,
            },
            "status": {"active": active},
        }
        self.add(request.JOBS, body, namespace)

    def add_records(self, namespace: str, *records: Record, log: str = record_log.CURRENT) -> None:
        """A segment of a namespace's decision log."""
        self.segments += 1
        metadata = {"name": f"edl-{self.segments:08}", "labels": {record_log.LABEL_LOG: log}}
        lines = [record_log.line(record) for record in records]
        fields = record_log.encode(lines, records[0].at_s, records[-1].at_s)
        body = {"metadata": metadata, **fields}
        self.add(request.DECISIONLOGS, body, namespace)


@dataclass
class Run:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs commands on a cluster in memory, in a terminal of `columns`."""

    cluster: CliCluster
    run_main: Callable[[Sequence[str]], Run]
    columns: list[int] = field(default_factory=lambda: [100])

    def __call__(self, *words: str, columns: int = 100) -> Run:
        """Runs `edl` with these arguments."""
        self.columns[0] = columns
        return self.run_main(words)


def make_cli(monkeypatch: pytest.MonkeyPatch) -> Cli:
    """A `Cli` whose commands find its cluster instead of a kubeconfig."""
    cluster = CliCluster()
    columns = [100]
    monkeypatch.setattr(frame, "connect", lambda _flags: cluster)
    monkeypatch.setattr(frame, "default_namespace", lambda _flags: "ml")
    real = terminal.console
    monkeypatch.setattr(terminal, "console", lambda file: real(file, columns[0]))
    monkeypatch.setattr(sys, "argv", ["edl"])
    monkeypatch.setattr("runtime.clock.epoch_s", lambda: NOW_S + 5000)  # this machine's is off

    def run_main(words: Sequence[str]) -> Run:
        out, err = io.StringIO(), io.StringIO()
        with monkeypatch.context() as streams:
            streams.setattr(sys, "stdout", out)
            streams.setattr(sys, "stderr", err)
            streams.setenv("COLUMNS", str(columns[0]))  # click's help
            code = cli.__main__.main(list(words))
        return Run(int(code), out.getvalue(), err.getvalue())

    return Cli(cluster, run_main, columns)


def check_snapshot(name: str, text: str) -> None:
    """Compares a text with tests/cli/snapshots/<name>.txt; `UPDATE_SNAPSHOTS=1` writes it instead."""
    path = SNAPSHOTS / f"{name}.txt"
    lines = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines)
    assert lines == path.read_text(), f"if that is right, UPDATE_SNAPSHOTS=1 writes {path.name}"
