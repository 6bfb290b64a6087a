"""How deploy/base runs the servers: their ports, probes, NetworkPolicies, and nodes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

BASE = Path(__file__).parents[2] / "deploy" / "base"
SERVERS = ("webhook", "extender", "reconciler")


def _documents(kind: str) -> list[dict[str, Any]]:
    documents = [
        document
        for path in sorted(BASE.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]
    return [document for document in documents if document["kind"] == kind]


def _template(server: str) -> dict[str, Any]:
    (deployment,) = [
        d for d in _documents("Deployment") if d["metadata"]["name"] == f"edl-{server}"
    ]
    template: dict[str, Any] = deployment["spec"]["template"]
    return template


def _selects(policy: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    selector = policy["spec"]["podSelector"]
    return all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    ) and all(
        labels.get(term["key"]) in term["values"] for term in selector.get("matchExpressions", [])
    )


@pytest.mark.parametrize("server", SERVERS)
def test_probes_use_the_port_that_is_theirs(server: str) -> None:
    """Without TLS: a kubelet has no certificate, and must not depend on the API's callers."""
    (container,) = _template(server)["spec"]["containers"]
    probes = [value["httpGet"] for key, value in container.items() if key.endswith("Probe")]

    assert len(probes) >= 2
    assert {probe["port"] for probe in probes} == {"probes"}
    assert not [probe for probe in probes if "scheme" in probe]
    assert {"name": "probes", "containerPort": 8080} in container["ports"]


@pytest.mark.parametrize(
    ("server", "anybody"), [("webhook", {"https"}), ("extender", {"https"}), ("reconciler", set())]
)
def test_only_ports_of_the_api_are_open_to_every_address(server: str, anybody: set[str]) -> None:
    """Metrics are for labelled namespaces; ports that a policy names exist in the pods."""
    template = _template(server)
    policies = [
        policy
        for policy in _documents("NetworkPolicy")
        if _selects(policy, template["metadata"]["labels"])
    ]
    rules = [rule for policy in policies for rule in policy["spec"].get("ingress", [])]
    names = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    opened = {port["port"] for rule in rules for port in rule["ports"]}

    assert {
        port["port"] for rule in rules if "from" not in rule for port in rule["ports"]
    } == anybody
    assert opened == anybody | {"probes"}
    assert opened <= names
    assert {kind for policy in policies for kind in policy["spec"]["policyTypes"]} == {
        "Ingress",
        "Egress",
    }


@pytest.mark.parametrize("server", ["webhook", "reconciler"])
def test_replicas_are_spread_over_nodes_of_any_labels(server: str) -> None:
    """kube-scheduler ignores a node that lacks one of the labels, so the list has only that of each kubelet."""
    pod = _template(server)["spec"]
    zones = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]

    assert [c["topologyKey"] for c in pod["topologySpreadConstraints"]] == [
        "kubernetes.io/hostname"
    ]
    assert [z["podAffinityTerm"]["topologyKey"] for z in zones] == ["topology.kubernetes.io/zone"]


def test_every_file_is_installed() -> None:
    """`kubectl apply -k` takes what the list names."""
    listed = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    others = {"kustomization.yaml", "scheduler-config.yaml"}

    assert {path.name for path in BASE.glob("*.yaml")} - others == set(listed)


def _empty_fields(part: object, path: str) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if value is None:
                yield f"{path}.{key}"
            yield from _empty_fields(value, f"{path}.{key}")
    elif isinstance(part, list):
        for number, item in enumerate(part):
            yield from _empty_fields(item, f"{path}[{number}]")


def test_no_text_is_cut_at_a_comma() -> None:
    """In a flow mapping `{description: a, b}` is a field `b` without a value, which kubectl refuses."""
    deploy = BASE.parent
    empty = [
        f"{path.relative_to(deploy)}: {field}"
        for path in sorted(deploy.rglob("*.yaml"))
        if path.parent.name != "templates"  # Helm's, which are YAML once they are rendered
        for document in yaml.safe_load_all(path.read_text("utf-8"))
        for field in _empty_fields(document, "")
    ]

    assert empty == []
