"""The chart renders what kustomize renders, and refuses wrong values before anything is installed."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import build
from e2e.cluster.errors import ClusterError
from e2e.cluster.toolchain import HELM, recipe
from policy.names import POLICY_KEY

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the first run builds Helm

DEPLOY = Path(__file__).parents[1] / "deploy"
CHART = DEPLOY / "chart"
_COMMAND_S = 60.0
_OVERLAYS = ("single-node", "high-availability", "kwok")
_IMAGE = ("--set-json", 'image.repository="edl"')
"""As `deploy/base` has it; the chart has no default."""
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Helm, built once; tests are skipped if it cannot be built."""
    try:
        program = build.ensure(build.cache_root(os.environ), kit=HELM).path("helm")
    except ClusterError as error:
        pytest.skip(f"Helm: {error}")
    homes = tmp_path_factory.mktemp("helm")
    env = os.environ | {f"HELM_{name}_HOME": str(homes) for name in ("CACHE", "CONFIG", "DATA")}

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(program), *words],
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            env=env,
        )

    return run


@pytest.fixture(scope="module")
def template(helm: Run) -> Run:
    """Renders the chart with these flags."""

    def render(
        *words: str,
        namespace: str = "edl-system",
        chart: Path = CHART,
        image: tuple[str, ...] = _IMAGE,
    ) -> "subprocess.CompletedProcess[str]":
        version = ("--kube-version", recipe().kubernetes)
        return helm("template", "edl", str(chart), "-n", namespace, *version, *image, *words)

    return render


def _kustomized(folder: Path) -> str:
    kubectl = build.ensure(build.cache_root(os.environ)).path("kubectl")
    command = [str(kubectl), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=True)
    return done.stdout


def _objects(text: str) -> dict[str, Any]:
    """Returns the objects by kind and name; the policy as the document that it is, CEL without line breaks."""
    objects = {}
    for document in yaml.safe_load_all(text):
        if document is None:
            continue
        item = _joined(document)
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace", "")
        if name == "edl-policy":
            item["data"][POLICY_KEY] = yaml.safe_load(item["data"][POLICY_KEY])
        key = f"{item['kind']} {namespace}/{name}"
        assert key not in objects
        objects[key] = item
    return objects


def _joined(item: Any) -> Any:
    """With expressions in one line: the two programs fold long ones differently."""
    if isinstance(item, list):
        return [_joined(part) for part in item]
    if not isinstance(item, dict):
        return item
    return {
        key: " ".join(value.split()) if key == "expression" else _joined(value)
        for key, value in item.items()
    }


@pytest.mark.parametrize("overlay", ["", *_OVERLAYS])
def test_the_chart_is_the_overlay(template: Run, overlay: str) -> None:
    """Object by object; the namespace alone is kustomize's, since Helm wants it before its release."""
    values = ["--values", str(CHART / f"values-{overlay}.yaml")] if overlay else []
    done = template(*values)
    assert done.returncode == 0, done.stderr
    rendered = _objects(done.stdout)
    expected = _objects(_kustomized(DEPLOY / "overlays" / overlay if overlay else DEPLOY / "base"))
    del expected["Namespace /edl-system"]

    assert set(rendered) == set(expected)
    for key, item in expected.items():
        assert rendered[key] == item, key


