"""Every view of the page in Chromium, in light and dark, wide and narrow."""

import pytest

from policy.records import Record
from runtime import clock
from tests.page.browser.conftest import NODES, OpenTab
from tests.page.browser.site import PageSite
from tests.support.browser import Tab

VIEWS = ("#/", "#/jobs", "#/reclaims", "#/decisions", "#/nodes", "#/nodes/node-00003")
_LIVE = "document.querySelector('.status').dataset.state === 'live'"
_ROWS = "document.querySelectorAll('[role=grid] tbody:not([aria-hidden]) tr').length"


def _a_job(site: PageSite) -> str:
    """The job with most trainers."""
    return max(site.cluster.jobs, key=lambda key: len(site.cluster.trainers.get(key, ())))


def _go(tab: Tab, view: str) -> None:
    """Leaves the view in sight, and returns when the other one has its data."""
    tab.run("document.querySelector('.view').dataset.left = ''")
    tab.run(f"location.hash = '#/none'; location.hash = {view!r}")
    tab.wait("document.querySelector('.view:not([data-left])') !== null")
    tab.wait(_LIVE)


def test_the_overview_shows_use_jobs_reclaims_decisions_and_the_objective(
    signed_in: OpenTab, site: PageSite
) -> None:
    """Tiles, areas over time, the largest jobs, the newest burst with its stages, and decisions."""
    with signed_in() as tab:
        site.cluster.step()
        tab.wait("document.querySelectorAll('.overview .plot .area').length >= 4", 30)
        tab.wait("document.querySelectorAll('.job-list li').length === 6")
        tab.wait_text(
            "950 of 962 services ran within 5 s", "36 services took 40 trainers", "of 12 jobs"
        )
        tab.wait_value("document.querySelectorAll('.decision').length", 6)
        tab.wait_value("document.title", "Overview · EDL")


def test_jobs_are_sorted_and_filtered(signed_in: OpenTab, site: PageSite) -> None:
    """The head of a column sorts by it, up and down; words of the filter all have to be there."""
    names = "[...document.querySelectorAll('[role=grid] tbody:not([aria-hidden]) .name')].map((a) => a.textContent)"
    with signed_in("#/jobs") as tab:
        tab.wait(f"{_ROWS} === {len(site.cluster.jobs)}")
        tab.run(
            "[...document.querySelectorAll('.sort')].find((b) => b.textContent === 'Job').click()"
        )
        up = tab.run(names)
        tab.run(
            "[...document.querySelectorAll('.sort')].find((b) => b.textContent === 'Job').click()"
        )
        down = tab.run(names)
        tab.run("document.querySelector('input[type=search]').focus()")
        tab.type("ml-vision train")
        tab.wait(f"{_ROWS} < {len(site.cluster.jobs)}")

        assert up == sorted(site.cluster.jobs)
        assert down == up[::-1]
        tab.wait_value(names, [key for key in down if key.startswith("ml-vision/")])
        tab.wait_text("of 12 jobs")
        tab.type("no such job")
        tab.wait_text("No job matches the filter.")


def test_one_job_has_its_reason_trainers_and_decisions(signed_in: OpenTab, site: PageSite) -> None:
    """Its members are a table; a job without a master of EDL's says so."""
    key = _a_job(site)
    count = len(site.cluster.trainers[key])
    with signed_in(f"#/jobs/{key}") as tab:
        tab.wait_text(f"{count} trainers")
        tab.wait_text(
            key.partition("/")[2],
            "Trainer accounting",  # a heading, not in capitals
            "The job has no EDL master",
            site.cluster.trainers[key][0].name,
        )
        assert "TRAINER ACCOUNTING" not in tab.text()
        tab.wait("document.querySelectorAll('.chip.code').length >= 1")


def test_a_job_that_does_not_exist_is_said_to_be_missing(signed_in: OpenTab) -> None:
    """In words, with the key; the browser logs the answer 404 itself."""
    with signed_in("#/jobs/ml-vision/nothing") as tab:
        tab.wait(
            "/no elastic job ml-vision.nothing|has been deleted/.test(document.body.innerText)"
        )


def test_a_burst_shows_who_asked_who_gave_and_seconds_by_stage(signed_in: OpenTab) -> None:
    """A click on a row opens it."""
    with signed_in("#/reclaims") as tab:
        tab.wait(f"{_ROWS} === 1")
        tab.run("document.querySelector('[role=grid] tbody:not([aria-hidden]) tr').click()")
        tab.wait("document.querySelectorAll('.burst-detail table').length === 3")
        tab.wait_text(
            "36 of 36 services running",
            "shop/web",
            "1.9 s",  # the longest of the stage `free`
        )


