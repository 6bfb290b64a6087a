"""Certificates between kube-scheduler and the extender: their renewal, their ends, their files.

Nothing renews them by itself, and kube-scheduler goes on without an extender whose certificate has
expired, so the leaves live as long as their CA, and metrics say when they end.
"""

import calendar
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

from runtime import certs, extender_tls

PEER_TIME = "%b %d %H:%M:%S %Y GMT"
"""Format of times in `ssl.SSLSocket.getpeercert`."""


class CaError(ValueError):
    """A CA cannot issue certificates; the text is one line."""


def renewed(
    ca: certs.Pair, hosts: tuple[str, ...], namespace: str, now: datetime
) -> dict[str, bytes]:
    """The files of `runtime.extender_tls` by a CA that exists: until both sides have them, both work.

    Args:
        ca: The CA.
        hosts: The extender's names; () for those inside a cluster alone.
        namespace: EDL's namespace.
        now: Aware; the certificates are valid from then until the CA ends.

    Raises:
        CaError: the key is of another CA, or the CA ends so soon that a new one is needed.
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
    """When the first of some PEM files of certificates expires, in epoch seconds.

    0 where there is no file, or one that cannot be read.
    """
    try:
        ends_s = [certs.expires(path.read_bytes()).timestamp() for path in files]
    except (OSError, ValueError):
        return 0.0
    return min(ends_s, default=0.0)


def peer_expiry_s(certificate: Mapping[str, object] | None) -> float:
    """When a caller's certificate expires, in epoch seconds; 0 without one.

    Args:
        certificate: As `ssl.SSLSocket.getpeercert` returns it.
    """
    if not certificate:
        return 0.0
    end = datetime.strptime(str(certificate["notAfter"]), PEER_TIME)  # noqa: DTZ007 - GMT is in the format
    return float(calendar.timegm(end.timetuple()))


def write(directory: Path, contents: dict[str, bytes]) -> None:
    """Writes the files, readable by their owner alone.

    Raises:
        FileExistsError: a file exists already; nothing is overwritten.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in contents:
        if (directory / name).exists():
            raise FileExistsError(f"{directory / name} exists already: use another directory")
    for name, pem in contents.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(pem)
