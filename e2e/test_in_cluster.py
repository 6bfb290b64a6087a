"""EDL as its users have it: installed by kustomize, on a real node, from its image, until it is removed.

The tests of this file are one story on one cluster, in their order: install, a job's life, a burst of
services, the three ways to the scheduler, removal.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import orjson
import pytest
import urllib3
import yaml

from e2e import documented, rights, scheduling
from e2e.cluster.components import SchedulerOptions
from e2e.environment import Environment, IsolatedNamespace
from e2e.in_cluster import (
    CHART,
    COMPONENTS,
    FIRST_JOB_S,
    NAMESPACE,
    REPOSITORY,
    SCHEDULER_IMAGE,
    SLEEP,
    WAIT_S,
    BareCluster,
    Printer,
    bare_cluster,
    elastic_job,
    installed,
    is_busy,
    is_refused,
    services,
)
from e2e.reader import failed_commands
from e2e.scheduling import OWN, OWN_SCHEDULER, SchedulingMode
from e2e.server_starts import READY_S, addresses, restarted
from e2e.waiting import until
from kube import request
from kube.request import JOBS, PODS, SECRETS
from policy.document.model import VERSION
from policy.document.parser import fingerprint
from policy.names import SYSTEM_NAMESPACE, Tier
from runtime import certs, clock
from webhook import certificates
from webhook.certificates import CertificateSet

REQUESTED_MIB = {"webhook": 128, "extender": 256, "reconciler": 256}
TESTED = {"edl-webhook", "edl-extender"}
pytestmark = [pytest.mark.e2e, pytest.mark.alone, pytest.mark.timeout(900)]  # the first run builds


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareCluster]:
    """One real node and no EDL yet."""
    with bare_cluster(tmp_path_factory.mktemp("in-cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(bare: BareCluster) -> Iterator[Environment]:
    """The cluster with a watch of its pods."""
    with installed(bare) as prepared:
        yield prepared


@pytest.fixture
def ml(environment: Environment) -> IsolatedNamespace:
    """The namespace of the jobs."""
    return IsolatedNamespace(environment, NAMESPACE)


def _refusals(bare: BareCluster) -> set[str]:
    """Returns the API server's counts of calls that RBAC refused."""
    text = bare.kubectl("get", "--raw", "/metrics")
    return set(re.findall(r'^apiserver_request_total\{code="403".*$', text, re.MULTILINE))


def _metric(environment: Environment, server: str, pattern: str) -> float:
    """Returns the sum of a metric's samples over those pods of a server that answer."""
    page = environment.send(request.list_page(PODS, SYSTEM_NAMESPACE))
    addresses = [
        pod["status"].get("podIP")
        for pod in page["items"]
        if pod["metadata"]["labels"].get("app.kubernetes.io/name") == f"edl-{server}"
    ]
    total = 0.0
    for address in filter(None, addresses):
        with contextlib.suppress(urllib3.exceptions.HTTPError):
            url = f"http://{address}:8080/metrics"
            answer = urllib3.request("GET", url, timeout=5.0, retries=False)
            samples = re.findall(rf"^{pattern} (\S+)$", answer.data.decode(), re.MULTILINE)
            total += sum(map(float, samples))
    return total


@pytest.fixture(scope="module")
def refused_before(bare: BareCluster) -> set[str]:
    """What RBAC has refused before EDL was there."""
    return _refusals(bare)


@pytest.mark.usefixtures("refused_before")
def test_three_commands_lead_to_a_running_job(
    bare: BareCluster,
    ml: IsolatedNamespace,
    report: Printer,
) -> None:
    """`apply -k`, `wait`, and the Job: the webhook has made its certificates and those of the extender."""
    overlay = bare.overlay()
    machine_is_busy = is_busy()
    begun_s = clock.monotonic_s()
    bare.kubectl("apply", "-k", str(overlay))
    bare.wait_available()
    available_s = clock.monotonic_s() - begun_s
    bare.apply(elastic_job("digits", 2, 20, "100m", SLEEP))
    until("the job runs", lambda: ml.running("digits"), lambda count: count >= 2, WAIT_S)
    took_s = clock.monotonic_s() - begun_s
    report(f"servers available after {available_s:.1f} s, the first job runs after {took_s:.1f} s")

    assert took_s < FIRST_JOB_S or machine_is_busy, bare.logs()


