import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import jsonpatch
import pytest

from runtime import certs
from webhook import certificates
from webhook.certificates import Store

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HOSTS = certificates.names("edl-system", ("127.0.0.1",))
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def store() -> Store:
    """What the first replica makes at NOW."""
    return certificates.advance(None, [], HOSTS, NOW)


def _secret(store: Store) -> dict[str, Any]:
    return {"data": certificates.secret_data(store)}


def test_new_store_is_whole(store: Store) -> None:
    """CA and leaf fit together, and the leaf has every name the API server may use."""
    assert certs.issued_by(store.leaf.cert, store.ca.cert)
    assert set(certs.hosts(store.leaf.cert)) == {
        "edl-webhook.edl-system.svc",
        "edl-webhook.edl-system.svc.cluster.local",
        "edl-webhook.edl-system",
        "127.0.0.1",
    }


def test_secret_round_trips(store: Store) -> None:
    """What is written is what is read, with all parts there are."""
    full = Store(store.ca, store.leaf, certs.new_ca("next", NOW), old_ca=store.ca.cert)

    assert certificates.read(_secret(store)) == store
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
def test_damaged_secret_is_no_store(store: Store, damage: dict[str, str | None]) -> None:
    """Anything missing or unreadable means making a new one, not crashing on it."""
    data = {**certificates.secret_data(store), **damage}
    secret = {"data": {name: value for name, value in data.items() if value is not None}}

    assert certificates.read(secret) is None
    assert certificates.read({}) is None


