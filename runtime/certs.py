"""Certificates that EDL creates: a long-lived CA and the leaves that it issues.

Pure except for key generation. Who calls: webhook and extender for their serving certificates,
the local cluster of `e2e` for all certificates. Keys are ECDSA P-256: small, quick to generate,
and supported by every TLS 1.2+ peer.
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CA_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
RENEW_BEFORE = timedelta(days=90)
_CLOCK_SKEW = timedelta(days=1)
"""How far the issuer's clock may be ahead; a wrong time zone makes a difference of hours."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both as PEM. Never log `key`."""

    cert: bytes
    key: bytes

    def __repr__(self) -> str:
        """Hides the key."""
        return f"Pair(cert={len(self.cert)} bytes, key=hidden)"


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Returns the key as unencrypted PKCS8, in PEM."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def new_ca(common_name: str, now: datetime, life: timedelta = CA_LIFE) -> Pair:
    """Creates a self-signed CA that is valid from `now` (aware) for `life`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(common_name)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    cert = builder.sign(key, hashes.SHA256())
    return Pair(cert.public_bytes(serialization.Encoding.PEM), private_pem(key))


def issue(
    ca: Pair,
    common_name: str,
    now: datetime,
    *,
    organization: str = "",
    hosts: tuple[str, ...] = (),
    life: timedelta = LEAF_LIFE,
) -> Pair:
    """Issues a leaf for a client (no `hosts`) or a server (`hosts` are its SANs).

    Args:
        ca: The issuing pair.
        common_name: The Kubernetes user name, for clients.
        now: Aware; the leaf is valid from then for `life`.
        organization: The Kubernetes group, for clients.
        hosts: DNS names and IP addresses; Go ignores the CN, so a server needs them.
        life: The validity period.
    """
    issuer = x509.load_pem_x509_certificate(ca.cert)
    signer = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA key is not an EC key")
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(common_name, organization))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_san(host) for host in hosts]), critical=False
        )
    cert = builder.sign(signer, hashes.SHA256())
    return Pair(cert.public_bytes(serialization.Encoding.PEM), private_pem(key))


def expires(cert: bytes) -> datetime:
    """Returns when the first certificate in the PEM expires (aware, UTC)."""
    return x509.load_pem_x509_certificate(cert).not_valid_after_utc


def needs_renewal(cert: bytes, now: datetime, before: timedelta = RENEW_BEFORE) -> bool:
    """Returns whether the certificate expires in less than `before`."""
    return expires(cert) - now < before


def begins(cert: bytes) -> datetime:
    """Returns when the first certificate in the PEM was issued (aware, UTC), without the clock skew."""
    return x509.load_pem_x509_certificate(cert).not_valid_before_utc + _CLOCK_SKEW


def hosts(cert: bytes) -> tuple[str, ...]:
    """Returns the DNS names and addresses (SANs) of the first certificate in the PEM."""
    try:
        names = x509.load_pem_x509_certificate(cert).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names.value)


def issued_by(cert: bytes, ca: bytes) -> bool:
    """Returns whether `ca` signed the first certificate in the PEM."""
    try:
        x509.load_pem_x509_certificate(cert).verify_directly_issued_by(
            x509.load_pem_x509_certificate(ca)
        )
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def matches(pair: Pair) -> bool:
    """Returns whether the key belongs to the certificate.

    Raises:
        ValueError: the key or the certificate is not valid PEM.
    """
    key = serialization.load_pem_private_key(pair.key, password=None)
    return key.public_key() == x509.load_pem_x509_certificate(pair.cert).public_key()


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
