"""The page's pure modules, run where they run: in Chromium."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.page.browser.conftest import opened, serving
from tests.support.browser import Browser, Tab


@pytest.fixture(scope="module")
def page(browser: Browser) -> Iterator[Tab]:
    """A tab that may import the page's modules."""
    with serving(10) as site, opened(browser, site) as tab:
        yield tab


def _of(page: Tab, module: str, expression: str) -> Any:
    return page.run(f"import('/static/{module}').then((m) => {expression})")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("duration(0.04)", "0.04 s"),
        ("duration(3.14)", "3.1 s"),
        ("duration(59.6)", "60 s"),
        ("duration(300)", "5 m"),
        ("duration(7500)", "2 h 5 m"),
        ("duration(400000)", "5 d"),
        ("duration(NaN)", "\u2013"),
        ("amount('cpu', 12500)", "12.5"),
        ("amount('memory', 64 * 2 ** 30)", "64 GiB"),
        ("amount('nvidia.com/gpu', 1234)", "1,234"),
        ("percent(0.1234, 1)", "12.3\u202f%"),
        ("percent(null)", "\u2013"),
        ("counted(1, 'job') + ', ' + m.counted(1200, 'job')", "1 job, 1,200 jobs"),
        ("figure({cpu: '1', memory: '1Gi'})", "cpu 1, memory 1Gi"),
    ],
)
def test_values_are_written_as_people_read_them(page: Tab, call: str, text: str) -> None:
    """Durations, amounts, shares, counts and figures."""
    assert _of(page, "format.js", f"m.{call}") == text


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_events_are_read_however_they_are_cut(page: Tab, size: int) -> None:
    """Comments are no events; several lines of data are one text; CR LF ends a line too."""
    text = ': hello\\n\\nid: 7\\nevent: jobs\\ndata: {\\"a\\":\\ndata: 1}\\n\\ndata: x\\r\\n\\r\\nevent: none\\n\\n'
    script = f"""(() => {{
      const events = [], parser = new m.EventParser((event) => events.push(event)), text = "{text}";
      for (let i = 0; i < text.length; i += {size}) parser.push(text.slice(i, i + {size}));
      return events.map((event) => [event.event, event.data, event.id ?? null]);
    }})()"""

    assert _of(page, "sse.js", script) == [["jobs", '{"a":\n1}', "7"], ["message", "x", None]]


@pytest.mark.parametrize(
    ("top", "binary", "marks"),
    [
        (0, "false", [0, 1]),
        (7, "false", [0, 2, 4, 6, 8]),
        (16265, "false", [0, 5000, 10000, 15000, 20000]),
        (3 * 2**30, "true", [0, 2**30, 2 * 2**30, 3 * 2**30]),
    ],
)
def test_axes_have_round_steps(page: Tab, top: int, binary: str, marks: list[int]) -> None:
    """Of 1, 2 or 5 times a power of ten; the last mark is not below the values."""
    assert _of(page, "scale.js", f"m.ticks({top}, {{binary: {binary}}})") == marks


def test_steps_hold_until_the_next(page: Tab) -> None:
    """What is before the first step is unknown; others are summed; the newest survive a gap."""
    script = """(() => {
      const steps = new m.StepSeries();
      steps.begin({a: [[10, 1], [20, 3]], b: [[15, 5]], c: [[0, 2], [30, 0]]});
      return [steps.at('a', [5, 10, 19, 20, 99]), steps.rest(['a'], [5, 15, 30, 40], null), steps.largest(0, 2)];
    })()"""

    assert _of(page, "steps.js", script) == [[None, 1, 1, 3, 3], [2, 7, 5, 5], ["a", "b"]]


def test_unknown_values_come_last_in_either_order(page: Tab) -> None:
    """Words are ordered as people do it, `job-2` before `job-10`."""
    script = """[false, true].map((down) => m.sorted([{v: 'job-10'}, {v: null}, {v: 'job-2'}], (row) => row.v, down).map((row) => row.v))"""

    assert _of(page, "table.js", script) == [["job-2", "job-10", None], ["job-10", "job-2", None]]


def test_a_record_of_two_logs_is_shown_once_with_all_names(page: Tab) -> None:
    """Whichever comes first."""
    script = """(() => {
      const one = {at: 1, about: 'job a/b', code: 'X', job: 'a/b', namespace: 'a', figures: {to: 'another namespace'}};
      const two = {...one, namespace: 'edl-system', figures: {to: 'c/d'}};
      return [[one, two], [two, one]].map((records) => {
        const model = new m.Model();
        model.apply('records', {reset: true, records});
        return model.records.map((record) => record.figures.to);
      });
    })()"""

    assert _of(page, "model.js", script) == [["c/d"], ["c/d"]]
