"""`python -m bench.page_server`: the page on a synthetic cluster that lives, to look at it and to work on it.

Tokens are `admin` (sees all), `vision` (sees the namespace ml-vision) and `nobody`.
"""

import sys
import threading
from collections.abc import Sequence

from bench.page_cluster import CALLERS, LiveCluster
from page.service import assemble
from page.settings import PageSettings
from runtime import clock, supervisor
from runtime.command_line import Parser
from runtime.serve import ServeError, WebService


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM."""
    parser = Parser(prog="python -m bench.page_server", description=__doc__)
    parser.add_argument("--port", type=int, default=8446, help="where (default: %(default)s)")
    parser.add_argument(
        "--nodes", type=int, default=500, help="and a fifth as many jobs (default: %(default)s)"
    )
    parser.add_argument(
        "--every", type=float, default=1.0, help="seconds between changes (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    settings = PageSettings(
        listen=f"127.0.0.1:{arguments.port}",
        probe_listen=None,
        drain_seconds=0.0,
        max_streams_per_caller=64,
    )
    settings.start_logging()
    cluster = LiveCluster(arguments.nodes, clock.epoch_s)  # before the fork, where nobody waits
    tokens = ", ".join(CALLERS)
    sys.stdout.write(f"http://127.0.0.1:{arguments.port}/ with the token {tokens}\n")
    sys.stdout.flush()
    try:
        supervisor.run(settings, lambda: service(settings, cluster, arguments.every))
    except ServeError as error:
        sys.stderr.write(f"page: {error}\n")
        return 1
    return 0


def service(settings: PageSettings, cluster: LiveCluster, every_s: float) -> WebService:
    """Returns the page's service on a cluster that changes."""
    page = assemble(settings, cluster, cluster.with_token)
    stopping = threading.Event()

    def live() -> None:
        while not stopping.wait(every_s):
            cluster.step()

    def start() -> None:
        page.start()
        threading.Thread(target=live, daemon=True, name="cluster").start()

    def stop() -> None:
        stopping.set()
        page.stop()

    return WebService(page.app, start, stop)


if __name__ == "__main__":
    sys.exit(main())
