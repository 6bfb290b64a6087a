"""PaddlePaddle's own signal handlers print "FatalError" and end the process: they are put away.

They are set in C when it is imported, so whatever Python had set before is set again.
"""

from __future__ import annotations

import signal
import threading

import paddle


def give_back() -> None:
    """SIGTERM does again what it did before `import paddle`; for the main thread."""
    paddle.disable_signal_handler()
    before = signal.getsignal(signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    if main and before is not None and before != signal.SIG_DFL:
        signal.signal(signal.SIGTERM, before)
