"""`python -m pserver`: serves one shard of a job's parameters until SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from aiohttp import web

from pserver import app, memory_limit
from pserver.errors import FullError, ShardError
from pserver.metrics import PserverMetrics
from pserver.server import ServerIdentity
from pserver.service import ParameterService
from pserver.settings import PserverSettings, environment, read_token
from pserver.startup import create_server, open_store
from pserver.store import CheckpointStore
from runtime import clock, logs
from runtime.settings import SettingsError, address

log = logging.getLogger(__name__)

_BACKLOG = 512
_DRAIN_S = 1.0
_DESCRIPTION = "EDL parameter server: serves one shard of a job's parameters until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server.

    Returns:
        The exit code: 0 after SIGTERM, 1 if it cannot start, 2 for bad usage.
    """
    settings = PserverSettings.from_command_line(_DESCRIPTION, argv, environment())
    logs.setup(settings.component, level=settings.log_level, form=settings.log_format)
    try:
        token = read_token(settings)
        identity = ServerIdentity(settings.job, settings.index, settings.of)
        with contextlib.closing(open_store(settings.checkpoints, identity)) as store:
            return asyncio.run(_serve(settings, identity, store, token))
    except SettingsError as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 2
    except FullError as error:
        print(f"pserver: the stored shard needs {error}: raise --max-bytes", file=sys.stderr)
        return 1
    except (ShardError, OSError) as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 1


async def _serve(
    settings: PserverSettings, identity: ServerIdentity, store: CheckpointStore, token: str
) -> int:
    most_bytes = settings.max_bytes or memory_limit.array_bytes()
    server = create_server(store, identity, most_bytes, clock.monotonic_s())
    service = ParameterService(server, store, clock.monotonic_s)
    runner = web.AppRunner(
        app.make(service, token, PserverMetrics()),
        access_log=None,
        shutdown_timeout=_DRAIN_S,
        handler_cancellation=True,  # a handler stops when its caller disconnects
    )
    await runner.setup()
    try:
        await _until_the_end(settings, runner)
    finally:
        await service.stop()
        await runner.cleanup()
    return 0


async def _until_the_end(settings: PserverSettings, runner: web.AppRunner) -> None:
    """Serves until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    host, port = address(settings.listen)
    await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    own = runner.addresses[0]
    log.info(
        "serving",
        extra=logs.keys(
            job=settings.job, index=settings.index, of=settings.of, host=own[0], port=own[1]
        ),
    )
    await stopping.wait()


if __name__ == "__main__":
    sys.exit(main())
