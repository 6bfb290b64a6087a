"""`python -m master`: serves one job until SIGTERM."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Sequence

from kube.errors import ConfigError
from master import app
from master.errors import FencedError, JournalError
from master.fence import ConfigMapFence, Fence
from master.ledger import Ledger
from master.metrics import MasterMetrics
from master.service import FENCED, MasterService
from master.settings import MasterSettings
from master.startup import open_ledger
from runtime import clock
from runtime.job_server import serve_until_stopped
from runtime.settings import SettingsError

_DESCRIPTION = "EDL master: leases one job's data to its trainers until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the master.

    Returns:
        The exit code: 0 after SIGTERM, 1 after a failure, 2 for bad usage, 3 when another master has
        taken over.
    """
    settings = MasterSettings.from_command_line(_DESCRIPTION, argv)
    settings.start_logging()
    try:
        return asyncio.run(_serve(settings, settings.read_token()))
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
    empty = Ledger(
        settings.job,
        max_dropped_share=settings.max_dropped_share,
        max_steps=settings.max_steps,
    )
    fence = _fence(settings)
    durable_ledger = await asyncio.to_thread(open_ledger, empty, settings.journal, fence)
    with contextlib.closing(durable_ledger):
        service = MasterService(
            durable_ledger,
            settings.heartbeat_seconds,
            clock.monotonic_s,
            fence,
            stuck_s=settings.stuck_seconds,
            outage_s=settings.outage_seconds,
        )
        application = app.make(service, token, MasterMetrics())
        await service.start()
        await serve_until_stopped(
            application, settings.listen, service.stop, service.fatal, job=settings.job
        )
    if not service.fatal.done():
        return 0
    print(f"master: {service.fatal.result()}", file=sys.stderr)
    return service.exit_code


def _fence(settings: MasterSettings) -> Fence | None:
    namespace, _, name = settings.snapshot_configmap.partition("/")
    if not name:
        return None
    from kube import config  # noqa: PLC0415 - the import takes a second; only masters on a cluster need it
    from kube.client import Client  # noqa: PLC0415 - see above

    client = Client(config.load(settings.kubeconfig), user_agent="edl-master")
    return ConfigMapFence(client, namespace, name, socket.gethostname())


if __name__ == "__main__":
    sys.exit(main())
