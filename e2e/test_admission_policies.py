"""The ValidatingAdmissionPolicies of deploy/base: what tenants and EDL's accounts may not do.

A tenant has the stock `edit` role in one namespace; EDL's accounts have the permissions that they
are deployed with. All other journeys run with the same policies.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from e2e.environment import Environment, IsolatedNamespace
from e2e.waiting import until, until_true
from kube import request
from kube.client import Client
from kube.config import load
from kube.errors import Forbidden, Invalid
from kube.request import (
    CONFIGMAPS,
    JOBS,
    MUTATINGWEBHOOKS,
    PODDISRUPTIONBUDGETS,
    PODS,
    PRIORITYCLASSES,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICES,
    VALIDATINGWEBHOOKS,
    Request,
    Resource,
)
from policy.names import ANNOTATION_BOOKS, ANNOTATION_MAX, LABEL_ROLE, SYSTEM_NAMESPACE
from reconciler.manifests import owned

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TENANT = "tenant"
START_S = 30.0
LABELS: list[dict[str, str | None]] = [
    {"edl.training/tier": "guaranteed"},
    {"edl.training/role": None},
    {"edl.training/role": "pserver"},
    {"edl.training/master": "true"},
    {"edl.training/job": "other"},
    {"edl.training/trainer-id": "77"},
    {"edl.training/parameter-server": "0"},
    {"edl.training/preemptible": "false"},
]
ANNOTATIONS: list[dict[str, str | None]] = [
    {"edl.training/uncommitted-seconds": "9e9"},
    {"edl.training/planned-node": "elsewhere"},
    {"edl.training/planned-node": None},
    {"edl.training/master-address": "http://elsewhere"},
]
SIZES: list[dict[str, Any]] = [
    {"metadata": {"annotations": {"edl.training/max-trainers": "3"}}},
    {"metadata": {"annotations": {"edl.training/min-trainers": "1"}}},
    {"metadata": {"annotations": {"edl.training/weight": "2"}}},
    {"metadata": {"annotations": {"edl.training/queue": "research"}}},
    {"metadata": {"annotations": {"team": "vision"}, "labels": {"team": "vision"}}},
    {"spec": {"activeDeadlineSeconds": 5000}},
    {"spec": {"backoffLimit": 3}},
    {"spec": {"suspend": True}},
    {"spec": {"suspend": False}},
]
CONTAINER = {"name": "main", "image": "registry.invalid/other"}
Send = Callable[[Request], Any]


@contextlib.contextmanager
def account(environment: Environment, user: str) -> Iterator[Send]:
    """Sends requests as a user; returns the decoded answers."""
    with contextlib.closing(Client(load(environment.cluster.kubeconfig(user)))) as api:
        yield lambda api_request: orjson.loads(api.send(api_request))


@pytest.fixture
def tenant(namespace: IsolatedNamespace) -> Iterator[Send]:
    """Somebody with the stock `edit` role in the test's namespace, and no right elsewhere."""
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "edit",
    }
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT}
    body = {"metadata": {"name": TENANT}, "roleRef": reference, "subjects": [subject]}
    namespace.environment.send(request.create(ROLEBINDINGS, namespace.name, body))
    with account(namespace.environment, TENANT) as send:
        until_true(lambda: _may_list(send, namespace.name))
        yield send


