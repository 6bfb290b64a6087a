"""What a job's master says, for whoever may read the job's token."""

import base64
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.page_cluster import CALLERS, Rights
from kube import errors, request
from kube.request import SECRETS
from page import master
from page.master import MasterAnswerError
from policy.admission import sidecar
from policy.cluster.snapshot import Job
from policy.names import ANNOTATION_MASTER, MASTER_TOKEN_KEY
from tests.page.serving import LIMIT_S, Readers, serving
from tests.page.world import PageWorld
from tests.reconciler.polled_masters import Master, answer
from tests.reconciler.polled_masters import page as status_page

ADDRESS = "127.0.0.1"


@pytest.fixture
def server() -> Iterator[Master]:
    """A master."""
    with Master() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.leave.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def world() -> PageWorld:
    """A cluster with the Secret of a job."""
    world = PageWorld(nodes=10)
    _add_secret(world, _job(world), "secret")
    return world


def _job(world: PageWorld) -> Job:
    return world.cluster.jobs[world.job]


def _add_secret(world: PageWorld, job: Job, token: str) -> None:
    name = sidecar.object_name(job.name)
    data = {MASTER_TOKEN_KEY: base64.b64encode(token.encode()).decode()}
    body = {"metadata": {"name": name}, "data": data}
    world.cluster.send(request.create(SECRETS, job.namespace, body))


def test_it_is_asked_with_the_jobs_token(world: PageWorld, server: Master) -> None:
    """What the page knows of its status; the rest is left out."""
    server.page = status_page(state="work", steps=12, trained_again_records=3, host="y")
    api = world.cluster.with_token("admin")
    status = master.ask(api, _job(world), ADDRESS, server.port)

    assert status == {"state": "work", "steps": 12, "trainedAgainRecords": 3}
    assert b"Authorization: Bearer secret" in server.asked[0]


def test_a_master_makes_no_browser_draw_for_minutes(world: PageWorld, server: Master) -> None:
    """Of what it names there are so many that all can be drawn; the newest of what is in order of time."""
    evaluations = [
        {"dataset": f"d{number % 500}", "model_version": number, "metrics": {f"m{number}": 1.0}}
        for number in range(5_000)
    ]
    server.page = status_page(
        state="work",
        datasets={f"d{number}": {"records": 1} for number in range(900)},
        evaluations=evaluations,
        setbacks={"count": 900, "newest": [{"by": str(number)} for number in range(900)]},
    )
    api = world.cluster.with_token("admin")
    status = master.ask(api, _job(world), ADDRESS, server.port)

    assert len(status["datasets"]) == 64
    assert status["setbacks"]["count"] == 900
    assert [status["setbacks"]["newest"][place]["by"] for place in (0, -1)] == ["800", "899"]
    assert {entry["dataset"] for entry in status["evaluations"]} == {
        f"d{number % 500}" for number in range(2_952, 2_960)
    }
    assert len({name for entry in status["evaluations"] for name in entry["metrics"]}) <= 512


@pytest.mark.parametrize("odd", [None, 1, "x", [], [1], {"a": 1}, [{"metrics": [1]}]])
def test_parts_of_another_type_are_empty(world: PageWorld, server: Master, odd: object) -> None:
    """A program of a user may have any of them."""
    server.page = status_page(state="work", datasets=odd, evaluations=odd, setbacks=odd)
    status = master.ask(world.cluster.with_token("admin"), _job(world), ADDRESS, server.port)
    assert isinstance(status["datasets"], dict)
    assert isinstance(status["setbacks"]["newest"], list)
    assert all(isinstance(entry["metrics"], dict) for entry in status["evaluations"])


