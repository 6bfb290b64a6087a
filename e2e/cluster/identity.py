"""Identities in the cluster: its CA, the components' certificates, kubeconfigs for callers.

Kubernetes reads a client certificate's common name as the user and its organizations as the
groups, so any identity can be had from the CA without asking the API server.
"""

import base64
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from runtime.certs import LEAF_LIFE, Pair, issue, private_pem

SERVER_NAMES = (
    "127.0.0.1",
    "localhost",
    "kubernetes.default.svc",
    "kubernetes.default",
    "kubernetes",
    "10.0.0.1",  # the first address of the service range
)
ADMINS = "system:masters"
_SERVICE_ACCOUNT = "system:serviceaccount:"


def serving(ca: Pair, now: datetime, addresses: tuple[str, ...] = ()) -> Pair:
    """Returns the serving certificate of all components, valid for `addresses` too."""
    return issue(ca, "kube-apiserver", now, hosts=(*SERVER_NAMES, *addresses))


def groups_of(user: str) -> tuple[str, ...]:
    """Returns the groups Kubernetes itself gives a service account; none for anybody else."""
    if not user.startswith(_SERVICE_ACCOUNT):
        return ()
    namespace = user.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def client(ca: Pair, user: str, groups: Sequence[str], now: datetime) -> Pair:
    """Returns a client certificate for `user` in all of `groups` (`runtime.certs` knows one only)."""
    issuer = x509.load_pem_x509_certificate(ca.cert)
    signer = serialization.load_pem_private_key(ca.key, password=None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError("the CA key is not an EC key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    cert = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(issuer.not_valid_before_utc)
        .not_valid_after(now + LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Pair(cert.public_bytes(serialization.Encoding.PEM), private_pem(key))


def signing_key() -> Pair:
    """Signs service accounts' tokens; `cert` is the public key alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return Pair(public, private_pem(key))


def kubeconfig(url: str, ca_cert: bytes, user: str, leaf: Pair) -> str:
    """Returns a kubeconfig with everything inside it (JSON, which is YAML)."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "edl",
                    "cluster": {"server": url, "certificate-authority-data": _base64(ca_cert)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _base64(leaf.cert),
                        "client-key-data": _base64(leaf.key),
                    },
                }
            ],
            "contexts": [{"name": "edl", "context": {"cluster": "edl", "user": user}}],
            "current-context": "edl",
        },
        indent=1,
    )


def write_secret(path: Path, content: bytes | str) -> Path:
    """Writes a file that only its owner may read; returns its path."""
    data = content.encode() if isinstance(content, str) else content
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(data)
    return path


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
