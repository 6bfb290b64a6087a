"""What the books remember of each trainer."""

from master.members import Members, Trainer


def test_a_trainer_that_began_anew_is_the_youngest() -> None:
    """Nothing of the process before is left; the others keep their places."""
    members = Members()
    for name in ("a", "b"):
        members.add(name, f"{name}-1").records = 7
    members.add("a", "a-2")

    assert [(one.name, one.incarnation, one.records) for one in members] == [
        ("b", "b-1", 7),
        ("a", "a-2", 0),
    ]
    assert len(members) == 2


def test_leaving_twice_is_fine() -> None:
    """And the others stay."""
    members = Members()
    members.add("a", "a-1")
    members.add("b", "b-1")
    for _ in range(2):
        members.remove("a")

    assert members.find("a") is None
    assert [one.name for one in members] == ["b"]


def test_the_newest_thousand_acknowledgements_are_recognised() -> None:
    """A call that comes again must not count as too late; a job of weeks needs no more memory."""
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
    """64 of them: more than one call tells."""
    members = Members()
    one = members.add("a", "a-1")
    one.held, one.call, one.answer = {"t/99": 3}, 5, {"tasks": []}
    one.records, one.tasks, one.steps, one.failures = 1, 2, 3, 4
    for number in range(65):
        one.acknowledge(f"t/{number}", number)
    found = Members.load(members.dump()).find("a")

    assert found is not None
    assert found.acked == {f"t/{number}": number for number in range(1, 65)}
    assert (found.incarnation, found.held, found.call, found.answer) == (
        "a-1",
        {"t/99": 3},
        5,
        {"tasks": []},
    )
    assert (found.records, found.tasks, found.steps, found.failures) == (1, 2, 3, 4)
