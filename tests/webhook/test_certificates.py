import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonpatch
import pytest

from runtime import certs
from webhook import certificates
from webhook.certificates import CertificateSet

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = certificates.names("edl-system", ("127.0.0.1",))
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def cert_set() -> CertificateSet:
    """The certificates that the first replica creates at NOW."""
    return certificates.advance(None, [], HOSTS, NOW)


def _secret(cert_set: CertificateSet) -> dict[str, Any]:
    return {"data": certificates.secret_data(cert_set)}


def test_new_certificates_are_complete(cert_set: CertificateSet) -> None:
    """CA and leaf fit together, and the leaf has every name the API server may use."""
    assert certs.issued_by(cert_set.leaf.cert, cert_set.ca.cert)
    assert set(certs.hosts(cert_set.leaf.cert)) == {
        "edl-webhook.edl-system.svc",
        "edl-webhook.edl-system.svc.cluster.local",
        "edl-webhook.edl-system",
        "127.0.0.1",
    }


def test_secret_round_trips(cert_set: CertificateSet) -> None:
    """The Secret encodes all parts without loss."""
    full = CertificateSet(
        cert_set.ca,
        cert_set.leaf,
        certs.new_ca("next", NOW),
        old_ca=cert_set.ca.cert,
    )

    assert certificates.read(_secret(cert_set)) == cert_set
    assert certificates.read(_secret(full)) == full


@pytest.mark.parametrize(
    "damage",
    [
        {"ca.crt": None},
        {"tls.key": None},
        {"tls.crt": "!"},
        {"tls.crt": base64.b64encode(b"no PEM").decode()},
        {"old-ca.crt": base64.b64encode(b"no PEM").decode()},
        {"next-ca.crt": base64.b64encode(b"no PEM").decode()},
    ],
)
def test_a_damaged_secret_is_rejected(
    cert_set: CertificateSet, damage: dict[str, str | None]
) -> None:
    """Anything missing or unreadable means making a new one, not crashing on it."""
    data = {**certificates.secret_data(cert_set), **damage}
    secret = {"data": {name: value for name, value in data.items() if value is not None}}

    assert certificates.read(secret) is None
    assert certificates.read({}) is None


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_an_edited_secret_is_rejected(cert_set: CertificateSet, name: str) -> None:
    """One character that is not base64 is enough."""
    data = dict(certificates.secret_data(cert_set))
    data[name] = f"{data[name][:8]}!{data[name][8:]}"

    assert certificates.read({"data": data}) is None


def test_a_mixed_up_pair_is_rejected(cert_set: CertificateSet) -> None:
    """A key of another certificate would fail at every handshake."""
    mixed = CertificateSet(cert_set.ca, certs.Pair(cert_set.leaf.cert, cert_set.ca.key))

    assert certificates.read(_secret(mixed)) is None


def test_nothing_due_returns_the_same_object(cert_set: CertificateSet) -> None:
    """Deciding again changes nothing."""
    assert certificates.advance(cert_set, [], HOSTS, NOW + DAY) is cert_set


def test_leaf_is_renewed_before_it_ends(cert_set: CertificateSet) -> None:
    """In its last 90 days a leaf is replaced by a new one of the same CA."""
    due = NOW + certs.LEAF_LIFE - certs.RENEW_BEFORE + DAY

    renewed = certificates.advance(cert_set, [], HOSTS, due)

    assert renewed.ca == cert_set.ca
    assert certs.expires(renewed.leaf.cert) == due + certs.LEAF_LIFE
    assert certificates.advance(renewed, [], HOSTS, due) is renewed


def test_new_name_gives_a_leaf_that_keeps_the_old_ones(cert_set: CertificateSet) -> None:
    """Replicas with different names end with one leaf for all, instead of taking turns."""
    first = certificates.advance(cert_set, [], (*HOSTS, "10.0.0.1"), NOW)
    second = certificates.advance(first, [], (*HOSTS, "10.0.0.2"), NOW)

    assert {"10.0.0.1", "10.0.0.2"} <= set(certs.hosts(second.leaf.cert))
    assert certificates.advance(second, [], (*HOSTS, "10.0.0.1"), NOW) is second


def test_leaf_of_another_ca_is_replaced(cert_set: CertificateSet) -> None:
    """A leaf that its CA did not sign cannot be verified."""
    other = certificates.advance(None, [], HOSTS, NOW)

    mended = certificates.advance(CertificateSet(cert_set.ca, other.leaf), [], HOSTS, NOW)

    assert certs.issued_by(mended.leaf.cert, cert_set.ca.cert)


