"""Certificates between kube-scheduler and the extender: a CA and one leaf for each side.

The scheduler reads its CA once at start, so the CA is long-lived and only leaves change; the
server loads a renewed leaf by itself.
"""

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
    server = certs.issue(ca, SERVICE, now, hosts=names(namespace, extra_hosts))
    client = certs.issue(ca, "kube-scheduler", now)
    return {
        "ca.crt": ca.cert,
        "ca.key": ca.key,
        "tls.crt": server.cert,
        "tls.key": server.key,
        "client.crt": client.cert,
        "client.key": client.key,
    }


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
