"""Every benchmark measures what the issue names, on clusters small enough for a test."""

from pathlib import Path

import orjson
import pytest

from bench import __main__ as command
from bench import bounds, burst, extender, odd, plan, replay_api_server, rows
from bench.benchmark import Result, Setting, Times, grown, latency_figures
from bench.clusters import cluster
from e2e.measure.criteria import Criterion
from extender import handlers
from kube import errors, request

SMALL = Setting((10, 20), 3, lambda _: None)
LIMITS = {
    "full_plan_seconds": 1.0,
    "plan_memory_mb": 600.0,
    "plan_after_one_change_ms": 50.0,
    "filter_5000_ms": 10.0,
    "prioritize_5000_ms": 10.0,
}


def test_plan_and_extender_report_every_bar_of_the_issue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its name, with its limit, with a value that was measured."""
    monkeypatch.setattr(plan, "SEEDS", (1,))  # each is a process for each size
    criteria = [criterion for run in (plan.run, extender.run) for criterion in run(SMALL).criteria]
    assert {
        criterion.name: criterion.limit for criterion in criteria if criterion.limit is not None
    } == LIMITS
    assert len({criterion.name for criterion in criteria}) == len(criteria)
    assert all(criterion.value is not None and criterion.value > 0 for criterion in criteria)


def test_odd_clusters_are_measured_beside_the_usual_one() -> None:
    """Ratios have bars: each depends less on the machine than the times do."""
    criteria = {criterion.name: criterion for criterion in odd.run(SMALL).criteria}

    limited = {name for name, criterion in criteria.items() if criterion.limit}
    assert limited == {"odd_plan_ratio", "avoiding_plan_ratio"}
    assert all(criterion.value for criterion in criteria.values())


def test_what_tenants_can_make_hard_is_measured_with_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minimums that never start, odd shapes, rollouts, and the budgets of many jobs."""
    for name, value in {
        "_JOBS": 3,
        "_NODES": 9,
        "_WIDE_NODES": 2,
        "_ROLLOUT_NODES": 5,
        "_TICKS": 2,
    }.items():
        monkeypatch.setattr(bounds, name, value)
    criteria = {criterion.name: criterion for criterion in bounds.run(SMALL).criteria}

    limits = {name: c.limit for name, c in criteria.items() if c.limit is not None}
    assert limits == bounds.LIMITS
    assert all(criterion.value for criterion in criteria.values())


def test_a_burst_that_finds_room_is_measured_with_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services come beside trainers at rest, and the reconciler follows them to the end."""
    monkeypatch.setattr(burst, "_JOBS", 2)
    criteria = {criterion.name: criterion for criterion in burst.run(SMALL).criteria}

    limits = {name: c.limit for name, c in criteria.items() if c.limit is not None}
    assert limits == burst.LIMITS
    assert all(criterion.value for criterion in criteria.values())


def test_a_table_that_doubles_is_measured_with_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """No push may wait for the index, nor for the start of a checkpoint."""
    monkeypatch.setattr(rows, "_ROWS_A_ROUND", 20_000)
    criteria = {criterion.name: criterion for criterion in rows.run(SMALL).criteria}

    limits = {name: c.limit for name, c in criteria.items() if c.limit is not None}
    assert limits == rows.LIMITS
    assert all(criterion.value for criterion in criteria.values())


def test_handlers_are_left_as_they_were() -> None:
    """The stop-watch around them is gone after the run."""
    before = handlers.filter_nodes
    extender.run(Setting((10,), 1, lambda _: None))
    assert handlers.filter_nodes is before


def test_growth_has_one_value_for_each_size() -> None:
    """For every figure."""
    assert grown([{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}]) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


def test_latencies_have_percentiles_in_any_order() -> None:
    """The 99th of 200 is the second longest; of three it is the longest."""
    shuffled = [float((7 * i) % 200) for i in range(200)]

    assert latency_figures(shuffled) == {"p50_ms": 100.0, "p99_ms": 198.0, "worst_ms": 199.0}
    assert latency_figures([3.0, 1.0, 8.0]) == {"p50_ms": 3.0, "p99_ms": 8.0, "worst_ms": 8.0}


def test_times_are_summed_up_by_median_and_worst() -> None:
    """Figures are in milliseconds; `run` returns the action's result."""
    times = Times([3.0, 1.0, 8.0])
    assert times.figures() == {"median_ms": 3.0, "worst_ms": 8.0, "best_ms": 1.0, "count": 3}
    assert times.run(lambda: "done") == "done"
    assert len(times.values) == 4


def test_the_server_tells_and_does_nothing_else() -> None:
    """A write or an unknown kind is refused as an API server would."""
    api = replay_api_server.ReplayApiServer(cluster(5))
    with pytest.raises(errors.NotFound):
        api.send(request.delete(request.PODS, "shop", "web"))
    with pytest.raises(errors.NotFound):
        api.send(request.list_page(request.DEPLOYMENTS))


class TestCommand:
    """`python -m bench`."""

    @pytest.fixture(autouse=True)
    def _one_quick_benchmark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Benchmarks that miss their criterion, fail, or are interrupted."""
        missed = Result((Criterion("slowness_ms", 9.0, "ms", 5.0),), {"slowness_ms": [0.5, 9.0]})

        def measured(setting: Setting) -> Result:
            setting.report_progress("measuring")
            return missed

        def broken(_: Setting) -> Result:
            raise RuntimeError("the machine is on fire")

        def interrupted(_: Setting) -> Result:
            raise KeyboardInterrupt

        benchmarks = {"slow": measured, "broken": broken, "interrupted": interrupted}
        monkeypatch.setattr(command, "BENCHMARKS", benchmarks)
        monkeypatch.setattr(command, "FULL", ((10, 20), 1))
        monkeypatch.delenv("STRICT", raising=False)

    def test_writes_a_report_of_the_shape_all_reports_have(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Machine, commit, bars, and the raw figures under the benchmark's name."""
        assert command.main(["slow", "--output", str(tmp_path)]) == 0
        document = orjson.loads((tmp_path / "report.json").read_bytes())
        assert {"machine", "commit", "bars", "slow", "quick"} == set(document)
        assert document["bars"][0]["name"] == "slowness_ms"
        assert document["bars"][0]["holds"] is False
        assert document["slow"]["growth"] == {"slowness_ms": [0.5, 9.0]}
        shown = capsys.readouterr().out
        for word in ("measuring", "10 nodes", "slowness_ms", "missed: slowness_ms"):
            assert word in shown

    def test_a_missed_bar_fails_only_where_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A slow machine is not a broken build."""
        monkeypatch.setenv("STRICT", "1")
        assert command.main(["slow", "--output", str(tmp_path)]) == 1
        assert command.main(["slow", "--quick", "--output", str(tmp_path)]) == 0

    @pytest.mark.parametrize(
        ("name", "code", "line"),
        [
            ("plam", 2, "bench: no benchmark plam; there are slow, broken, interrupted"),
            ("broken", 1, "bench: the machine is on fire"),
        ],
    )
    def test_trouble_is_told_in_one_line(
        self,
        name: str,
        code: int,
        line: str,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """No report is written."""
        assert command.main([name, "--output", str(tmp_path)]) == code
        assert capsys.readouterr().err == f"{line}\n"
        assert not list(tmp_path.iterdir())

    def test_an_interrupted_run_writes_nothing(self, tmp_path: Path) -> None:
        """Half a report would be taken for a whole one."""
        assert command.main(["interrupted", "--output", str(tmp_path)]) == 130
        assert not list(tmp_path.iterdir())