def test_ca_changes_old_and_new_first(cert_set: CertificateSet) -> None:
    """A successor is published before it issues; the old CA stays published after."""
    due = NOW + certs.CA_LIFE - certificates.CA_RENEW_BEFORE + DAY
    cert_set = certificates.advance(cert_set, [], HOSTS, due)  # a leaf of that time
    begun = certificates.advance(cert_set, [], HOSTS, due)
    assert begun.next_ca is not None
    both = certificates.bundle(begun)

    early = certificates.advance(begun, [both], HOSTS, due + timedelta(minutes=1))
    later = due + certificates.SETTLE
    unpublished = certificates.advance(begun, [both, cert_set.ca.cert], HOSTS, later)
    switched = certificates.advance(begun, [both], HOSTS, later)

    assert cert_set.ca.cert in both
    assert begun.next_ca.cert in both
    assert early.next_ca == begun.next_ca
    assert unpublished.next_ca == begun.next_ca
    assert switched.ca == begun.next_ca
    assert certs.issued_by(switched.leaf.cert, switched.ca.cert)
    assert certificates.bundle(switched) == both
    assert certificates.advance(switched, [both], HOSTS, later) is switched


def test_whatever_is_served_can_be_checked(cert_set: CertificateSet) -> None:
    """Over twenty years of syncs the published bundle always has the leaf's CA.

    It is verified with the bundle of the previous sync, as a lagging API server sees it.
    """
    now, published = NOW, certificates.bundle(cert_set)
    for _ in range(20 * 73):
        now += 5 * DAY
        cert_set = certificates.advance(cert_set, [published], HOSTS, now)
        cas = [part + b"-----END CERTIFICATE-----\n" for part in _parts(published)]
        assert any(certs.issued_by(cert_set.leaf.cert, ca) for ca in cas)
        assert certs.expires(cert_set.leaf.cert) > now
        published = certificates.bundle(cert_set)


def _parts(bundle: bytes) -> list[bytes]:
    return bundle.split(b"-----END CERTIFICATE-----\n")[:-1]


def test_ended_ca_is_replaced_at_once(cert_set: CertificateSet) -> None:
    """After years without a sync there is a new CA; an existing successor is used."""
    late = NOW + certs.CA_LIFE + DAY
    successor = certs.new_ca("next", late - DAY)

    fresh = certificates.advance(cert_set, [], HOSTS, late)
    promoted = certificates.advance(
        CertificateSet(cert_set.ca, cert_set.leaf, successor), [], HOSTS, late
    )

    assert certs.expires(fresh.ca.cert) > late
    assert promoted.ca == successor


def test_leaf_near_the_end_of_its_ca_is_not_made_again_and_again(
    cert_set: CertificateSet,
) -> None:
    """A leaf cannot outlive its CA, so a new one would not last longer."""
    late = NOW + certs.CA_LIFE - 30 * DAY
    waiting = CertificateSet(cert_set.ca, cert_set.leaf, certs.new_ca("next", late))

    once = certificates.advance(waiting, [b""], HOSTS, late)

    assert certs.expires(once.leaf.cert) == certs.expires(cert_set.ca.cert)
    assert certificates.advance(once, [b""], HOSTS, late + timedelta(minutes=1)) is once


def test_forgotten_ca_leaves_the_bundle_when_it_ends(cert_set: CertificateSet) -> None:
    """An old CA that has ended is published no longer."""
    old = certs.new_ca("old", NOW, life=DAY)
    with_old_ca = CertificateSet(cert_set.ca, cert_set.leaf, old_ca=old.cert)

    after = certificates.advance(with_old_ca, [], HOSTS, NOW + 2 * DAY)

    assert after == CertificateSet(cert_set.ca, cert_set.leaf)


def test_publishing_touches_the_bundle_only() -> None:
    """Entries that lack the bundle get it, tested by name; those that have it are left."""
    encoded = base64.b64encode(b"B").decode()
    registration = {
        "webhooks": [
            {"name": "a", "clientConfig": {"url": "https://a"}},
            {"name": "b", "clientConfig": {"caBundle": encoded}},
            {"name": "c", "clientConfig": {"caBundle": "eA=="}},
        ]
    }

    operations = certificates.publish(registration, b"B")
    after = jsonpatch.JsonPatch(operations).apply(registration)

    assert [op["path"] for op in operations] == [
        "/webhooks/0/name",
        "/webhooks/0/clientConfig/caBundle",
        "/webhooks/2/name",
        "/webhooks/2/clientConfig/caBundle",
    ]
    assert after["webhooks"][0]["clientConfig"] == {"url": "https://a", "caBundle": encoded}
    assert certificates.publish(after, b"B") == []
    assert certificates.bundles(after) == [b"B", b"B", b"B"]


def test_odd_bundles_are_empty() -> None:
    """An edited registration can still be read."""
    odd = [
        {"name": "a"},
        {"clientConfig": {"caBundle": "?"}},
        {"clientConfig": {"caBundle": "Y Q=="}},
    ]

    assert certificates.bundles({"webhooks": odd}) == [b"", b"", b""]
    assert certificates.bundles({}) == []
