"""The documents: every page is in the site's navigation, and links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEMPLATE = ROOT / "docs" / "decisions" / "0000-template.md"
NOTES = sorted({*TEMPLATE.parent.glob("[0-9]*.md")} - {TEMPLATE})
OUTSIDE = [ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md", "sdk/README.md")]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _leaves(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from _leaves(part)
    else:
        for part in nav:
            yield from _leaves(part)


def test_every_page_is_in_the_navigation_once() -> None:
    """Of the site that `make docs` builds; the notes are in the index of decisions."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page not in {*NOTES, TEMPLATE}
    ]

    assert sorted(_leaves(nav)) == pages


def test_every_decision_is_in_the_index_once() -> None:
    """With the title and the status that the note has."""
    index = (ROOT / "docs" / "decisions" / "index.md").read_text()
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \| (.+) \|$", index, re.MULTILINE)
    notes = []
    for note in NOTES:
        head = re.match(r"# (\d{4}): (.+)\n\nStatus: (.+)\n", note.read_text())
        assert head, note.name
        notes.append((head[1], note.name, head[2], head[3]))

    assert sorted(rows) == notes


def test_a_decision_is_replaced_by_one_that_exists() -> None:
    """Others are accepted or proposed."""
    numbers = {note.name[:4] for note in NOTES}
    status = re.compile(r"\nStatus: (?:accepted|proposed|replaced (?:in part )?by (\d{4}))\n")
    found = {note.name: status.search(note.read_text()) for note in NOTES}

    assert [name for name, match in found.items() if match is None] == []
    assert {match[1] for match in found.values() if match and match[1]} <= numbers


@pytest.mark.parametrize("page", [*PAGES, *OUTSIDE], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_that_exist(page: Path) -> None:
    """`make docs` checks their anchors, too. A page of the site leads to pages of the site alone."""
    targets = {link.partition("#")[0] for link in _LINK.findall(page.read_text())}
    files = {target for target in targets if target and "://" not in target}
    place = ROOT / "docs" if page in PAGES else ROOT

    assert [target for target in files if not (page.parent / target).exists()] == []
    assert [
        target for target in files if not (page.parent / target).resolve().is_relative_to(place)
    ] == []


def test_the_site_is_built_with_its_warnings() -> None:
    """A broken link is a warning, which ends a strict build only where it is not hidden."""
    (build,) = re.findall(r"mkdocs build(.*)", (ROOT / "Makefile").read_text())

    assert yaml.safe_load((ROOT / "mkdocs.yml").read_text())["strict"]
    assert not re.search(r"(^|\s)(-q|--quiet)\b", build.partition("#")[0])