def test_decisions_are_filtered_and_shown_in_full(signed_in: OpenTab) -> None:
    """A click opens figures and meaning; Escape closes them and gives the focus back."""
    with signed_in("#/decisions") as tab:
        tab.wait(f"{_ROWS} > 5")
        options = "[...document.querySelector('.controls select').options].map((o) => o.value)"
        tab.wait(f"{options}.includes('ServicesFirst')")
        tab.run("document.querySelector('.controls select').value = 'ServicesFirst'")
        tab.run("document.querySelector('.controls select').dispatchEvent(new Event('change'))")
        codes = "[...new Set([...document.querySelectorAll('[role=grid] .chip')].map((chip) => chip.textContent))]"
        tab.wait_value(codes, ["ServicesFirst"])
        tab.run("document.querySelector('[role=grid] tbody:not([aria-hidden]) tr').focus()")
        tab.press("Enter")
        tab.wait("document.querySelector('.drawer').hidden === false")
        tab.wait_text("A service needs the capacity.")
        tab.press("Escape")
        tab.wait("document.querySelector('.drawer').hidden")
        tab.wait_value("document.activeElement.tagName", "TR")


def test_older_decisions_are_loaded_on_request(signed_in: OpenTab) -> None:
    """The button says when there are no more."""
    with signed_in("#/decisions") as tab:
        tab.wait(f"{_ROWS} > 5")
        tab.run(
            "[...document.querySelectorAll('button')].find((b) => b.textContent.startsWith('Load older')).click()"
        )
        tab.wait(
            "document.querySelector('.more').innerText.includes('No older decisions are kept')"
        )


def test_nodes_are_drawn_by_use_and_by_what_fits(signed_in: OpenTab, site: PageSite) -> None:
    """The canvas has the colours of services and training; with a job chosen, the sum of what fits is told."""
    colors = """(() => {
      const canvas = document.querySelector('canvas'), style = getComputedStyle(document.documentElement);
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const seen = new Set();
      for (let i = 0; i < data.length; i += 4) seen.add('#' + [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, '0')).join(''));
      return ['services', 'guaranteed', 'surplus', 'free'].filter((name) => seen.has(style.getPropertyValue('--' + name).trim()));
    })()"""
    with signed_in("#/nodes") as tab:
        tab.wait("document.querySelector('canvas').hidden === false")
        tab.wait_text(f"{NODES} nodes")
        tab.wait_value(colors, ["services", "guaranteed", "surplus", "free"])
        key = _a_job(site)
        tab.wait(
            f"[...document.querySelectorAll('select option')].some((o) => o.value === {key!r})"
        )
        choose = "document.querySelector('select[aria-label^=Job]')"
        tab.run(f"{choose}.value = {key!r}; {choose}.dispatchEvent(new Event('change'))")
        tab.wait_text(f"more of {key} fit now")


def test_one_node_has_its_labels_and_pods(signed_in: OpenTab) -> None:
    """Beside the map, which marks it."""
    with signed_in("#/nodes/node-00003") as tab:
        tab.wait(
            "document.querySelectorAll('[aria-label=\"Pods of the node\"] tbody tr').length > 0"
        )
        tab.wait_text("Node node-00003")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 900, 420])
def test_no_view_is_wider_than_the_window(
    signed_in: OpenTab, site: PageSite, width: int, dark: bool
) -> None:
    """Tables scroll in themselves; the ground is dark where the reader's system is."""
    with signed_in(width=width, dark=dark) as tab:
        for view in (*VIEWS, f"#/jobs/{_a_job(site)}"):
            _go(tab, view)
            tab.wait(
                "document.querySelector('.view') && !document.body.innerText.includes('Loading')"
            )
            wide = tab.run("document.documentElement.scrollWidth")
            assert (view, wide) <= (view, width)
        ground = tab.run("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(16, 21, 26)" if dark else "rgb(244, 246, 248)")


def test_what_strangers_write_is_text(signed_in: OpenTab, site: PageSite) -> None:
    """Names, texts and figures with markup are shown as they are, and make no element."""
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    key = _a_job(site)
    now_s = clock.epoch_s()
    record = Record(now_s, f"job {key}", "Refused", evil, {evil: evil}, key, now_s)
    with signed_in("#/decisions") as tab:
        tab.wait(f"{_ROWS} > 5")
        site.cluster.tell(key.partition("/")[0], record)
        tab.wait_text("<img src=x")
        tab.run("document.querySelector('[role=grid] tbody:not([aria-hidden]) tr').click()")
        tab.wait("document.querySelector('.drawer').hidden === false")
        assert tab.run("document.querySelectorAll('img, #page script').length") == 0