@pytest.fixture
def reconciler(environment: Environment) -> Iterator[Send]:
    """The reconciler's account, as an attacker would use it."""
    with account(environment, f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-reconciler") as send:
        yield send


@pytest.fixture
def webhook(environment: Environment) -> Iterator[Send]:
    """The webhook's account."""
    with account(environment, f"system:serviceaccount:{SYSTEM_NAMESPACE}:edl-webhook") as send:
        yield send


def _may_list(send: Send, namespace: str) -> bool:
    try:
        send(request.list_page(PODS, namespace))
    except Forbidden:
        return False
    return True


def _metadata(namespace: IsolatedNamespace, name: str, metadata: dict[str, Any]) -> Request:
    return request.merge_patch(PODS, namespace.name, name, {"metadata": metadata})


def _created(send: Send, namespace: str, pod: dict[str, Any]) -> Any:
    """Returns the spec of a pod as the API server would store it; {} if its class is unknown."""
    creation = request.create(PODS, namespace, pod)
    try:
        return send(replace(creation, query=(*creation.query, ("dryRun", "All"))))["spec"]
    except Forbidden as error:
        if "no PriorityClass" not in str(error):
            raise
        return {}


def _wait_class(send: Send, namespace: str, pod: dict[str, Any], expected: str) -> Any:
    """Returns the spec of a pod once API server and webhook, which watch the classes, have heard of a new one."""
    return until(
        f"the class is {expected}",
        lambda: _created(send, namespace, pod),
        lambda spec: spec.get("priorityClassName") == expected,
        START_S,
    )


def _pod(name: str, namespace: str, **metadata: Any) -> Request:
    body = {
        "metadata": {"name": name, **metadata},
        "spec": {"priorityClassName": "edl-surplus", "containers": [CONTAINER]},
    }
    return request.create(PODS, namespace, body)


def test_a_tenant_relabels_no_running_trainer(namespace: IsolatedNamespace, tenant: Send) -> None:
    """Neither EDL's labels nor its annotations change, nor the controller; other labels do."""
    namespace.submit("net", low=1, high=2)
    namespace.wait_running("net", 2, START_S)

    for labels in LABELS:
        with pytest.raises(Forbidden, match=r"labels edl\.training/"):
            tenant(_metadata(namespace, "net-trainer-1", {"labels": labels}))
    for annotations in ANNOTATIONS:
        with pytest.raises(Forbidden, match=r"annotations edl\.training/"):
            tenant(_metadata(namespace, "net-trainer-1", {"annotations": annotations}))
    with pytest.raises(Forbidden, match="the controller of a training pod"):
        tenant(_metadata(namespace, "net-trainer-1", {"ownerReferences": None}))
    changed = tenant(
        _metadata(
            namespace,
            "net-trainer-1",
            {"labels": {"team": "vision"}, "annotations": {"edl": "x"}, "finalizers": None},
        )
    )

    assert changed["metadata"]["labels"]["team"] == "vision"
    namespace.wait_exact("net")


def test_other_pods_are_their_owners_alone(namespace: IsolatedNamespace, tenant: Send) -> None:
    """Nothing is refused about a pod that does not train, but to make it one afterwards."""
    tenant(
        request.create(
            PODS, namespace.name, {"metadata": {"name": "web"}, "spec": {"containers": [CONTAINER]}}
        )
    )
    tenant(_metadata(namespace, "web", {"labels": {"tier": "front"}, "annotations": {"a": "b"}}))
    tenant(_metadata(namespace, "web", {"labels": None}))
    with pytest.raises(Forbidden, match=r"labels edl\.training/"):
        tenant(_metadata(namespace, "web", {"labels": {LABEL_ROLE: "trainer"}}))
    tenant(request.delete(PODS, namespace.name, "web", grace_s=0))


def test_labels_raise_no_priority(namespace: IsolatedNamespace, tenant: Send) -> None:
    """The API server accepts what admission leaves: the pod's own class, or that of surplus."""
    send = namespace.environment.send
    labels = {"edl.training/job": "net", LABEL_ROLE: "pserver"}
    specs: list[tuple[str, int, str]] = [
        ("lowest", -1_000_000, "lowest"),
        ("quiet", 0, "edl-surplus"),
        ("", 0, "edl-support"),
    ]
    for name, value, expected in specs:
        if name:
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"}
            send(request.create(PRIORITYCLASSES, None, body))
        pod = {
            "metadata": {"name": name or "plain", "labels": labels},
            "spec": {"priorityClassName": name, "containers": [CONTAINER]},
        }
        created = _wait_class(tenant, namespace.name, pod, expected)

        assert created["preemptionPolicy"] == ("PreemptLowerPriority" if not name else "Never")
        if name:
            send(request.delete(PRIORITYCLASSES, None, name))


def test_a_tenant_writes_no_accounting(namespace: IsolatedNamespace, tenant: Send) -> None:
    """Neither at creation nor later; an elastic Job without it is created, and so is a plain Job."""
    namespace.submit("net", low=1, high=2)
    namespace.wait_running("net", 2, START_S)
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    bounds = {"edl.training/min-trainers": "1", "edl.training/max-trainers": "2"}

    def created(name: str, annotations: dict[str, str]) -> Any:
        metadata = {"name": name, "annotations": annotations}
        body = {"metadata": metadata, "spec": {"template": template, "suspend": True}}
        return tenant(request.create(JOBS, namespace.name, body))

    for text in ("{}", '{"next":1,"failuresInRow":1,"lastFailure":1e300}', None):
        with pytest.raises(Forbidden, match="is the reconciler's"):
            tenant(
                request.merge_patch(
                    JOBS,
                    namespace.name,
                    "net",
                    {"metadata": {"annotations": {ANNOTATION_BOOKS: text}}},
                )
            )
    with pytest.raises(Forbidden, match="leave it out of a new Job"):
        created("copied", {**bounds, ANNOTATION_BOOKS: "{}"})
    created("elastic", bounds)
    created("plain", {})
    namespace.wait_exact("net")


def test_a_tenant_changes_what_is_theirs(namespace: IsolatedNamespace, tenant: Send) -> None:
    """Sizes, weight, limits and suspension of a Job while it runs; then it is deleted with its pods."""
    namespace.submit("net", low=2, high=4)
    namespace.wait_running("net", 4, START_S)

    for body in SIZES:
        tenant(request.merge_patch(JOBS, namespace.name, "net", body))
    namespace.wait_running("net", 3, START_S)
    tenant(request.delete(JOBS, namespace.name, "net"))
    until("no trainer is left", lambda: namespace.running("net"), lambda n: n == 0, START_S)


def test_trainers_may_be_left_without_their_job(namespace: IsolatedNamespace) -> None:
    """The garbage collector takes the owner off them: `kubectl delete job --cascade=orphan`."""
    namespace.submit("net", low=1, high=1)
    namespace.wait_running("net", 1, START_S)
    send = namespace.environment.send
    body = orjson.dumps({"propagationPolicy": "Orphan"})
    send(Request("DELETE", request.path_of(JOBS, namespace.name, "net"), (), body))
    until(
        "the trainer has no owner",
        lambda: send(request.get(PODS, namespace.name, "net-trainer-0"))["metadata"],
        lambda metadata: "ownerReferences" not in metadata,
        START_S,
    )
    send(request.delete(PODS, namespace.name, "net-trainer-0", grace_s=0))


def test_the_reconcilers_account_creates_what_jobs_own(
    namespace: IsolatedNamespace, reconciler: Send
) -> None:
    """No pod without a Job or in the system's namespaces, no token, no other grant or class."""
    namespace.submit("net", low=1, high=1)
    job = namespace.job("net")
    own = owned.metadata(job, "net-x")
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"}
    reference = {  # RBAC lets it pass, as it grants no more than the account has
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "edl-reconciler-jobs",
    }
    owners = own["ownerReferences"]
    system = {"metadata": {"name": "net-x", "ownerReferences": owners}}
    unlabelled = {**system, "spec": {"containers": [CONTAINER]}}  # admission gives it no class
    token = {
        "metadata": {**own, "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    attempts: list[tuple[str, Request]] = [
        ("what a Job owns", _pod("net-x", namespace.name)),
        ("what a Job owns", _pod("net-x", "kube-system", ownerReferences=owners)),
        ("what a Job owns", request.create(CONFIGMAPS, SYSTEM_NAMESPACE, system)),
        ("priority class of EDL", request.create(PODS, namespace.name, unlabelled)),
        ("named after the Job", _pod("web", namespace.name, ownerReferences=owners)),
    ]
    bodies: list[tuple[str, Resource, dict[str, Any]]] = [
        ("Secrets .* are Opaque", SECRETS, token),
        ("a Role .* of its name", ROLES, {"rules": [{**rule, "resourceNames": ["other"]}]}),
        ("a Role .* of its name", ROLES, {"rules": [rule]}),
        ("a RoleBinding", ROLEBINDINGS, {"roleRef": reference, "subjects": [subject]}),
    ]
    attempts += [
        (words, request.create(kind, namespace.name, {"metadata": own, **body}))
        for words, kind, body in bodies
    ]
    foreign = {"metadata": {"name": "all-pods"}, "value": 1, "globalDefault": True}
    attempts.append(("what a Job owns", request.create(PRIORITYCLASSES, None, foreign)))
    job_spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}}
    of_other = {"apiVersion": "edl.training/v1", "kind": "TrainingJob", "name": "other", "uid": "x"}
    for job_owners in ([], owners, [{**of_other, "controller": True}]):
        metadata = {"name": "net-x", "ownerReferences": job_owners}
        job_body = {"metadata": metadata, "spec": job_spec}
        attempts.append(("Jobs of TrainingJobs", request.create(JOBS, namespace.name, job_body)))
    for kind in (SERVICES, CONFIGMAPS, PODDISRUPTIONBUDGETS):
        body = {"metadata": {"name": "net-x"}, "spec": {"ports": [{"port": 80}]}}
        attempts.append(("what a Job owns", request.create(kind, namespace.name, body)))

    for words, attempt in attempts:
        with pytest.raises(Forbidden, match=words):
            reconciler(attempt)


