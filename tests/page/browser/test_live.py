"""What changes on the cluster comes to the screen by itself; what breaks is said, and comes back."""

import pytest

from page.settings import PageSettings
from runtime import clock
from tests.page.browser.conftest import OpenTab, opened, sign_in
from tests.page.browser.site import PageSite
from tests.support.browser import WAIT_S, Browser, BrowserError

_STATE = "document.querySelector('.status').dataset.state"
_LIVE = f"{_STATE} === 'live'"
_SHOWN_S = 5.0
"""Ends a wait for a change; `python -m bench.page_browser` measures how long it takes."""


def _trainers(key: str) -> str:
    """The number of trainers of a job in the table of jobs."""
    row = f"[...document.querySelectorAll('[role=grid] tr')].find((row) => row.querySelector('.name')?.textContent === {key!r})"
    return f"{row}?.querySelector('.figures b')?.textContent"


def test_a_new_trainer_is_on_the_screen_without_a_reload(
    signed_in: OpenTab, site: PageSite
) -> None:
    """The number of the row changes, and the row stays where the focus is."""
    key = min(site.cluster.jobs)
    with signed_in("#/jobs") as tab:
        before = int(tab.wait(_trainers(key)))
        tab.run("document.querySelector('[role=grid] tr[tabindex=\"0\"]').focus()")
        site.cluster.resize(key, 3)
        tab.wait(f"{_trainers(key)} === '{before + 3}'", _SHOWN_S)
        tab.wait_value("document.activeElement.tagName", "TR")


def test_a_new_decision_is_on_the_screen_without_a_reload(
    signed_in: OpenTab, site: PageSite
) -> None:
    """At the top of the list."""
    with signed_in("#/decisions") as tab:
        tab.wait("document.querySelectorAll('[role=grid] tr').length > 5")
        before = tab.run("document.querySelector('.controls .soft').textContent")
        site.cluster.add_burst(7)
        site.cluster.write()
        tab.wait(f"document.querySelector('.controls .soft').textContent !== {before!r}", _SHOWN_S)


def test_a_new_burst_is_on_every_view_of_it(signed_in: OpenTab, site: PageSite) -> None:
    """On the overview and in the table of reclaims."""
    with signed_in("#/") as tab:
        tab.wait("document.querySelectorAll('.burst').length === 1")
        site.cluster.add_burst(7)
        site.cluster.write()
        tab.wait_text("7 services took", limit_s=_SHOWN_S)
        tab.run("location.hash = '#/reclaims'")
        tab.wait_text("2 bursts", limit_s=_SHOWN_S)


def test_a_job_that_is_deleted_leaves_the_table(signed_in: OpenTab, site: PageSite) -> None:
    """And its own page says so."""
    key = min(site.cluster.jobs)
    with signed_in(f"#/jobs/{key}") as tab:
        tab.wait("document.querySelector('.job .stack').hidden === false")
        site.cluster.delete_job(key)
        tab.wait_text("has been deleted", limit_s=_SHOWN_S)
        tab.run("location.hash = '#/jobs'")
        tab.wait_text("11 jobs", limit_s=_SHOWN_S)


def test_a_broken_stream_comes_back_by_itself_and_says_so(browser: Browser, site: PageSite) -> None:
    """Meanwhile the page says of when its figures are; afterwards it shows what it has missed."""
    key = min(site.cluster.jobs)
    with opened(browser, site, "#/jobs", faults=("net::ERR",)) as tab:
        before = int(tab.wait(_trainers(key)))
        site.close()
        tab.wait(f"{_STATE} === 'broken'")
        banner = "document.querySelector('.banner').textContent"
        tab.wait(f"{banner}.includes('tries again by itself. What you see is of ')")
        tab.wait_value("document.querySelector('.banner').getAttribute('role')", "alert")
        site.cluster.resize(key, 2)
        site.open()
        tab.run(
            "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Try now').click()"
        )
        tab.wait(_LIVE)
        tab.wait(f"{_trainers(key)} === '{before + 2}'", _SHOWN_S)
        tab.wait("document.querySelector('.banner').hidden")


def test_a_stream_that_its_server_ends_is_no_fault(browser: Browser) -> None:
    """The server ends each stream after a while; nothing is said, and what is on the screen stays."""
    settings = PageSettings(listen="127.0.0.1:0", probe_listen=None, stream_seconds=6.0)
    site = PageSite.of(10, settings)
    site.start()
    try:
        with opened(browser, site, "#/jobs") as tab:
            tab.wait(_LIVE)
            tab.run(
                "window.states = new Set(); new MutationObserver(() => states.add(document.querySelector('.status').dataset.state))"
                ".observe(document.querySelector('.status'), {attributes: true})"
            )
            tab.run(
                "window.calls = 0; const own = fetch; window.fetch = (...all) => { calls += 1; return own(...all); }"
            )
            tab.wait("window.calls >= 1", 20)
            tab.wait(_LIVE)
            assert "broken" not in tab.run("[...states]")
            tab.wait_value("document.querySelectorAll('[role=grid] .name').length", 2)
    finally:
        site.stop()


