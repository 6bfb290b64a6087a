"""Removes PaddlePaddle's signal handlers, which print "FatalError" and end the process.

PaddlePaddle sets them in C when it is imported, so Python's previous handler must be set again.
"""

from __future__ import annotations

import signal
import threading

import paddle


def restore_handler() -> None:
    """Restores the SIGTERM handler from before `import paddle`; Python allows this in the main thread only.

    In other threads, the function only disables PaddlePaddle's handlers.
    """
    paddle.disable_signal_handler()
    handler = signal.getsignal(signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    if main and handler is not None and handler != signal.SIG_DFL:
        signal.signal(signal.SIGTERM, handler)
