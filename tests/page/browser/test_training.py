"""A job's training on its page: progress, losses, what was redone, as its master tells it."""

from typing import Any

import pytest

import page.job_page
import page.master
from page.master import MasterAnswerError
from tests.page.browser.conftest import OpenTab
from tests.page.browser.site import PageSite

_DATASET = {
    "kind": "train",
    "epochs": 10,
    "epoch": 3,
    "records": 1_000,
    "done_records": 3_400,
    "leased_tasks": 2,
    "dropped_tasks": 0,
    "dropped_records": 0,
    "redone_records": 20,
    "outage": "",
}


def _answer(key: str) -> dict[str, Any]:
    evaluations = [
        {
            "dataset": "test",
            "model_version": version,
            "records": 100,
            "complete": True,
            "metrics": {"loss": 1 / version, "accuracy": None},
        }
        for version in range(1, 9)
    ]
    return {
        "state": "work",
        "reason": "",
        "generation": 2,
        "steps": 1_200,
        "maxSteps": 0,
        "lostRecords": 64,
        "trainedAgainRecords": 8,
        "storageErrors": [],
        "datasets": {"<b>digits": _DATASET},
        "trainers": {f"{key.partition('/')[2]}-trainer-0": {"steps": 777, "records": 50_000}},
        "setbacks": {
            "count": 1,
            "steps": 20,
            "records": 640,
            "newest": [
                {"by": "trainer-3", "reason": "its node was lost", "steps": 20, "records": 640}
            ],
        },
        "checkpoint": {"version": 9, "step": 1_000, "path": "/checkpoints/9"},
        "evaluations": evaluations,
    }


@pytest.fixture
def trained(site: PageSite, monkeypatch: pytest.MonkeyPatch) -> str:
    """The key of a job whose master answers."""
    key = max(site.cluster.jobs, key=lambda job: len(site.cluster.trainers.get(job, ())))
    site.cluster.give_master(key)
    monkeypatch.setattr(page.job_page, "master_address", lambda *_: "127.0.0.1")
    monkeypatch.setattr(page.master, "ask", lambda *_: _answer(key))
    return key


def test_progress_losses_and_what_was_redone_are_shown(signed_in: OpenTab, trained: str) -> None:
    """Losses are a line over model versions; a metric without values is none."""
    with signed_in(f"#/jobs/{trained}") as tab:
        tab.wait("document.querySelectorAll('.training path.line').length === 1")
        tab.wait_text(
            "<b>digits",
            "epoch 4 of 10, 3,400 of 10,000 records, 2 tasks leased",
            "34\u202f%",
            "newest checkpoint at step 1,000",
            "1 rollback to a checkpoint: 20 steps and 640 records",
            "trainer-3: its node was lost",
        )
        tab.wait_value(
            "[...document.querySelector('[aria-label=Metric]').options].map((o) => o.value)",
            ["accuracy", "loss"],
        )


def test_a_master_that_does_not_answer_is_said_and_asked_again(
    signed_in: OpenTab, trained: str, site: PageSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the job's page is there meanwhile."""

    def ask(*_: object) -> dict[str, Any]:
        raise MasterAnswerError("it is starting")

    monkeypatch.setattr(page.master, "ask", ask)
    with signed_in(f"#/jobs/{trained}", faults=("503",)) as tab:
        tab.wait(
            "document.querySelector('.training').innerText.includes('does not answer: it is starting')"
        )
        tab.wait_text(site.cluster.trainers[trained][0].name)
        monkeypatch.setattr(page.master, "ask", lambda *_: _answer(trained))
        tab.wait("document.querySelectorAll('.training path.line').length === 1")
