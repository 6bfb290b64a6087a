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

Every decision carries one of these codes: in events, in the Job's condition `edl.training/Waiting`, in logs,
as label of metrics, and in decision records (`kubectl edl why`, `GET /decisions` of the extender, docs/decisions/0005) together with its figures.
Codes are an interface: they are added to, never renamed. Records of jobs have `live` and `target` besides
(trainers there now, trainers wanted), records of released trainers `node`.

Amounts are written as Kubernetes writes them (`500m`, `8Gi`); times are seconds.
"""
_OBSERVED = "\nNo decisions of EDL; `kubectl edl why` and `reclaims` show them (docs/cli.md).\n"
_GROUPED = "\nNodes are grouped by code: `nodes` says how many, and a few are named.\n"


def page() -> str:
    """The text of the page: a table for each kind of decision."""
    return "\n".join(
        [
            _INTRODUCTION,
            _table("How many trainers a job has", TARGETS),
            _table("Why a trainer is given up", RELEASES),
            _table("Why a trainer was, or was not, made", CREATIONS),
            _table("Why a node is no place for a pod", NODES, _GROUPED),
            _table("What was observed", OBSERVATIONS, _OBSERVED),
        ]
    )


def _table(title: str, reasons: Mapping[Any, Explanation], note: str = "") -> str:
    rows = (
        f"| `{reason}` | {text.meaning} | {text.figures} | {text.way_out} |\n".replace("  |", " |")
        for reason, text in reasons.items()
    )
    head = f"## {title}\n{note}\n| Code | Meaning | Figures | Way out |\n|---|---|---|---|\n"
    return head + "".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page.

    Returns:
        0.
    """
    return written_page.write("bench.reasons_page", __doc__, PAGE, page, argv)


if __name__ == "__main__":
    sys.exit(main())
