"""An admin's incidents: whatever of EDL or of the API server fails, services run in time.

docs/operating.md has a row for each: what users see, and what fires. For `make faults`.
"""

import itertools
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
import urllib3

from e2e.api_proxy import ApiProxy, Fault, api_proxy
from e2e.cluster.components import APISERVER
from e2e.cluster.local import Cluster
from e2e.control_plane import EDL_COMPONENTS
from e2e.environment import SLOTS, Environment, IsolatedNamespace, readiness
from e2e.faults import authors, extender_certificate, fill, live_ids, slowed, stopped
from e2e.two_reconcilers import LEASE_S, pair
from e2e.waiting import until
from kube import request
from kube.request import SECRETS
from policy.names import SYSTEM_NAMESPACE
from runtime import certs, clock
from webhook import certificates as webhook_certificates

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

SERVICES = 40
IN_TIME_S = 30.0
"""Of forty services on a full cluster; without a fault it takes a tenth of it."""
BACK_S = 60.0
KNOWS_S = 120.0
"""A dead watch is given up after 75 s, and then there are lists."""
HOUR_S = 3600.0
_YEARS_S = 2 * certs.LEAF_LIFE.total_seconds()
OUTAGE_S = 4.0
Proxies = Mapping[str, ApiProxy]
Printer = Callable[[str], None]


@pytest.fixture(scope="module")
def proxies(
    environment: Environment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxies]:
    """EDL's servers reach the API server through these, which let everything pass at first."""
    control_plane, directory = environment.control_plane, tmp_path_factory.mktemp("proxies")
    serving = environment.cluster.serving
    with ExitStack() as stack:
        every: dict[str, ApiProxy] = {}
        for name in EDL_COMPONENTS:
            kubeconfig = control_plane.kubeconfig(name)
            every[name] = stack.enter_context(api_proxy(kubeconfig, serving, directory))
            control_plane.reach_through(name, every[name].url)
            control_plane.kill(name)
        environment.restore()
        url = control_plane.probe_url("reconciler")
        until("it leads", lambda: readiness(url).get("leader"), bool, BACK_S)  # the old lease ends
        yield every
        for name in EDL_COMPONENTS:
            control_plane.reach_through(name, environment.cluster.url)


@pytest.fixture(autouse=True)
def _healthy(environment: Environment, proxies: Proxies) -> Iterator[None]:
    """No fault is left for the next test."""
    yield
    for proxy in proxies.values():
        proxy.fault = Fault()
    environment.restore()


def _burst(
    namespace: IsolatedNamespace,
    fault: AbstractContextManager[object],
    within_s: float = IN_TIME_S,
) -> float:
    """Seconds until a burst of services runs during a fault, on a cluster full of trainers.

    Afterwards nothing is made twice or lost, and the jobs grow back.
    """
    fill(namespace, "one", "two")
    with fault:
        namespace.services(SERVICES)
        took_s = namespace.wait_services(SERVICES, within_s)
    ids = live_ids(namespace)
    assert len(ids) == len(set(ids))
    namespace.environment.restore()
    namespace.services(0)
    until(
        "the jobs share the cluster again",
        lambda: (namespace.running("one"), namespace.running("two")),
        lambda counts: sum(counts) == SLOTS and min(counts) >= 2,
        BACK_S,
    )
    for job in ("one", "two"):
        assert namespace.wait_exact(job, BACK_S).status.failed == 0
    return took_s


@pytest.mark.parametrize("component", EDL_COMPONENTS)
def test_a_server_that_hangs(namespace: IsolatedNamespace, component: str, report: Printer) -> None:
    """It takes connections, and answers nobody."""
    send = partial(namespace.environment.control_plane.signal, component)
    took_s = _burst(namespace, stopped(send))

    report(f"{component} hangs: {SERVICES} services run after {took_s:.1f} s")


@pytest.mark.parametrize("component", EDL_COMPONENTS)
def test_a_server_that_is_slow(
    namespace: IsolatedNamespace, component: str, report: Printer
) -> None:
    """It gets a tenth of its time."""
    send = partial(namespace.environment.control_plane.signal, component)
    took_s = _burst(namespace, slowed(send))

    report(f"{component} is slow: {SERVICES} services run after {took_s:.1f} s")


