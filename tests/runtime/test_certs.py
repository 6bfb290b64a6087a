from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from runtime import certs

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = ("edl-webhook.edl-system.svc", "127.0.0.1", "::1")


@pytest.fixture(scope="module")
def ca() -> certs.Pair:
    """A CA made at NOW."""
    return certs.new_ca("test-ca", NOW)


def test_leaf_is_issued_by_its_ca(ca: certs.Pair) -> None:
    """A leaf is verified by its own CA and by no other one of the same name."""
    leaf = certs.issue(ca, "server", NOW, hosts=HOSTS)
    other = certs.new_ca("test-ca", NOW)

    assert certs.issued_by(leaf.cert, ca.cert)
    assert not certs.issued_by(leaf.cert, other.cert)
    assert not certs.issued_by(ca.cert, leaf.cert)


def test_leaf_names_its_hosts(ca: certs.Pair) -> None:
    """Names and addresses of a server come back out; a client has none."""
    server = certs.issue(ca, "server", NOW, hosts=HOSTS)
    client = certs.issue(ca, "system:serviceaccount:a:b", NOW, organization="group")

    assert certs.hosts(server.cert) == HOSTS
    assert certs.hosts(client.cert) == ()


def test_leaf_lives_a_year_from_now(ca: certs.Pair) -> None:
    """Begin and end are counted from now; the allowance for other clocks does not show."""
    leaf = certs.issue(ca, "server", NOW, hosts=HOSTS)

    assert certs.begins(leaf.cert) == NOW
    assert certs.expires(leaf.cert) == NOW + certs.LEAF_LIFE


def test_renewal_is_due_near_the_end(ca: certs.Pair) -> None:
    """A leaf is to be renewed in its last 90 days, not before."""
    leaf = certs.issue(ca, "server", NOW, hosts=HOSTS)
    due = NOW + certs.LEAF_LIFE - certs.RENEW_BEFORE

    assert not certs.needs_renewal(leaf.cert, due - timedelta(seconds=1))
    assert certs.needs_renewal(leaf.cert, due + timedelta(seconds=1))


def test_key_belongs_to_certificate(ca: certs.Pair) -> None:
    """A pair put together from two does not match."""
    leaf = certs.issue(ca, "server", NOW, hosts=HOSTS)

    assert certs.matches(leaf)
    assert not certs.matches(certs.Pair(leaf.cert, ca.key))
    with pytest.raises(ValueError, match="PEM"):
        certs.matches(certs.Pair(b"x", ca.key))


def test_ca_may_sign_and_leaf_may_not(ca: certs.Pair) -> None:
    """Basic constraints tell a CA from a leaf."""
    leaf = certs.issue(ca, "server", NOW, hosts=HOSTS)
    ca_flags = [
        x509.load_pem_x509_certificate(pair.cert)
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value.ca
        for pair in (ca, leaf)
    ]

    assert ca_flags == [True, False]


def test_only_ec_keys_sign(ca: certs.Pair) -> None:
    """A CA key of another kind is refused by name."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )

    with pytest.raises(TypeError, match="not an EC key"):
        certs.issue(certs.Pair(ca.cert, key), "server", NOW)


def test_pair_hides_its_key(ca: certs.Pair) -> None:
    """Printing a pair, as a log might, shows no key."""
    assert "PRIVATE" not in repr(ca)
    assert "hidden" in repr(ca)
