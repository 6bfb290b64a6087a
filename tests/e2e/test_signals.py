import signal

import pytest

from tests.runtime.servers import START_S
from tests.support.programs import line, started

_WAITS = """
import time
from e2e import signals
event = signals.stop_event()
print("ready", flush=True)
event.wait()
print("stopping", flush=True)
[time.sleep(0.05) for _ in range(400)]
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_sets_the_event_and_the_second_ends(number: signal.Signals) -> None:
    """Loops get to stop after the first signal; the second one does not wait for them."""
    with started(_WAITS) as process:
        process.send_signal(number)
        answer = line(process)
        process.send_signal(number)

        assert answer == "stopping"
        assert process.wait(START_S) == 128 + number
