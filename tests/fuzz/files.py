"""Fuzz targets of the files and answers that people and programs pass to EDL's commands: only documented errors."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import orjson
import yaml
from edl.convert.convert import convert
from edl.errors import EdlError, printable

from page import master as page_master
from policy.cluster.cluster_state import ClusterState
from policy.cluster.snapshot import Snapshot
from policy.document.model import Policy
from policy.errors import SnapshotError
from policy.planning import snapshot_file
from policy.planning.plan_input import PlanInput
from policy.priority_classes import EDL_CLASSES
from reconciler.masters import reports as master_reports
from tests.fuzz.mutations import mutate_bytes, mutate_json
from tests.support.builders import NOW_S, job, node, service, trainers
from tests.webhook.test_dryrun import JOB, POLICY, PSERVER
from webhook import dryrun
from webhook.review import AdmissionContext

_JOB_FILES = Path(__file__).parents[1] / "sdk" / "convert" / "files"


def job_files(random: Random) -> None:
    """A job file of another system is a TrainingJob that JSON can hold, or an `EdlError` that can be printed."""
    text, value = random.choice(_job_files())
    if random.random() < 0.5:
        text = mutate_bytes(random, text.encode()).decode(errors="replace")
    else:
        text = json.dumps(mutate_json(random, value))
    try:
        manifest, _ = convert(text, "job.yaml")
    except EdlError as error:
        printable(error).encode()
        return
    assert json.loads(json.dumps(manifest, allow_nan=False))["kind"] == "TrainingJob"


def object_files(random: Random) -> None:
    """The objects of a file are reviewed in lines that can be printed, or it is a `FileError`."""
    text = random.choice((JOB, POLICY, PSERVER))
    if random.random() < 0.5:
        text = mutate_bytes(random, text.encode()).decode(errors="replace")
    else:
        text = yaml.safe_dump(mutate_json(random, yaml.safe_load(text)))
    with suppress(dryrun.FileError):
        lines = dryrun.report(text, AdmissionContext(Policy(), EDL_CLASSES)).lines
        "\n".join(lines).encode()


def snapshot_files(random: Random) -> None:
    """A file is a snapshot, or a `SnapshotError`; a plan is made of it, or one of the errors that commands explain."""
    raw = json.dumps(mutate_json(random, orjson.loads(_snapshot()))).encode()
    with suppress(SnapshotError):
        file = snapshot_file.loads(mutate_bytes(random, raw) if random.random() < 0.3 else raw)
        with suppress(ArithmeticError, LookupError, TypeError, ValueError):
            file.input.plan()


def master_statuses(random: Random) -> None:
    """What a master says is a report, or none; the page shows what it understands, or says that it cannot."""
    changed = mutate_json(random, _STATUS)
    raw = json.dumps(changed).encode(errors="surrogatepass")
    body = mutate_bytes(random, raw) if random.random() < 0.3 else raw
    report = master_reports.parse_status_page(body, 1.0)
    assert report is None or len(report.reason) <= 500
    with suppress(page_master.MasterAnswerError):
        orjson.dumps(page_master._bounded(page_master._parsed(body)))  # noqa: SLF001 - what `ask` reads


@cache
def _job_files() -> list[tuple[str, Any]]:
    files = [path.read_text() for path in sorted(_JOB_FILES.glob("*.yaml"))]
    return [(text, yaml.safe_load(text)) for text in files]


@cache
def _snapshot() -> bytes:
    net = job("net", 1, 3)
    snapshot = Snapshot((node("n0"),), (service("web", 3), *trainers(net, ["n0", "n0"])), (net,))
    cluster = ClusterState.of(snapshot)
    return snapshot_file.dumps(snapshot_file.SnapshotFile(PlanInput.of(cluster, Policy(), NOW_S)))


_STATUS = {
    "state": "work",
    "reason": "r",
    "generation": 1,
    "steps": 3,
    "datasets": {"train": {"done": 1, "tasks": 4, "failed": 0}},
    "trainers": {"trainer-0": {"uncommitted_s": 1.5, "rank": 0, "steps": 3}},
    "setbacks": [{"by": "a", "reason": "b"}],
    "evaluations": [],
}
