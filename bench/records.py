"""The decision log: its cost for the control loop and etcd, and the speed of `kubectl edl why`.

A thousand jobs of one namespace, which share its log, each change their reason every five minutes of a
virtual day, and a burst of services takes trainers as often as in the demo. An API server in memory,
behind a socket, has the result; `why` is a process, as users start it.
"""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import orjson
import yaml

from bench.benchmark import Result, Setting, Times
from e2e.measure.criteria import Criterion
from kube import reading, request
from kube.errors import KubeError
from kube.request import DECISIONLOGS, JOBS, Request
from lab.fake_api import FakeApi
from policy.decisions import Decision, Figure
from policy.names import ANNOTATION_MAX, ANNOTATION_MIN, MANAGER
from policy.reasons import Reason
from reconciler.records.inbox import RecordInbox
from reconciler.records.writer import EVERY_S, RecordWriter

JOB_COUNT = 1_000
_NAMESPACE = "ml"
_DAY_S = 86_400
_CHANGE_S = 300
"""Between two changes of a job, and between two bursts."""
_RELEASED = 36
"""Trainers that a burst of the demo takes."""
_WHY_S = 1.0
_DAY_MB = 50.0
_TICK_MS = 10.0
_START_S = 1_800_000_000.0
_REASONS = (Reason.NO_ROOM, Reason.RESERVE_HELD, Reason.AT_MAX, Reason.GROWING)


class _Handler(BaseHTTPRequestHandler):
    """Passes requests to the API server in memory."""

    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        api_request = Request(self.command, url.path, tuple(parse_qsl(url.query)), body)
        status = 200
        try:
            answer: bytes = self.server.api.send(api_request)  # type: ignore[attr-defined] # set by `_serving`
        except KubeError as error:
            status = error.status or 503
            answer = orjson.dumps({"kind": "Status", "message": error.message})
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = _answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Logs nothing."""


def run(setting: Setting) -> Result:
    """Measures at 1 000 jobs, always: the bar is defined for this size."""
    clock = [_START_S]
    api = FakeApi(wall=lambda: datetime.fromtimestamp(clock[0], UTC))
    inbox = RecordInbox()
    writer = RecordWriter(api, inbox, lambda: True, epoch_s=lambda: clock[0])
    setting.report_progress(f"records: a day of {JOB_COUNT} jobs")
    put, rounds = Times(), Times()
    day_s = _DAY_S if len(setting.sizes) > 2 else _DAY_S // 12  # noqa: PLR2004 - full
    for step in range(day_s // _CHANGE_S):
        put.run(lambda step=step: _change_all(inbox, clock[0], step))  # type: ignore[misc] # bound now
        for _ in range(5):
            clock[0] += EVERY_S
            rounds.run(writer.round)
        clock[0] += _CHANGE_S - 5 * EVERY_S
    stored = reading.list_all(api, DECISIONLOGS)
    stored_mb = sum(len(orjson.dumps(obj)) for obj in stored) / 1e6
    setting.report_progress("records: why, as a process")
    why, cpu_s = _why(api, min(setting.rounds, 10))
    criteria = (
        Criterion("records_why_s", why.median / 1000, "s", _WHY_S),
        Criterion("records_why_cpu_s", cpu_s, "s"),
        Criterion("records_day_mb", stored_mb, "MB", _DAY_MB),
        Criterion("records_put_1000_jobs_ms", put.median, "ms", _TICK_MS),
    )
    figures = {
        "records_written": writer.written,
        "records_dropped": writer.dropped,
        "sent_mb": writer.bytes_written / 1e6,
        "objects": len(stored),
    }
    raw = {"why": why.figures(), "put": put.figures(), "round": rounds.figures(), **figures}
    return Result(criteria, {}, raw)


def _change_all(inbox: RecordInbox, now_s: float, step: int) -> None:
    """Every job gets another reason, and a burst takes trainers."""
    for number in range(JOB_COUNT):
        job = f"{_NAMESPACE}/job-{number}"
        reason = _REASONS[(step + number) % len(_REASONS)]
        figures: dict[str, Figure] = {
            "live": 3 + step % 5,
            "target": 3 + step % 7,
            "trainers": 3,
            "max": 10,
            "resource": "cpu",
            "used": f"{number + step}",
            "limit": "40000",
        }
        inbox.put_current(job, Decision(f"job {job}", reason, figures, now_s))
    for number in range(_RELEASED):
        job = f"{_NAMESPACE}/job-{(step * 7 + number) % JOB_COUNT}"
        release: dict[str, Figure] = {
            "service": f"shop/web-{step}-{number}",
            "needs": {"cpu": 2000, "memory": 4 << 30},
            "node": f"node-{number}",
        }
        about = f"pod {job}-trainer-{step}"
        inbox.put_decision(job, Decision(about, Reason.SERVICES_FIRST, release, now_s))


def _why(api: FakeApi, count: int) -> tuple[Times, float]:
    """How long `why` takes, and how much processor time."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    annotations = {ANNOTATION_MIN: "1", ANNOTATION_MAX: "10"}
    for number in range(JOB_COUNT):
        body = {
            "metadata": {"name": f"job-{number}", "annotations": annotations},
            "spec": {"managedBy": MANAGER, "template": {"spec": {"containers": [container]}}},
        }
        api.send(request.create(JOBS, _NAMESPACE, body))
    times = Times()
    with _serving(api) as kubeconfig:
        words = ["-m", "cli", "why", "job-500", "-n", _NAMESPACE, "--kubeconfig", str(kubeconfig)]
        _call(words)  # compiles
        before = os.times()
        for _ in range(count):
            times.run(lambda: _call(words))
        after = os.times()
    used_s = after.children_user + after.children_system
    return times, (used_s - before.children_user - before.children_system) / count


def _call(words: list[str]) -> None:
    """Runs the command.

    Raises:
        RuntimeError: it failed, or says nothing of the job.
    """
    root = Path(__file__).parents[1]
    answer = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, cwd=root
    )
    if answer.returncode or "job ml/job-500: " not in answer.stdout:
        raise RuntimeError(f"why failed: {answer.stderr or answer.stdout}")


@contextmanager
def _serving(api: FakeApi) -> Iterator[Path]:
    """A kubeconfig for the API server in memory."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.api = api  # type: ignore[attr-defined] # for the handler
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with tempfile.TemporaryDirectory(prefix="edl-bench-") as folder:
        path = Path(folder) / "kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{server.server_port}"}
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(config))
        try:
            yield path
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
