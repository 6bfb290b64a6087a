"""Queues that lend, and trainers that are overcommitted, on a real control plane with EDL beside it."""

import contextlib
from collections.abc import Callable
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from e2e.control_plane import EDL_COMPONENTS
from e2e.environment import NODE_COUNT, SLOTS, Environment, IsolatedNamespace, readiness
from e2e.waiting import until
from kube import request
from kube.request import EVENTS, JOBS
from policy.document import parser as document
from policy.names import SYSTEM_NAMESPACE
from reconciler.jobs.status import WAITING
from runtime import clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_LIMIT_S = 60.0
"""Limit of a wait; the actual time is reported, and bench/results/queues.json has figures."""

_HOLD_S = 120
TRAINER_CPU = 5
OWN_CPU = SLOTS * TRAINER_CPU // 2
"""Each of two queues owns half of what trainers can have."""


def in_force(environment: Environment, text: str) -> float:
    """Seconds until every server reports this version of the policy."""
    begun_s = clock.monotonic_s()
    version = document.fingerprint(text)

    def versions() -> set[str]:
        urls = map(environment.control_plane.probe_url, EDL_COMPONENTS)
        return {str(readiness(url)["policy"]["version"]) for url in urls}

    until("the policy is in force", versions, lambda now: now == {version}, _LIMIT_S)
    return clock.monotonic_s() - begun_s


def metrics(environment: Environment, component: str) -> dict[str, str]:
    """Name with labels -> value, of one component."""
    parts = urlsplit(environment.control_plane.probe_url(component))
    with contextlib.closing(HTTPConnection(parts.netloc, timeout=5.0)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def test_a_new_policy_is_in_force_on_each_server(
    environment: Environment, policy: str, report: Callable[[str], None]
) -> None:
    """By /readyz and metrics; an event of the ConfigMap has the version too."""
    text = policy + "# another version\n"
    environment.set_policy(text)
    took_s = in_force(environment, text)

    version = document.fingerprint(text)
    for component in EDL_COMPONENTS:
        names = metrics(environment, component)
        assert any("_policy_info{" in name and version in name for name in names)

    def messages() -> list[str]:
        page = environment.send(request.list_page(EVENTS, SYSTEM_NAMESPACE))
        return [str(e["message"]) for e in page["items"] if e["reason"] == "PolicyInForce"]

    until(
        "the event is there",
        messages,
        lambda texts: any(version in text for text in texts),
        _LIMIT_S,
    )
    report(f"a new policy is in force on all servers after {took_s:.1f} s")


def test_an_owner_gets_its_share_back(
    namespace: IsolatedNamespace, policy: str, report: Callable[[str], None]
) -> None:
    """The other queue has the whole cluster; its minimum and its own share stay."""
    environment = namespace.environment
    queues = "\n".join(
        f'- {{name: {name}, namespaces: ["*"], nominalQuota: {{cpu: "{OWN_CPU}"}}}}'
        for name in ("research", "production")
    )
    text = f"{policy}\nqueues:\n{queues}\n"
    environment.set_policy(text)
    in_force(environment, text)
    namespace.submit("borrower", low=2, high=SLOTS, queue="research")
    namespace.wait_running("borrower", SLOTS, _LIMIT_S)
    begun_s = clock.monotonic_s()
    namespace.submit("owner", low=2, high=SLOTS, queue="production")

    owned = OWN_CPU // TRAINER_CPU
    until(
        "the owner has its share",
        lambda: namespace.running("owner"),
        lambda n: n >= owned,
        _LIMIT_S,
    )
    took_s = clock.monotonic_s() - begun_s

    namespace.wait_running("borrower", SLOTS - owned, _LIMIT_S)
    assert namespace.running("owner") == owned
    namespace.wait_exact("owner")
    namespace.wait_exact("borrower")
    report(f"{owned} trainers of the owner run after {took_s:.1f} s")


def test_a_large_minimum_starts_after_a_wait_that_its_status_shows(
    namespace: IsolatedNamespace, policy: str, report: Callable[[str], None]
) -> None:
    """In strict order nodes are held for it until a time that its condition names; younger jobs wait."""
    environment = namespace.environment
    small = SLOTS // 6
    text = f"{policy}\nadmission: {{order: strictFifo, afterSeconds: 1, holdSeconds: {_HOLD_S}}}\n"
    environment.set_policy(text)
    in_force(environment, text)
    names = [f"small-{i}" for i in range(5)]
    for name in names:
        namespace.submit(name, low=small, high=small)
        namespace.wait_running(name, small, _LIMIT_S)
    namespace.submit("large", low=SLOTS - small, high=SLOTS - small)

    def waits(name: str) -> str:
        conditions = namespace.job(name).status.conditions
        return next((c.message for c in conditions if c.type == WAITING and c.status == "True"), "")

    shown = until("nodes are held", lambda: waits("large"), lambda m: "held until" in m, _LIMIT_S)
    namespace.submit("late", low=small, high=small)  # it would fit into what is free
    until("the younger job waits", lambda: waits("late"), lambda m: "large is older" in m, _LIMIT_S)
    begun_s = clock.monotonic_s()
    for name in names:
        environment.send(request.delete(JOBS, namespace.name, name))
    namespace.wait_running("large", SLOTS - small, _LIMIT_S)
    took_s = clock.monotonic_s() - begun_s
    namespace.wait_running("late", small, _LIMIT_S)

    assert took_s < _HOLD_S
    report(
        f"{SLOTS - small} trainers start {took_s:.1f} s after the small jobs end; before: {shown}"
    )


def test_overcommitted_trainers_request_less_and_give_way_alike(
    namespace: IsolatedNamespace, policy: str, report: Callable[[str], None]
) -> None:
    """Half as many again run where the ratio is 1.5; limits and their quotas stay, and so do reclaims.

    A node of 18 CPU takes two trainers of 8.4 CPU, and three that request 5.6.
    """
    environment = namespace.environment
    overcommit = f"{policy}\novercommit: [{{trainers: {{cpu: 1.5}}}}]\n"
    quota = f"quotas: [{{namespace: {namespace.name}, limits: {{cpu: 252}}}}]\n"
    environment.set_policy(overcommit + quota)
    in_force(environment, overcommit + quota)
    namespace.submit("mnist", low=2, high=4 * SLOTS, cpu="8400m")
    namespace.wait_running("mnist", 30, _LIMIT_S)
    namespace.wait_exact("mnist")
    within_quota = len(namespace.trainers("mnist"))
    environment.set_policy(overcommit)
    namespace.wait_running("mnist", 3 * NODE_COUNT, _LIMIT_S)

    def figures() -> tuple[float, float]:
        values = metrics(environment, "reconciler")
        requests = values['edl_reconciler_cpu_cores{use="training"}']
        return float(requests), float(values['edl_reconciler_training_limits{resource="cpu"}'])

    full = (NODE_COUNT * 3 * 5.6, NODE_COUNT * 3 * 8.4)
    until("the metrics say so", figures, lambda now: now == pytest.approx(full), _LIMIT_S)
    pods = namespace.trainers("mnist")
    namespace.services(40)
    took_s = namespace.wait_services(40, _LIMIT_S)

    assert within_quota == 30  # 252 CPU of limits
    assert {(pod.requests["cpu"], pod.limits["cpu"]) for pod in pods} == {(5600, 8400)}
    report(
        f"{len(pods)} trainers run, {2 * NODE_COUNT} would without overcommit; 40 services run "
        f"after {took_s:.1f} s"
    )
