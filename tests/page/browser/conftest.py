"""A Chromium for all tests, and the page on a cluster of 60 nodes and 12 jobs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.page.browser.site import PageSite
from tests.support.browser import PROGRAM, Browser, Tab, chromium

NODES = 60
OpenTab = Callable[..., AbstractContextManager[Tab]]
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests here are of `make page`; without Chromium they are skipped by name."""
    skip = pytest.mark.skip(reason="no Chromium on this machine: apt-get install chromium")
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(pytest.mark.page)
            if not PROGRAM:
                item.add_marker(skip)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One process of Chromium, of one file of tests; each tab has storage of its own."""
    with chromium() as running:
        yield running


@pytest.fixture
def site() -> Iterator[PageSite]:
    """The page of a small cluster, of this test alone."""
    with serving(NODES) as served:
        yield served


@contextmanager
def serving(nodes: int) -> Iterator[PageSite]:
    """The page of a cluster of this size, until the end of the block."""
    served = PageSite.of(nodes)
    served.start()
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture
def signed_in(browser: Browser, site: PageSite) -> OpenTab:
    """Opens a tab at a view of `site`, signed in; at its end, the console must be empty."""
    return lambda view="#/", caller="admin", **look: opened(browser, site, view, caller, **look)


@contextmanager
def opened(
    browser: Browser,
    site: PageSite,
    view: str = "#/",
    caller: str = "admin",
    *,
    faults: tuple[str, ...] = (),
    width: int = 1280,
    dark: bool = False,
) -> Iterator[Tab]:
    """A tab at a view, signed in as a person does.

    Args:
        browser: The browser.
        site: What it shows.
        view: What is behind the address.
        caller: Of `bench.page_cluster.CALLERS`; the name is its token.
        faults: Parts of messages that the console may have.
        width: Of the tab, CSS pixels.
        dark: Whether the reader's system is dark.
    """
    with browser.tab(width=width, dark=dark) as tab:
        tab.open(f"{site.url}{view}")
        sign_in(tab, caller)
        tab.wait("document.querySelector('.top nav').hidden === false")
        yield tab
        unexpected = [line for line in tab.console if not any(fault in line for fault in faults)]
        assert unexpected == []


def sign_in(tab: Tab, token: str) -> None:
    """Writes a token into the field, which has the focus, and presses Enter."""
    tab.wait("document.activeElement.id === 'token'")
    tab.type(token)
    tab.press("Enter")
