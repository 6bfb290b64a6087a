"""The master's page: what a person reads there about the data."""

from master import page
from master.ledger import Ledger
from master.liveness import Liveness
from master.rendezvous import Rendezvous
from master.status import ServiceCounters, report
from tests.master.ledger_calls import opened

_HEAD = ("data set", "kind", "epoch", "", "records done", "leased", "returned", "dropped")


def _page(ledger: Ledger) -> str:
    rendezvous = Rendezvous(0.0, settles=False).report()
    return page.render(report(ledger, Liveness(1.0), ServiceCounters(), rendezvous, 0.0))


def test_a_data_set_is_a_row_under_its_heads() -> None:
    """Epochs are counted from one."""
    text = _page(opened("a")).replace("</th>", "")

    assert "<th>".join(("", *_HEAD)) in text
    assert ">1 of " in text


def test_a_job_without_data_says_why() -> None:
    """It has just been started."""
    assert "no data set was described yet: the trainers have not begun" in _page(Ledger("job"))
