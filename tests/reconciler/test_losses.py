"""Training that is lost with trainers, by cause."""

from dataclasses import replace

import pytest

from kube.object_change import ObjectChange
from policy.cluster.snapshot import Phase, Pod
from policy.planning.plan import Release
from policy.reasons import Reason
from reconciler.records.losses import Losses
from tests.support.builders import job, service, trainer

POD = replace(trainer(job("net"), 0, "n0"), uncommitted_s=12.5)
RELEASE = Release("ml/net", POD.uid, "ml", POD.name, "n0", Reason.FAIR_SHARE, {})


def _lost(*states: Pod | None, released: bool = False) -> dict[str, float]:
    """What is lost with a pod that runs, and then is seen in these states, one at a time."""
    losses = Losses()
    if released:
        losses.note([RELEASE])
    total: dict[str, float] = {}
    for last, new in zip((POD, *states), states, strict=False):
        for loss in losses.observe({POD.uid: ObjectChange(last, new)}):
            total[loss.cause] = total.get(loss.cause, 0.0) + loss.seconds
    return total


DELETING = replace(POD, deleting=True)
ENDED = replace(DELETING, phase=Phase.SUCCEEDED)


def test_a_trainer_that_leaves_in_several_steps_counts_once() -> None:
    """Its deletion begins, its containers end, it is gone."""
    assert _lost(DELETING, ENDED, None, released=True) == {"FairShare": 12.5}


@pytest.mark.parametrize(
    ("states", "cause"),
    [
        ((DELETING, None), "Evicted"),
        ((None,), "Evicted"),
        ((replace(POD, phase=Phase.FAILED, disrupted=True), None), "Evicted"),
        ((replace(POD, phase=Phase.FAILED), None), "Failed"),
    ],
)
def test_what_edl_did_not_release_was_evicted_or_failed(
    states: tuple[Pod | None, ...], cause: str
) -> None:
    """kube-scheduler's victims, drained ones and deleted ones; programs that end with an error."""
    assert _lost(*states) == {cause: 12.5}


def test_a_trainer_whose_work_is_done_loses_nothing() -> None:
    """Neither does one that only changes, nor a service."""
    assert _lost(replace(POD, phase=Phase.SUCCEEDED), None) == {}
    assert _lost(replace(POD, ready=False)) == {}
    web = service("web", where="n0")
    assert Losses().observe({web.uid: ObjectChange(web, None)}) == []
    assert Losses().observe({POD.uid: ObjectChange(None, DELETING)}) == []


def test_nothing_is_kept_of_trainers_that_are_gone() -> None:
    """Neither the reason nor that they were counted."""
    losses = Losses()
    losses.note([RELEASE])
    losses.observe({POD.uid: ObjectChange(POD, DELETING)})
    losses.observe({POD.uid: ObjectChange(DELETING, None)})

    assert not losses._reasons  # noqa: SLF001 - what is kept is the fact
    assert not losses._counted  # noqa: SLF001