def test_the_reconcilers_account_changes_no_other_objects(
    namespace: IsolatedNamespace, reconciler: Send
) -> None:
    """No image or label of any pod, no plain Job, no ConfigMap of others."""
    send = namespace.environment.send
    namespace.submit("net", low=1, high=1)
    namespace.wait_running("net", 1, START_S)
    namespace.services(1)
    namespace.wait_services(1, START_S)
    (web,) = (pod for pod in namespace.environment.pods.now(namespace.name) if pod.role is None)
    template = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}
    plain = {"metadata": {"name": "plain"}, "spec": {"template": template, "suspend": True}}
    send(request.create(JOBS, namespace.name, plain))
    send(request.create(CONFIGMAPS, namespace.name, {"metadata": {"name": "config"}}))

    def patch(kind: Resource, name: str, body: dict[str, Any], sub: str = "") -> Request:
        return request.merge_patch(kind, namespace.name, name, body, subresource=sub)

    def image(name: str) -> Request:
        operation = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
        return request.json_patch(PODS, namespace.name, name, [operation])

    attempts = [
        ("one annotation", image(web.name)),
        ("one annotation", patch(PODS, web.name, {"metadata": {"labels": {"app": "x"}}})),
        ("one annotation", image("net-trainer-0")),
        ("one annotation", patch(PODS, "net-trainer-0", {"metadata": {"labels": {"app": "x"}}})),
        ("one annotation", patch(PODS, web.name, {"metadata": {"annotations": {"a": "b"}}})),
        (
            "elastic Jobs alone",
            patch(JOBS, "net", {"metadata": {"annotations": {ANNOTATION_MAX: "9"}}}),
        ),
        ("elastic Jobs alone", patch(JOBS, "plain", {"spec": {"suspend": False}})),
        ("elastic Jobs alone", patch(JOBS, "plain", {"status": {"active": 7}}, "status")),
    ]
    for words, attempt in attempts:
        with pytest.raises(Forbidden, match=words):
            reconciler(attempt)
    replaced = request.replace(
        CONFIGMAPS, namespace.name, "config", {"metadata": {"name": "config"}, "data": {"a": "b"}}
    )
    with pytest.raises(Forbidden, match="edl-scheduling alone"):
        reconciler(replaced)
    assert reconciler(
        patch(
            PODS,
            "net-trainer-0",
            {"metadata": {"annotations": {"edl.training/uncommitted-seconds": "5"}}},
        )
    )