def test_the_job_grows_into_what_is_free(ml: IsolatedNamespace) -> None:
    """The node has two CPUs; what EDL and the DNS request is not the job's."""
    grown = until("it grows", lambda: ml.running("digits"), lambda count: count >= 6, WAIT_S)

    assert grown <= 20
    assert ml.job("digits").managed


def test_an_admin_sees_what_training_uses(bare: BareCluster) -> None:
    """`doctor` asks each pod, and finds nothing wrong; it has the same line as the reconciler's log."""
    report = bare.admin("doctor")
    label = "app.kubernetes.io/name=edl-reconciler"
    log = bare.kubectl("-n", SYSTEM_NAMESPACE, "logs", "-l", label, "--tail=-1")
    assert not re.search("^error", report, re.MULTILINE), report
    assert report.count("knows the cluster as of") == 5
    assert re.search(r"cluster: 1 nodes; CPU \S+ cores \(training [\d.]*[1-9]", report), report
    assert re.search(r'"cluster".*CPU \S+ cores \(training', log), log


def test_a_mistake_is_refused_through_the_service(bare: BareCluster) -> None:
    """The API server finds the webhook by its Service, with the bundle that the webhook published."""
    with pytest.raises(AssertionError, match="min must not exceed max"):
        bare.apply(elastic_job("wrong", 4, 2, "100m", SLEEP))


def test_the_chart_leaves_what_kustomize_has_installed(bare: BareCluster) -> None:
    """Helm would stop half-way, at the first object that is not its own."""
    words = ("--namespace", SYSTEM_NAMESPACE, "--set", f"image.repository={REPOSITORY}")
    with pytest.raises(AssertionError, match=r"another EDL is installed \(without Helm\)"):
        bare.helm("install", "edl", str(CHART), *words)


