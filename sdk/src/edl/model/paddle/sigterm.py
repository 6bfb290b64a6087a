"""Removes PaddlePaddle's signal handlers, which print "FatalError" and end the process.

They are set in C at import, so Python's previous handler must be set again.
"""

from __future__ import annotations

import signal
import threading

import paddle


def restore_handler() -> None:
    """Restores the SIGTERM handler from before `import paddle`; for the main thread."""
    paddle.disable_signal_handler()
    handler = signal.getsignal(signal.SIGTERM)
    main = threading.current_thread() is threading.main_thread()
    if main and handler is not None and handler != signal.SIG_DFL:
        signal.signal(signal.SIGTERM, handler)
