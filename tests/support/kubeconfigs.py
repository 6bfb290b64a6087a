"""Kubeconfigs of API servers of tests."""

from pathlib import Path

import yaml


def write_kubeconfig(path: Path, server: str, ca: str = "", token: str = "") -> Path:
    """Writes one with a single context, "test".

    Args:
        path: The file.
        server: The URL of the API server.
        ca: The authority of its certificate, as base64 of PEM; none is written if empty.
        token: The user's; none is written if empty.
    """
    cluster = {"server": server} | ({"certificate-authority-data": ca} if ca else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path