@pytest.mark.parametrize("components", [("page",), ("page", "page-tls")])
def test_the_page_is_its_components(
    template: Run, tmp_path: Path, components: tuple[str, ...]
) -> None:
    """Off by default; with a Secret it is served to the network, too."""
    words = ["--set", "page.enabled=true"]
    if "page-tls" in components:
        words += ["--set", "page.tlsSecret=edl-page-tls"]
    done = template(*words)
    assert done.returncode == 0, done.stderr
    rendered = _objects(done.stdout)
    folders = [DEPLOY / "components" / name for name in components]
    overlay = {
        "resources": [os.path.relpath(DEPLOY / "base", tmp_path)],
        "components": [os.path.relpath(folder, tmp_path) for folder in folders],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    expected = _objects(_kustomized(tmp_path))
    del expected["Namespace /edl-system"]

    assert set(rendered) == set(expected)
    for key, item in expected.items():
        assert rendered[key] == item, key


def test_values_change_what_they_name(template: Run) -> None:
    """Settings are variables of the servers' own names; with named namespaces no binding is for all."""
    words = {
        "image.repository": "registry.example/edl",
        "image.digest": f"sha256:{'0' * 64}",
        "extender.enabled": False,
        "reconciler.settings": {"leaseSeconds": 20, "logLevel": "debug"},
        "webhook.settings": {"maxBodyBytes": 33_554_432, "masterImage": 'a"b'},
        "namespaces": ["ml", "vision"],
        "networkPolicies.jobs": True,
        "policy.fairness": {"maxWeight": 10},
        "nodeSelector": {"pool": "system"},
        "affinity": {"nodeAffinity": {}},
    }
    done = template(
        *(part for key, value in words.items() for part in ("--set-json", _set(key, value)))
    )
    assert done.returncode == 0, done.stderr
    objects = _objects(done.stdout)
    deployments = {key: item for key, item in objects.items() if key.startswith("Deployment ")}
    pods = {key.rpartition("-")[2]: d["spec"]["template"]["spec"] for key, d in deployments.items()}
    env = {name: pod["containers"][0].get("env") for name, pod in pods.items()}
    policy = objects["ConfigMap edl-system/edl-policy"]["data"][POLICY_KEY]

    assert set(pods) == {"webhook", "reconciler"}
    assert not [key for key in objects if key.endswith("/edl-extender")]
    assert {pod["containers"][0]["image"] for pod in pods.values()} == {
        f"registry.example/edl@sha256:{'0' * 64}"
    }
    assert env["reconciler"] == [
        {"name": "EDL_RECONCILER_LEASE_SECONDS", "value": "20"},
        {"name": "EDL_RECONCILER_LOG_LEVEL", "value": "debug"},
    ]
    assert env["webhook"] == [
        {"name": "EDL_WEBHOOK_MASTER_IMAGE", "value": 'a"b'},
        {"name": "EDL_WEBHOOK_MAX_BODY_BYTES", "value": "33554432"},
    ]
    assert "ClusterRoleBinding /edl-reconciler-jobs" not in objects
    assert {"RoleBinding ml/edl-reconciler-jobs", "RoleBinding vision/edl-reconciler-jobs"} <= set(
        objects
    )
    assert objects["ClusterRole /edl-reconciler-jobs"]["rules"][-1]["resources"] == [
        "networkpolicies"
    ]
    assert policy["fairness"] == {"maxWeight": 10}
    assert policy["reserve"] == {"maxLoad": {"cpu": 0.97}}
    assert {pod["nodeSelector"]["pool"] for pod in pods.values()} == {"system"}
    assert {tuple(sorted(pod["affinity"])) for pod in pods.values()} == {
        ("nodeAffinity", "podAntiAffinity")
    }


def _set(key: str, value: object) -> str:
    return f"{key}={json.dumps(value)}"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("webhook.replicas", 0, "/webhook/replicas"),
        ("webhook.replica", 2, "'replica'"),
        ("policy.tiers.graceSeconds", 0, "/policy/tiers/graceSeconds"),
        ("policy.tier", {}, "'tier'"),
        ("reconciler.settings.leaseSeconds", "long", "/reconciler/settings/leaseSeconds"),
        ("reconciler.settings.kubeconfig", "/x", "'kubeconfig'"),
        ("extender.resources.limits.memory", "1 GB", "/extender/resources/limits/memory"),
        ("extender.resources.requests.cpu", "lots", "/extender/resources/requests/cpu"),
        ("image.digest", "sha256:1", "/image/digest"),
        ("image.repository", "registry.example/edl:1", "/image/repository"),
        ("tolerations", [{"key": "a", "operator": "Exist"}], "/tolerations/0/operator"),
        ("affinity", {"nodeAffinty": {}}, "'nodeAffinty'"),
        ("spread", "never", "/spread"),
        ("namespaces", ["ML"], "/namespaces/0"),
        ("namespaces", ["ml", "ml"], "/namespaces"),
        ("policy", None, "'policy'"),
        ("image", None, "'image'"),
        ("webhook.replicas", None, "'replicas'"),
        ("policy.training", [{"labels": {"a": "*"}}], "/policy/training/0"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(
    template: Run, key: str, value: object, named: str
) -> None:
    """One line for each, before anything is rendered."""
    done = template("--set-json", _set(key, value))
    lines = [line for line in done.stderr.splitlines() if line.startswith("- ")]

    assert done.returncode != 0
    assert not done.stdout.strip()
    assert len(lines) == 1, done.stderr
    assert named in lines[0]


def test_another_namespace_is_refused(template: Run) -> None:
    """With the words that install it: EDL's policies name its accounts in edl-system."""
    done = template(namespace="default")

    assert done.returncode != 0
    assert "add --namespace edl-system --create-namespace" in done.stderr


def test_an_archive_for_a_registry_renders_the_same(
    helm: Run, template: Run, tmp_path: Path
) -> None:
    """`helm package` packs what the link to deploy/base leads to."""
    packed = helm("package", str(CHART), "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tgz")

    rendered = template(chart=archive)

    assert rendered.returncode == 0, rendered.stderr
    assert rendered.stdout == template().stdout


def test_an_image_has_to_be_named(template: Run) -> None:
    """Else nodes would ask a public registry for somebody's `edl`, and the installation would stop half-way."""
    done = template(image=())

    assert done.returncode != 0
    assert not done.stdout.strip()
    assert "such as --set image.repository=registry.example/edl" in done.stderr


@pytest.mark.parametrize(
    ("repository", "image"),
    [
        ("localhost:5000/team/edl", "localhost:5000/team/edl:0.1.0"),
        ("registry.example:443/a_b/edl-1", "registry.example:443/a_b/edl-1:0.1.0"),
    ],
)
def test_a_registry_may_have_a_port(template: Run, repository: str, image: str) -> None:
    """A colon is refused where a tag would follow it."""
    done = template("--set", f"image.repository={repository}")

    assert done.returncode == 0, done.stderr
    assert f"image: {image}\n" in done.stdout


def test_an_older_kubernetes_is_refused(helm: Run) -> None:
    """With both versions in the line."""
    words = ("template", "edl", str(CHART), "-n", "edl-system", *_IMAGE, "--kube-version", "1.34.9")
    done = helm(*words)

    assert done.returncode != 0
    assert (
        "requires kubeVersion: >=1.35.0-0 which is incompatible with Kubernetes v1.34.9"
        in done.stderr
    )
