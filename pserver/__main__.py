"""`python -m pserver`: serves one part of one job's parameters until SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Sequence

from aiohttp import web

from pserver import app, room
from pserver.errors import FullError, ShardError
from pserver.measures import Measures
from pserver.opening import open_store, server_of
from pserver.server import Place
from pserver.service import Service
from pserver.settings import PserverSettings, environment, read_token
from pserver.store import Store
from runtime import clock, logs
from runtime.settings import SettingsError, address

log = logging.getLogger(__name__)

_BACKLOG = 512
_DRAIN_S = 1.0
_DESCRIPTION = "EDL parameter server: holds one part of a job's parameters until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Serves; 0 after SIGTERM, 1 where it cannot, 2 for bad usage."""
    settings = PserverSettings.from_command_line(_DESCRIPTION, argv, environment())
    logs.setup(settings.room, level=settings.log_level, form=settings.log_format)
    try:
        token = read_token(settings)
        place = Place(settings.job, settings.index, settings.of)
        with contextlib.closing(open_store(settings.checkpoints, place)) as store:
            return asyncio.run(_serve(settings, place, store, token))
    except SettingsError as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 2
    except FullError as error:
        print(f"pserver: what it held needs {error}: raise --max-bytes", file=sys.stderr)
        return 1
    except (ShardError, OSError) as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 1


async def _serve(settings: PserverSettings, place: Place, store: Store, token: str) -> int:
    most_bytes = settings.max_bytes or room.most_bytes()
    server = server_of(store, place, most_bytes, clock.monotonic_s())
    service = Service(server, store, clock.monotonic_s)
    runner = web.AppRunner(
        app.make(service, token, Measures()),
        access_log=None,
        shutdown_timeout=_DRAIN_S,
        handler_cancellation=True,  # a caller that is gone waits for nothing
    )
    await runner.setup()
    try:
        await _until_the_end(settings, runner)
    finally:
        await service.stop()
        await runner.cleanup()
    return 0


async def _until_the_end(settings: PserverSettings, runner: web.AppRunner) -> None:
    """Listens until SIGTERM or SIGINT."""
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
