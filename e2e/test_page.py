"""The page on a real API server: real tokens, real rights, and changes as they happen."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e import commands, documented, page
from e2e.environment import Environment, IsolatedNamespace, isolated_namespace
from e2e.page import PageClient
from e2e.waiting import until
from kube import request
from kube.request import DECISIONLOGS, ROLEBINDINGS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def client(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PageClient]:
    """The page, which asks the API server about each caller anew after a second."""
    page.install(environment)
    directory = tmp_path_factory.mktemp("page")
    with page.running(environment, directory, "--access-seconds", "1") as client:
        yield client


def test_who_has_no_rights_on_a_namespace_sees_nothing_of_it(
    environment: Environment, namespace: IsolatedNamespace, client: PageClient
) -> None:
    """A tenant with the role view in one namespace has its jobs and records, and no trace of another one."""
    admin = page.token(environment, namespace.name, "chief", "cluster-admin", everywhere=True)
    tenant = page.token(environment, namespace.name, "tenant", "view", everywhere=False)
    with isolated_namespace(environment, "hidden-shop") as hidden:
        for owner, name in ((namespace, "digits"), (hidden, "secret-job")):
            owner.submit(name, low=1, high=2)
            owner.wait_running(name, 2, 40)
        hidden.services(2)
        with client.stream(admin, sections="jobs,records,nodes,usage") as events:
            _until(events, lambda seen: "secret-job" in seen and '"code"' in seen)
        seen_by_admin = client.json("/api/v1/me", admin)
        with client.stream(tenant, sections="jobs,records,reclaims") as events:
            own = _until(events, lambda seen: "digits" in seen and "'reclaims'" in seen)
        answers = [
            client.get(path, tenant)
            for path in (
                "/api/v1/me",
                "/api/v1/records",
                f"/api/v1/records?namespace={hidden.name}",
                f"/api/v1/records?job={hidden.name}/secret-job",
                "/api/v1/jobs/series",
                f"/api/v1/jobs/{hidden.name}/secret-job",
                f"/api/v1/jobs/{hidden.name}/secret-job/training",
                "/api/v1/nodes/node-0",
                f"/api/v1/stream?sections=job&job={hidden.name}/secret-job",
                "/api/v1/stream?sections=nodes,usage,objective",
            )
        ]
        own_job = client.json(f"/api/v1/jobs/{namespace.name}/digits", tenant)

    assert {namespace.name, "hidden-shop"} <= set(seen_by_admin["namespaces"])
    assert seen_by_admin["cluster"]
    assert [status for status, _ in answers] == [200] * 5 + [404, 404, 403, 404, 403]
    refused = "".join(text for _, text in answers[5:7] + answers[8:9])
    assert "visible to you" in refused
    for text in (own, *(text for status, text in answers if status == 200)):
        assert "hidden" not in text.replace(f"namespace={hidden.name}", "")
        assert "secret-job" not in text
    assert own_job["memberCount"] == 2
    assert own_job["share"] is None


def test_a_token_and_a_right_that_are_gone_show_nothing(
    environment: Environment, namespace: IsolatedNamespace, client: PageClient
) -> None:
    """A false token is refused at once, a right is gone as soon as the API server says so."""
    namespace.submit("digits", low=1, high=2)
    tenant = page.token(environment, namespace.name, "tenant", "view", everywhere=False)
    path = f"/api/v1/jobs/{namespace.name}/digits"

    def status() -> int:
        return client.get(path, tenant)[0]

    until("the tenant sees the job", status, lambda code: code == 200, 60)
    environment.send(request.delete(ROLEBINDINGS, namespace.name, "tenant"))
    until("the right is gone", status, lambda code: code == 404, 60)

    assert client.json("/api/v1/me", tenant)["namespaces"] == []
    assert client.get(path, f"{tenant[:-4]}AAAA")[0] == 401
    assert client.get(path)[0] == 401
    assert client.get("/")[0] == 200


def test_a_change_is_there_when_it_happens(
    environment: Environment,
    namespace: IsolatedNamespace,
    client: PageClient,
    report: Callable[[str], None],
) -> None:
    """A job that is created, resized and deleted, on a stream that is open."""
    admin = page.token(environment, namespace.name, "chief", "cluster-admin", everywhere=True)
    # The API server knows of a new binding a moment later; until then "usage" is refused.
    until(
        "the right is known",
        lambda: client.json("/api/v1/me", admin),
        lambda me: bool(me["cluster"]) and bool(me["everything"]),
        60,
    )
    key = f"{namespace.name}/digits"
    with client.stream(admin, sections="jobs,usage") as events:
        next(events)
        begun_s = time.monotonic()
        namespace.submit("digits", low=1, high=2)
        _until(events, lambda seen: key in seen)
        report(f"a new job is on the page after {page.measured(begun_s)}")
        namespace.wait_running("digits", 2, 40)
        begun_s = time.monotonic()
        namespace.edit("digits", {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}})
        _until(events, lambda seen: "'max': 3" in seen)
        report(f"another maximum is on the page after {page.measured(begun_s)}")
    document = client.json(f"/api/v1/jobs/{key}", admin)

    assert document["key"] == key
    assert document["members"]
    assert environment.send(request.list_page(DECISIONLOGS, namespace.name))["items"] is not None


def test_the_commands_of_the_documentation_give_tokens(
    environment: Environment, client: PageClient, tmp_path: Path
) -> None:
    """Those of docs/page.md: for an admin, who sees everything, and for a user, who sees one namespace."""
    cluster = environment.cluster
    config = tmp_path / "kubeconfig"
    config.write_bytes(cluster.admin.read_bytes())
    path = f"{cluster.kubectl.parent}:{os.environ['PATH']}"
    environ = {"PATH": path, "KUBECONFIG": str(config)}
    tokens = []
    with isolated_namespace(environment, "ml") as ml:
        ml.submit("digits", low=1, high=2)
        for block in documented.run_by("e2e/test_page.py"):
            script = f"set -e\ncd {tmp_path}\n{block.text}"
            done = commands.run(cluster, ["bash", "-c", script], environ=environ)
            assert done.returncode == 0, done.stdout + done.stderr
            tokens.append(done.stdout.split()[-1])
        admin, user = tokens

        def seen(caller: str) -> dict[str, Any]:
            me: dict[str, Any] = client.json("/api/v1/me", caller)
            return me

        until("the user sees ml", lambda: seen(user), lambda me: me["namespaces"] == ["ml"], 60)
        until(
            "the admin sees all",
            lambda: seen(admin),
            lambda me: bool(me["cluster"]) and bool(me["everything"]),
            60,
        )
        assert not seen(user)["cluster"]


def _until(
    events: Iterator[tuple[str, object]], good: Callable[[str], bool], within_s: float = 60.0
) -> str:
    """All that a stream has sent, once it is as it should be."""
    seen, end_s = "", time.monotonic() + within_s
    for event in events:
        seen += repr(event).replace('"', "'").replace("'code'", '"code"')
        if good(seen):
            return seen
        assert time.monotonic() < end_s, seen[-1000:]
    raise AssertionError(f"the stream has ended: {seen[-1000:]}")
