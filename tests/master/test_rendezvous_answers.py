"""What a master answers about its rendezvous: its page, its metrics, and mistakes in calls."""

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.master.serving import TOKEN, Served
from tests.sdk.support.contract import Master
from tests.sdk.support.contract_rendezvous import together


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    """A client of a master in this process."""
    served = Served(tmp_path / "journal", heartbeat_s=5.0)
    yield Master(served.port, TOKEN)
    served.stop()


def test_page_and_metrics_show_rounds_and_rollbacks(master: Master) -> None:
    """As text, with what trainers wrote escaped."""
    trainer = master.join("a")
    together(master, "a", "b")
    trainer.ok(
        "POST", "/v1/setbacks", event="e", reason="<b>server 1</b> died", steps=2, records=64
    )
    page = _text(master, "/")
    metrics = _text(master, "/metrics")

    assert "with 2, the oldest first: a, b" in page
    assert "&lt;b&gt;server 1&lt;/b&gt; died (2 steps, 64 records)" in page
    assert "edl_master_rendezvous_members 2.0" in metrics
    assert "edl_master_rollbacks_total 1.0" in metrics
    assert "edl_master_rollback_lost_records 64.0" in metrics


def test_a_page_without_rounds_does_not_mention_them(master: Master) -> None:
    """Jobs without a rendezvous have none."""
    page = _text(master, "/")

    assert "Synchronous training" not in page
    assert "Rollbacks" not in page


def _text(master: Master, path: str) -> str:
    link = http.client.HTTPConnection("127.0.0.1", master.port, timeout=60)
    try:
        link.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        return link.getresponse().read().decode()
    finally:
        link.close()


def _who(**fields: Any) -> dict[str, Any]:
    return {"trainer": "a", "incarnation": "a-1", "address": "a:1", **fields}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (_who(address="nowhere"), "address"),
        (_who(address="a:1234567"), "address"),
        (_who(code={str(number): "x" for number in range(17)}), "code"),
        (_who(code={"a b": "x"}), "code.a b.[key]"),
        (_who(code={"model": 1}), "code.model"),
        (_who(seen=-1), "seen"),
        (_who(waiting_s=-0.1), "waiting_s"),
        (_who(wait_s=31), "wait_s"),
        (_who(claim={"round": 1, "members": []}), "claim.members"),
        (_who(claim={"round": 1, "members": [{"trainer": "a"}]}), "claim.members.0.incarnation"),
    ],
)
def test_mistakes_are_named(master: Master, body: dict[str, Any], field: str) -> None:
    """422 with the field; the caller does not become a member."""
    status, answer = master.ask("POST", "/v1/rendezvous", body)

    assert (status, answer["error"]["field"]) == (422, field)
    assert master.ask("GET", "/v1/status")[1]["rendezvous"]["round"] == 0
