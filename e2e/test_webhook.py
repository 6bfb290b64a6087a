"""The webhook as a process, called by a real API server, with the rights it is deployed with."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
import urllib3
import yaml

from e2e.cluster.local import Cluster, running
from e2e.cluster.process import Process
from e2e.control_plane import RESOURCES
from e2e.environment import has_account
from e2e.registrations import by_url
from e2e.waiting import until_true
from kube import config, request
from kube.client import Client
from kube.errors import Forbidden, Invalid, NotFound
from kube.request import (
    CONFIGMAPS,
    JOBS,
    MUTATINGWEBHOOKS,
    NAMESPACES,
    PODS,
    PRIORITYCLASSES,
    REPLICASETS,
)
from policy.names import POLICY_CONFIGMAP, SCHEDULING_CONFIGMAP, SYSTEM_NAMESPACE
from policy.priority_classes import EDL_CLASSES
from policy.scheduling import Registration, SchedulerCheck
from runtime import certs, clock

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

CLIENT_CA = "api-server-ca.pem"
"""Issues the certificate that the API server shows to webhooks."""
ROOT = Path(__file__).parents[1]
BASE = ROOT / "deploy" / "base"
IDENTITY = "system:serviceaccount:edl-system:edl-webhook"
RECONCILER = "system:serviceaccount:edl-system:edl-reconciler"
BOUNDS = {"edl.training/min-trainers": "2", "edl.training/max-trainers": "60"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
}


@dataclass
class World:
    """A cluster with a running webhook."""

    cluster: Cluster
    api: Client
    directory: Path
    process: Process | None = None
    address: str = ""
    probes: str = ""

    def send(self, api_request: request.Request) -> Any:
        """Returns the answer, decoded."""
        return orjson.loads(self.api.send(api_request))

    def get(self, path: str) -> urllib3.BaseHTTPResponse:
        """Returns the webhook's answer on the port of its probes."""
        with urllib3.PoolManager(timeout=5.0) as pool:
            return pool.request("GET", f"http://{self.probes}{path}", retries=False)

    def ready(self) -> bool:
        """Returns whether it says so."""
        try:
            return self.get("/readyz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def reviews(self, verb: str) -> float:
        """Returns how many reviews of one verb it has answered."""
        lines = self.get("/metrics").data.decode().splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("edl_webhook_reviews_total{") and f'verb="{verb}"' in line
        )

    def stop(self, *, hard: bool = False) -> None:
        """Ends the webhook: by SIGKILL, or as Kubernetes does."""
        if self.process is None:
            return
        if not hard:
            self.process.terminate()
            self.process.wait(15.0)
        self.process.kill()
        self.process = None

    def start(self) -> None:
        """Starts the webhook, on the address it had before if there was one."""
        announce = self.directory / "address"
        announce.unlink(missing_ok=True)
        self.process = Process(
            "webhook",
            [
                *(sys.executable, "-m", "webhook"),
                f"--listen={self.address or '127.0.0.1:0'}",
                "--probe-listen=127.0.0.1:0",
                f"--client-ca={self.directory / CLIENT_CA}",
                f"--announce-file={announce}",
                f"--kubeconfig={self.cluster.kubeconfig(IDENTITY)}",
                f"--certificate-dir={self.directory / 'certificate'}",
                *("--hosts=127.0.0.1", "--drain-seconds=0"),
            ],
            self.directory / "webhook.log",
            cwd=ROOT,
        )
        until_true(announce.exists)
        self.address, self.probes = announce.read_text().split()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One cluster and one webhook for all tests; each test uses different names."""
    directory = tmp_path_factory.mktemp("webhook")
    flags = (f"--admission-control-config-file={_client_certificate(directory)}",)
    with running(directory / "cluster", apiserver_args=flags) as cluster:
        api = Client(config.load(cluster.admin))
        for name in (SYSTEM_NAMESPACE, "training", "vision"):
            api.send(request.create(NAMESPACES, None, {"metadata": {"name": name}}))
            until_true(partial(has_account, api, name))
        _install(api, BASE / "webhook-rbac.yaml", lambda document: document)
        for name, values in EDL_CLASSES.items():
            body = {
                "metadata": {"name": name},
                "value": values.value,
                "preemptionPolicy": values.preemption_policy,
            }
            api.send(request.create(PRIORITYCLASSES, None, body))
        started = World(cluster, api, directory)
        try:
            started.start()
            _install(
                api,
                BASE / "webhook-configuration.yaml",
                lambda document: by_url(document, f"https://{started.address}"),
            )
            until_true(started.ready)
            until_true(lambda: _called(started))
            yield started
        finally:
            started.stop()
            api.close()


def _client_certificate(directory: Path) -> Path:
    """Makes a certificate for the API server; returns its configuration, as docs/install.md has it."""
    ca = certs.new_ca("api-server-to-webhooks", clock.now())
    leaf = certs.issue(ca, "api-server", clock.now())
    (directory / CLIENT_CA).write_bytes(ca.cert)
    pem = directory / "api-server.pem"
    pem.write_bytes(leaf.cert + leaf.key)
    user = {"client-certificate": str(pem), "client-key": str(pem)}
    kubeconfig = directory / "webhooks-kubeconfig.yaml"
    document = {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]}
    kubeconfig.write_text(yaml.safe_dump(document))
    plugin = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(kubeconfig),
    }
    configuration = directory / "admission.yaml"
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {"name": name, "configuration": plugin}
            for name in ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
        ],
    }
    configuration.write_text(yaml.safe_dump(document))
    return configuration


def _install(
    api: Client, file: Path, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> None:
    for document in yaml.safe_load_all(file.read_text()):
        kind = RESOURCES[document["kind"]]
        namespace = document["metadata"].get("namespace")
        api.send(request.create(kind, namespace, change(document)))


def _called(world: World) -> bool:
    """Returns whether the API server calls the webhook by now, for both: it learns of each separately.

    A dry run of a trainer gets patched, and one of a Job without a maximum is refused.
    """
    pod = world.send(_dry(_pod("probe", {"edl.training/job": "probe"})))
    try:
        world.send(_dry(_job("probe", {"edl.training/min-trainers": "9"})))
    except Invalid:
        return "priorityClassName" in pod["spec"]
    return False


def _is_allowed(client: Client) -> bool:
    """Returns whether the API server knows its rights by now."""
    try:
        client.send(_dry(_pod("probe", {"app": "x"})))
    except Forbidden:
        return False
    return True


def _dry(api_request: request.Request) -> request.Request:
    return replace(api_request, query=(*api_request.query, ("dryRun", "All")))


def _pod(
    name: str, labels: dict[str, str], namespace: str = "training", **spec: Any
) -> request.Request:
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {**TEMPLATE["spec"], **spec},
    }
    return request.create(PODS, namespace, body)


def _job(name: str, annotations: dict[str, str], **spec: Any) -> request.Request:
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"template": TEMPLATE, **spec},
    }
    return request.create(JOBS, "training", body)


def test_ready_with_the_rights_of_its_role(world: World) -> None:
    """With webhook-rbac.yaml alone it watches, keeps its Secret and publishes its CA."""
    until_true(lambda: all(world.get("/readyz").json()["synced"].values()))
    details = world.get("/readyz").json()

    assert details["synced"].keys() == {
        "configmaps",
        "priorityclasses",
        "scheduling",
        "deployments",
    }
    assert details["certificate"]["error"] == ""


def test_only_the_api_server_may_ask_for_a_review(world: World) -> None:
    """With a client CA, others fail in the handshake; its own reviews come with its certificate."""
    before = world.reviews("mutate")
    with (
        urllib3.PoolManager(cert_reqs="CERT_NONE", timeout=5.0) as stranger,
        warnings.catch_warnings(action="ignore"),
        pytest.raises(urllib3.exceptions.HTTPError),
    ):
        stranger.request("POST", f"https://{world.address}/mutate", json={}, retries=False)
    world.send(_dry(_pod("asked", {"edl.training/job": "asked"})))

    assert world.reviews("mutate") == before + 1


def test_priority_triple_is_accepted(world: World) -> None:
    """The Priority plugin runs again after the patch and agrees with all three fields."""
    labels = {"edl.training/job": "resnet", "edl.training/tier": "guaranteed"}
    pod = world.send(_pod("trainer", labels, terminationGracePeriodSeconds=300))
    spec = pod["spec"]

    assert spec["priorityClassName"] == "edl-guaranteed"
    assert (spec["priority"], spec["preemptionPolicy"]) == (-8, "PreemptLowerPriority")
    assert spec["terminationGracePeriodSeconds"] == 10
    assert pod["metadata"]["labels"]["edl.training/role"] == "trainer"


def test_pods_request_the_marker_once_the_extender_is_known(world: World) -> None:
    """Not before: the reconciler has not stored what the scheduler says of it."""
    labels = {"edl.training/job": "resnet"}
    numbers = count()

    def resources() -> object:
        pod = world.send(_pod(f"marked-{next(numbers)}", labels))
        return pod["spec"]["containers"][0]["resources"].get("requests")

    before = resources()
    check = SchedulerCheck(registration=Registration.REGISTERED)
    body = {"metadata": {"name": SCHEDULING_CONFIGMAP}, "data": check.to_data()}
    world.send(request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body))
    until_true(lambda: resources() == {"edl.training/trainer": "1"})

    assert before is None


def test_own_class_is_taken_away(world: World) -> None:
    """A training pod that names a higher class gets ours all the same."""
    pod = world.send(_pod("critical", {"edl.training/job": "x"}, priorityClassName="edl-support"))

    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("edl-surplus", -1000)


def test_pods_of_a_replicaset_are_support(world: World) -> None:
    """Pods that the ReplicaSet controller makes, without a name yet, are changed too."""
    labels = {"edl.training/job": "resnet", "edl.training/role": "pserver"}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "x"}]},
        },
    }
    body = {"metadata": {"name": "pserver"}, "spec": spec}
    world.send(request.create(REPLICASETS, "training", body))
    listing = request.list_page(PODS, "training", label_selector="edl.training/role=pserver")
    until_true(lambda: len(world.send(listing)["items"]) == 2)

    specs = [pod["spec"] for pod in world.send(listing)["items"]]

    assert {spec["priorityClassName"] for spec in specs} == {"edl-support"}
    assert {spec["priority"] for spec in specs} == {-5}


def test_complete_trainers_of_the_reconciler_are_not_sent(world: World) -> None:
    """Each would cost a call that changes nothing; what may be incomplete is sent, whoever made it."""
    _install(world.api, BASE / "reconciler-rbac.yaml", lambda document: document)
    identity = config.load(world.cluster.kubeconfig(RECONCILER))
    labels = {"edl.training/job": "resnet", "edl.training/role": "trainer"}
    trainer = _pod("sent", labels, priorityClassName="edl-surplus")
    classless = _pod("classless", labels)
    host = _pod("host", labels | {"edl.training/master": "true"}, priorityClassName="edl-surplus")
    with closing(Client(identity)) as reconciler:
        until_true(lambda: _is_allowed(reconciler))
        created, *others = [
            orjson.loads(reconciler.send(_dry(sent))) for sent in (trainer, classless, host)
        ]

    assert "edl.training/tier" not in created["metadata"]["labels"]
    for pod in (*others, world.send(_dry(trainer))):
        assert pod["metadata"]["labels"]["edl.training/tier"] == "surplus"


def test_services_and_kube_system_are_left_alone(world: World) -> None:
    """A pod that does not train, and any pod of kube-system, is stored as it was written."""
    service = world.send(_pod("web", {"app": "web"}))
    system = world.send(_pod("sneaky", {"edl.training/job": "x"}, "kube-system"))

    assert "priorityClassName" not in service["spec"]
    assert "priorityClassName" not in system["spec"]


def test_elastic_job_is_handed_over(world: World) -> None:
    """The Job gets managedBy and its minimum, and the built-in controller leaves it alone."""
    job = world.send(_job("elastic", BOUNDS))

    assert job["spec"]["managedBy"] == "edl.training/reconciler"
    assert job["spec"]["parallelism"] == 2
    assert "completions" not in job["spec"]
    labels = job["spec"]["template"]["metadata"]["labels"]
    assert labels["edl.training/job"] == "elastic"
    assert labels["edl.training/role"] == "trainer"


@pytest.mark.parametrize(
    ("annotations", "spec", "message"),
    [
        ({"edl.training/min-trainers": "9"}, {}, "edl.training/max-trainers is missing"),
        ({**BOUNDS, "edl.training/min-trainers": "61"}, {}, "min must not exceed max"),
        (BOUNDS, {"completions": 5, "parallelism": 5}, "spec.completions is 5"),
        ({"edl.training/min-trainer": "2"}, {}, "write edl.training/min-trainers"),
    ],
)
def test_bad_jobs_are_refused(
    world: World, annotations: dict[str, str], spec: dict[str, Any], message: str
) -> None:
    """Kubectl shows which annotation or field is wrong and what would be right."""
    with pytest.raises(Invalid, match=message):
        world.send(_job("bad", annotations, **spec))


def test_update_of_bounds_is_checked_and_books_are_not(world: World) -> None:
    """New bounds are looked at; what the reconciler writes all the time is not even sent."""
    world.send(_job("updated", BOUNDS))
    before = world.reviews("validate")
    for patch in (
        {"metadata": {"annotations": {"edl.training/books": "{}"}}},
        {"spec": {"parallelism": 7}},
    ):
        world.send(request.merge_patch(JOBS, "training", "updated", patch))
    after = world.reviews("validate")
    worse = {"metadata": {"annotations": {"edl.training/max-trainers": "1"}}}
    none = {"metadata": {"annotations": dict.fromkeys(BOUNDS)}}
    better = {"metadata": {"annotations": {"edl.training/max-trainers": "80"}}}
    misspelt = {"metadata": {"annotations": {"edl.training/qeue": "research"}}}

    assert after == before
    with pytest.raises(Invalid, match="min must not exceed max"):
        world.send(request.merge_patch(JOBS, "training", "updated", worse))
    with pytest.raises(Invalid, match="set both"):
        world.send(request.merge_patch(JOBS, "training", "updated", none))
    with pytest.raises(Invalid, match=r"write edl\.training/queue"):
        world.send(request.merge_patch(JOBS, "training", "updated", misspelt))
    world.send(request.merge_patch(JOBS, "training", "updated", better))


def test_policy_is_checked_at_apply_and_then_rules(world: World) -> None:
    """A bad policy is refused with its problems; a good one decides soon after."""
    policy = "tiers: {graceSeconds: 4}\ntraining:\n- name: tf\n  labels: {tf-job: '*'}\n"

    def stored(text: str | None) -> request.Request:
        data = {} if text is None else {"policy.yaml": text}
        body = {"metadata": {"name": POLICY_CONFIGMAP}, "data": data}
        return request.create(CONFIGMAPS, SYSTEM_NAMESPACE, body)

    with pytest.raises(Invalid, match="tears: unknown field"):
        world.send(stored("tears: {}"))
    with pytest.raises(Invalid, match=r"no key policy\.yaml"):
        world.send(stored(None))
    world.send(stored(policy))
    until_true(lambda: world.get("/readyz").json()["policy"]["source"] == "configmap")
    numbers = count()  # the API server sees the new selector a moment later

    def selected() -> dict[str, Any]:
        pod_: dict[str, Any] = world.send(
            _pod(f"mnist-{next(numbers)}", {"tf-job": "mnist"}, "vision")
        )
        return pod_

    until_true(lambda: selected()["spec"]["priority"] == -1000)
    pod = selected()
    world.send(request.delete(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))

    assert pod["spec"]["priority"] == -1000
    assert pod["spec"]["terminationGracePeriodSeconds"] == 4
    assert pod["metadata"]["labels"]["edl.training/tier"] == "surplus"


def test_killed_webhook_blocks_nothing(world: World) -> None:
    """With the webhook dead, pods start unchanged at once; with it back, they are changed."""
    world.stop(hard=True)
    begun = clock.monotonic_s()
    unchanged = world.send(_pod("meanwhile", {"edl.training/job": "x"}))
    took_s = clock.monotonic_s() - begun
    world.start()
    until_true(world.ready)

    assert "priorityClassName" not in unchanged["spec"]
    assert took_s < 2.0
    until_true(lambda: _called(world))


def test_removed_bundle_comes_back(world: World) -> None:
    """The deploy file applied again has no caBundle; the webhook puts it back."""
    emptied = {"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}
    world.send(request.json_patch(MUTATINGWEBHOOKS, None, "edl-webhook", [emptied]))

    def bundle() -> str:
        registration = world.send(request.get(MUTATINGWEBHOOKS, None, "edl-webhook"))
        return str(registration["webhooks"][0]["clientConfig"].get("caBundle", ""))

    until_true(bundle)
    until_true(lambda: _called(world))


def test_nothing_of_a_dry_run_stays(world: World) -> None:
    """A server-side dry run shows the changes and stores no pod."""
    shown = world.send(_dry(_pod("shown", {"edl.training/job": "x"})))

    assert shown["spec"]["priority"] == -1000
    with pytest.raises(NotFound):
        world.send(request.get(PODS, "training", "shown"))
