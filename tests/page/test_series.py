"""What was over time, bounded."""

from itertools import pairwise

from page.series import COARSE_S, FINE_S, TrainerSteps, UsageSeries


def test_use_has_two_resolutions() -> None:
    """Each 5 s of the last hour, then each minute of a day; a slot has what came last in it."""
    series = UsageSeries()
    for second in range(0, 90_000, 2):
        series.put(float(second), [[second, 0, 0, 0]])
    points = series.points()
    times = [at_s for at_s, _ in points]
    gaps = {later - earlier for earlier, later in pairwise(times)}

    assert times == sorted(set(times))
    assert gaps == {FINE_S, COARSE_S}
    assert len([at_s for at_s in times if at_s >= 90_000 - 3_600]) == 720
    assert times[0] <= 90_000 - 86_000
    assert points[-1] == (89_995.0, [[89_998, 0, 0, 0]])


def test_two_looks_within_a_slot_are_one_point() -> None:
    """The later one."""
    series = UsageSeries()
    series.put(11.0, [[1, 0, 0, 0]])

    assert series.put(14.0, [[2, 0, 0, 0]]) == (10.0, [[2, 0, 0, 0]])
    assert series.points() == [(10.0, [[2, 0, 0, 0]])]
    series.clear()
    assert series.points() == []


def test_trainers_have_a_step_for_each_change() -> None:
    """As many as are kept of a job; the largest jobs first; nothing of those that are gone."""
    steps = TrainerSteps()
    for second, trainers in enumerate([1, 1, 2, 2, 2, 1]):
        steps.put("ml/a", float(second), trainers)
    steps.put("ml/b", 3.0, 5)
    for second in range(1000):
        steps.put("ml/c", float(second), second % 2)

    assert steps.of("ml/a") == ((0.0, 1), (2.0, 2), (5.0, 1))
    assert list(steps.largest(["ml/a", "ml/b", "ml/x"], 1)) == ["ml/b"]
    assert len(steps.of("ml/c")) == 240
    steps.drop("ml/a")
    assert steps.of("ml/a") == ()
