"""`python -m e2e.faulty_reconciler hang|fail FILE ...`: the reconciler, whose ticks hang or fail while FILE exists."""

import sys
import time
from pathlib import Path

from policy.planning.plan import Plan
from reconciler.__main__ import main
from reconciler.loop import Reconciler


def _install_fault(fault: str, path: Path) -> None:
    """Puts the fault before the loop's tick; the leader hangs or fails as long as the file exists."""
    tick = Reconciler.tick

    def faulty_tick(loop: Reconciler) -> Plan | None:
        while path.exists():
            if fault == "fail":
                raise RuntimeError("a fault of the test")
            time.sleep(0.1)
        return tick(loop)

    Reconciler.tick = faulty_tick  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    _install_fault(sys.argv[1], Path(sys.argv[2]))
    sys.argv[1:3] = []
    main()
