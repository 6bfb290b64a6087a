"""The webhook's own certificates: contents of the Secret, published bundle, and rotation.

Pure except for key generation. Called by `webhook.certificate_rotator`, which does the I/O. A
rotation is a sequence of steps; several replicas may safely take the same step at once:

1. A CA that expires soon gets a successor. Both CAs are published.
2. Once every registration has had the successor for some time, the successor issues the leaves. The old
   CA stays published, because other replicas still serve its leaf for a while.

The served certificate can therefore always be verified with the published bundle.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from policy.admission.patch import Operation
from runtime import certs
from runtime.certs import Pair

SECRET = "edl-webhook-tls"  # noqa: S105 - the Secret's name
REGISTRATION = "edl-webhook"
"""Name of EDL's webhook configurations and of its Service."""
SETTLE = timedelta(minutes=10)
"""Minimum age of a successor CA before it issues leaves: every API server has read it by then."""
CA_RENEW_BEFORE = certs.LEAF_LIFE + certs.RENEW_BEFORE
"""How long before its expiry a CA gets a successor, so that no leaf outlives its CA."""

_CA_NAME = "edl-webhook-ca"
_WORTH_IT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """The certificates in the Secret."""

    ca: Pair
    leaf: Pair
    next_ca: Pair | None = None
    old_ca: bytes = b""
    """The certificate of the previous CA, whose key was discarded."""


def read(secret: Mapping[str, Any]) -> CertificateSet | None:
    """Parses a core/v1 Secret; None if something is missing or malformed."""
    data = secret.get("data") or {}
    try:
        cert_set = CertificateSet(
            ca=_pair(data, "ca"),
            leaf=_pair(data, "tls"),
            next_ca=_pair(data, "next-ca") if "next-ca.crt" in data else None,
            old_ca=base64.b64decode(data.get("old-ca.crt", ""), validate=True),
        )
        pairs = [
            cert_set.ca,
            cert_set.leaf,
            *([cert_set.next_ca] if cert_set.next_ca else []),
        ]
        usable = all(certs.matches(pair) for pair in pairs)
        if cert_set.old_ca:
            certs.expires(cert_set.old_ca)
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None
    return cert_set if usable else None


def secret_data(cert_set: CertificateSet) -> dict[str, str]:
    """Encodes the certificates as `Secret.data`."""
    pairs = {"ca": cert_set.ca, "tls": cert_set.leaf}
    if cert_set.next_ca is not None:
        pairs["next-ca"] = cert_set.next_ca
    data = {f"{name}.crt": pair.cert for name, pair in pairs.items()}
    data |= {f"{name}.key": pair.key for name, pair in pairs.items()}
    if cert_set.old_ca:
        data["old-ca.crt"] = cert_set.old_ca
    return {name: base64.b64encode(value).decode() for name, value in sorted(data.items())}


def bundle(cert_set: CertificateSet) -> bytes:
    """Returns the CA certificates to publish, sorted so that their order does not depend on their roles."""
    parts = {cert_set.ca.cert, cert_set.old_ca}
    if cert_set.next_ca is not None:
        parts.add(cert_set.next_ca.cert)
    return b"".join(sorted(part for part in parts if part))


def advance(
    cert_set: CertificateSet | None,
    published: Sequence[bytes],
    hosts: tuple[str, ...],
    now: datetime,
) -> CertificateSet:
    """Returns the certificates after the one step that is due, or the same object if no step is due.

    Args:
        cert_set: The content of the Secret; None creates new certificates.
        published: The caBundle of every entry in the registrations.
        hosts: Names and addresses that the leaf must cover.
        now: The time, with a time zone.
    """
    if cert_set is None or certs.expires(cert_set.ca.cert) <= now:
        ca = (cert_set.next_ca if cert_set else None) or certs.new_ca(_CA_NAME, now)
        return CertificateSet(ca, _leaf(ca, hosts, now))
    changed = _advance_ca(cert_set, published, hosts, now)
    if changed is not None:
        return changed
    if _leaf_due(cert_set, hosts, now):
        return replace(cert_set, leaf=_leaf(cert_set.ca, _names(cert_set, hosts), now))
    return cert_set


