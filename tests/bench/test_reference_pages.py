"""The reference pages of the documents are what the code says. Where one fails: `make reference`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import (
    annotations_page,
    commands_page,
    performance_page,
    policy_page,
    reasons_page,
)
from policy.document import parser as document
from policy.names import JOB_ANNOTATIONS, LABELS, POD_ANNOTATIONS
from policy.reasons import Reason
from runtime.command_line import Parser

PAGES = (annotations_page, commands_page, performance_page, policy_page, reasons_page)


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.PAGE.stem)
def test_the_page_is_what_the_code_says(module: ModuleType) -> None:
    """Word by word: a page that somebody edits, or that the code has left behind, is found."""
    page: Callable[[], str] = module.page
    file: Path = module.PAGE

    assert file.read_text("utf-8") == page()


@pytest.mark.parametrize("module", PAGES, ids=lambda module: module.PAGE.stem)
def test_a_command_writes_the_page(module: ModuleType, tmp_path: Path) -> None:
    """To the file that is named."""
    path = tmp_path / "page.md"

    assert module.main(["--output", str(path)]) == 0
    assert path.read_text("utf-8") == module.page()


def test_every_annotation_and_label_has_a_meaning() -> None:
    """An annotation and a label of one name are two things."""
    page = annotations_page.page()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]

    assert {cells[1].strip(" `") for cells in rows} >= {*JOB_ANNOTATIONS, *POD_ANNOTATIONS, *LABELS}
    assert all(cells[2].strip() for cells in rows)
    assert page.count("| `edl.training/master` |") == 2


def test_every_field_of_the_policy_has_a_row_and_a_meaning() -> None:
    """Fields of lists and mappings too."""
    rows = [line.split(" | ") for line in policy_page.page().splitlines() if line.startswith("| `")]
    fields = {cells[0].strip("| `[]{}") for cells in rows}

    def missing(value: Any, path: str) -> list[str]:
        inner = value.items() if isinstance(value, dict) and path in fields | {""} else ()
        below = [name for key, item in inner for name in missing(item, f"{path}.{key}".strip("."))]
        return [*([path] if path and path not in fields and not below else []), *below]

    defaults = document.parse("").model_dump(mode="json", by_alias=True)
    defaults["reserve"]["maxLoad"] = {}
    assert missing(defaults, "") == []
    assert "quotas[].requests" in fields
    assert [cells[0] for cells in rows if not cells[-1].strip(" |")] == []


def test_every_reason_has_a_row() -> None:
    """With its code first."""
    page = reasons_page.page()

    assert [reason for reason in Reason if f"\n| `{reason}` | " not in page] == []


def test_a_command_is_shown_with_its_arguments() -> None:
    """Choices, values, defaults and subcommands; the help flag is not worth a row."""

    def main() -> None:
        parser = Parser(prog="tool", description="Tools | more.")
        parser.add_argument("--level", metavar="low|high", help="how much")
        parser.add_argument("--out", type=Path, help="the file; default: %(default)s")
        parser.add_argument("--all", action="store_true", help="100 %% of them")
        commands = parser.add_subparsers()
        commands.add_parser("run", help="runs it").add_argument("file", help="a file")
        parser.parse_args()

    text = commands_page.page({"tool": main})
    assert text.endswith(
        "## `tool`\n\nTools \\| more.\n\n| Argument | Meaning |\n|---|---|\n"
        "| `--level` low, high | how much |\n"
        "| `--out OUT` | the file; default: none |\n"
        "| `--all` | 100 % of them |\n\n"
        "### `tool run`\n\nruns it\n\n| Argument | Meaning |\n|---|---|\n| `file` | a file |\n"
    )


def test_a_command_without_help_is_noticed() -> None:
    """It cannot be described."""
    with pytest.raises(AssertionError, match="--help ends a command"):
        commands_page.parser_of(lambda: argparse.ArgumentParser(add_help=False))
