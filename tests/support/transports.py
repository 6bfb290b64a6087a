"""Connections of servers that end in this process: none is left to the garbage collector."""

import asyncio

_ROUNDS = 5
"""Of the event loop: TLS, HTTP and the handler each hear of a lost connection in a round of its own."""


async def accepted() -> None:
    """No connection is just being taken: who stops listening now, before any `await`, loses none.

    A server that is closed meanwhile takes a connection only half, and nobody closes it.
    """
    while coming := [
        task for task in asyncio.all_tasks() if "_accept_connection" in repr(task.get_coro())
    ]:
        await asyncio.gather(*coming, return_exceptions=True)


async def ended() -> None:
    """After a server's end: what it still has open ends at once, as with its process."""
    await accepted()
    transports = getattr(asyncio.get_running_loop(), "_transports", {})
    for transport in list(transports.values()):
        transport.abort()
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
