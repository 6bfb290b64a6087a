"""A reconciler whose policy document cannot be used."""

from kube import request
from kube.request import CONFIGMAPS
from policy.document import parser as document
from policy.names import POLICY_CONFIGMAP, POLICY_KEY, SYSTEM_NAMESPACE
from tests.reconciler.world import Process, World

QUOTA = """{"reserve": {"maxLoad": {"cpu": 1}}, "scheduling": {"extender": "always"},
 "quotas": [{"namespace": "ml", "requests": {"cpu": 10}}]}"""


def _store(world: World, text: str) -> None:
    body = {"data": {POLICY_KEY: text}}
    patch = request.merge_patch(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP, body)
    world.ask(patch)


def test_a_bad_document_after_a_good_one_changes_nothing(world: World) -> None:
    """The quota of the last valid one holds; one event says what is wrong."""
    _store(world, QUOTA)
    process = Process(world)
    process.run(2)
    _store(world, "quotas: !!int ''")
    world.add_job("net", 1, 6)
    process.run(6)
    process.stop()
    process.write_events()

    assert len(world.running("net")) == 2
    assert process.loop.may_lead(leads=True)
    (message,) = world.events("PolicyInvalid")
    assert "edl-policy" in message


def test_a_process_that_knows_no_valid_policy_does_nothing(world: World) -> None:
    """It does not lead either: a replica that has run for longer may know one. Then it plans."""
    _store(world, "quotas: !!int ''")
    process = Process(world)
    world.add_job("net", 1, 6)
    process.run(3)
    writes = [write.line for write in world.api.writes]
    leads = process.loop.may_lead(leads=True), process.loop.may_lead(leads=False)
    _store(world, QUOTA)
    process.run(4)
    process.stop()
    process.write_events()

    assert (writes, leads) == ([], (False, False))
    assert len(world.running("net")) == 2
    assert process.loop.may_lead(leads=False)
    assert len(world.events("PolicyInvalid")) == 1


def test_a_new_version_is_told_once(world: World) -> None:
    """By an event of the ConfigMap, with the version that metrics and /readyz have."""
    _store(world, QUOTA)
    process = Process(world)
    process.run(2)
    _store(world, "")
    process.run(4)
    process.stop()
    process.write_events()

    old, new = document.fingerprint(QUOTA), document.fingerprint("")
    assert world.events("PolicyInForce") == [f"Policy version {new} is in force; before: {old}"]


def test_without_a_configmap_the_defaults_apply(world: World) -> None:
    """That is no error."""
    world.ask(request.delete(CONFIGMAPS, SYSTEM_NAMESPACE, POLICY_CONFIGMAP))
    process = Process(world)
    process.run(1)
    process.stop()

    assert process.loop.may_lead(leads=False)
