"""The page by keyboard alone, and as a screen reader has it."""

import pytest

from tests.page.browser.conftest import NODES, OpenTab
from tests.page.browser.site import PageSite
from tests.page.browser.test_views import VIEWS
from tests.support.browser import Tab

_FOCUS = """(() => {
  const e = document.activeElement, style = getComputedStyle(e);
  return {name: e.getAttribute('aria-label') || e.textContent.trim().slice(0, 40) || e.id, tag: e.tagName, outline: style.outlineStyle};
})()"""
_NAMED_ROLES = {
    "button",
    "link",
    "textbox",
    "searchbox",
    "combobox",
    "radio",
    "img",
    "grid",
    "table",
    "meter",
    "progressbar",
    "figure",
}


def _begin_at_the_top(tab: Tab) -> None:
    """As after a reload: the next Tab is the first."""
    tab.send("Page.reload")
    tab.wait("document.querySelectorAll('[role=grid] .name').length === 12")


def _walk(tab: Tab, steps: int) -> list[dict[str, str]]:
    """What has the focus after each press of Tab."""
    places = []
    for _ in range(steps):
        tab.press("Tab")
        places.append(tab.run(_FOCUS))
    return places


def test_the_focus_goes_from_the_top_to_the_content_and_is_seen(signed_in: OpenTab) -> None:
    """First the way to the content, then the views in their order, then the tools."""
    with signed_in("#/jobs") as tab:
        _begin_at_the_top(tab)
        places = _walk(tab, 14)
        names = [place["name"] for place in places]

        assert names[:7] == [
            "Skip to content",
            "EDL, overview",
            "Overview",
            "Jobs",
            "Reclaims",
            "Decisions",
            "Nodes",
        ]
        assert names[7:9] == ["Namespace", "Sign out"]
        assert all(
            place["outline"] != "none" for place in places if place["tag"] not in ("INPUT", "MAIN")
        ), places


def test_the_first_link_leads_past_the_navigation(signed_in: OpenTab) -> None:
    """The next Tab is in the content."""
    with signed_in("#/jobs") as tab:
        _begin_at_the_top(tab)
        tab.press("Tab")
        tab.press("Enter")
        tab.wait_value("document.activeElement.id", "content")
        tab.press("Tab")
        tab.wait("document.querySelector('main').contains(document.activeElement)")
        tab.wait_value("location.hash", "#/jobs")


def test_rows_are_walked_by_arrows_and_opened_by_enter(signed_in: OpenTab) -> None:
    """One row of a table is a stop of Tab; End and Home go to its ends."""
    index = "Number(document.activeElement.getAttribute('aria-rowindex'))"
    with signed_in("#/jobs") as tab:
        tab.wait("document.querySelectorAll('[role=grid] .name').length === 12")
        tab.wait_value("document.querySelectorAll('[role=grid] tr[tabindex=\"0\"]').length", 1)
        tab.run("document.querySelector('[role=grid] tr[tabindex=\"0\"]').focus()")
        tab.press("ArrowDown", 2)
        tab.wait_value(index, 4)
        tab.press("End")
        tab.wait_value(index, 13)
        tab.press("Home")
        tab.press("ArrowUp")
        tab.wait_value(index, 2)
        tab.press("ArrowDown")
        key = tab.run("document.activeElement.querySelector('.name').textContent")
        tab.press("Enter")
        tab.wait(f"location.hash === '#/jobs/{key}'")
        tab.wait("document.activeElement.id === 'content'")


def test_heads_of_columns_are_buttons_that_say_the_order(signed_in: OpenTab) -> None:
    """`aria-sort` is of the column that is sorted, and of no other."""
    with signed_in("#/jobs") as tab:
        tab.wait("document.querySelectorAll('[role=grid] .name').length === 12")
        tab.run("document.querySelector('.sort').focus()")
        tab.press("Enter")
        orders = "[...document.querySelectorAll('th[aria-sort]')].map((th) => th.textContent + ' ' + th.getAttribute('aria-sort'))"
        tab.wait_value(orders, ["Job ascending"])
        tab.press(" ")
        tab.wait_value(orders, ["Job descending"])


def test_charts_are_read_by_arrows_and_as_tables(signed_in: OpenTab, site: PageSite) -> None:
    """Each arrow says time and values; the table has the same figures."""
    with signed_in("#/jobs") as tab:
        tab.wait("document.querySelectorAll('.plot .area').length >= 4")
        site.cluster.resize(min(site.cluster.jobs), 1)
        tab.run("document.querySelector('.plot').focus()")
        tab.press("ArrowLeft", 2)
        spoken = "document.querySelector('.chart [aria-live]').textContent"
        tab.wait(f"{spoken}.includes(': ')")
        tab.wait(f"{spoken}.includes('{min(site.cluster.jobs).partition('/')[0]}')")
        tab.press("Escape")
        tab.wait("document.querySelector('.chart .tip').hidden")
        tab.run("document.querySelector('.chart summary').focus()")
        tab.press("Enter")
        tab.wait("document.querySelectorAll('.chart-table tbody tr').length > 10")


def test_nodes_are_read_by_arrows_and_opened_by_enter(signed_in: OpenTab) -> None:
    """The map says each node's use; Enter goes to it."""
    with signed_in("#/nodes") as tab:
        tab.wait_text(f"{NODES} nodes")
        tab.run("document.querySelector('canvas').focus()")
        tab.press("ArrowRight", 3)
        spoken = "document.querySelector('.heat-frame [aria-live]').textContent"
        tab.wait(f"{spoken}.startsWith('node-00002')")
        assert "services" in tab.run(spoken)
        tab.press("Enter")
        tab.wait("location.hash === '#/nodes/node-00002'")


@pytest.mark.parametrize("view", VIEWS)
def test_everything_that_acts_or_is_a_picture_has_a_name(signed_in: OpenTab, view: str) -> None:
    """In the tree that screen readers are given."""
    with signed_in(view) as tab:
        tab.wait("document.querySelector('.status').dataset.state === 'live'")
        nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        nameless = [
            node["role"]["value"]
            for node in nodes
            if not node["ignored"]
            and node["role"]["value"] in _NAMED_ROLES - {"figure"}
            and not node.get("name", {}).get("value")
        ]

        assert nameless == []
        assert "heading" in roles
        assert "main" in roles
        assert "navigation" in roles
