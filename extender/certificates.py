"""Certificates of kube-scheduler and the extender: renewal, expiry and files.

The certificates are not renewed automatically, and kube-scheduler continues without an extender whose
certificate has expired. So leaf certificates live as long as their CA, and metrics show when they expire.
"""

import calendar
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from runtime import certs, extender_tls

PEER_TIME = "%b %d %H:%M:%S %Y GMT"
"""Format of the times from `ssl.SSLSocket.getpeercert`."""


class CaError(ValueError):
    """A CA cannot issue certificates; the message is one line."""


def renewed(
    ca: certs.Pair, hosts: tuple[str, ...], namespace: str, now: datetime
) -> dict[str, bytes]:
    """Returns new files of `runtime.extender_tls` from an existing CA; they also work with the old files.

    Args:
        ca: The CA.
        hosts: The extender's names; () for only its names inside the cluster.
        namespace: EDL's namespace.
        now: The time, with a time zone; the certificates are valid from then until the CA expires.

    Raises:
        CaError: The key does not belong to the CA, or the CA expires so soon that a new CA is needed.
    """
    try:
        matches = certs.matches(ca)
    except (ValueError, TypeError) as error:
        raise CaError(f"ca.crt and ca.key are not a CA and its key in PEM ({error})") from error
    if not matches:
        raise CaError("ca.key is not the key of ca.crt")
    if certs.needs_renewal(ca.cert, now):
        end = certs.expires(ca.cert)
        raise CaError(f"ca.crt ends on {end:%Y-%m-%d}: create a new CA, without --renew")
    return extender_tls.issued(ca, hosts or extender_tls.names(namespace), now)


def expiry_s(files: Iterable[Path]) -> float:
    """Returns the earliest expiry of the certificates in PEM files, in epoch seconds.

    Returns 0 if there is no file, or if a file cannot be read.
    """
    try:
        ends_s = [certs.expires(path.read_bytes()).timestamp() for path in files]
    except (OSError, ValueError):
        return 0.0
    return min(ends_s, default=0.0)


def peer_expiry_s(certificate: Mapping[str, object] | None) -> float:
    """Returns when a caller's certificate expires, in epoch seconds, or 0 without a certificate.

    Args:
        certificate: The result of `ssl.SSLSocket.getpeercert`.
    """
    if not certificate:
        return 0.0
    end = datetime.strptime(str(certificate["notAfter"]), PEER_TIME)  # noqa: DTZ007 - PEER_TIME contains GMT
    return float(calendar.timegm(end.timetuple()))


def write(directory: Path, contents: dict[str, bytes]) -> None:
    """Writes the files with permissions for their owner only.

    Raises:
        FileExistsError: A file already exists; nothing is overwritten.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in contents:
        if (directory / name).exists():
            raise FileExistsError(f"{directory / name} exists already: use another directory")
    for name, pem in contents.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(pem)
