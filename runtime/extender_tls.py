"""The certificates between kube-scheduler and the extender: a CA and one leaf for each side.

Pure except for key generation. Who calls: `python -m extender certificates`, for admins who make their own, and
the webhook, for installations that have none. The leaves are valid as long as their CA.
"""

from datetime import datetime

from runtime import certs

SERVICE = "edl-extender"
SECRET = "edl-extender-tls"  # noqa: S105 - the name of a Secret


def names(namespace: str, extra_hosts: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Returns the extender's host names inside a cluster, and `extra_hosts`."""
    return (f"{SERVICE}.{namespace}.svc", f"{SERVICE}.{namespace}", "127.0.0.1", *extra_hosts)


def files(namespace: str, extra_hosts: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """Creates a CA and both leaves.

    Returns:
        File name -> PEM: ca.crt, ca.key; tls.crt and tls.key of the server; client.crt and client.key.
    """
    ca = certs.new_ca(
        f"{SERVICE}-ca", now
    )  # with the leaf's name, OpenSSL would take the leaf for self-signed
    return {"ca.key": ca.key, **issued(ca, names(namespace, extra_hosts), now)}


def issued(ca: certs.Pair, hosts: tuple[str, ...], now: datetime) -> dict[str, bytes]:
    """Issues both leaves by an existing CA, valid from `now` until the CA expires.

    Returns:
        File name -> PEM, as `files` but without ca.key.
    """
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
