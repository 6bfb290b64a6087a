"""The documents: every page is in the site's navigation, and links lead somewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
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
    """Of the site that `make docs` builds; decisions are found by search and links."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES]

    assert sorted(_leaves(nav)) == [page for page in pages if not page.startswith("decisions/")]


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
