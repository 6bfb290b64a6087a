"""The order of records over changes of the leader, with a real master."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edl.data.batches import describe
from edl.master.leases import LeaseTable
from edl.master.settings import Settings
from edl.sync.leader import Leader
from edl.sync.plans import Plan

from tests.master.serving import TOKEN, Served
from tests.sdk.support.loops import until
from tests.sdk.sync.replicas import data

RECORDS, BATCH = 2048, 64
FEW = 1
"""As a leader's batch size: it leases few tasks ahead."""
_WAIT_S = 10.0


@contextmanager
def _leads(
    master: Served,
    table: LeaseTable,
    after: int,
    batch_size: int,
    target: dict[str, Any] | None = None,
) -> Iterator[Leader]:
    """A leader that is replaced by another one at the end: it does not leave regularly."""
    settings = Settings(f"http://127.0.0.1:{master.port}", TOKEN, "trainer", patience_s=5.0)
    dataset = data(RECORDS)
    description = describe(
        dataset, BATCH, epochs=1, shuffle_seed=1, task_records=None, overlap=True
    )
    leader = Leader(
        settings,
        table,
        dataset.name,
        description,
        after=after,
        batch_size=batch_size,
        on_stop=lambda: None,
        is_round_over=lambda: False,
        target=target,
    )
    try:
        yield leader
    finally:
        leader.abandon()


def _train(plan: Plan, *tables: LeaseTable) -> list[int]:
    """Enters a planned step in the lease tables of all members; returns its records."""
    for table in tables:
        for span in plan.spans:
            table.add(span.lease)
        table.record_step([span.portion for span in plan.spans], {})
    return [at for span in plan.spans for at in range(span.start, span.start + span.count)]


def _next(leader: Leader) -> Plan | None:
    """The leader's next plan that has records; None after the last."""
    plan = leader.plan(BATCH, _WAIT_S)
    while plan is not None and not plan.spans:
        plan = leader.plan(BATCH, _WAIT_S)
    return plan


def _rest(leader: Leader, *tables: LeaseTable) -> list[int]:
    """Trains to the end; returns the records in the order of the steps."""
    records: list[int] = []
    while (plan := _next(leader)) is not None:
        records += _train(plan, *tables)
        leader.report_ready()
    return records


def _alone(folder: Path) -> list[int]:
    """The order of records under one leader."""
    master, table = Served(folder), LeaseTable()
    with _leads(master, table, 0, BATCH) as leader:
        records = _rest(leader, table)
    master.stop()
    return records


def test_a_leader_that_leads_again_keeps_the_order_of_records(
    master: Served, tmp_path: Path
) -> None:
    """What it had leased ahead in its first term comes after what the leader between left over."""
    first, second = LeaseTable(), LeaseTable()
    records: list[int] = []
    with _leads(master, first, 0, BATCH) as leader:
        until(lambda: len(first.leases()) > RECORDS // BATCH // 2)
        plan = _next(leader)
        assert plan is not None
        records += _train(plan, first, second)
        term = leader.session.term
    with _leads(master, second, term, FEW) as leader:
        for _ in range(2):
            plan = _next(leader)
            assert plan is not None
            records += _train(plan, first, second)
        planned = _next(leader)  # all members have received it when its leader is lost
        assert planned is not None
        for span in planned.spans:
            first.add(span.lease)
        term = leader.session.term
    with _leads(master, first, term, BATCH) as leader:
        records += _rest(leader, first)

    assert records == _alone(tmp_path / "alone")


def test_a_leader_knows_whether_it_has_set_the_data_back(master: Served) -> None:
    """Where it has not, the loss is reported instead: no target, or one that the master refuses."""
    event = {"event": "restored", "reason": "a checkpoint", "version": 0, "remaining": {}}
    nowhere = {"shape": "other", "opened": 1, "open": [], "totals": [0] * 4, "steps": 0}
    rewound, term = [], 0
    for target in (None, {**event, "position": nowhere}, {**event, "position": None}):
        with _leads(master, LeaseTable(), term, FEW, target) as leader:
            rewound.append(leader.has_rewound)
            term = leader.session.term

    assert rewound == [False, False, True]
