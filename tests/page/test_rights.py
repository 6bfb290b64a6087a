"""The page's own account: it reads what it shows, writes nothing, and knows nobody's rights."""

from pathlib import Path
from typing import Any

import yaml

from page.service import Watches
from policy.names import SYSTEM_NAMESPACE
from tests.page.world import Instantly, PageWorld
from tests.support import rbac
from tests.support.rbac import RestrictedApi

COMPONENT = Path(__file__).parents[2] / "deploy" / "components" / "page"
TLS = COMPONENT.parent / "page-tls"


def _template() -> dict[str, Any]:
    (deployment,) = (d for d in rbac.documents(COMPONENT) if d["kind"] == "Deployment")
    template: dict[str, Any] = deployment["spec"]["template"]
    return template


def test_the_account_has_the_rights_that_the_code_uses() -> None:
    """Each permission is used, and none is missing."""
    world = PageWorld()
    account = rbac.account("edl-page", rbac.documents(COMPONENT))
    api = RestrictedApi(Instantly(world.cluster), account)
    watches = Watches.of(api, SYSTEM_NAMESPACE, lambda: world.now_s, lambda: world.now_s)
    for reflector in (*watches.cache.reflectors.values(), watches.logs.reflector):
        reflector.follow_once()
    watches.view.update()

    assert watches.view.ready
    assert account.refused == []
    assert account.used == account.permissions
    assert {verb for *_, verb in account.permissions} == {"list", "watch"}


def test_the_pod_has_no_more_than_it_needs() -> None:
    """No root, no writable disk, no port of the page itself without a certificate."""
    spec = _template()["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [port["name"] for port in container["ports"]] == ["probes"]
    assert "--listen" not in container["command"]


def test_policies_open_the_ports_that_there_are() -> None:
    """Metrics for labelled namespaces; https, where the other component adds it, for all."""
    policies = [
        d
        for folder in (COMPONENT, TLS)
        for d in rbac.documents(folder)
        if d["kind"] == "NetworkPolicy"
    ]
    rules = {
        port["port"]: "from" in rule
        for policy in policies
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    (patch,) = yaml.safe_load((TLS / "kustomization.yaml").read_text())["patches"]
    added = [change["value"] for change in yaml.safe_load(patch["patch"])]

    assert rules == {"probes": True, "https": False}
    assert {"name": "https", "containerPort": 8446} in added
    for policy in policies:
        selector = policy["spec"]["podSelector"]["matchLabels"]
        assert selector.items() <= _template()["metadata"]["labels"].items()
