"""The trainers in the ledger."""

from master.trainers import Trainer, TrainerRegistry


def test_a_restarted_trainer_is_the_youngest() -> None:
    """Nothing of its previous process is left; the others keep their places."""
    members = TrainerRegistry()
    for name in ("a", "b"):
        members.add(name, f"{name}-1").records = 7
    members.add("a", "a-2")

    assert [(trainer.name, trainer.incarnation, trainer.records) for trainer in members] == [
        ("b", "b-1", 7),
        ("a", "a-2", 0),
    ]
    assert len(members) == 2


def test_leaving_twice_is_fine() -> None:
    """The others stay."""
    members = TrainerRegistry()
    members.add("a", "a-1")
    members.add("b", "b-1")
    for _ in range(2):
        members.remove("a")

    assert members.find("a") is None
    assert [trainer.name for trainer in members] == ["b"]


def test_the_newest_thousand_acknowledgements_are_recognised() -> None:
    """A repeated call must not count as stale; a job of weeks needs no more memory."""
    trainer = Trainer("a", "a-1")
    for number in range(1024):
        trainer.acknowledge(f"t/{number}", 1)
    assert (len(trainer.acked), "t/0" in trainer.acked) == (1024, True)
    trainer.acknowledge("t/1024", 1)

    assert (len(trainer.acked), "t/0" in trainer.acked, "t/1" in trainer.acked) == (
        1024,
        False,
        True,
    )


def test_snapshots_hold_the_newest_acknowledgements_and_every_count() -> None:
    """64 of them: more than one call reports. Leases are taken from the epochs."""
    members = TrainerRegistry()
    trainer = members.add("a", "a-1")
    trainer.leases, trainer.call, trainer.answer = {"t/99": 3}, 5, {"tasks": []}
    trainer.records, trainer.tasks, trainer.steps, trainer.failures = 1, 2, 3, 4
    for number in range(65):
        trainer.acknowledge(f"t/{number}", number)
    dumped = members.dump()
    registry = TrainerRegistry()
    registry.load(dumped)
    loaded = registry.find("a")

    assert loaded is not None
    assert dumped[0]["held"] == {"t/99": 3}
    assert loaded.acked == {f"t/{number}": number for number in range(1, 65)}
    assert (loaded.incarnation, loaded.leases, loaded.call, loaded.answer) == (
        "a-1",
        {},
        5,
        {"tasks": []},
    )
    assert (loaded.records, loaded.tasks, loaded.steps, loaded.failures) == (1, 2, 3, 4)
