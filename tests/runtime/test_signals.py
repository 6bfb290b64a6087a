import signal

from tests.runtime.servers import START_S
from tests.support.programs import line, started

_ENDS = """
import time
from runtime import supervisor
supervisor.exit_on_signals()
try:
    print("ready", flush=True)
    [time.sleep(0.05) for _ in range(400)]
finally:
    print("cleaned", flush=True)
"""


def test_exit_unwinds() -> None:
    """A signal during the start ends the process with 0 and runs finally blocks."""
    with started(_ENDS) as process:
        process.send_signal(signal.SIGTERM)

        assert line(process) == "cleaned"
        assert process.wait(START_S) == 0
