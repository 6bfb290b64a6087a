"""Checks facts where pytest is not installed: in the interpreter that has PaddlePaddle."""

import sys
import traceback
from collections.abc import Callable, Sequence


def check(facts: Sequence[Callable[[], None]]) -> None:
    """Checks those that the command line names, or all; exits with 1 if one does not hold."""
    broken = False
    for fact in facts:
        if len(sys.argv) > 1 and fact.__name__ not in sys.argv[1:]:
            continue
        try:
            fact()
        except Exception:  # noqa: BLE001 - whatever it is, the other facts are checked, too
            traceback.print_exc(file=sys.stdout)
            print(f"not so: {fact.__name__}", flush=True)  # noqa: T201 - a program's answer
            broken = True
    sys.exit(broken)
