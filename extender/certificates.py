"""Certificates between kube-scheduler and the extender: a CA and one leaf for each side.

Nothing renews them, and kube-scheduler goes on without an extender whose certificate has expired, so
the leaves live as long as their CA, and a metric says when they end.
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from runtime import certs

SERVICE = "edl-extender"


def names(namespace: str, extra_hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The extender's host names inside a cluster, and `extra_hosts`."""
    return (f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}", "127.0.0.1", *extra_hosts)


def files(namespace: str, extra_hosts: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """File name -> PEM: ca.crt, tls.crt and tls.key of the server, client.crt and client.key."""
    ca = certs.new_ca(SERVICE, now)
    hosts = names(namespace, extra_hosts)
    server = certs.issue(ca, SERVICE, now, hosts=hosts, life=certs.CA_LIFE)
    client = certs.issue(ca, "kube-scheduler", now, life=certs.CA_LIFE)
    return {
        "ca.crt": ca.cert,
        "ca.key": ca.key,
        "tls.crt": server.cert,
        "tls.key": server.key,
        "client.crt": client.cert,
        "client.key": client.key,
    }


def expiry_s(files: Iterable[Path]) -> float:
    """When the first of some PEM files of certificates expires, in epoch seconds.

    0 where there is no file, or one that cannot be read.
    """
    try:
        ends_s = [certs.expires(path.read_bytes()).timestamp() for path in files]
    except (OSError, ValueError):
        return 0.0
    return min(ends_s, default=0.0)


def write(directory: Path, contents: dict[str, bytes]) -> None:
    """Writes the files, readable by their owner alone.

    Raises:
        FileExistsError: a file exists already; nothing is overwritten.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name in contents:
        if (directory / name).exists():
            raise FileExistsError(f"{directory / name} exists already; name another directory")
    for name, pem in contents.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(pem)
