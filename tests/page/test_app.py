"""The page's routes: files for anybody, the cluster for callers, one line for each error."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.page_cluster import Rights
from kube import errors
from page import assets
from policy.names import SYSTEM_NAMESPACE
from tests.page.world import PageWorld


class _Broken(Rights):
    """Rights about which the API server fails."""

    def allows(self, attributes: dict[str, str]) -> bool:  # noqa: ARG002 - as its base
        """Fails."""
        raise errors.Unavailable("etcd is away", status=500)


BROKEN = _Broken()


@pytest.fixture(scope="module")
def world() -> PageWorld:
    """A page that has read its cluster."""
    world = PageWorld()
    world.look()
    return world


def test_who_one_is(world: PageWorld) -> None:
    """The user's name, and the namespaces that have something to show and may be seen."""
    admin, vision, nobody = (
        world.json("/api/v1/me", name) for name in ("admin", "vision", "nobody")
    )

    assert (admin["user"], admin["everything"], admin["cluster"]) == ("admin", True, True)
    assert {SYSTEM_NAMESPACE, "ml-vision"} <= set(admin["namespaces"])
    assert (vision["namespaces"], vision["everything"]) == (["ml-vision"], False)
    assert not vision["cluster"]
    assert not vision["objective"]
    assert nobody["namespaces"] == []


