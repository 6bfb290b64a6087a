"""The page in a real Chromium: how soon it paints, how soon a change is on the screen, and what 1 000 jobs and 5 000 nodes cost.

The server is the real one, on a synthetic cluster in memory, in this process; so its time is in all figures. The clock
of what is on the screen is the browser's.
"""

from statistics import quantiles

from bench.benchmark import Result, Setting
from e2e.measure.criteria import Criterion
from policy.records import Record
from runtime import clock
from tests.page.browser.conftest import opened, serving
from tests.page.browser.site import PageSite
from tests.support.browser import PROGRAM, Browser, Tab, chromium

_PAINT_NODES, _LARGE_NODES = 500, 5_000
"""The number of nodes; there is one job for every five nodes."""
_RECORDS = 1_000
_PAINT_S = 1.0
_EVENT_S = 1.0
_STALL_MS = 200.0
"""A longer task of the page is felt as a stall (Nielsen: 100 ms is at once, 1 s breaks the thought)."""
_FRAMES = 40
_MOST_ROUNDS = 15
_ROW_PX = 36
_FIRST_JOB = "document.querySelectorAll('.job-list li').length"
_WATCH_TASKS = (
    "window.tasks = []; new PerformanceObserver((list) => "
    "list.getEntries().forEach((task) => tasks.push(task.duration))).observe({type: 'longtask', buffered: true})"
)
"""Keeps the durations of tasks above 50 ms."""


def run(setting: Setting) -> Result:
    """Measures at 100 jobs, and at 1 000 jobs and 5 000 nodes, always: the bars are defined for these sizes."""
    if not PROGRAM:
        setting.report_progress("browser: no Chromium on this machine: apt-get install chromium")
        return Result((), {})
    with chromium() as browser:
        with serving(_PAINT_NODES) as site:
            _fill_log(site)
            rounds = min(setting.rounds, _MOST_ROUNDS)
            paints, contents = _paints(browser, site, rounds)
            setting.report_progress(f"browser: {len(paints)} first paints")
            events = _events(browser, site, 4 * rounds)
        setting.report_progress(f"browser: {len(events)} changes")
        with serving(_LARGE_NODES) as site:
            tasks = _large(browser, site)
    criteria = (
        Criterion("browser_first_paint_s", _median(paints), "s", _PAINT_S),
        Criterion("browser_overview_s", _median(contents), "s"),
        Criterion("browser_change_s", _median(events), "s", _EVENT_S),
        Criterion("browser_change_p95_s", quantiles(events, n=20)[-1], "s"),
        *(
            Criterion(f"browser_longest_task_{name}_ms", max(ms, default=0.0), "ms", _STALL_MS)
            for name, ms in tasks.items()
        ),
    )
    raw = {"paints_s": paints, "contents_s": contents, "events_s": events, "tasks_ms": tasks}
    return Result(criteria, {}, raw)


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _fill_log(site: PageSite) -> None:
    """A log as of a busy hour."""
    keys = list(site.cluster.jobs)
    for number in range(_RECORDS):
        key = keys[number % len(keys)]
        at_s = clock.epoch_s() - (_RECORDS - number) * 3.0
        record = Record(
            at_s, f"job {key}", "NoRoom", f"no node has room, {number}", {"live": 3}, key, at_s
        )
        site.cluster.tell(key.partition("/")[0], record)


def _paints(browser: Browser, site: PageSite, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from a reload to the first paint, and to the overview with its jobs."""
    paints, contents = [], []
    with opened(browser, site) as tab:
        note = (
            "window.seen = 0; const look = () => { if (%s && document.querySelector('.decision') && document.querySelector('.burst'))"
            " seen = performance.now(); else requestAnimationFrame(look); }; requestAnimationFrame(look)"
        )
        tab.send("Page.addScriptToEvaluateOnNewDocument", source=note % _FIRST_JOB)
        for _ in range(rounds):
            tab.send("Page.reload", ignoreCache=True)
            tab.wait("document.readyState === 'complete' && window.seen")
            paint = tab.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            paints.append(paint / 1000)
            contents.append(tab.run("window.seen") / 1000)
    return paints, contents


def _events(browser: Browser, site: PageSite, count: int) -> list[float]:
    """Seconds from a change of the API server's objects until its number is on the screen."""
    key = min(site.cluster.jobs)
    cell = (
        "[...document.querySelectorAll('[role=grid] tr')].find((row) => row.querySelector('.name')?.textContent"
        f" === {key!r})?.querySelector('.figures b')?.textContent"
    )
    seconds = []
    with opened(browser, site, "#/jobs") as tab:
        tab.run("document.querySelector('input[type=search]').focus()")
        tab.type(key)
        shown = int(tab.wait(cell))
        for _ in range(count):
            began_s = clock.monotonic_s()
            site.cluster.resize(key, 1)
            shown += 1
            tab.wait(f"{cell} === '{shown}'")
            seconds.append(clock.monotonic_s() - began_s)
    return seconds


def _large(browser: Browser, site: PageSite) -> dict[str, list[float]]:
    """Tasks above 50 ms, in milliseconds, while large views are opened, scrolled, filtered and changed."""
    tasks: dict[str, list[float]] = {}

    def take(tab: Tab, name: str) -> None:
        tab.run("new Promise((done) => setTimeout(done, 300))")
        tasks[name] = tab.run("tasks.splice(0)")

    with opened(browser, site, "#/decisions") as tab:
        tab.run(_WATCH_TASKS)
        take(tab, "before")
        tasks.clear()
        tab.run("location.hash = '#/jobs'")
        tab.wait("document.querySelector('[role=grid]').getAttribute('aria-rowcount') === '1001'")
        take(tab, "jobs_opened")
        for frame in range(_FRAMES):
            top = frame * 8 * _ROW_PX
            tab.run(
                f"document.querySelector('.rows').scrollTop = {top}; new Promise(requestAnimationFrame)"
            )
        take(tab, "jobs_scrolled")
        tab.run("document.querySelector('input[type=search]').focus()")
        for letter in "train-07":
            tab.type(letter)
        take(tab, "jobs_filtered")
        tab.run("location.hash = '#/nodes'")
        tab.wait("document.body.innerText.includes('5,000 nodes')")
        take(tab, "nodes_opened")
        for _ in range(10):
            site.cluster.step()
            tab.run("new Promise((done) => setTimeout(done, 300))")
        take(tab, "nodes_changing")
    return tasks