@contextmanager
def _refusing(proxies: Proxies, fault: Fault) -> Iterator[None]:
    """Requests of all of EDL's servers have the fault."""
    for proxy in proxies.values():
        proxy.fault = fault
    try:
        yield
    finally:
        for proxy in proxies.values():
            proxy.fault = Fault()


@pytest.mark.parametrize(
    "fault", [Fault(status=429), Fault(status=500), Fault(delay_s=1.0)], ids=["429", "500", "slow"]
)
def test_an_api_server_that_refuses_edl(
    namespace: IsolatedNamespace, proxies: Proxies, fault: Fault, report: Printer
) -> None:
    """Every second request of EDL's servers is refused, or every answer takes a second more."""
    took_s = _burst(namespace, _refusing(proxies, fault))
    refused = sum(proxy.refused for proxy in proxies.values())

    report(f"{fault}: {SERVICES} services run after {took_s:.1f} s; {refused} refusals so far")


def _server(cluster: Cluster, number: signal.Signals) -> None:
    """A signal to the API server, which is one process."""
    os.kill(cluster.pid(APISERVER), number)


def test_an_api_server_that_is_slow_for_all(namespace: IsolatedNamespace, report: Printer) -> None:
    """It gets a tenth of its time, so that kube-scheduler is slow, too."""
    send = partial(_server, namespace.environment.cluster)
    took_s = _burst(namespace, slowed(send), 3 * IN_TIME_S)

    report(f"API server is slow: {SERVICES} services run after {took_s:.1f} s")


@contextmanager
def _restarting(cluster: Cluster) -> Iterator[None]:
    """The API server goes away when the block begins, and comes back after some seconds."""
    cluster.kill(APISERVER)
    try:
        time.sleep(OUTAGE_S)
    finally:
        cluster.start(APISERVER)
    yield


def test_an_api_server_that_restarts(namespace: IsolatedNamespace, report: Printer) -> None:
    """The services are wanted as soon as it is back, before EDL's watches are."""
    took_s = _burst(namespace, _restarting(namespace.environment.cluster))

    report(f"API server restarted: {SERVICES} services run after {took_s:.1f} s")


@contextmanager
def _dead_watches(proxies: Proxies) -> Iterator[None]:
    """Open watches of EDL stay open, and bring nothing more."""
    for proxy in proxies.values():
        proxy.mute()
    yield


def test_watches_that_die_silently(
    namespace: IsolatedNamespace, proxies: Proxies, report: Printer
) -> None:
    """EDL does not hear of the services: kube-scheduler serves them, and EDL notices in a minute."""
    fill(namespace, "one", "two")
    with _dead_watches(proxies):
        namespace.services(SERVICES)
        took_s = namespace.wait_services(SERVICES, IN_TIME_S)
    begun_s = clock.monotonic_s()
    namespace.services(0)
    until(
        "the jobs share the cluster again",
        lambda: namespace.running("one") + namespace.running("two"),
        lambda count: count == SLOTS,
        KNOWS_S,
    )
    knows_s = clock.monotonic_s() - begun_s
    for job in ("one", "two"):
        assert namespace.wait_exact(job, BACK_S).status.failed == 0

    report(
        f"watches die: {SERVICES} services run after {took_s:.1f} s, all well {knows_s:.0f} s later"
    )


def _watch_age_s(environment: Environment, name: str) -> float:
    """How long a server has heard nothing of the API server, by its metrics."""
    url = f"{environment.control_plane.probe_url(name)}/metrics"
    text = urllib3.request("GET", url, timeout=10.0).data.decode()
    (age_s,) = re.findall(rf"^edl_{name}_watch_age_seconds (\S+)$", text, re.MULTILINE)
    return float(age_s)


def test_an_api_server_that_freezes_is_known_again_soon(
    environment: Environment, report: Printer
) -> None:
    """After 80 s without a word no server waits for bookmarks that do not come: it lists."""
    send = partial(_server, environment.cluster)
    with stopped(send):
        time.sleep(80.0)
    begun_s = clock.monotonic_s()

    def ages() -> list[float]:
        return [_watch_age_s(environment, name) for name in EDL_COMPONENTS]

    until("watches are fresh", ages, lambda every: max(every) < 20.0, 30.0)
    report(f"fresh {clock.monotonic_s() - begun_s:.0f} s after 80 s of silence")
    oldest_s = 0.0
    while clock.monotonic_s() - begun_s < 150.0:
        oldest_s = max(oldest_s, *ages())
        time.sleep(1.0)

    assert oldest_s < 90.0
    report(f"at most {oldest_s:.0f} s old in the minutes after")


