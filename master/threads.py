"""Work that blocks, in threads: writes to disk and to the cluster."""

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec

P = ParamSpec("P")
log = logging.getLogger(__name__)


async def run_in_thread(act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Runs something that blocks in a thread; a cancellation waits for the thread to finish."""
    thread = asyncio.ensure_future(asyncio.to_thread(act, *args, **kwargs))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        if not thread.cancelled() and (error := thread.exception()) is not None:
            log.warning("%s", error)
        raise
