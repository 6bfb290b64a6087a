"""What the admin's commands say of single answers of an API server, and what they try."""

from typing import Any

import pytest
import yaml

from admin import before, probes, removal
from admin.findings import Level
from kube import request
from policy.names import MANAGER
from tests.admin.cluster import BASE


@pytest.mark.parametrize(
    ("info", "level"),
    [
        ({"major": "1", "minor": "36+", "gitVersion": "v1.36.1"}, Level.OK),
        ({"major": "1", "minor": "2", "gitVersion": "v1.2.0"}, Level.ERROR),
        ({"major": "2", "minor": "0", "gitVersion": "v2.0.0"}, Level.OK),
        ({"major": "1", "gitVersion": "odd"}, Level.ERROR),
        ({"major": "x", "minor": "36"}, Level.ERROR),
        ({}, Level.ERROR),
    ],
)
def test_a_version_that_cannot_be_read_is_too_old(info: dict[str, str], level: Level) -> None:
    """It is shown as the API server has it, or as unknown."""
    finding = before.version(info)

    assert finding.level is level
    assert finding.text.startswith(info.get("gitVersion", "unknown"))


@pytest.mark.parametrize(
    ("ports", "level", "text"),
    [
        ([6443], Level.OK, "EDL's NetworkPolicies open"),
        ([443, 8080], Level.WARNING, "listens on port 8080, which the NetworkPolicies edl-egress"),
        (
            [],
            Level.NOTE,
            "the port is unknown; EDL's NetworkPolicies open 443, 6443, 8443, 16443",
        ),
    ],
)
def test_a_port_of_the_api_server_that_is_closed_is_named(
    ports: list[int], level: Level, text: str
) -> None:
    """Else EDL's servers would wait for ever where a network plugin enforces its policies."""
    finding = before.api_ports([{"ports": [{"port": port} for port in ports]}, {"ports": None}])

    assert (finding.level, finding.text[: len(text)]) == (level, text)


def test_the_ports_of_api_servers_are_those_of_the_network_policies() -> None:
    """Of both policies that let EDL's servers out; DNS and masters are none."""
    documents = yaml.safe_load_all((BASE / "network-policies.yaml").read_text())
    opened = {
        policy["metadata"]["name"]: {
            port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]
        }
        for policy in documents
        if "egress" in policy["spec"]
    }

    assert {name: ports - {53, 8790} for name, ports in opened.items()} == {
        "edl-egress": before.API_PORTS,
        "edl-reconciler-egress": before.API_PORTS,
    }


def test_classes_of_others_are_no_finding() -> None:
    """One line says what was looked at."""
    foreign = {"metadata": {"name": "web"}, "value": 1000, "globalDefault": True}
    (finding,) = before.priority_classes([foreign])

    assert (finding.level, finding.text) == (Level.OK, "no class conflicts with EDL's")


def test_the_pod_that_is_tried_is_allowed_where_edls_own_are() -> None:
    """It fulfils the standard `restricted` of Pod Security."""
    spec = probes.pod()["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_objects_that_are_tried_are_of_one_job() -> None:
    """The Service and the PodDisruptionBudget select the same pods."""
    objects = probes.master_objects("ml")
    service, budget = objects[request.SERVICES], objects[request.PODDISRUPTIONBUDGETS]

    assert service["spec"]["selector"] == budget["spec"]["selector"]["matchLabels"]
    assert list(service["spec"]["selector"]) == ["edl.training/job"]


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ({}, Level.WARNING),
        ({"status": {"active": 2}}, Level.WARNING),
        ({"status": {"conditions": [{"type": "Complete", "status": "False"}]}}, Level.WARNING),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, Level.OK),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, Level.OK),
        ({"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}, Level.WARNING),
    ],
)
def test_a_removal_leaves_jobs_that_have_not_ended(status: dict[str, Any], level: Level) -> None:
    """Those that were just created have no status yet."""
    job = {"metadata": {"namespace": "ml", "name": "net"}, "spec": {"managedBy": MANAGER}, **status}
    (finding,) = removal.jobs([job])

    assert finding.level is level
    active = status.get("status", {}).get("active", 0)
    assert (f"its {active} trainers" in finding.text) is (level is Level.WARNING)