def test_kube_scheduler_asks_the_extender_at_its_service(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """By the address of the Service, with the certificates that the webhook made; EDL notices it."""
    bare.register_extender()
    bare.restart("reconciler")
    found = 'edl_reconciler_extender_registration\\{[^}]*state="registered"[^}]*\\}'
    until(
        "EDL knows it", lambda: _metric(environment, "reconciler", found), lambda n: n > 0, WAIT_S
    )
    bare.apply(elastic_job("marked", 1, 1, "50m", SLEEP))
    ml.wait_running("marked", 1, WAIT_S)
    asked = 'edl_extender_last_request_timestamp_seconds\\{verb="filter"\\}'

    assert _metric(environment, "extender", asked) > clock.epoch_s() - WAIT_S
    assert all(pod.marked for pod in ml.trainers("marked"))
    bare.kubectl("-n", NAMESPACE, "delete", "job", "marked")


def test_a_second_scheduler_finds_the_extender_by_name(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace
) -> None:
    """A pod with `deploy/own-scheduler`: the cluster's DNS, the certificates of the one Secret, its own rights."""
    bare.cluster.configure_scheduler(SchedulerOptions())
    images = {"registry.k8s.io/kube-scheduler": SCHEDULER_IMAGE}
    overlay = str(bare.overlay(OWN, images, "own-scheduler"))
    bare.kubectl("apply", "-k", overlay)
    words = ("rollout", "status", "deployment", OWN_SCHEDULER, "--timeout=90s")
    bare.kubectl("-n", SYSTEM_NAMESPACE, *words)
    _set_policy(environment, {"scheduling": {"schedulerName": OWN_SCHEDULER, "extender": "always"}})
    bare.apply(elastic_job("own", 1, 1, "50m", SLEEP))
    begun_s = clock.epoch_s()
    ml.wait_running("own", 1, WAIT_S)
    asked = 'edl_extender_last_request_timestamp_seconds\\{verb="filter"\\}'
    asked_s = _metric(environment, "extender", asked)
    (trainer,) = ml.trainers("own")
    bare.kubectl("-n", NAMESPACE, "delete", "job", "own")
    _set_policy(environment, {})
    bare.kubectl("delete", "-k", overlay)

    assert asked_s > begun_s - 5.0
    assert (trainer.marked, trainer.scheduler) == (True, OWN_SCHEDULER)


def _set_policy(environment: Environment, settings: dict[str, Any]) -> None:
    """Replaces the policy, as an admin's edit does; returns when it is in force in all servers."""
    text = yaml.safe_dump({"apiVersion": VERSION, "kind": "Policy", **settings})
    environment.set_policy(text)
    for server in COMPONENTS:
        in_force = partial(_in_force, environment, server, fingerprint(text))
        until(f"{server} has the policy", in_force, bool, WAIT_S)


def _in_force(environment: Environment, server: str, version: str) -> bool:
    """Returns whether all pods of a server that answer have this policy."""
    newest, every = (
        _metric(environment, server, rf"edl_{server}_policy_info\{{{labels}\}}")
        for labels in (f'[^}}]*version="{version}"[^}}]*', "[^}]*")
    )
    return newest == every > 0


def test_a_burst_of_services_takes_its_room_from_trainers(
    bare: BareCluster, ml: IsolatedNamespace, report: Printer
) -> None:
    """All of them run at once; the guaranteed trainers stay, and the surplus comes back afterwards."""
    before = until("it has grown", lambda: ml.running("digits"), lambda n: n >= 6, WAIT_S)
    bare.apply(services(4))
    took_s = ml.wait_services(4, WAIT_S)
    during = ml.running("digits")
    report(f"four services run after {took_s:.1f} s; trainers went from {before} to {during}")
    bare.kubectl("-n", NAMESPACE, "delete", "deployment", "web")
    until("it grows back", lambda: ml.running("digits"), lambda n: n >= before - 1, WAIT_S)

    assert 2 <= during < before


def test_an_update_of_all_servers_misses_no_admission(
    bare: BareCluster, environment: Environment, ml: IsolatedNamespace, report: Printer
) -> None:
    """Jobs that are wrong are refused all the time, although the registrations fail open.

    The webhook's certificate is due, too. The servers' new pods have the priority to take the room of surplus; guaranteed trainers stay.
    """
    _age_certificate(environment)
    guaranteed = {pod.name for pod in ml.trainers("digits") if pod.tier is Tier.GUARANTEED}
    wrong = dict(elastic_job("wrong", 4, 2, "100m", SLEEP))
    create = replace(request.create(JOBS, NAMESPACE, wrong), query=(("dryRun", "All"),))
    accepted, refused = 0, 0
    with ThreadPoolExecutor(1) as pool:
        updating = pool.submit(bare.restart, *COMPONENTS)
        while not updating.done():
            was_refused = is_refused(environment, create)
            refused += was_refused
            accepted += not was_refused
            time.sleep(0.1)
        updating.result()
    report(f"{refused} reviews while all servers were replaced")

    assert accepted == 0
    assert certs.expires(_certificates(environment).leaf.cert) > clock.now() + certs.RENEW_BEFORE
    assert {pod.name for pod in ml.trainers("digits") if pod.tier is Tier.GUARANTEED} == guaranteed


def _certificates(environment: Environment) -> CertificateSet:
    """What the webhook's replicas share."""
    secret = environment.send(request.get(SECRETS, SYSTEM_NAMESPACE, certificates.SECRET))
    cert_set = certificates.read(secret)
    assert cert_set is not None
    return cert_set


def _age_certificate(environment: Environment) -> None:
    """The webhook's certificate has 65 days left."""
    cert_set, hosts = _certificates(environment), certificates.names(SYSTEM_NAMESPACE, ())
    issued = clock.now() - timedelta(days=300)
    leaf = certs.issue(cert_set.ca, certificates.REGISTRATION, issued, hosts=hosts)
    body = {"data": certificates.secret_data(replace(cert_set, leaf=leaf))}
    patch = request.merge_patch(SECRETS, SYSTEM_NAMESPACE, certificates.SECRET, body)
    environment.send(patch)


def test_the_accounts_have_the_rights_that_they_use(
    bare: BareCluster, refused_before: set[str]
) -> None:
    """In all of this file until here RBAC refused nothing, and webhook and extender have no right too many.

    `test_rights.py` has the reconciler's.
    """
    granted = rights.granted(scheduling.manifests(SchedulingMode.EXTENDER))
    tested = {right for right in granted if right.account in TESTED}

    def unused() -> set[str]:
        """Records are written some seconds after what they tell."""
        return {str(right) for right in rights.unused(tested, _audited(bare))}

    until("all rights are used", unused, lambda names: not names, WAIT_S)

    assert _refusals(bare) == refused_before
    assert {str(right) for right in rights.refused(_audited(bare))} == set()


def _audited(bare: BareCluster) -> list[rights.AuditedRequest]:
    return rights.read(rights.audit_log(bare.directory).read_text(encoding="utf-8"))


_MEMORY = (
    "import glob, os\n"
    "paths = set(glob.glob('/proc/[0-9]*/smaps_rollup')) - {f'/proc/{os.getpid()}/smaps_rollup'}\n"
    "lines = [line for path in paths for line in open(path) if line.startswith('Pss:')]\n"
    "print(sum(int(line.split()[1]) for line in lines))\n"
)
"""Prints the KiB of all processes of a container but its own."""


@pytest.mark.parametrize("server", COMPONENTS)
def test_a_new_pod_of_a_server_is_ready_soon(
    bare: BareCluster, environment: Environment, server: str, report: Printer
) -> None:
    """Within three seconds of its first instruction, on a machine that does nothing else."""
    machine_is_busy = is_busy()
    start = restarted(bare, environment, server)
    report(
        f"{server} is ready {start.ready_s:.2f} s after its start, with {start.cpu_s:.2f} s of CPU"
    )

    assert start.ready_s < READY_S or machine_is_busy


def test_servers_use_less_than_they_request(
    bare: BareCluster, environment: Environment, report: Printer
) -> None:
    """Of memory, after all that happened here: the proportional share of each process of a pod."""
    used_mib = {
        name: int(bare.kubectl("-n", SYSTEM_NAMESPACE, "exec", name, "--", "python", "-c", _MEMORY))
        >> 10
        for server in COMPONENTS
        for name in addresses(environment, server)
    }
    report("; ".join(f"{name}: {mib} MiB" for name, mib in sorted(used_mib.items())))

    assert len(used_mib) == 5
    for name, mib in used_mib.items():
        assert mib < REQUESTED_MIB[name.split("-")[1]], name


def test_the_commands_of_the_documents_work(bare: BareCluster) -> None:
    """Each block as it is printed; `doctor`, which is among them, finds no error."""
    job = orjson.dumps(elastic_job("digits", 2, 20, "100m", SLEEP)).decode()
    blocks = documented.run_by("e2e/test_in_cluster.py")
    failed = {
        f"{block.page}:{block.line}": lines
        for block in blocks
        if (lines := failed_commands(bare, block.text, {"digits.yaml": job}))
    }
    binding = scheduling.BASE.parent / "components" / "namespaces" / "rolebinding.yaml"
    bare.kubectl("-n", NAMESPACE, "delete", "-f", str(binding))

    assert len(blocks) > 10
    assert failed == {}


def test_servers_need_little_and_write_nowhere(bare: BareCluster, environment: Environment) -> None:
    """No root, no privilege, no shell; each restarts never."""
    page = environment.send(request.list_page(PODS, SYSTEM_NAMESPACE))
    servers = [
        pod
        for pod in page["items"]
        if pod["spec"]["containers"][0]["image"].startswith("edl.local/edl")
    ]
    restarts = {
        pod["metadata"]["name"]: status["restartCount"]
        for pod in servers
        for status in pod["status"]["containerStatuses"]
    }
    (first, *_) = servers
    with pytest.raises(AssertionError, match=r"executable file not found|no such file"):
        bare.kubectl(
            "-n", SYSTEM_NAMESPACE, "exec", first["metadata"]["name"], "--", "sh", "-c", "id"
        )
    user = bare.kubectl(
        *("-n", SYSTEM_NAMESPACE, "exec", first["metadata"]["name"], "--"),
        *("python", "-c", "import os; print(os.getuid(), os.access('/app', os.W_OK))"),
    )

    assert set(restarts.values()) == {0}
    assert user.split() == ["65532", "False"]


def test_removal_leaves_the_jobs_and_nothing_else(bare: BareCluster, ml: IsolatedNamespace) -> None:
    """Trainers run on, as docs/install.md says; of EDL no object is left."""
    running = {pod.name for pod in ml.trainers("digits")}
    bare.kubectl("delete", "-k", str(bare.overlay()), "--timeout=120s")
    time.sleep(2.0)  # what a server that ends might still write
    kinds = bare.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    words = ("-A", "-l", "app.kubernetes.io/part-of=edl", "--ignore-not-found", "-o", "name")
    remaining = bare.kubectl("get", ",".join(kinds), *words).split()
    classes = bare.kubectl("get", "priorityclasses", "-o", "name")

    assert remaining == []
    assert "edl-" not in classes
    assert {pod.name for pod in ml.trainers("digits")} >= running