def test_the_webhooks_account_widens_no_registration(webhook: Send) -> None:
    """CA bundles and the selected pods are its to write; rules, callers and conditions are not."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    changes: list[tuple[str, Any]] = [
        ("rules", [rule]),
        ("clientConfig/url", "https://127.0.0.1:1/mutate"),
        ("failurePolicy", "Fail"),
        ("namespaceSelector", {}),
        ("objectSelector", {"matchLabels": {"a": "b"}}),
        ("timeoutSeconds", 30),
    ]
    for kind in (MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS):
        for path, value in changes:
            operation = {"op": "add", "path": f"/webhooks/0/{path}", "value": value}
            with pytest.raises(Forbidden, match="EDL's webhook changes caBundle"):
                webhook(request.json_patch(kind, None, "edl-webhook", [operation]))
    everything = [{"name": "all", "expression": "true"}]
    condition = {"op": "add", "path": "/webhooks/2/matchConditions", "value": everything}
    with pytest.raises(Forbidden, match="EDL's webhook changes caBundle"):
        webhook(request.json_patch(MUTATINGWEBHOOKS, None, "edl-webhook", [condition]))
    token = {
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "x"}},
        "type": "kubernetes.io/service-account-token",
    }
    with pytest.raises((Forbidden, Invalid), match="the Secret edl-webhook-tls alone"):
        webhook(request.create(SECRETS, SYSTEM_NAMESPACE, token))
