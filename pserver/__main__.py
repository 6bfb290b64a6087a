"""`python -m pserver`: serves one shard of a job's parameters until SIGTERM."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from pserver import app
from pserver.errors import FullError, ShardError
from pserver.metrics import PserverMetrics
from pserver.server import ServerIdentity
from pserver.service import ParameterService
from pserver.settings import PserverSettings
from pserver.startup import array_bytes, create_server
from pserver.store import CheckpointStore
from runtime import clock
from runtime.job_server import serve_until_stopped
from runtime.settings import SettingsError

_DESCRIPTION = "EDL parameter server: serves one shard of a job's parameters until SIGTERM."


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the server.

    Returns:
        The exit code: 0 after SIGTERM, 1 if it cannot start, 2 for bad usage.
    """
    settings = PserverSettings.from_command_line(_DESCRIPTION, argv)
    settings.start_logging()
    try:
        token = settings.read_token()
        identity = ServerIdentity(settings.job, settings.index, settings.of)
        store = CheckpointStore(settings.checkpoints, settings.job, settings.index, settings.of)
        with contextlib.closing(store):
            asyncio.run(_serve(settings, identity, store, token))
    except SettingsError as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 2
    except FullError as error:
        print(f"pserver: the stored shard needs {error}: raise --max-bytes", file=sys.stderr)
        return 1
    except (ShardError, OSError) as error:
        print(f"pserver: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(
    settings: PserverSettings, identity: ServerIdentity, store: CheckpointStore, token: str
) -> None:
    max_bytes = settings.max_bytes or array_bytes()
    server = create_server(
        store,
        identity,
        max_bytes,
        clock.monotonic_s(),
        max_dense_numbers=settings.max_dense_numbers,
    )
    service = ParameterService(server, store, clock.monotonic_s)
    await serve_until_stopped(
        app.make(service, token, PserverMetrics()),
        settings.listen,
        service.stop,
        job=settings.job,
        index=settings.index,
        of=settings.of,
    )


if __name__ == "__main__":
    sys.exit(main())
