"""`kubectl edl` on a real API server: answers that outlive the leader, and real rights of tenants."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.errors import ExitCode
from e2e.environment import SLOTS, Environment, IsolatedNamespace, isolated_namespace
from e2e.waiting import until
from kube import request
from kube.request import ROLEBINDINGS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[1]
_LONGEST_S = 60.0
_WRITTEN_S = 40.0
"""Within which records are in the API server, on a busy machine."""


def _edl(kubeconfig: Path, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command."""
    command, *rest = words
    run = subprocess.run(
        [sys.executable, "-m", "cli", command, "--kubeconfig", str(kubeconfig), *rest],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


def _why(environment: Environment, namespace: str, name: str) -> dict[str, Any]:
    code, out, err = _edl(environment.cluster.admin, "why", name, "-n", namespace, "-o", "json")
    assert code == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


def _codes(answer: dict[str, Any]) -> set[str]:
    return {record["code"] for record in answer["history"]}


def _kept(answer: dict[str, Any]) -> set[tuple[float, str, str]]:
    """When what was recorded about what.

    Not in their order: what becomes clear late is recorded with its own time, before what is there
    already. Not their figures: names of other namespaces come with the cluster's log, a moment later.
    """
    return {(record["at"], record["about"], record["code"]) for record in answer["history"]}


def _burst(namespace: IsolatedNamespace, services: IsolatedNamespace, count: int) -> None:
    """A job that has the whole cluster gives some of it to services of another namespace."""
    namespace.submit("digits", low=2, high=SLOTS)
    namespace.wait_running("digits", SLOTS, _LONGEST_S)
    services.services(count)
    services.wait_services(count, _LONGEST_S)


def test_why_is_true_after_the_leader_was_killed(
    environment: Environment, namespace: IsolatedNamespace, report: Callable[[str], None]
) -> None:
    """Why a job has no more, which trainers left for whom, and since when: without a leader, and with another."""
    with isolated_namespace(environment, "shop-killed") as shop:
        _burst(namespace, shop, 20)
        before = until(
            "the records are written",
            lambda: _why(environment, namespace.name, "digits"),
            lambda answer: bool(_codes(answer) & {"ServicesFirst", "Preempted"}),
            _WRITTEN_S,
        )
        environment.control_plane.kill("reconciler")
        began = time.monotonic()
        without = _why(environment, namespace.name, "digits")
        report(f"why without a leader: {time.monotonic() - began:.2f} s")
        trainer = next(
            record["about"].partition("/")[2]
            for record in before["history"]
            if record["code"] in ("ServicesFirst", "Preempted")
        )
        gone = _why(environment, namespace.name, f"pod/{trainer}")
        environment.control_plane.start("reconciler")
        environment.control_plane.wait_ready("reconciler")
        shop.services(19)
        after = until(
            "another leader records",
            lambda: _why(environment, namespace.name, "digits"),
            lambda answer: answer["asOf"] > before["asOf"],
            90,
        )

    assert _kept(before) <= _kept(without)
    assert without["code"] in _codes(without)
    assert gone["code"] in ("ServicesFirst", "Preempted")
    assert _kept(without) <= _kept(after)


def test_a_burst_says_who_asked_and_who_gave(
    environment: Environment, namespace: IsolatedNamespace
) -> None:
    """With seconds by stage; the services' and the job's namespaces see their own part."""

    def bursts(name: str) -> list[dict[str, Any]]:
        code, out, err = _edl(environment.cluster.admin, "reclaims", "-o", "json", *name.split())
        assert code == 0, err
        rows: list[dict[str, Any]] = json.loads(out)
        return [row for row in rows if row["over"]]

    with isolated_namespace(environment, "shop-burst") as shop:
        _burst(namespace, shop, 24)
        burst = until(
            "the burst is over",
            lambda: [row for row in bursts("-A") if f"{namespace.name}/digits" in row["trainers"]],
            bool,
            _WRITTEN_S,
        )[-1]
        (own,) = until(
            "it is in the log of the job's namespace, too",
            lambda: [row for row in bursts(f"-n {namespace.name}") if row["id"] == burst["id"]],
            bool,
            _WRITTEN_S,
        )

        asked = [group for name, group in burst["services"].items() if name.startswith(shop.name)]
        assert sum(group["running"] for group in asked) == sum(g["count"] for g in asked) > 0
        assert burst["trainers"][f"{namespace.name}/digits"]["count"] > 0
        assert 0 < burst["stages"]["total"]["max"] < 30
        assert f"{namespace.name}/digits" in own["trainers"]


def test_who_has_no_rights_on_a_namespace_sees_nothing_of_it(
    environment: Environment, namespace: IsolatedNamespace
) -> None:
    """A tenant with the role view in his namespace has answers there, and no name of another one."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    body = {"metadata": {"name": "tenant"}, "roleRef": role, "subjects": [subject]}
    environment.send(request.create(ROLEBINDINGS, namespace.name, body))
    tenant = environment.cluster.kubeconfig("tenant")
    with isolated_namespace(environment, "hidden-shop") as hidden:
        _burst(namespace, hidden, 20)
        hidden.submit("secret-job", low=1, high=2)
        until(
            "the tenant may read, and the burst is recorded",
            lambda: _edl(tenant, "reclaims", "-n", namespace.name)[1],
            lambda out: "digits" in out,
            2 * _WRITTEN_S,
        )
        own = [
            _edl(tenant, *words, "-n", namespace.name, *form)
            for words in (["jobs"], ["why", "digits"], ["describe", "digits"], ["reclaims"])
            for form in ([], ["-o", "json"])
        ]
        refused = [
            _edl(tenant, *words)
            for words in (
                ["jobs", "-n", hidden.name],
                ["jobs", "-A"],
                ["reclaims", "-A"],
                ["reclaims", "-n", hidden.name],
                ["why", "secret-job", "-n", hidden.name],
                ["describe", "secret-job", "-n", hidden.name],
                ["suspend", "secret-job", "-n", hidden.name],
                ["suspend", "digits", "-n", namespace.name],
                ["scale", "digits", "--max", "3", "-n", namespace.name],
            )
        ]

    for code, out, err in own:
        assert (code, err) == (0, "")
        assert "hidden" not in out
        assert "secret" not in out
    for code, out, err in refused:
        assert (code, out) == (ExitCode.FORBIDDEN, "")
        assert err.count("\n") == 1
        assert err.startswith("edl: you may not ")


def test_a_user_changes_his_job(environment: Environment, namespace: IsolatedNamespace) -> None:
    """Its bounds, and whether it has trainers at all."""
    admin = environment.cluster.admin
    namespace.submit("digits", low=1, high=2)
    namespace.wait_running("digits", 2, _LONGEST_S)
    assert _edl(admin, "scale", "digits", "--max", "4", "-n", namespace.name)[0] == 0
    namespace.wait_running("digits", 4, _LONGEST_S)
    assert _edl(admin, "suspend", "digits", "-n", namespace.name)[0] == 0
    namespace.wait_running("digits", 0, _LONGEST_S)
    assert _edl(admin, "resume", "digits", "-n", namespace.name)[0] == 0
    namespace.wait_running("digits", 4, _LONGEST_S)
