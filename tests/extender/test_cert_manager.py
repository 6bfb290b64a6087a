"""deploy/components/cert-manager: certificates as the webhook or `python -m extender certificates` makes them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.names import SYSTEM_NAMESPACE
from runtime import extender_tls

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    """(kind, name) -> spec of what the component adds."""
    text = (DEPLOY / "components" / "cert-manager" / "certificates.yaml").read_text()
    documents = list(yaml.safe_load_all(text))
    assert {document["metadata"]["namespace"] for document in documents} == {SYSTEM_NAMESPACE}
    return {(of["kind"], of["metadata"]["name"]): of["spec"] for of in documents}


def test_the_server_has_the_names_under_which_it_is_called(
    objects: dict[tuple[str, str], Any],
) -> None:
    """And the Secret is the one that its Deployment names."""
    server = objects["Certificate", "edl-extender-tls"]
    (deployment,) = [
        of
        for of in yaml.safe_load_all((DEPLOY / "base" / "extender.yaml").read_text())
        if of["kind"] == "Deployment"
    ]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]

    assert (*server["dnsNames"], *server["ipAddresses"]) == extender_tls.names(SYSTEM_NAMESPACE)
    assert container["command"][-2:] == ["--tls-secret", server["secretName"]]


def test_both_sides_are_issued_by_one_ca_of_its_own(objects: dict[tuple[str, str], Any]) -> None:
    """No other certificate of the cluster makes a caller kube-scheduler."""
    leaves = [objects["Certificate", f"edl-{name}-tls"] for name in ("extender", "scheduler")]
    authority = objects["Certificate", "edl-extender-ca"]

    assert {leaf["issuerRef"]["name"] for leaf in leaves} == {"edl-extender"}
    assert objects["Issuer", "edl-extender"]["ca"]["secretName"] == authority["secretName"]
    assert authority["isCA"]
    assert objects["Issuer", authority["issuerRef"]["name"]] == {"selfSigned": {}}


def test_the_second_scheduler_finds_its_files(objects: dict[tuple[str, str], Any]) -> None:
    """Its configuration names other files than cert-manager's keys."""
    text = (DEPLOY / "components" / "cert-manager" / "kustomization.yaml").read_text()
    (patch,) = yaml.safe_load(text)["patches"]
    (volume,) = yaml.safe_load(patch["patch"])["spec"]["template"]["spec"]["volumes"]
    scheduler = yaml.safe_load((DEPLOY / "own-scheduler" / "scheduler-config.yaml").read_text())
    files = {
        scheduler["extenders"][0]["tlsConfig"][key].rpartition("/")[2]
        for key in ("caFile", "certFile", "keyFile")
    }

    assert {item["path"] for item in volume["secret"]["items"]} == files
    assert (
        volume["secret"]["secretName"] == objects["Certificate", "edl-scheduler-tls"]["secretName"]
    )
