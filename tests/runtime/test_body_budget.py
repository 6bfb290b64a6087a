from runtime.body_budget import BodyBudget


def test_the_body_that_arrives_for_longest_is_given_up() -> None:
    """Slow callers make room for those that send at once."""
    budget: BodyBudget[str] = BodyBudget(100)

    assert budget.take("slow", 40) == []
    assert budget.take("slower", 40) == []
    assert budget.take("quick", 90) == ["slow", "slower"]
    assert budget.take("slow", 10) == []


def test_complete_bodies_count_until_they_are_released() -> None:
    """A thread works on each, so they are not given up."""
    budget: BodyBudget[str] = BodyBudget(100)
    budget.take("first", 100)
    budget.complete("first")

    assert budget.take("second", 1) == ["second"]
    budget.release("first")
    assert budget.take("second", 100) == []


def test_an_empty_body_takes_nothing() -> None:
    """It is complete and released like any other."""
    budget: BodyBudget[str] = BodyBudget(1)
    budget.complete("empty")
    budget.release("empty")

    assert budget.take("full", 1) == []
