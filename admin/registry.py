"""Asks a registry whether it has an image, as a kubelet without credentials would.

OCI Distribution Specification 1.1, "Checking if content exists in the registry"; tokens as in Docker's
"Token Authentication Specification".
"""

import re
from http import HTTPStatus
from urllib.parse import urlencode, urlsplit

import orjson
import urllib3

from admin.image import ImageReference, Presence, RegistryAnswer

_TIMEOUT = urllib3.Timeout(connect=5.0, read=10.0)
_MAX_TOKEN_BYTES = 64 << 10
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, "
    "application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)
_MAX_DETAIL_CHARS = 200
_TOKEN = re.compile(r"[!-~]+")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_HOSTS = {"docker.io": "registry-1.docker.io"}
"""Where the registry of a name is, if that is another host."""


def ask(reference: ImageReference) -> RegistryAnswer:
    """Whether the registry has the image; it is asked twice at most."""
    scheme = "http" if reference.is_local else "https"
    host = _HOSTS.get(reference.host, reference.host)
    place = f"{scheme}://{host}/v2/{reference.repository}/manifests/"
    url = place + (reference.digest or reference.tag)
    headers = {"Accept": _MANIFESTS}
    with urllib3.PoolManager(timeout=_TIMEOUT, retries=False) as pool:
        try:
            answer = pool.request("HEAD", url, headers=headers)
            if answer.status == HTTPStatus.UNAUTHORIZED:
                token = _token(pool, answer.headers.get("WWW-Authenticate", ""), scheme)
                if token:
                    headers["Authorization"] = f"Bearer {token}"
                    answer = pool.request("HEAD", url, headers=headers)
        except urllib3.exceptions.HTTPError as fault:
            detail = f"{type(fault).__name__}: {str(fault).rpartition(': ')[2]}"
            return RegistryAnswer(Presence.UNKNOWN, detail[:_MAX_DETAIL_CHARS])
    return _answer(answer.status)


def _answer(status: int) -> RegistryAnswer:
    if status == HTTPStatus.OK:
        return RegistryAnswer(Presence.FOUND)
    if status == HTTPStatus.NOT_FOUND:
        return RegistryAnswer(Presence.MISSING)
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return RegistryAnswer(Presence.HIDDEN)
    return RegistryAnswer(Presence.UNKNOWN, f"it answers with status {status}")


def _token(pool: urllib3.PoolManager, challenge: str, scheme: str) -> str:
    """A token for somebody without credentials; "" where the challenge is of another kind.

    Raises:
        HTTPError: the server that gives tokens does not answer.
    """
    parameters = dict(_PARAMETER.findall(challenge))
    realm = parameters.pop("realm", "")
    if not challenge.startswith("Bearer ") or urlsplit(realm).scheme not in ("https", scheme):
        return ""
    query = {name: parameters[name] for name in ("service", "scope") if name in parameters}
    url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
    answer = pool.request("GET", url, preload_content=False)
    try:
        body = orjson.loads(answer.read(_MAX_TOKEN_BYTES))
    except orjson.JSONDecodeError:
        return ""
    finally:
        answer.release_conn()
    token = body.get("token") or body.get("access_token") if isinstance(body, dict) else ""
    return token if isinstance(token, str) and _TOKEN.fullmatch(token) else ""
