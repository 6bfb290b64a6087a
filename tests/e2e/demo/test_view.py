"""The live view and its plain twin."""

import io
from collections import Counter

from rich.console import Console

from e2e.demo.view import LogView, Scene, Screen, line, screen, view
from e2e.measure.record import Counts


def _scene(*, jobs: int = 6) -> Scene:
    names = tuple(f"job-{n}" for n in range(1, jobs + 1))
    counts = Counts(
        Counter(
            {
                "service.at_work": 380,
                "service.waiting": 20,
                "trainer.waiting": 3,
                "cpu_millis": 2_200_000,
            }
        ),
        Counter(dict.fromkeys(names, 25)),
    )
    return Scene(
        title="EDL",
        doing="services 300 -> 400: trainers give way",
        counts=counts,
        services_wanted=400,
        jobs=names,
        max_trainers=60,
        total_millis=2_348_000,
        last_reclaim="200 -> 300: all running after 3.1 s",
        left_s=65,
    )


def _console() -> Console:
    return Console(width=80, height=24, file=io.StringIO(), force_terminal=True, color_system=None)


def test_the_screen_fits_a_small_terminal_and_shows_everything() -> None:
    """80 x 24 hold services, all jobs, CPU, the last reclaim and the time left."""
    console = _console()
    with console.capture() as capture:
        console.print(screen(_scene()))
    rows = capture.get().splitlines()
    text = "\n".join(rows)
    assert len(rows) <= 23
    assert max(map(len, rows)) <= 80
    for word in ("380 of 400", "20 pending", "job-6", "25 trainers", "150 trainers, 3 pending"):
        assert word in text
    for word in ("93.7 %", "all running after 3.1 s", "1:05 left"):
        assert word in text


def test_an_empty_scene_can_be_shown() -> None:
    """Before anything runs there is only the current step."""
    scene = Scene(title="EDL", doing="starting the cluster")
    console = _console()
    with console.capture() as capture:
        console.print(screen(scene))
    assert "starting the cluster" in capture.get()
    assert line(scene) == "starting the cluster"


def test_the_line_says_the_same() -> None:
    """One line for logs."""
    assert line(_scene(jobs=2)) == (
        "services 300 -> 400: trainers give way | services 380/400 (20 pending) | "
        "trainers 25 25 | CPU 93.7 % | 1:05 left"
    )


def test_lines_come_every_five_seconds() -> None:
    """A log is neither flooded nor silent; what happens once is always said."""
    file = io.StringIO()
    with view(Console(file=file)) as shown:
        assert isinstance(shown, LogView)
        for now_s in (0.0, 1.0, 4.9, 5.0):
            shown.tick(_scene(), now_s)
        shown.say("once")
    assert len(file.getvalue().splitlines()) == 3


def test_a_terminal_is_redrawn_four_times_a_second() -> None:
    """Ticks between two redraws cost nothing; words that stay scroll above the picture."""
    console = _console()
    with view(console) as shown:
        assert isinstance(shown, Screen)
        sizes = []
        for now_s in (0.0, 0.1, 0.3):
            shown.tick(_scene(), now_s)
            sizes.append(len(_text(console)))
        shown.say("once")
    assert sizes[0] == sizes[1] < sizes[2]
    assert "once" in _text(console)


def _text(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()
