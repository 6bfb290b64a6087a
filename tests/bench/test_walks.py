"""The walks through the code in docs/architecture.md, beside the calls of real runs."""

import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from http.client import HTTPConnection
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

import edl
import orjson
import pytest

from policy.document.model import Policy
from policy.names import (
    ANNOTATION_MASTER,
    ANNOTATION_MASTER_ADDRESS,
    ANNOTATION_SERVERS,
    LABEL_MASTER,
)
from policy.priority_classes import EDL_CLASSES
from tests.master.serving import TOKEN, Served
from tests.page.serving import LIMIT_S, serving
from tests.reconciler.waiting import until
from tests.reconciler.world import Process, World
from tests.webhook.cluster import put_policy, with_classes
from tests.webhook.vectors import request, review, thing
from webhook.review import AdmissionContext, AdmissionRequest, mutate
from webhook.server import WebhookServer
from webhook.settings import WebhookSettings

ROOT = Path(__file__).parents[2]
_START = "start"
"""The caller where a thread, a task of a server or a test begins."""
_PLANNER = "policy/planning/planner.py"
Calls = set[tuple[str, str]]
"""(file of the caller, file of what is called)"""


def _walk(title: str) -> tuple[list[str], int]:
    """The files of a walk, in order, and their number as it is written."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (paragraph,) = (part for part in text.split("\n\n") if part.startswith(f"**{title}"))
    files = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", paragraph)
    (number,) = re.findall(r"(\d+) files\.", paragraph)
    return [re.sub("^edl/", "sdk/src/edl/", file) for file in files], int(number)


@cache
def _file(path: str) -> str:
    """A file's path in the tree; "" for what is not production code."""
    if not path.startswith(f"{ROOT}/"):
        return ""
    name = path.removeprefix(f"{ROOT}/")
    return "" if name.startswith((".venv/", "lab/", "tests/")) else name


def _calls(flow: Callable[[], None]) -> Calls:
    """The calls between files while a flow runs, in all threads that it begins."""
    calls: Calls = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        called = _file(frame.f_code.co_filename)
        if event != "call" or not called:
            return
        caller = frame.f_back
        while caller is not None and not _file(caller.f_code.co_filename):
            caller = caller.f_back  # libraries in between: a Flask application, aiohttp's handlers
        calls.add((_START if caller is None else _file(caller.f_code.co_filename), called))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        flow()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def _stays(flow: Callable[[], object]) -> list[str]:
    """The files that a reader of a run visits: consecutive calls and returns in one file are one stay."""
    visits: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return") or not (file := _file(frame.f_code.co_filename)):
            return
        if event == "return":  # back in the nearest caller; libraries in between do not count
            caller = frame.f_back
            while caller is not None and not _file(caller.f_code.co_filename):
                caller = caller.f_back
            if caller is None:
                return
            file = _file(caller.f_code.co_filename)
        visits.append(file)

    sys.setprofile(note)
    try:
        flow()
    finally:
        sys.setprofile(None)
    return [file for file, _ in groupby(visits)]


def _new_trainer() -> None:
    """A job's first trainers, and another where a service has ended."""
    world = World(8)
    world.add_job("net", 1, 8)
    world.add_services(1, cpu=4)
    process = Process(world)
    process.run(3)
    before = len(world.running("net"))
    for pod in world.pods():
        world.remove(pod)
    process.run(3)
    process.stop()
    assert len(world.running("net")) > before


def _admission_review(tmp_path: Path) -> None:
    """The creation of a trainer that hosts its job's master."""
    api = with_classes()
    put_policy(api, "{}")
    settings = WebhookSettings(certificate_dir=tmp_path, master_image="edl:1")
    webhook = WebhookServer(api, settings, managed=False)
    webhook.start()
    until(lambda: webhook.readiness().ready)
    body = review("pod-create-trainer")
    body["request"]["object"]["metadata"]["labels"][LABEL_MASTER] = "true"
    with serving(webhook.service().app) as (host, port):
        connection = HTTPConnection(host, port, timeout=LIMIT_S)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/mutate", orjson.dumps(body), headers)
        answer = orjson.loads(connection.getresponse().read())
        connection.close()
    webhook.stop()
    assert answer["response"]["patch"]


def _task_lease(tmp_path: Path) -> None:
    """An epoch of a data set, from lease to acknowledgement."""
    served = Served(tmp_path / "journal")
    url = f"http://127.0.0.1:{served.port}"
    member = edl.Session(edl.Settings(url, TOKEN, "trainer-0"))
    records = edl.from_arrays("train", list(range(64)))
    assert sum(len(batch) for batch in edl.batches(records, 8, member=member)) == 64
    member.leave()
    served.kill()


@pytest.mark.parametrize(
    ("title", "flow", "most"),
    [
        ("A change of a pod", _new_trainer, 15),
        ("An admission review", _admission_review, 9),
        ("A task's lease", _task_lease, 14),
    ],
)
def test_a_walk_has_all_files_of_its_way_once(
    title: str, flow: Callable[..., None], most: int, tmp_path: Path
) -> None:
    """Each is called by another one of the walk, or begins a thread: none in between is missing.

    The first one gets what comes from outside: for `kube.client` a cluster in memory stands here.
    """
    files, number = _walk(title)
    calls = _calls(flow if flow is _new_trainer else lambda: flow(tmp_path))
    callers = {called: {a for a, b in calls if b == called and a != called} for called in files}

    assert len(files) == len(set(files)) == number <= most
    assert {file: callers[file] for file in files[1:] if not callers[file] & {*files, _START}} == {}


def test_a_plan_visits_its_rules_one_after_the_other() -> None:
    """Only the planner calls rules and writes the book: 30 visits, with each return to the planner."""
    visits: list[str] = []
    known = set[CodeType]()

    def note(frame: FrameType, event: str, _: object) -> None:
        called = _file(frame.f_code.co_filename)
        caller = frame.f_back
        is_from_planner = caller is not None and _file(caller.f_code.co_filename) == _PLANNER
        is_new = event == "call" and frame.f_code not in known
        if is_new and is_from_planner and called not in ("", _PLANNER):
            known.add(frame.f_code)
            visits.extend((_PLANNER, called))

    sys.setprofile(note)
    try:
        _new_trainer()
    finally:
        sys.setprofile(None)

    walk = [file for file, _ in groupby(visits)]
    assert len(walk) <= 30
    assert len({*walk}) <= 10


def _host_of_a_master() -> AdmissionRequest:
    """The creation of a trainer that hosts its job's master."""
    pod = thing("pod-create-trainer")
    pod["metadata"]["labels"][LABEL_MASTER] = "true"
    pod["metadata"]["annotations"] = {ANNOTATION_MASTER_ADDRESS: "http://10.96.0.7:8790"}
    return request("pod-create-trainer", object=pod)


def _job_with_servers() -> AdmissionRequest:
    """The creation of a Job with a master and parameter servers."""
    job = thing("job-create-elastic")
    job["metadata"]["annotations"] |= {ANNOTATION_MASTER: "true", ANNOTATION_SERVERS: "2"}
    return request("job-create-elastic", object=job)


@pytest.mark.parametrize("review_request", [_host_of_a_master(), _job_with_servers()])
def test_a_review_goes_through_few_files(review_request: AdmissionRequest) -> None:
    """`webhook.review.mutate` parses the object once, so a reader does not go back and forth."""
    context = AdmissionContext(Policy(), EDL_CLASSES, master_image="edl:1")
    answers = []
    stays = _stays(lambda: answers.append(mutate(review_request, context)))

    assert answers[0].operations
    assert len(stays) <= 40
    assert len(set(stays)) <= 9
