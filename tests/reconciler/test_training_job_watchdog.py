"""Passes over TrainingJobs that fail or hang are seen, and their leader gives the lease up (decision 0028)."""

import threading
from typing import Any

import pytest

from kube import errors
from reconciler.jobs import training_status
from reconciler.watchdog import DEAD_S, PATIENCE_S
from tests.reconciler.server import of
from tests.reconciler.training_jobs import (
    Controller,
    add_training_job,
    change_training_job,
    find_job,
    find_status,
    new_training_job,
)
from tests.reconciler.world import World


def _fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def test_passes_that_all_fail_end_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the patience of failing ticks; a pass that succeeds ends the trouble."""
    world = World(8)
    training = Controller(world)
    watchdog = training.controller.watchdog
    training.look()
    with monkeypatch.context() as patched:
        patched.setattr(training.controller, "_forget", _fail)
        training.look()
        world.clock.advance(PATIENCE_S - 1)
        training.look()
        early = watchdog.may_lead(leads=True)
        world.clock.advance(1)

        assert (early, watchdog.may_lead(leads=True)) == (True, False)
    assert watchdog.given_up == {"failing": 1, "stuck": 0}
    assert watchdog.health.tick_age_s == PATIENCE_S
    training.look()
    assert watchdog.is_healthy


def test_a_pass_that_hangs_ends_the_term_and_then_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A conversion that never returns: no thread can end another."""
    world = World(8)
    add_training_job(world, new_training_job())
    training = Controller(world)
    watchdog = training.controller.watchdog
    hanging, going_on = threading.Event(), threading.Event()
    status = training_status.status

    def hang(*args: Any) -> Any:
        hanging.set()
        assert going_on.wait(60.0)
        return status(*args)

    monkeypatch.setattr(training_status, "status", hang)
    thread = threading.Thread(target=training.look)
    thread.start()
    assert hanging.wait(60.0)
    world.clock.advance(PATIENCE_S)
    leads = watchdog.may_lead(leads=True)
    world.clock.advance(DEAD_S - PATIENCE_S)
    alive = watchdog.health.alive
    going_on.set()
    thread.join()

    assert (leads, alive) == (False, False)
    assert watchdog.given_up == {"failing": 0, "stuck": 1}
    assert watchdog.health.alive


def test_one_that_makes_edl_fail_is_counted_and_costs_no_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a tenant could take the lease away; the others get their Jobs."""
    world = World(8)
    add_training_job(world, new_training_job("bad"))
    add_training_job(world, new_training_job("good"))
    training = Controller(world)
    status = training_status.status

    def fail_once(fields: Any, *further: Any) -> Any:
        return _fail() if fields["metadata"]["name"] == "bad" else status(fields, *further)

    with monkeypatch.context() as patched:
        patched.setattr(training_status, "status", fail_once)
        for _ in range(3):
            training.look()
            world.clock.advance(PATIENCE_S)

    controller = training.controller
    assert find_job(world, "good")
    assert (controller.failing, controller.failures) == (1, 3)
    assert controller.watchdog.may_lead(leads=True)
    world.clock.advance(100)
    training.settle()
    assert (controller.failing, controller.failures) == (0, 3)


def test_requests_that_fail_are_counted_and_refusals_are_not() -> None:
    """A refusal is in the status, for the user; a request that fails is for the admin."""
    world = World(8)
    add_training_job(world, new_training_job("refused"))
    add_training_job(world, new_training_job("unlucky"))
    training = Controller(world)
    faults = world.api.fake.faults
    faults.fail_next(errors.Invalid("no"), 1, match=of("POST", "/jobs"))
    training.look()
    assert find_status(world, "refused")["reason"] == "Refused"
    assert training.controller.failing == 0

    faults.fail_next(errors.Unavailable("away"), 1, match=of("PATCH", "/unlucky/status"))
    change_training_job(world, {"suspend": True}, "unlucky")
    training.look()
    training.look()

    assert training.controller.failures == 1