@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_replica_whose_clock_is_an_hour_off(
    namespace: IsolatedNamespace, tmp_path: Path, offset_s: float, report: Printer
) -> None:
    """It leads as if nothing were, and the other one takes over when it dies."""
    off = ("-m", "e2e.off_clock", str(offset_s), "reconciler")
    with pair(namespace.environment, tmp_path, first=off) as two:
        fill(namespace, "one", "two")
        namespace.services(SERVICES)
        took_s = namespace.wait_services(SERVICES, IN_TIME_S)
        time.sleep(LEASE_S)
        assert two.holder() == "first"
        two.processes["first"].kill()
        until("the second leads", two.holder, lambda name: name == "second", 4 * LEASE_S)
        namespace.services(0)
        until(
            "the jobs share the cluster again",
            lambda: namespace.running("one") + namespace.running("two"),
            lambda count: count == SLOTS,
            BACK_S,
        )
        for job in ("one", "two"):
            assert namespace.wait_exact(job).status.failed == 0
            both = {"first", "second"}
            until("both have made some", partial(authors, namespace, job), both.__eq__, BACK_S)

    report(f"clock off by {offset_s:+.0f} s: {SERVICES} services run after {took_s:.1f} s")


def _new_certificates(environment: Environment, offset_s: float) -> None:
    """A webhook whose clock is off makes its certificates; it runs on."""
    environment.control_plane.kill("webhook")
    environment.control_plane.clock_offsets_s["webhook"] = offset_s
    environment.send(request.delete(SECRETS, SYSTEM_NAMESPACE, webhook_certificates.SECRET))
    environment.control_plane.start("webhook")


@contextmanager
def _right_clock_after(environment: Environment) -> Iterator[None]:
    """The webhook has the right clock again, and other certificates, when the block ends."""
    try:
        yield
    finally:
        del environment.control_plane.clock_offsets_s["webhook"]
        _new_certificates(environment, 0.0)
        environment.control_plane.wait_ready("webhook")


def _is_elastic(namespace: IsolatedNamespace, name: str) -> bool:
    """Returns whether the API server gets the webhook's answer for a new Job."""
    namespace.submit(name, low=1, high=2)
    return namespace.job(name).managed


def test_a_webhook_whose_clock_is_an_hour_ahead(namespace: IsolatedNamespace) -> None:
    """The API server takes the certificates that it makes; new Jobs are elastic."""
    environment = namespace.environment
    with _right_clock_after(environment):
        _new_certificates(environment, HOUR_S)
        environment.control_plane.wait_ready("webhook")
        names = (f"job-{number}" for number in itertools.count())
        until("Jobs are elastic", lambda: _is_elastic(namespace, next(names)), bool, BACK_S)


def test_a_webhook_whose_certificate_has_expired(
    namespace: IsolatedNamespace, report: Printer
) -> None:
    """New Jobs are ordinary and services run; a webhook that comes back renews it by itself."""
    environment = namespace.environment
    with _right_clock_after(environment):
        _new_certificates(environment, -_YEARS_S)
        environment.control_plane.wait_ready("webhook")
        names = (f"job-{number}" for number in itertools.count())
        until("Jobs are ordinary", lambda: not _is_elastic(namespace, next(names)), bool, BACK_S)
        environment.control_plane.clock_offsets_s["webhook"] = 0.0
        environment.control_plane.kill("webhook")
        environment.restore()
        begun_s = clock.monotonic_s()
        until("Jobs are elastic", lambda: _is_elastic(namespace, next(names)), bool, BACK_S)

    report(
        f"an expired webhook certificate is renewed {clock.monotonic_s() - begun_s:.0f} s after the start"
    )


def test_an_extender_whose_certificate_has_expired(
    namespace: IsolatedNamespace, report: Printer
) -> None:
    """kube-scheduler refuses to talk to it, and goes on without it."""
    issued = clock.now() - 2 * certs.LEAF_LIFE
    took_s = _burst(namespace, extender_certificate(namespace.environment, issued))

    report(f"extender's certificate expired: {SERVICES} services run after {took_s:.1f} s")