@pytest.mark.parametrize(
    ("path", "token", "status", "words"),
    [
        ("/api/v1/me", "", 401, "Authorization: Bearer"),
        ("/api/v1/me", "wrong", 401, "wrong or has expired"),
        ("/api/v1/me", "a b", 401, "Authorization: Bearer"),
        ("/api/v1/me", "x" * 5000, 401, "Authorization: Bearer"),
        ("/api/v1/nothing", "admin", 404, "not found"),
        ("/api/v1/jobs/ml-vision/none", "admin", 404, "elastic job ml-vision/none not found"),
        ("/api/v1/nodes/none", "admin", 404, "node 'none' not found"),
        ("/api/v1/nodes/node-00000", "vision", 403, "permission to list nodes"),
        ("/api/v1/stream", "admin", 400, "sections: list one or more of usage, jobs"),
        ("/api/v1/stream?sections=jobs,cows", "admin", 400, "'cows' is not one of usage"),
        ("/api/v1/stream?sections=job", "admin", 400, "write namespace/name"),
        ("/api/v1/stream?sections=nodes", "vision", 403, "permission to list nodes"),
        ("/api/v1/stream?sections=job&job=prod/web", "vision", 404, "not visible to you"),
        ("/api/v1/records?limit=0", "admin", 400, "limit: write a number from 1 to 1000"),
        ("/api/v1/records?before=now", "admin", 400, "before: write a number"),
        ("/static/../app.py", "", 404, "not found"),
        ("/static/app.py", "", 404, "not found"),
    ],
)
def test_an_error_is_one_line(
    world: PageWorld, path: str, token: str, status: int, words: str
) -> None:
    """JSON with the way out, and the headers that all answers have."""
    answer = world.get(path, token)
    assert answer.status_code == status
    error = answer.json["error"]  # type: ignore[index] # each error has one

    assert error["status"] == status
    assert words in error["message"]
    assert "\n" not in error["message"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_written(world: PageWorld, method: str) -> None:
    """Every route is a GET."""
    for path in ("/", "/api/v1/me", "/api/v1/stream", "/api/v1/jobs/ml-vision/x"):
        answer = world.app.test_client().open(path, method=method)
        assert answer.status_code == 405


def test_before_the_first_lists_it_asks_for_patience() -> None:
    """503, with the time after which to try again; it is not ready either."""
    world = PageWorld()
    answer = world.get("/api/v1/me")

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert world.get("/readyz").status_code == 503
    world.look()
    assert world.get("/api/v1/me").status_code == 200
    assert world.get("/readyz").status_code == 200


def test_rights_that_cannot_be_asked_for_are_none() -> None:
    """Where the API server does not say what a caller may see, the caller sees nothing."""
    world = PageWorld(access_seconds=0.0)
    world.look()
    assert world.get("/api/v1/me").status_code == 200
    world.callers["admin"] = BROKEN
    answer = world.get("/api/v1/me")

    assert answer.status_code == 503
    assert "cannot check your permissions now" in answer.text


def test_a_job_is_for_whoever_sees_its_namespace(world: PageWorld) -> None:
    """To others it is as if it were not there, whether it is or not."""
    own, other = world.job, world.other_job
    assert world.json(f"/api/v1/jobs/{own}", "vision")["key"] == own
    hidden = world.get(f"/api/v1/jobs/{other}", "vision")
    missing = world.get("/api/v1/jobs/prod/nothing", "vision")

    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert hidden.text.replace(other, "X") == missing.text.replace("prod/nothing", "X")


def test_a_share_is_for_whoever_sees_the_cluster(world: PageWorld) -> None:
    """It tells how large the cluster is."""
    path = f"/api/v1/jobs/{world.job}"

    assert world.json(path, "admin")["share"] > 0
    assert world.json(path, "vision")["share"] is None


def test_records_of_others_are_not_among_those_asked_for(world: PageWorld) -> None:
    """Neither without a filter nor by the name of a job, a pod or a namespace."""
    namespace = world.other_job.partition("/")[0]
    for query in (
        "",
        f"?namespace={namespace}",
        f"?job={world.other_job}",
        f"?about=job {world.other_job}",
        f"?namespace={SYSTEM_NAMESPACE}",
    ):
        answer = world.get(f"/api/v1/records{query}", "vision")
        assert {record["namespace"] for record in answer.json["records"]} <= {"ml-vision"}  # type: ignore[index]
        assert world.other_job not in answer.text


def test_series_are_of_visible_jobs(world: PageWorld) -> None:
    """The largest first, as many as were asked for."""
    series = world.json("/api/v1/jobs/series?limit=2")["series"]
    assert len(series) == 2
    assert all(steps[-1][1] > 0 for steps in series.values())
    own = world.json("/api/v1/jobs/series", "vision")["series"]

    assert own
    assert all(job.startswith("ml-vision/") for job in own)
    assert world.json("/api/v1/jobs/series?namespace=ml-text", "vision")["series"] == {}


def test_trainers_over_time_begin_with_the_records() -> None:
    """A page that has just started shows what was decided about jobs before: those of the chart, and one job's."""
    world = PageWorld()
    before = len(world.cluster.trainers[world.job])
    times_s = []
    for change in (2, -1):
        world.pass_time(60.0)
        world.cluster.resize(world.job, change)
        world.cluster.decide([world.job])
        times_s.append(world.now_s)
        world.pass_time()
    world.restart()
    world.look()
    series = world.json("/api/v1/jobs/series?limit=1000")["series"]
    document = world.json(f"/api/v1/jobs/{world.job}")

    expected = [[times_s[0], before + 2], [times_s[1], before + 1]]
    assert series[world.job][-2:] == expected
    assert document["trainersOverTime"][-2:] == expected


def test_records_of_another_job_of_the_name_are_no_history() -> None:
    """What was decided before a job was created was about the one before it."""
    world = PageWorld()
    world.pass_time(60.0)
    world.cluster.decide([world.job])
    world.pass_time()
    job = world.cluster.jobs[world.job]
    world.cluster.jobs[world.job] = replace(job, created_s=world.now_s)
    world.cluster.resize(world.job, 1)
    world.restart()
    world.look()
    (only,) = world.json("/api/v1/jobs/series?limit=1000")["series"][world.job]

    assert only == [world.now_s, len(world.cluster.trainers[world.job])]


def test_a_node_lists_its_pods(world: PageWorld) -> None:
    """With what they request, training first."""
    pods = world.cluster.trainers[world.job]
    node = world.json(f"/api/v1/nodes/{pods[0].node}")
    names = [pod["name"] for pod in node["pods"]]

    assert pods[0].name in names
    assert node["podCount"] == len(names)
    kinds = [pod["kind"] == "service" for pod in node["pods"]]
    assert kinds == sorted(kinds)


def test_files_need_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read at the start, with their types; a browser that has one is told so."""
    (tmp_path / "vendor").mkdir()
    for name, text in {
        "index.html": "<title>EDL</title>",
        "vendor/chart.js": "1",
        "LICENSE.txt": "MIT",
        "notes.md": "no",
    }.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(assets, "load", lambda folder=tmp_path, load=assets.load: load(folder))
    world = PageWorld()
    index, script = world.get("/", ""), world.get("/static/vendor/chart.js", "")

    assert (index.text, index.content_type) == ("<title>EDL</title>", "text/html; charset=utf-8")
    assert script.content_type == "text/javascript; charset=utf-8"
    assert world.get("/static/notes.md", "").status_code == 404
    again = world.get("/static/vendor/chart.js", "", **{"If-None-Match": script.headers["ETag"]})
    assert (again.status_code, again.text) == (304, "")
    assert "no-store" not in script.headers["Cache-Control"]


PIECES = st.lists(
    st.sampled_from(
        [
            "ml-vision",
            "/",
            "train-0001",
            "nan",
            "-1",
            "1e999",
            "%00",
            "\u00e9",
            "..",
            " ",
            "job",
            ",",
        ]
    ),
    max_size=4,
).map("".join)


@settings(max_examples=60)
@given(
    st.sampled_from(
        [
            "/api/v1/stream",
            "/api/v1/records",
            "/api/v1/jobs/series",
            "/api/v1/jobs/{0}/{1}",
            "/api/v1/nodes/{0}",
        ]
    ),
    PIECES,
    PIECES,
)
def test_no_question_is_a_bug(world: PageWorld, path: str, first: str, second: str) -> None:
    """Whatever callers write into paths and queries, the answer is theirs, and never another's data."""
    names = ("sections", "job", "fits", "namespace", "about", "before", "limit")
    query = {name: (first, second)[index % 2] for index, name in enumerate(names)}
    target = path.format(quote(first, safe=""), quote(second, safe=""))
    answer = world.app.test_client().get(
        target, query_string=query, headers={"Authorization": "Bearer vision"}
    )

    assert answer.status_code in {200, 308, 400, 403, 404}
    assert not [key for key in world.cluster.jobs if key in answer.text and "ml-vision" not in key]


def test_a_view_that_stands_still_is_not_ready() -> None:
    """Watches may live while what is shown is old."""
    world = PageWorld()
    world.look()
    world.now_s += 300.0
    for reflector in (*world.watches.cache.reflectors.values(), world.watches.logs.reflector):
        reflector.follow_once()
    answer = world.get("/readyz")

    assert answer.status_code == 503
    assert answer.json is not None
    assert answer.json["view_age_seconds"] == 300.0
