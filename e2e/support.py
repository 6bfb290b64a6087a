"""`python -m e2e.support`: writes the table of supported versions of Kubernetes into docs/install.md.

From what `make matrix` has shown on this machine. A version on which something failed is not supported.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from e2e.cluster.toolchain import CONTROL_PLANE, KUBERNETES, recipe
from runtime.command_line import Parser

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "install.md"
RESULTS = _ROOT / "build" / "matrix.json"
BEGIN, END = "<!-- written by `make matrix` -->\n", "<!-- end of what `make matrix` writes -->\n"
_HEAD = """
| Kubernetes | The demo's burst | A job's life | All other journeys |
|---|---|---|---|
"""
_SHOWN, _FAILED, _NOT_RUN = "shown", "failed", "not run"


class SupportError(Exception):
    """The table cannot be written; the text is one line."""


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the rows of the table, oldest version first.

    Args:
        results: Minor version -> what it showed.
    """
    main = recipe(CONTROL_PLANE).kubernetes
    rows = []
    for minor, kit in KUBERNETES.items():
        pinned, shown = recipe(kit).kubernetes, results.get(minor)
        burst, life = (_outcome(shown, key) for key in ("burst", "life"))
        others = "`make e2e`" if pinned == main else _NOT_RUN
        rows.append(f"| {pinned.removeprefix('v')} | {burst} | {life} | {others} |\n")
    return _HEAD + "".join(rows) + "\n"


def _outcome(shown: Mapping[str, Any] | None, key: str) -> str:
    if shown is None:
        return _NOT_RUN
    return _SHOWN if shown.get(key) else _FAILED


def results() -> dict[str, dict[str, Any]]:
    """Returns the results of `make matrix` on this machine; empty if it never ran.

    Raises:
        JSONDecodeError: somebody has edited it.
    """
    try:
        shown: dict[str, dict[str, Any]] = orjson.loads(RESULTS.read_bytes())
    except FileNotFoundError:
        return {}
    return shown


def _tried() -> dict[str, dict[str, Any]]:
    """Returns the results.

    Raises:
        SupportError: there are none.
    """
    shown = results()
    if not shown:
        raise SupportError("nothing was tried on this machine")
    return shown


def written(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page with its table replaced.

    Raises:
        SupportError: it has no place for one.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SupportError(f"{PAGE.name} lacks the two lines between which the table is")
    return before + begin + table(results) + end + after


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the table.

    Returns:
        0; 1 where nothing was measured.
    """
    parser = Parser(prog="python -m e2e.support", description=__doc__)
    parser.add_argument("--output", type=Path, default=PAGE, help="the page; default: %(default)s")
    output: Path = parser.parse_args(argv).output
    try:
        output.write_text(written(PAGE.read_text("utf-8"), _tried()), "utf-8")
    except (OSError, orjson.JSONDecodeError, SupportError) as error:
        print(f"support: {error}; run `make matrix` first", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
