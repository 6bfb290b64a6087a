"""`python -m master`: serves one job until SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from kube.errors import ConfigError
from master import app
from master.errors import FencedError, JournalError
from master.fence import ConfigMapFence, Fence
from master.ledger import Ledger
from master.metrics import MasterMetrics
from master.service import FENCED, MasterService
from master.settings import MasterSettings, environment, read_token
from master.startup import open_ledger
from runtime import clock, logs
from runtime.settings import SettingsError, address

log = logging.getLogger(__name__)

_BACKLOG = 512
_DRAIN_S = 1.0
_DESCRIPTION = "EDL master: leases one job's data to its trainers until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Serves; exit code 0 after SIGTERM, 1 after a failure, 2 for bad usage, 3 when replaced."""
    settings = MasterSettings.from_command_line(_DESCRIPTION, argv, environment())
    logs.setup(settings.component, level=settings.log_level, form=settings.log_format)
    try:
        token = read_token(settings)
        return asyncio.run(_serve(settings, token))
    except SettingsError as error:
        print(f"master: {error}", file=sys.stderr)
        return 2
    except FencedError as error:
        print(f"master: {error}", file=sys.stderr)
        return FENCED
    except (ConfigError, JournalError, OSError) as error:
        print(f"master: {error}", file=sys.stderr)
        return 1


async def _serve(settings: MasterSettings, token: str) -> int:
    empty = Ledger(settings.job, most_dropped=settings.most_dropped, max_steps=settings.max_steps)
    fence = _fence(settings)
    durable_ledger = await asyncio.to_thread(open_ledger, empty, settings.journal, fence)
    with contextlib.closing(durable_ledger):
        service = MasterService(
            durable_ledger,
            settings.heartbeat_seconds,
            clock.monotonic_s,
            fence,
            stuck_s=settings.stuck_seconds,
        )
        runner = web.AppRunner(
            app.make(service, token, MasterMetrics()),
            access_log=None,
            shutdown_timeout=_DRAIN_S,
            handler_cancellation=True,  # nothing waits for a caller that has disconnected
        )
        await runner.setup()
        await service.start()
        try:
            return await _serve_until_stopped(settings, service, runner)
        finally:
            await service.stop()
            await runner.cleanup()


def _fence(settings: MasterSettings) -> Fence | None:
    namespace, _, name = settings.snapshot_configmap.partition("/")
    if not name:
        return None
    from kube import config  # noqa: PLC0415 - takes a second, which masters without a cluster save
    from kube.client import Client  # noqa: PLC0415 - see above

    client = Client(config.load(settings.kubeconfig), user_agent="edl-master")
    return ConfigMapFence(client, namespace, name, socket.gethostname())


async def _serve_until_stopped(
    settings: MasterSettings, service: MasterService, runner: web.AppRunner
) -> int:
    """Listens; returns the exit code after a signal, or when this master was replaced."""
    host, port = address(settings.listen)
    await web.TCPSite(runner, host, port, backlog=_BACKLOG).start()
    own = runner.addresses[0]
    log.info("serving", extra=logs.keys(job=settings.job, host=own[0], port=own[1]))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    stopped = asyncio.create_task(stopping.wait())
    ends: set[asyncio.Future[Any]] = {stopped, service.fatal}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if service.fatal.done():
        print(f"master: {service.fatal.result()}", file=sys.stderr)
        return service.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
