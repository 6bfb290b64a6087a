"""The certificates between kube-scheduler and the extender: a CA and one leaf for each side.

Pure except for key generation. Who calls: `python -m extender certificates` for an admin's own, and the
webhook, which makes them where an installation has none. The leaves live as long as their CA.
"""

from datetime import datetime

from runtime import certs

SERVICE = "edl-extender"
SECRET = "edl-extender-tls"  # noqa: S105 - its name


def names(namespace: str, extra_hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The extender's host names inside a cluster, and `extra_hosts`."""
    return (f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}", "127.0.0.1", *extra_hosts)


def files(namespace: str, extra_hosts: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """File name -> PEM: ca.crt, ca.key, tls.crt and tls.key of the server, client.crt, client.key."""
    ca = certs.new_ca(f"{SERVICE}-ca", now)  # OpenSSL takes a leaf of its name for self-signed
    return {"ca.key": ca.key, **issued(ca, names(namespace, extra_hosts), now)}


def issued(ca: certs.Pair, hosts: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """The same files without ca.key, by a CA that exists, valid from `now` until it ends."""
    life = certs.expires(ca.cert) - now
    server = certs.issue(ca, SERVICE, now, hosts=hosts, life=life)
    client = certs.issue(ca, "kube-scheduler", now, life=life)
    return {
        "ca.crt": ca.cert,
        "tls.crt": server.cert,
        "tls.key": server.key,
        "client.crt": client.cert,
        "client.key": client.key,
    }
