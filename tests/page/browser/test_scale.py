"""1 000 jobs and 5 000 nodes: the document stays small, and every row can be reached."""

from collections.abc import Iterator

import pytest

from tests.page.browser.conftest import opened, serving
from tests.page.browser.site import PageSite
from tests.support.browser import Browser

pytestmark = pytest.mark.timeout(600)  # the cluster is large to make, and machines are busy
_NODES, _JOBS = 5_000, 1_000
_ROWS = "document.querySelectorAll('[role=grid] tbody:not([aria-hidden]) tr').length"


@pytest.fixture(scope="module")
def large() -> Iterator[PageSite]:
    """The page of 5 000 nodes and 1 000 jobs."""
    with serving(_NODES) as served:
        yield served


def test_a_thousand_jobs_are_some_dozens_of_rows(browser: Browser, large: PageSite) -> None:
    """The table says how many there are; End reaches the last; a filter looks at all of them."""
    with opened(browser, large, "#/jobs") as tab:
        tab.wait(
            f"document.querySelector('[role=grid]').getAttribute('aria-rowcount') === '{_JOBS + 1}'",
            60,
        )
        assert tab.run(_ROWS) < 60
        assert tab.run("document.querySelectorAll('*').length") < 3_000
        tab.run("document.querySelector('[role=grid] tr[tabindex=\"0\"]').focus()")
        tab.press("End")
        tab.wait_value("document.activeElement.getAttribute('aria-rowindex')", str(_JOBS + 1))
        assert tab.run(_ROWS) < 60
        tab.run("document.querySelector('input[type=search]').focus()")
        tab.type("train-0777")
        tab.wait(f"{_ROWS} === 1")


def test_five_thousand_nodes_are_one_picture(browser: Browser, large: PageSite) -> None:
    """The last node is found by key; the map is no longer than a window."""
    with opened(browser, large, "#/nodes") as tab:
        tab.wait_text("5,000 nodes", limit_s=60)
        assert tab.run("document.querySelector('canvas').clientHeight") < 900
        tab.run("document.querySelector('canvas').focus()")
        tab.press("End")
        spoken = "document.querySelector('.heat-frame [aria-live]').textContent"
        tab.wait(f"{spoken}.startsWith('node-04999')")
        assert tab.run("document.querySelectorAll('*').length") < 3_000


def test_the_overview_of_a_large_cluster_has_its_largest_jobs(
    browser: Browser, large: PageSite
) -> None:
    """Six of them, and the sum of all: nothing is shown of the parts that come first."""
    with opened(browser, large) as tab:
        tab.wait("document.querySelectorAll('.job-list li').length === 6", 60)
        assert "of 1,000 jobs" in tab.text()
