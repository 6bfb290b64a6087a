"""`python -m bench.reasons_page`: writes docs/reasons.md from `policy.explanations`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import written_page
from policy.explanations import CREATIONS, NODES, OBSERVATIONS, RELEASES, TARGETS, Explanation

PAGE = Path(__file__).parents[1] / "docs" / "reasons.md"
_INTRODUCTION = """# Reasons

`make reference` writes this page from the code; do not edit it.

Every decision has one of these codes. The code appears in events, in the Job's condition `edl.training/Waiting`, in
logs, in metric labels, and, together with its figures, in decision records (`kubectl edl why`, `GET /decisions` of the extender,
docs/decisions/0005). Codes are an interface: new ones are added, none is renamed.

Records of jobs also have `live` (current trainers) and `target` (wanted trainers); records of released trainers also
have `node`. Amounts are written as Kubernetes writes them (`500m`, `8Gi`); times are in seconds.
"""
_OBSERVED = "\nThese are not decisions of EDL. `kubectl edl why` and `kubectl edl reclaims` show them (docs/cli.md).\n"
_GROUPED = "\nRecords group nodes by code: `nodes` is their number, and a few are named.\n"


def page() -> str:
    """Returns the text of the page: a table for each kind of decision."""
    return "\n".join(
        [
            _INTRODUCTION,
            _table("Why a job has its number of trainers", TARGETS),
            _table("Why a trainer is released", RELEASES),
            _table("Why a trainer is created, or is not", CREATIONS),
            _table("Why a pod cannot run on a node", NODES, _GROUPED),
            _table("What EDL observed", OBSERVATIONS, _OBSERVED),
        ]
    )


def _table(title: str, reasons: Mapping[Any, Explanation], note: str = "") -> str:
    rows = (
        f"| `{reason}` | {text.meaning} | {text.figures} | {text.way_out} |\n".replace("  |", " |")
        for reason, text in reasons.items()
    )
    head = f"## {title}\n{note}\n| Code | Meaning | Figures | What to do |\n|---|---|---|---|\n"
    return head + "".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.reasons_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