@pytest.mark.parametrize("name", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
def test_a_secret_that_somebody_edited_is_no_store(store: Store, name: str) -> None:
    """A character that is no base64, however whole the rest is."""
    data = dict(certificates.secret_data(store))
    data[name] = f"{data[name][:8]}!{data[name][8:]}"

    assert certificates.read({"data": data}) is None


def test_mixed_up_pair_is_no_store(store: Store) -> None:
    """A key of another certificate would fail at every handshake."""
    mixed = Store(store.ca, certs.Pair(store.leaf.cert, store.ca.key))

    assert certificates.read(_secret(mixed)) is None


def test_nothing_due_is_the_same_store(store: Store) -> None:
    """Deciding again changes nothing."""
    assert certificates.advance(store, [], HOSTS, NOW + DAY) is store


def test_leaf_is_renewed_before_it_ends(store: Store) -> None:
    """In its last 90 days a leaf is issued anew under the same CA."""
    due = NOW + certs.LEAF_LIFE - certs.RENEW_BEFORE + DAY

    renewed = certificates.advance(store, [], HOSTS, due)

    assert renewed.ca == store.ca
    assert certs.expires(renewed.leaf.cert) == due + certs.LEAF_LIFE
    assert certificates.advance(renewed, [], HOSTS, due) is renewed


def test_new_name_gives_a_leaf_that_keeps_the_old_ones(store: Store) -> None:
    """Replicas with different names end with one leaf for all, instead of taking turns."""
    first = certificates.advance(store, [], (*HOSTS, "10.0.0.1"), NOW)
    second = certificates.advance(first, [], (*HOSTS, "10.0.0.2"), NOW)

    assert {"10.0.0.1", "10.0.0.2"} <= set(certs.hosts(second.leaf.cert))
    assert certificates.advance(second, [], (*HOSTS, "10.0.0.1"), NOW) is second


def test_leaf_of_another_ca_is_replaced(store: Store) -> None:
    """A leaf that its CA did not sign serves nobody."""
    other = certificates.advance(None, [], HOSTS, NOW)

    mended = certificates.advance(Store(store.ca, other.leaf), [], HOSTS, NOW)

    assert certs.issued_by(mended.leaf.cert, store.ca.cert)


def test_ca_changes_old_and_new_first(store: Store) -> None:
    """A successor is published before it issues; the old CA stays published after."""
    due = NOW + certs.CA_LIFE - certificates.CA_RENEW_BEFORE + DAY
    store = certificates.advance(store, [], HOSTS, due)  # a leaf of that time
    begun = certificates.advance(store, [], HOSTS, due)
    assert begun.next_ca is not None
    both = certificates.bundle(begun)

    early = certificates.advance(begun, [both], HOSTS, due + timedelta(minutes=1))
    later = due + certificates.SETTLE
    unpublished = certificates.advance(begun, [both, store.ca.cert], HOSTS, later)
    switched = certificates.advance(begun, [both], HOSTS, later)

    assert store.ca.cert in both
    assert begun.next_ca.cert in both
    assert early.next_ca == begun.next_ca
    assert unpublished.next_ca == begun.next_ca
    assert switched.ca == begun.next_ca
    assert certs.issued_by(switched.leaf.cert, switched.ca.cert)
    assert certificates.bundle(switched) == both
    assert certificates.advance(switched, [both], HOSTS, later) is switched


def test_whatever_is_served_can_be_checked(store: Store) -> None:
    """Over twenty years of daily rounds the published bundle always has the leaf's CA.

    With what was published a round ago, as an API server that lags sees it.
    """
    now, published = NOW, certificates.bundle(store)
    for _ in range(20 * 73):
        now += 5 * DAY
        store = certificates.advance(store, [published], HOSTS, now)
        cas = [part + b"-----END CERTIFICATE-----\n" for part in _parts(published)]
        assert any(certs.issued_by(store.leaf.cert, ca) for ca in cas)
        assert certs.expires(store.leaf.cert) > now
        published = certificates.bundle(store)


def _parts(bundle: bytes) -> list[bytes]:
    return bundle.split(b"-----END CERTIFICATE-----\n")[:-1]


def test_ended_ca_is_replaced_at_once(store: Store) -> None:
    """A cluster that slept for years starts anew; a successor that is there is used."""
    late = NOW + certs.CA_LIFE + DAY
    successor = certs.new_ca("next", late - DAY)

    fresh = certificates.advance(store, [], HOSTS, late)
    taken = certificates.advance(Store(store.ca, store.leaf, successor), [], HOSTS, late)

    assert certs.expires(fresh.ca.cert) > late
    assert taken.ca == successor


def test_leaf_near_the_end_of_its_ca_is_not_made_again_and_again(store: Store) -> None:
    """A leaf cannot outlive its CA, so a new one would not last longer."""
    late = NOW + certs.CA_LIFE - 30 * DAY
    waiting = Store(store.ca, store.leaf, certs.new_ca("next", late))

    once = certificates.advance(waiting, [b""], HOSTS, late)

    assert certs.expires(once.leaf.cert) == certs.expires(store.ca.cert)
    assert certificates.advance(once, [b""], HOSTS, late + timedelta(minutes=1)) is once


def test_forgotten_ca_leaves_the_bundle_when_it_ends(store: Store) -> None:
    """An old CA that has ended is published no longer."""
    old = certs.new_ca("old", NOW, life=DAY)
    kept = Store(store.ca, store.leaf, old_ca=old.cert)

    after = certificates.advance(kept, [], HOSTS, NOW + 2 * DAY)

    assert after == Store(store.ca, store.leaf)


def test_publishing_touches_the_bundle_only() -> None:
    """Entries that lack the bundle get it, tested by name; those that have it are left."""
    wanted = base64.b64encode(b"B").decode()
    registration = {
        "webhooks": [
            {"name": "a", "clientConfig": {"url": "https://a"}},
            {"name": "b", "clientConfig": {"caBundle": wanted}},
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
    assert after["webhooks"][0]["clientConfig"] == {"url": "https://a", "caBundle": wanted}
    assert certificates.publish(after, b"B") == []
    assert certificates.bundles(after) == [b"B", b"B", b"B"]


def test_odd_bundles_are_empty() -> None:
    """A registration that somebody edited is read all the same."""
    odd = [
        {"name": "a"},
        {"clientConfig": {"caBundle": "?"}},
        {"clientConfig": {"caBundle": "Y Q=="}},
    ]

    assert certificates.bundles({"webhooks": odd}) == [b"", b"", b""]
    assert certificates.bundles({}) == []
