"""`python -m bench.page_pictures`: writes pictures of the page in a real Chromium into docs/pictures.

Some hours of a small cluster are played in virtual time first (`bench.page_day`); the page and its server are the real ones.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import exp, sin
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image

import page.job_page
import page.master
from bench.page_day import Day
from bench.terminal_pictures import PICTURES
from page.service import Watches, application
from page.settings import PageSettings
from policy.names import SYSTEM_NAMESPACE
from runtime.command_line import Parser
from runtime.serve import WebService
from tests.page.browser.conftest import opened
from tests.page.browser.site import PageSite
from tests.page.world import Instantly
from tests.support.browser import PROGRAM, Tab, chromium

_JOB = "research/vision"
_WIDTH = 1280
_COLORS = 256
"""Of a picture: a third of the bytes, and nobody sees it."""
VIEWS = {
    # picture -> (view, what is there when it is ready, width, dark, the whole page)
    "overview": ("#/", "document.querySelectorAll('.burst').length > 2", _WIDTH, False, True),
    "overview-dark": ("#/", "document.querySelectorAll('.burst').length > 2", _WIDTH, True, True),
    "jobs": ("#/jobs", "document.querySelectorAll('.plot .area').length > 3", _WIDTH, False, True),
    "job": (
        f"#/jobs/{_JOB}",
        "!!document.querySelector('.training path.line')",
        _WIDTH,
        False,
        True,
    ),
    "reclaims": (
        "#/reclaims",
        "document.querySelectorAll('.stages').length > 2",
        _WIDTH,
        False,
        True,
    ),
    "decisions": (
        "#/decisions",
        "document.querySelectorAll('.chip').length > 8",
        _WIDTH,
        False,
        False,
    ),
    "nodes": ("#/nodes", "!document.querySelector('canvas').hidden", _WIDTH, False, False),
    "nodes-fits": ("#/nodes", "!document.querySelector('canvas').hidden", _WIDTH, True, False),
}


def _training(day: Day) -> dict[str, Any]:
    """Returns the status of an image job's master in the middle of the job."""
    evaluations = [
        {
            "dataset": "test",
            "model_version": 400 * number,
            "records": 10_000,
            "complete": True,
            "metrics": {
                "loss": 2.2 * exp(-number / 5) + 0.16 + 0.02 * sin(3 * number),
                "accuracy": 0.97 - 0.85 * exp(-number / 4),
            },
        }
        for number in range(1, 25)
    ]
    return {
        "at": day.clock.now_s,
        "state": "work",
        "reason": "",
        "generation": 2,
        "steps": 9_640,
        "maxSteps": 0,
        "lostRecords": 1_920,
        "trainedAgainRecords": 64,
        "storageErrors": [],
        "datasets": {
            "train": {
                "kind": "train",
                "epochs": 40,
                "epoch": 16,
                "records": 60_000,
                "done_records": 1_003_200,
                "leased_tasks": 48,
                "dropped_tasks": 0,
                "dropped_records": 0,
                "redone_records": 2_560,
                "outage": "",
            }
        },
        "trainers": {
            pod.name: {"steps": 9_640 - 37 * place, "records": 61_440 - 1_280 * place}
            for place, pod in enumerate(day.trainers[_JOB])
        },
        "setbacks": {
            "count": 1,
            "steps": 20,
            "records": 2_560,
            "newest": [
                {
                    "by": "trainer-7",
                    "reason": "all members left at once",
                    "steps": 20,
                    "records": 2_560,
                }
            ],
        },
        "checkpoint": {"version": 96, "step": 9_600, "path": "/checkpoints/vision/96"},
        "evaluations": evaluations,
    }


@contextmanager
def _site() -> Iterator[PageSite]:
    """The page of a day that has been played."""
    day = Day()
    watches = Watches.of(
        Instantly(day), SYSTEM_NAMESPACE, lambda: day.clock.now_s, lambda: day.clock.now_s
    )

    def look() -> None:
        for reflector in (*watches.cache.reflectors.values(), watches.logs.reflector):
            reflector.follow_once()
        watches.view.update()

    day.play(look)
    day.give_master(_JOB)
    look()
    settings = PageSettings(listen="127.0.0.1:0", probe_listen=None)
    app = application(settings, watches, day.with_token)
    site = PageSite(day, WebService(app, lambda: None, lambda: None))
    with (
        patch.object(page.master, "ask", lambda *_: _training(day)),
        patch.object(page.job_page, "master_address", lambda *_: "127.0.0.1"),
    ):
        site.start()
        try:
            yield site
        finally:
            site.stop()


def _choose_job(tab: Tab) -> None:
    """What fits of the job."""
    box = "document.querySelector('select[aria-label^=Job]')"
    tab.wait(f"[...{box}.options].some((option) => option.value === {_JOB!r})")
    tab.run(f"{box}.value = {_JOB!r}; {box}.dispatchEvent(new Event('change'))")
    tab.wait("document.body.innerText.includes('fit now')")
    tab.run("document.querySelector('.choice input[value=yes]').click()")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the pictures; returns 1 if there is no Chromium."""
    parser = Parser(prog="python -m bench.page_pictures", description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURES, help="default: %(default)s")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(VIEWS)}; default: all")
    arguments = parser.parse_args(argv)
    if not PROGRAM:
        sys.stderr.write("no Chromium on this machine: apt-get install chromium\n")
        return 1
    with _site() as site, chromium() as browser:
        for name in arguments.names or VIEWS:
            view, ready, width, dark, whole = VIEWS[name]
            with opened(browser, site, view, width=width, dark=dark) as tab:
                tab.wait(ready)
                if name == "nodes-fits":
                    _choose_job(tab)
                tab.run(
                    "document.activeElement.blur(); new Promise((done) => setTimeout(done, 400))"
                )
                file = arguments.output / f"page-{name}.png"
                tab.picture(file, whole=whole)
                Image.open(file).quantize(_COLORS).save(file, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