def publish(registration: Mapping[str, Any], ca_bundle: bytes) -> list[Operation]:
    """Returns a JSON Patch that sets caBundle on every entry where it differs.

    The patch tests each entry's name first, because entries may have moved since they were read.
    """
    text = base64.b64encode(ca_bundle).decode()
    operations: list[Operation] = []
    for index, entry in enumerate(registration.get("webhooks") or ()):
        if (entry.get("clientConfig") or {}).get("caBundle") != text:
            at = f"/webhooks/{index}"
            operations.append({"op": "test", "path": f"{at}/name", "value": entry.get("name")})
            operations.append({"op": "add", "path": f"{at}/clientConfig/caBundle", "value": text})
    return operations


def bundles(registration: Mapping[str, Any]) -> list[bytes]:
    """Returns the caBundle of each entry; b"" if it is missing or not base64."""
    ca_bundles = []
    for entry in registration.get("webhooks") or ():
        try:
            text = (entry.get("clientConfig") or {}).get("caBundle") or ""
            ca_bundles.append(base64.b64decode(text, validate=True))
        except (TypeError, ValueError):
            ca_bundles.append(b"")
    return ca_bundles


def names(namespace: str, extra_hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the host names that the API server may use: the Service's names and `extra_hosts`."""
    service = f"{REGISTRATION}.{namespace}"
    return (f"{service}.svc", f"{service}.svc.cluster.local", service, *extra_hosts)


def _leaf(ca: Pair, hosts: tuple[str, ...], now: datetime) -> Pair:
    life = min(certs.LEAF_LIFE, certs.expires(ca.cert) - now)
    return certs.issue(ca, REGISTRATION, now, hosts=hosts, life=life)


def _advance_ca(
    cert_set: CertificateSet,
    published: Sequence[bytes],
    hosts: tuple[str, ...],
    now: datetime,
) -> CertificateSet | None:
    """Returns the certificates after the next step of a CA rotation; None if no step is due."""
    if cert_set.next_ca is None and certs.needs_renewal(cert_set.ca.cert, now, CA_RENEW_BEFORE):
        return replace(cert_set, next_ca=certs.new_ca(_CA_NAME, now))
    if cert_set.next_ca is not None and _settled(cert_set.next_ca, published, now):
        leaf = _leaf(cert_set.next_ca, _names(cert_set, hosts), now)
        return CertificateSet(cert_set.next_ca, leaf, old_ca=cert_set.ca.cert)
    if cert_set.old_ca and certs.expires(cert_set.old_ca) <= now:
        return replace(cert_set, old_ca=b"")
    return None


def _leaf_due(cert_set: CertificateSet, hosts: tuple[str, ...], now: datetime) -> bool:
    """Returns whether a new leaf from the same CA is due and would last longer than the old one."""
    cert = cert_set.leaf.cert
    if not set(hosts) <= set(certs.hosts(cert)) or not certs.issued_by(cert, cert_set.ca.cert):
        return True
    lasts = min(now + certs.LEAF_LIFE, certs.expires(cert_set.ca.cert)) - certs.expires(cert)
    return certs.needs_renewal(cert, now) and lasts > _WORTH_IT


def _names(cert_set: CertificateSet, hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Adds the current leaf's hosts, so that replicas with different settings do not alternate."""
    return tuple(dict.fromkeys((*hosts, *certs.hosts(cert_set.leaf.cert))))


def _settled(ca: Pair, published: Sequence[bytes], now: datetime) -> bool:
    return now - certs.begins(ca.cert) >= SETTLE and all(
        ca.cert in ca_bundle for ca_bundle in published
    )


def _pair(data: Mapping[str, str], name: str) -> Pair:
    cert, key = data[f"{name}.crt"], data[f"{name}.key"]
    return Pair(base64.b64decode(cert, validate=True), base64.b64decode(key, validate=True))
