"""Our own certificates: what to keep in the Secret, what to publish, and when to change it.

Pure but for key generation. Who calls: `webhook.keeper`, which does the I/O. One step at a time,
each safe to take by several replicas at once:

1. A CA that ends soon gets a successor, which is published beside it.
2. Once every registration carries the successor, for a while, leaves are issued under it; the
   old CA stays published, since other replicas serve its leaf a little longer.

So at every moment what is served can be checked with what is published.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from policy.patch import Operation
from runtime import certs
from runtime.certs import Pair

SECRET = "edl-webhook-tls"  # noqa: S105 - its name
REGISTRATION = "edl-webhook"
"""Name of our webhook configurations and of our Service."""
SETTLE = timedelta(minutes=10)
"""How old a successor CA is before it issues: every API server has read it by then."""
CA_RENEW_BEFORE = certs.LEAF_LIFE + certs.RENEW_BEFORE
"""No leaf outlives its CA."""

_CA_NAME = "edl-webhook-ca"
_WORTH_IT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Store:
    """The Secret's content."""

    ca: Pair
    leaf: Pair
    next_ca: Pair | None = None
    old_ca: bytes = b""
    """Certificate of the CA before; its key is forgotten."""


def read(secret: Mapping[str, Any]) -> Store | None:
    """The store in a core/v1 Secret; None where something is missing or unreadable."""
    data = secret.get("data") or {}
    try:
        store = Store(
            ca=_pair(data, "ca"),
            leaf=_pair(data, "tls"),
            next_ca=_pair(data, "next-ca") if "next-ca.crt" in data else None,
            old_ca=base64.b64decode(data.get("old-ca.crt", ""), validate=True),
        )
        pairs = [store.ca, store.leaf, *([store.next_ca] if store.next_ca else [])]
        usable = all(certs.matches(pair) for pair in pairs)
        if store.old_ca:
            certs.expires(store.old_ca)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return store if usable else None


def secret_data(store: Store) -> dict[str, str]:
    """`Secret.data` for a store."""
    pairs = {"ca": store.ca, "tls": store.leaf}
    if store.next_ca is not None:
        pairs["next-ca"] = store.next_ca
    data = {f"{name}.crt": pair.cert for name, pair in pairs.items()}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    if store.old_ca:
        data["old-ca.crt"] = store.old_ca
    return {name: base64.b64encode(value).decode() for name, value in sorted(data.items())}


def bundle(store: Store) -> bytes:
    """The CA certificates to publish, in an order that does not depend on their part."""
    parts = {store.ca.cert, store.old_ca}
    if store.next_ca is not None:
        parts.add(store.next_ca.cert)
    return b"".join(sorted(part for part in parts if part))


def advance(
    store: Store | None, published: Sequence[bytes], hosts: tuple[str, ...], now: datetime
) -> Store:
    """The store after the one step that is due, or the same store if none is.

    Args:
        store: What the Secret holds; None makes a new one.
        published: The caBundle of every webhook entry of ours that there is.
        hosts: Names and addresses that the leaf must cover.
        now: Aware.
    """
    if store is None or certs.expires(store.ca.cert) <= now:
        ca = (store.next_ca if store else None) or certs.new_ca(_CA_NAME, now)
        return Store(ca, _leaf(ca, hosts, now))
    changed = _advance_ca(store, published, hosts, now)
    if changed is not None:
        return changed
    if _leaf_due(store, hosts, now):
        return replace(store, leaf=_leaf(store.ca, _names(store, hosts), now))
    return store


def publish(registration: Mapping[str, Any], wanted: bytes) -> list[Operation]:
    """JSON Patch that sets caBundle, and only that, on every entry that has another one.

    Each entry is tested by name first: entries may have moved since they were read.
    """
    text = base64.b64encode(wanted).decode()
    operations: list[Operation] = []
    for index, entry in enumerate(registration.get("webhooks") or ()):
        if (entry.get("clientConfig") or {}).get("caBundle") != text:
            at = f"/webhooks/{index}"
            operations.append({"op": "test", "path": f"{at}/name", "value": entry.get("name")})
            operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": text})
    return operations


def bundles(registration: Mapping[str, Any]) -> list[bytes]:
    """The caBundle of each entry; empty where there is none or it is no base64."""
    found = []
    for entry in registration.get("webhooks") or ():
        try:
            text = (entry.get("clientConfig") or {}).get("caBundle") or ""
            found.append(base64.b64decode(text, validate=True))
        except (TypeError, ValueError):
            found.append(b"")
    return found


def names(namespace: str, more: tuple[str, ...]) -> tuple[str, ...]:
    """What the API server may call us: our Service's names and whatever else was asked for."""
    service = f"{REGISTRATION}.{namespace}"
    return (f"{service}.svc", f"{service}.svc.cluster.local", service, *more)


def _leaf(ca: Pair, hosts: tuple[str, ...], now: datetime) -> Pair:
    life = min(certs.LEAF_LIFE, certs.expires(ca.cert) - now)
    return certs.issue(ca, REGISTRATION, now, hosts=hosts, life=life)


def _advance_ca(
    store: Store, published: Sequence[bytes], hosts: tuple[str, ...], now: datetime
) -> Store | None:
    """The next step of a change of CAs; None if none is due."""
    if store.next_ca is None and certs.needs_renewal(store.ca.cert, now, CA_RENEW_BEFORE):
        return replace(store, next_ca=certs.new_ca(_CA_NAME, now))
    if store.next_ca is not None and _settled(store.next_ca, published, now):
        leaf = _leaf(store.next_ca, _names(store, hosts), now)
        return Store(store.next_ca, leaf, old_ca=store.ca.cert)
    if store.old_ca and certs.expires(store.old_ca) <= now:
        return replace(store, old_ca=b"")
    return None


def _leaf_due(store: Store, hosts: tuple[str, ...], now: datetime) -> bool:
    """Whether a new leaf under the same CA is due, and would be better."""
    cert = store.leaf.cert
    if not set(hosts) <= set(certs.hosts(cert)) or not certs.issued_by(cert, store.ca.cert):
        return True
    lasts = min(now + certs.LEAF_LIFE, certs.expires(store.ca.cert)) - certs.expires(cert)
    return certs.needs_renewal(cert, now) and lasts > _WORTH_IT


def _names(store: Store, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """What is covered stays covered: replicas with different settings must not take turns."""
    return tuple(dict.fromkeys((*hosts, *certs.hosts(store.leaf.cert))))


def _settled(ca: Pair, published: Sequence[bytes], now: datetime) -> bool:
    return now - certs.begins(ca.cert) >= SETTLE and all(ca.cert in found for found in published)


def _pair(data: Mapping[str, str], name: str) -> Pair:
    cert, key = data[f"{name}.crt"], data[f"{name}.key"]
    return Pair(base64.b64decode(cert, validate=True), base64.b64decode(key, validate=True))