def test_a_wrong_token_is_refused_in_words(browser: Browser, site: PageSite) -> None:
    """The field comes back with the reason, and has the focus."""
    with browser.tab() as tab:
        tab.open(site.url)
        sign_in(tab, "wrong")
        tab.wait_text("it is wrong or has expired")
        tab.wait_value("document.activeElement.id", "token")
        assert tab.run("sessionStorage.length") == 0
        tab.run("document.querySelector('#token').value = ''")
        sign_in(tab, "two words")
        tab.wait_text("letters, digits and punctuation")


def test_a_token_that_expires_leads_back_to_the_field(browser: Browser, site: PageSite) -> None:
    """The next stream is refused; nothing of the cluster stays on the screen."""
    with opened(browser, site, "#/jobs", faults=("401",)) as tab:
        tab.wait("document.querySelectorAll('[role=grid] .name').length === 12")
        del site.cluster.callers["admin"]
        tab.run("location.hash = '#/decisions'")
        tab.wait_text("it is wrong or has expired")
        tab.wait_value("document.querySelectorAll('table').length", 0)
        tab.wait("document.querySelector('.top nav').hidden")


def test_signing_out_forgets_the_token(signed_in: OpenTab) -> None:
    """After a reload the field is there again; before, a reload keeps the tab signed in."""
    with signed_in("#/jobs") as tab:
        tab.send("Page.reload")
        tab.wait("document.querySelectorAll('[role=grid] .name').length === 12")
        tab.wait_value("sessionStorage.length", 1)
        assert tab.run("localStorage.length + document.cookie.length") == 0
        tab.run(
            "[...document.querySelectorAll('button')].find((b) => b.textContent === 'Sign out').click()"
        )
        tab.wait("document.activeElement.id === 'token'")
        tab.wait_value("sessionStorage.length", 0)


def test_a_caller_of_one_namespace_sees_that_alone(signed_in: OpenTab, site: PageSite) -> None:
    """Jobs of it without shares; views of the cluster say which right they need."""
    own = [key for key in site.cluster.jobs if key.startswith("ml-vision/")]
    with signed_in("#/jobs", caller="vision") as tab:
        tab.wait(f"document.querySelectorAll('[role=grid] .name').length === {len(own)}")
        assert "ml-speech" not in tab.text()
        for view in ("#/", "#/nodes"):
            tab.run(f"location.hash = {view!r}")
            tab.wait_text("visible only with permission")
        tab.wait_value("document.querySelectorAll('canvas').length", 0)


def test_a_caller_without_rights_sees_an_empty_cluster(signed_in: OpenTab) -> None:
    """Each view says that nothing is there, and none fails."""
    with signed_in("#/", caller="nobody") as tab:
        tab.wait_text("There are no elastic jobs.")
        for view, words in (
            ("#/jobs", "There are no elastic jobs."),
            ("#/decisions", "Nothing has been decided yet."),
            ("#/reclaims", "no service that took capacity"),
        ):
            tab.run(f"location.hash = {view!r}")
            tab.wait_text(words)


def test_a_server_that_has_not_read_the_cluster_says_so(browser: Browser) -> None:
    """A cluster without EDL's kinds, or one that does not answer: the page tries again by itself."""
    site = PageSite.of(10)
    site.open()
    try:
        with browser.tab() as tab:
            tab.open(site.url)
            sign_in(tab, "admin")
            tab.wait_text("has not read the cluster yet")
            tab.wait_text("tries again")
            site.begin()
            tab.wait("document.querySelector('.top nav').hidden === false", 30)
    finally:
        site.stop()


def test_scripts_of_strangers_do_not_run(signed_in: OpenTab) -> None:
    """The content security policy allows neither inline scripts nor other hosts."""
    with signed_in() as tab:
        inline = (
            "Object.assign(document.createElement('script'), {textContent: 'window.ran = true'})"
        )
        tab.run(f"document.body.append({inline})")
        tab.run(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.ran = true\">')"
        )
        with pytest.raises(BrowserError, match="Failed to fetch"):
            tab.run("fetch('http://127.0.0.2:1/')")
        assert tab.run("window.ran") is None
        end_s = clock.monotonic_s() + WAIT_S
        while len([line for line in tab.console if "Content Security Policy" in line]) < 3:
            assert clock.monotonic_s() < end_s, tab.console
            tab.run("1")  # receives what the browser has to say meanwhile
        tab.console.clear()


def test_ages_follow_the_clock_of_the_server(browser: Browser, site: PageSite) -> None:
    """A clock of the reader's that is an hour off makes no age wrong."""
    with browser.tab() as tab:
        off = "const now = Date.now; Date.now = () => now() + 3_600_000;"
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=off)
        site.cluster.add_burst(3)
        site.cluster.write()
        began_s = clock.monotonic_s()
        tab.open(f"{site.url}#/reclaims")
        sign_in(tab, "admin")
        tab.wait(
            "document.querySelectorAll('[role=grid] tbody:not([aria-hidden]) tr').length === 2"
        )
        age = tab.run(
            "document.querySelector('[role=grid] tbody:not([aria-hidden]) td').textContent"
        )

        assert age.endswith(" s ago")
        assert float(age.split()[0]) <= 60 + clock.monotonic_s() - began_s