def test_who_may_not_read_the_secret_gets_no_answer(world: PageWorld, server: Master) -> None:
    """The master is not even asked."""
    with pytest.raises(errors.Forbidden):
        master.ask(world.cluster.with_token("vision"), _job(world), ADDRESS, server.port)

    assert server.asked == []


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (answer(b"", "401 Unauthorized"), "its token differs"),
        (answer(b"", "500 Oops"), "answered"),
        (answer(b"not json"), "not a status"),
        (answer(b"[1]"), "not a status"),
        (answer(b" " * (1 << 20)), "more than"),
        (b"", "answered"),
    ],
)
def test_a_bad_answer_is_one_line(
    world: PageWorld, server: Master, page: bytes, words: str
) -> None:
    """Programs of users may answer anything."""
    server.page = page
    with pytest.raises(MasterAnswerError, match=words) as error:
        master.ask(world.cluster.with_token("admin"), _job(world), ADDRESS, server.port)

    assert "\n" not in str(error.value)


def test_a_silent_master_costs_two_seconds_at_most(
    world: PageWorld, server: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the caller is told."""
    monkeypatch.setattr(master, "_ASK_S", 0.01)
    server.silent.set()

    with pytest.raises(MasterAnswerError, match="no answer within"):
        master.ask(world.cluster.with_token("admin"), _job(world), ADDRESS, server.port)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "has no token"),
        ({"token": "!"}, "has no token"),
        ({"token": "Cg=="}, "no usable token"),
    ],
)
def test_a_secret_of_another_kind(world: PageWorld, data: dict[str, str], words: str) -> None:
    """It may be somebody else's; what is in it does not get into a header."""
    job = _job(world)
    name = sidecar.object_name(job.name)
    world.cluster.send(request.delete(SECRETS, job.namespace, name))
    body = {"metadata": {"name": name}, "data": data}
    world.cluster.send(request.create(SECRETS, job.namespace, body))

    with pytest.raises(MasterAnswerError, match=words):
        master.ask(world.cluster.with_token("admin"), job, ADDRESS, 1)


def test_masters_that_do_not_answer_leave_the_page_to_others(
    world: PageWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of a namespace are asked at once, whoever asks; all else is answered meanwhile."""
    annotations = {"metadata": {"annotations": {ANNOTATION_MASTER: "true"}}}
    namespace, _, name = world.job.partition("/")
    world.cluster.send(request.merge_patch(request.JOBS, namespace, name, annotations))
    world.look()
    asked, answered = threading.Semaphore(0), threading.Event()

    def ask(*_: object) -> dict[str, str]:
        asked.release()
        answered.wait(LIMIT_S)
        return {"state": "work"}

    monkeypatch.setattr(master, "ask", ask)
    path = f"/api/v1/jobs/{world.job}/training"
    with serving(world.app) as address, Readers(address) as readers, ThreadPoolExecutor() as pool:
        calls = [pool.submit(readers.open, path) for _ in range(2)]
        for _ in calls:
            asked.acquire()
        refused = [readers.open(path).response for _ in range(4)]
        own = readers.open("/api/v1/me", Authorization="Bearer vision").response
        assert ({answer.status for answer in refused}, own.status) == ({503}, 200)
        assert refused[0].headers["Retry-After"]
        answered.set()
        assert [call.result().response.status for call in calls] == [200, 200]
    assert world.get(path).json["state"] == "work"  # type: ignore[index] # it is JSON


def test_the_route_says_what_is_missing(world: PageWorld) -> None:
    """A job without a master, a right, a master that does not run."""
    other = min(key for key in world.cluster.jobs if key != world.job)
    annotations = {"metadata": {"annotations": {ANNOTATION_MASTER: "true"}}}
    namespace, _, name = world.job.partition("/")
    world.cluster.send(request.merge_patch(request.JOBS, namespace, name, annotations))
    world.look()
    path = f"/api/v1/jobs/{world.job}/training"

    assert world.get(f"/api/v1/jobs/{other}/training").status_code == 404
    assert world.get(path, "nobody").status_code == 404
    stopped = world.get(path)
    assert stopped.status_code == 503
    assert "it is not running" in stopped.text
    assert CALLERS["vision"] == Rights(("ml-vision",))
