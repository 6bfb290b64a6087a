"""Calls a Flask application (WSGI, PEP 3333) with a request that aiohttp has read."""

import sys
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web
from flask import Flask

Environment = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of an application."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


def environment(
    request: web.BaseRequest, body: bytes, content_length: int, *, tls: bool
) -> Environment:
    """Returns the WSGI environment of a request.

    Args:
        request: The request.
        body: Its body, or the beginning of a body that is too long.
        content_length: Length of the whole body in bytes.
        tls: Whether the connection has TLS.
    """
    url = request.rel_url
    host, _, port = request.host.rpartition(":")
    variables: Environment = {
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(url.raw_path).decode("latin-1"),
        "QUERY_STRING": url.raw_query_string,
        "CONTENT_LENGTH": str(content_length),
        "SERVER_NAME": host or request.host,
        "SERVER_PORT": port if port.isdecimal() else ("443" if tls else "80"),
        "SERVER_PROTOCOL": f"HTTP/{request.version.major}.{request.version.minor}",
        "REMOTE_ADDR": request.remote or "",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if tls else "http",
        "wsgi.input": BytesIO(body),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in request.headers.items():
        key = name.upper().replace("-", "_")
        if key == "CONTENT_TYPE":
            variables[key] = value
        elif key not in {"CONTENT_LENGTH", "TRANSFER_ENCODING"}:
            earlier = variables.get(f"HTTP_{key}")
            variables[f"HTTP_{key}"] = value if earlier is None else f"{earlier},{value}"
    return variables


def call(app: Flask, variables: Environment) -> Answer:
    """Calls an application and collects its answer; Flask answers its own errors with 500."""
    heads: list[tuple[str, list[tuple[str, str]]]] = []

    def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Any:
        heads.append((status, headers))

    parts = app(variables, start_response)
    try:
        body = b"".join(parts)
    finally:
        close = getattr(parts, "close", None)
        if close is not None:
            close()
    status, headers = heads[-1]
    return Answer(int(status.split(" ", 1)[0]), headers, body)
