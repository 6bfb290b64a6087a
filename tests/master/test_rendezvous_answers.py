"""What a master answers about its rendezvous: its metrics, and mistakes in calls."""

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


def test_metrics_count_members_and_rollbacks(master: Master) -> None:
    """Also the records that a rollback has lost."""
    trainer = master.join("a")
    together(master, "a", "b")
    trainer.ok("POST", "/v1/setbacks", event="e", reason="server 1 died", steps=2, records=64)
    metrics = _text(master, "/metrics")

    assert "edl_master_rendezvous_members 2.0" in metrics
    assert "edl_master_rollbacks_total 1.0" in metrics
    assert "edl_master_rollback_lost_records 64.0" in metrics


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
