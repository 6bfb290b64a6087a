import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from e2e.cluster import identity
from runtime.certs import Pair, hosts, issued_by, new_ca

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_users_and_groups_are_in_the_certificate() -> None:
    """The common name is the user, each organization a group, as Kubernetes reads them."""
    ca = new_ca("test", NOW)
    leaf = identity.client(ca, "ann", ("a", "b"), NOW)
    subject = x509.load_pem_x509_certificate(leaf.cert).subject

    assert [
        attribute.value for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    ] == ["ann"]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [attribute.value for attribute in groups] == ["a", "b"]
    assert issued_by(leaf.cert, ca.cert)


def test_the_serving_certificate_is_for_every_name_of_the_api_server() -> None:
    """By address from here, by its service's names and address from inside."""
    serving = identity.serving(new_ca("test", NOW), NOW)

    assert set(hosts(serving.cert)) == set(identity.SERVER_NAMES)


def test_service_accounts_are_in_their_groups() -> None:
    """As Kubernetes itself does it for their tokens; others get none."""
    assert identity.groups_of("system:serviceaccount:edl-system:edl-webhook") == (
        "system:serviceaccounts",
        "system:serviceaccounts:edl-system",
    )
    assert identity.groups_of("ann") == ()


def test_a_kubeconfig_holds_everything() -> None:
    """Server, CA and both halves of the certificate; no other file is needed."""
    text = identity.kubeconfig("https://127.0.0.1:1", b"ca", "ann", Pair(b"cert", b"key"))
    config = json.loads(text)

    assert config["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": "Y2E=",
    }
    assert config["users"][0]["user"] == {
        "client-certificate-data": "Y2VydA==",
        "client-key-data": "a2V5",
    }
    assert config["contexts"][0]["name"] == config["current-context"]


def test_secrets_are_for_the_owner_alone(tmp_path: Path) -> None:
    """Also where a file with wider rights was there before."""
    path = tmp_path / "key"
    path.write_text("old")
    path.chmod(0o644)
    identity.write_secret(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_signing_keys_are_pairs() -> None:
    """The public half is for checking service accounts' tokens."""
    pair = identity.signing_key()

    assert pair.cert.startswith(b"-----BEGIN PUBLIC KEY-----")
    assert pair.key.startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_ca_of_another_kind_is_refused() -> None:
    """Only EC keys are ours."""
    ca = new_ca("test", NOW)
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    with pytest.raises(TypeError, match="not an EC key"):
        identity.client(Pair(ca.cert, other), "ann", (), NOW)
