"""What `python -m e2e.installation` makes of its measurements, and its command line."""

import pytest

from e2e import installation
from e2e.cluster.errors import ClusterError
from e2e.cluster.machine import needs
from e2e.installation import first_job_criterion, main, starts, update_criteria
from e2e.rollout import Update
from e2e.server_starts import Start


def test_the_longest_start_of_a_server_counts() -> None:
    """The median beside it has no limit."""
    longest, middle, cpu = starts("webhook", [Start(2.0, 1.5), Start(3.5, 1.7), Start(1.0, 1.6)])

    assert (longest.name, longest.value, longest.holds) == ("webhook_ready_longest", 3.5, False)
    assert (middle.value, middle.limit, cpu.value) == (2.0, None, 1.6)


def test_a_minute_is_enough_for_a_first_job_criterion() -> None:
    """The bar is the same for both ways."""
    assert first_job_criterion("helm", 59.9).holds
    assert not first_job_criterion("kustomize", 60.1).holds


def test_bursts_in_updates_are_compared_with_those_without() -> None:
    """The longest with the longest, the median with the median; a review that was missed is one too many."""
    updates = [Update((4.0, 6.0), 100, 0), Update((9.0,), 50, 1)]
    criteria = {c.name: c for c in update_criteria([4.0, 5.0, 6.0], updates)}

    assert criteria["burst_in_update_over_without_longest"].value == 1.5
    assert criteria["burst_in_update_over_without_median"].value == 1.2
    assert criteria["admissions_reviewed"].value == 150
    assert [name for name, c in criteria.items() if not c.holds] == ["admissions_missed"]


def test_a_part_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is built or started."""
    with pytest.raises(SystemExit) as stop:
        main(["--only", "none"])

    assert stop.value.code == 2
    assert "cluster" in capsys.readouterr().err


def test_a_machine_without_containers_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No figure is measured there."""

    def find() -> None:
        raise ClusterError("real nodes need runc: install it")

    monkeypatch.setattr(needs, "find", find)
    monkeypatch.setattr(installation, "_PARTS", {})

    assert main([]) == 1
    assert capsys.readouterr().err == "installation: real nodes need runc: install it\n"
