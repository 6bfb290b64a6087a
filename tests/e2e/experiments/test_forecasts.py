"""Cases in which a forecast of another policy is put to the test, and what is counted as right."""

import yaml
from rich.console import Console

from e2e.experiments import forecasts
from e2e.experiments.forecasts import Outcome, draw
from kube import decode
from policy.document import parser as document
from policy.document.model import Policy


def test_a_case_is_the_same_for_its_number_and_needs_nodes_of_the_pool() -> None:
    """Each of some cases; no two are alike."""
    cases = [draw(number) for number in range(20)]
    pool = {item["metadata"]["name"] for item in forecasts.pool()}

    assert cases == [draw(number) for number in range(20)]
    assert all(
        set(case.nodes) <= pool and len(case.nodes) == len(set(case.nodes)) for case in cases
    )
    assert len({str(case) for case in cases}) == 20


def test_quick_policies_differ_in_their_delays_alone() -> None:
    """So that a case takes seconds, and the forecast has as much to say as with a user's."""
    for number in range(20):
        quick, slow = draw(number), draw(number, quick=False)
        stability = slow.after.stability
        delays = {"min_run_seconds": 0.0, "cool_down_seconds": 0.5}
        paced = stability.model_copy(update=delays)

        assert quick.after == slow.after.model_copy(update={"stability": paced})
        assert document.parse(yaml.safe_dump(_fields(quick.after))) == quick.after


def _fields(policy: Policy) -> object:
    return policy.model_dump(mode="json", exclude_defaults=True, by_alias=True)


def test_what_is_sent_is_what_was_drawn() -> None:
    """Jobs with their bounds, queue, weight and requests, as the API server's objects say them."""
    for job in draw(3).jobs:
        manifest = forecasts.job_manifest(job)
        stored = decode.job(
            {**manifest, "metadata": {**manifest["metadata"], "uid": job.uid}, "status": {}}
        )
        assert stored is not None
        for field in ("namespace", "name", "min_trainers", "max_trainers", "queue", "weight"):
            assert getattr(stored, field) == getattr(job, field)
        assert {**stored.requests, "pods": 1} == {**job.requests, "pods": 1}


def test_a_forecast_is_right_within_one_trainer_of_every_job() -> None:
    """A case that did not settle is wrong; shares, tables and reports say so."""
    exact = Outcome(0, {"a": 9, "b": 1}, {"a": 4, "b": 6}, {"a": 4, "b": 6}, 2.0)
    near = Outcome(1, {"a": 4}, {"a": 5}, {"a": 4}, 4.0)
    wrong = Outcome(2, {"a": 4, "b": 4}, {"a": 6, "b": 4}, {"a": 4, "b": 4}, 3.0)
    lost = Outcome(3, {"a": 4}, {"a": 4}, {"a": 4}, 60.0, "pods do not run: ml/a-0")

    assert [each.right for each in (exact, near, wrong, lost)] == [True, True, False, False]
    assert forecasts.share_right([exact, near, wrong, lost]) == 0.5
    assert forecasts.share_right([]) == 0.0
    summary = forecasts.summary([exact, near, wrong, lost])
    assert (summary["right"], summary["exact"], summary["moved"]) == (2, 1, 1)
    assert [row["case"] for row in summary["wrong"]] == [2, 3]
    console = Console(width=120, record=True)
    console.print(forecasts.table([exact, near, wrong, lost]))
    assert "did not settle" in console.export_text()
    assert "WRONG" in forecasts.line(wrong)
    assert "a 9 -> 4 said, 4 happened" in forecasts.line(exact)
